"""What every plan guarantees, each written down once, on random graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_graphs import MOST_TOKENS, random_schedule
from plan_oracle import Oracle
from splitproof.model.ops import OPS
from splitproof.model.plan.assign import Cause
from splitproof.model.plan.error import PlanError
from splitproof.model.plan.lower import lower
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import plan, plan_regimes, unplanned
from splitproof.model.schedule import Schedule

#: A random schedule with the number of tokens that it is planned for.
CASES = st.tuples(st.integers(0, 2**40), st.integers(1, 30), st.integers(1, MOST_TOKENS))
many = settings(max_examples=250, deadline=None)


def plan_of(case: tuple[int, int, int]) -> Schedule | None:
    """The plan, or nothing where none exists."""
    seed, size, tokens = case
    try:
        return plan(random_schedule(seed, size), at={"n_tokens": tokens})
    except PlanError:
        return None


def facts(schedule: Schedule) -> Oracle:
    """The oracle's reading of the graph, with the plan's devices."""
    oracle = Oracle(schedule.graph, {name: low for name, low, _ in schedule.graph.symbols})
    oracle.on = dict(schedule.assignment)
    return oracle


def reads(schedule: Schedule) -> Iterator[tuple[int, str, str]]:
    """(split, its device, source) for each source of each node with a command."""
    for k, split in enumerate(schedule.splits or ()):
        for node in schedule.graph.nodes[split.start : split.end]:
            if not OPS[node.op].view:
                yield from ((k, split.device, source) for source in node.src)


@many
@given(CASES)
def test_every_node_has_a_device(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        assert all(found.device_of(node.dst) is not None for node in found.graph.nodes)


@many
@given(CASES)
def test_a_device_supports_what_it_runs_unless_pinned(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        oracle = facts(found)
        for node in found.graph.nodes:
            if OPS[node.op].view or found.graph.tensor(node.dst).pin is not None:
                continue
            assert oracle.supports(found.graph.device(found.device_of(node.dst)), node)


@many
@given(CASES)
def test_a_pin_is_kept_but_for_a_better_device_of_its_memory(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        order = [d.name for d in found.graph.devices]
        for node in found.graph.nodes:
            pin, device = found.graph.tensor(node.dst).pin, found.device_of(node.dst)
            if pin is None or device == pin:
                continue
            assert order.index(device) < order.index(pin)
            assert found.graph.device(device).memory == found.graph.device(pin).memory


@many
@given(CASES)
def test_splits_partition_the_nodes_by_device(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        splits = found.splits or ()
        assert [s.start for s in splits] == [0, *(s.end for s in splits[:-1])]
        assert splits[-1].end == len(found.graph.nodes)
        for split in splits:
            for node in found.graph.nodes[split.start : split.end]:
                if not OPS[node.op].view:
                    assert found.device_of(node.dst) == split.device


@many
@given(CASES)
def test_every_source_is_readable_or_copied_in_by_then(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        oracle, splits = facts(found), found.splits or ()
        for k, device, source in reads(found):
            if found.device_of(source) == device or oracle.reads(
                found.graph.device(device), source
            ):
                continue
            earlier = [s for s in splits[: k + 1] if s.device == device]
            assert any(source in s.inputs for s in earlier)


@many
@given(CASES)
def test_an_input_has_a_reader_and_is_copied_once(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        read = {(k, source) for k, _, source in reads(found)}
        copied = [(s.device, i) for s in found.splits or () for i in s.inputs]
        assert len(copied) == len(set(copied))
        for k, split in enumerate(found.splits or ()):
            assert all((k, name) in read for name in split.inputs)


@many
@given(CASES)
def test_a_placed_result_stays_where_it_is_readable(case: tuple[int, int, int]) -> None:
    seed, size, tokens = case
    try:
        (found,) = plan_regimes(
            random_schedule(seed, size), PlanOptions(at=(("n_tokens", tokens),))
        )
    except PlanError:
        return
    graph, arrays = found.schedule.graph, found.decision.arrays
    for i, node in enumerate(graph.nodes):
        base = graph.base(node.dst)
        # The upgrade asks for the memories of the sources only; ggml's does, too.
        upgraded = found.decision.assignment.cause[arrays.node[i]] == Cause.UPGRADE
        if base.buffer is None or graph.tensor(node.dst).pin is not None or upgraded:
            continue
        device = graph.device(found.schedule.device_of(node.dst))
        assert graph.buffer(base.buffer).memory in device.reads


@many
@given(CASES)
def test_planning_leaves_its_input_as_it_is_and_repeats_itself(case: tuple[int, int, int]) -> None:
    seed, size, tokens = case
    schedule = random_schedule(seed, size)
    found = plan_of(case)
    if found is not None:
        assert schedule == random_schedule(seed, size)
        assert plan(schedule, at={"n_tokens": tokens}) == found


@many
@given(CASES)
def test_a_second_plan_changes_nothing(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        assert plan(found) == found
        assert plan(unplanned(found)) == found


@many
@given(CASES)
def test_pinned_to_its_own_plan_nothing_moves(case: tuple[int, int, int]) -> None:
    """Unless devices share a memory: a source that is known earlier lets a node upgrade."""
    found = plan_of(case)
    if found is not None and len({d.memory for d in found.graph.devices}) == len(
        found.graph.devices
    ):
        again = plan(unplanned(found), PlanOptions(pins=found.assignment))
        assert again.splits == found.splits
        for node in found.graph.nodes:
            assert again.device_of(node.dst) == found.device_of(node.dst)


@many
@given(CASES)
def test_a_plan_can_be_lowered(case: tuple[int, int, int]) -> None:
    if (found := plan_of(case)) is not None:
        computed = [c.node for c in lower(found).program or () if c.do == "compute"]
        assert computed == [n.dst for n in found.graph.nodes if not OPS[n.op].view]


def test_one_device_needs_one_split() -> None:
    schedule = random_schedule(1, 20)
    cpu = schedule.graph.devices[-1]
    cpu = replace(cpu, ops=None, deny=(), reads=tuple(m.name for m in schedule.graph.memories))
    nodes = tuple(replace(n, supported_by=None, wanted_by=None) for n in schedule.graph.nodes)
    tensors = tuple(replace(t, pin=None) for t in schedule.graph.tensors)
    graph = replace(schedule.graph, devices=(cpu,), nodes=nodes, tensors=tensors)
    found = plan(replace(schedule, graph=graph))
    assert [(s.start, s.end, s.inputs) for s in found.splits or ()] == [(0, 20, ())]


def test_a_planned_schedule_takes_no_options() -> None:
    found = next(p for seed in range(50) if (p := plan_of((seed, 5, 4))) is not None)
    with pytest.raises(PlanError, match="at the split level already"):
        plan(found, PlanOptions(n_copies=2))
