"""The planner against a slow transcription of the rules, on random graphs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import MOST_TOKENS, GraphMaker, random_schedule
from plan_oracle import Abort, Oracle
from splitproof.model.device import Device, Memory
from splitproof.model.graph import Graph, Node
from splitproof.model.plan.assign import recorded_name
from splitproof.model.plan.error import PlanError
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import Planned, plan, plan_regimes
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor

SEEDS = st.integers(0, 2**40)


def planned(
    schedule: Schedule, tokens: int, *, limit: int = 30, compiled: bool | None = None
) -> Planned:
    options = PlanOptions(at=(("n_tokens", tokens),), split_inputs=limit)
    (found,) = plan_regimes(schedule, options, compiled=compiled)
    return found


def agree(schedule: Schedule, tokens: int, limit: int = 30) -> str:
    """Hold planner and oracle equal; says how it went: ``planned`` or ``aborted``."""
    oracle = Oracle(schedule.graph, {"n_tokens": tokens}, limit)
    try:
        oracle.run()
        parts = oracle.split()
    except Abort as abort:
        with pytest.raises(PlanError) as error:
            planned(schedule, tokens, limit=limit)
        assert error.value.tensor == abort.args[0]
        return "aborted"
    found = planned(schedule, tokens, limit=limit)
    assert dict(found.schedule.assignment) == oracle.on
    names = [t.name for t in schedule.graph.tensors]
    causes = {
        n: recorded_name(c) for n, c in zip(names, found.decision.assignment.cause, strict=True)
    }
    assert {n: causes[n] for n in oracle.on} == oracle.cause
    splits = [(s.device, s.start, s.end, list(s.inputs)) for s in found.schedule.splits or ()]
    assert splits == [(p.device, p.start, p.end, p.inputs) for p in parts]
    return "planned"


@settings(max_examples=2000, deadline=None)
@given(seed=SEEDS, size=st.integers(1, 30), tokens=st.integers(1, MOST_TOKENS))
def test_planner_equals_oracle(seed: int, size: int, tokens: int) -> None:
    agree(random_schedule(seed, size), tokens)


@settings(max_examples=150, deadline=None)
@given(rng=st.randoms(use_true_random=False), size=st.integers(1, 8))
def test_planner_equals_oracle_on_graphs_that_shrink(rng: Random, size: int) -> None:
    agree(GraphMaker(rng, size).schedule(), rng.randint(1, MOST_TOKENS))


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, size=st.integers(10, 40), limit=st.integers(1, 4))
def test_full_input_lists(seed: int, size: int, limit: int) -> None:
    agree(random_schedule(seed, size), 8, limit)


def test_the_random_graphs_reach_every_rule() -> None:
    """What the comparison above is worth: all causes, all beginnings, and both kinds of end."""
    causes: set[str] = set()
    begins: set[int] = set()
    ends: set[str] = set()
    shared = 0
    for seed in range(400):
        schedule = random_schedule(seed, 25)
        ends.add(agree(schedule, 16, 3))
        try:
            found = planned(schedule, 16, limit=3)
        except PlanError:
            continue
        causes |= {recorded_name(c) for c in found.decision.assignment.cause}
        begins |= set(found.decision.splits.begins[: found.decision.count])
        copied = [(s.device, i) for s in found.schedule.splits or () for i in s.inputs]
        shared += len(copied) != len(set(copied))
    assert causes >= {
        "usr", "1.dst", "1.inp", "1.off", "1.wgt0", "1.wgt1", "2.sup", "3.best", "3.upg",
        "4.vsrc", "4.cur",
    }  # fmt: skip
    assert begins == {0, 1, 2, 3}
    assert ends == {"planned", "aborted"}
    assert shared == 0


@settings(max_examples=200, deadline=None)
@given(seed=SEEDS, size=st.integers(1, 40), limit=st.integers(1, 30))
def test_compiled_twin_equals_plain(seed: int, size: int, limit: int) -> None:
    schedule = random_schedule(seed, size)
    results = []
    for compiled in (False, True):
        try:
            found = planned(schedule, 16, limit=limit, compiled=compiled)
        except PlanError as error:
            results.append(str(error))
        else:
            d = found.decision
            results.append(
                (found.schedule, *map(list, d.assignment), *map(list, d.splits), d.count)
            )
    assert results[0] == results[1]


def test_more_devices_than_a_machine_word_has_bits() -> None:
    schedule = random_schedule(3, 20)
    cpu = schedule.graph.devices[-1]
    many = tuple(replace(cpu, name=f"x{k}", memory="m2", reads=("m2",)) for k in range(70))
    graph = replace(schedule.graph, devices=(*many, *schedule.graph.devices))
    agree(replace(schedule, graph=graph), 8)


def test_large_graphs_are_planned_by_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from splitproof.model.plan import decide

    cpu = Device("cpu", "host", ("host",))
    nodes = tuple(Node("custom", f"n{k}") for k in range(60))
    tensors = tuple(Tensor(n.dst, "f32", (Expr.of(4),)) for n in nodes)
    host = Memory("host", True)
    schedule = Schedule(Graph(memories=(host,), devices=(cpu,), tensors=tensors, nodes=nodes))
    seen = []
    monkeypatch.setattr(decide, "LARGE", 50)
    monkeypatch.setattr(decide, "_compiled", lambda g, o: seen.append(1) or decide._plain(g, o))
    plan(schedule)
    assert seen == [1]
