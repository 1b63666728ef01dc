"""Policies for inputs: what they decide, and that what is planned so is proved."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.command import Callback, CopyExperts, Prefetch
from splitproof.model.document import dumps, loads
from splitproof.model.graph import Graph
from splitproof.model.plan.allocate import allocate
from splitproof.model.plan.error import PlanError
from splitproof.model.plan.guard import Guard
from splitproof.model.plan.lower import LowerError, lower
from splitproof.model.plan.lowering import PROTOCOLS, Lowering, lower_as
from splitproof.model.plan.overlap import lower_overlapped
from splitproof.model.plan.planner import plan, plan_regimes
from splitproof.model.plan.policy import POLICIES, apply
from splitproof.model.plan.policy.expert_cache import cache_experts
from splitproof.model.plan.transfer import Prepared, Transfers
from splitproof.model.read.model_config import (
    ModelShape,
    ShapeFileError,
    model_schedule,
    read_shapes,
    shape_of,
)
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.verify.check import Options, check

SHAPES = Path(__file__).parents[4] / "shared" / "data" / "model_shapes.json"
needs_shapes = pytest.mark.skipif(
    not SHAPES.is_file(), reason="../shared/data is absent: no model_shapes.json"
)

TINY = ModelShape("tiny", layers=2, dense=0, hidden=64, experts=8, top_k=2, ffn=64)


def tiny(devices: int = 1, tokens: tuple[int, int] = (1, 3)) -> Schedule:
    return plan(model_schedule(TINY, tokens=tokens, devices=devices))


def verdict(schedule: Schedule) -> Verdict:
    return check(loads(dumps(schedule)), Options(seconds=60)).verdict


def decided(schedule: Schedule, policy: str, number: int = 0) -> Transfers:
    return apply(Transfers(schedule), policy, number)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("policy", ["none", "one-ahead", "staging"])
def test_planned_programs_are_proved(devices: int, policy: str) -> None:
    program = allocate(lower_overlapped(decided(tiny(devices), policy, 2)))
    assert verdict(program) is Verdict.PROVED
    found = [c for c in program.program or () if isinstance(c, Prefetch)]
    assert bool(found) == (policy == "staging" or (policy == "one-ahead" and devices == 2))
    assert all(c.queue.endswith(".copy") for c in found)


def test_a_ring_has_so_many_slots() -> None:
    schedule = tiny()
    for slots in (1, 2, 3):
        staged = decided(schedule, "staging", slots).schedule
        places = [off for _, buffer, off in staged.placements if "staging" in buffer]
        assert len(places) == 6 and len(set(places)) == slots


@pytest.mark.parametrize("writes", ["one", "usage:weights", None])
def test_staging_leaves_alone_what_a_callback_rewrites(writes: str | None) -> None:
    schedule = tiny()
    (split, name), *_ = decided(schedule, "staging", 2).brings
    declared = (name,) if writes == "one" else (writes,) if writes is not None else None
    callback = Callback(name="adapt", reads=(), writes=declared)
    splits = list(schedule.splits or ())
    splits[split] = replace(splits[split], callbacks=(callback,))
    found = decided(replace(schedule, splits=tuple(splits)), "staging", 2)
    moved = {name for _, name in found.brings}
    assert name not in moved and bool(moved) == (writes == "one")
    if writes == "one":
        assert verdict(lower_overlapped(found)) is Verdict.PROVED


def test_staging_leaves_alone_what_a_fill_rewrites() -> None:
    """A cache's slot maps lie in host memory as weights do, and change in each pass."""
    graph = model_schedule(TINY, tokens=(1, 2), devices=1)
    cached = plan(cache_experts(graph, 1 << 20, frozenset({Guard.FLOODING})).schedules[0])
    names = {name for split in cached.splits or () for name in split.inputs}
    assert any(name.startswith("slot_map") for name in names)
    found = decided(cached, "staging", 2)
    assert not any(name.startswith("slot_map") for _, name in found.brings)
    assert verdict(lower_overlapped(found)) is Verdict.PROVED


@pytest.mark.parametrize("copies", [1, 2])
def test_selective_copies_are_proved(copies: int) -> None:
    schedule = tiny()
    schedule = replace(schedule, graph=replace(schedule.graph, n_copies=copies))
    program = lower_overlapped(decided(schedule, "used-experts"))
    found = [c for c in program.program or () if isinstance(c, CopyExperts)]
    assert len(found) == 6 * copies
    assert len([c for c in found if c.used_from is None]) == 2 * copies  # one a layer
    assert verdict(program) is Verdict.PROVED


def test_the_first_policy_that_decides_about_an_input_has_the_word() -> None:
    ahead = decided(tiny(2), "one-ahead")
    both = apply(ahead, "used-experts")
    assert ahead.brings and both.brings.items() > ahead.brings.items()
    assert {bring.experts is None for bring in both.brings.values()} == {True, False}
    assert verdict(lower_overlapped(both)) is Verdict.PROVED
    chosen = decided(tiny(), "used-experts")
    assert len(chosen.brings) == 6
    assert apply(chosen, "staging", 2).brings == chosen.brings
    assert apply(decided(tiny(), "staging", 6), "used-experts").idle  # nothing is left for it
    assert [name for name, policy in POLICIES.items() if policy.prepare is not None] == [
        "expert-cache", "expert-cache-ids",
    ]  # fmt: skip


@pytest.mark.parametrize("writes", [("usage:compute",), None, ("the first",)])
def test_what_a_callback_may_write_is_not_copied_before_it(writes: tuple[str, ...] | None) -> None:
    schedule = tiny(2)
    early = decided(schedule, "one-ahead").brings
    split, first = min(early)
    named = writes == ("the first",)
    callback = Callback(name="user", reads=(), writes=(first,) if named else writes)
    splits = list(schedule.splits or ())
    splits[split] = replace(splits[split], callbacks=(callback,))
    called = decided(replace(schedule, splits=tuple(splits)), "one-ahead").brings
    gone = early.keys() - called.keys()
    assert gone == ({(split, first)} if named else {place for place in early if place[0] == split})


# -- the expert cache ------------------------------------------------------------------------------

EACH = 3 * 64 * 68  # bytes of one expert's gate, up and down in q8_0


def banked(
    graph: Schedule, slots: int = 9, *, lowered: bool = True, slot_ids: bool = False
) -> list[Schedule]:
    found = cache_experts(graph, EACH * (slots + 1), slot_ids=slot_ids)
    plans = [p.schedule for s in found.schedules for p in plan_regimes(s)]
    return [lower_overlapped(p) for p in plans] if lowered else plans


def test_cached_programs_are_proved_and_large_batches_go_the_plain_way() -> None:
    small, large = banked(model_schedule(TINY, tokens=(1, 64)))
    assert small.graph.symbols == (("n_tokens", 1, 4),) and len(small.graph.banks) == 6
    assert large.graph.symbols == (("n_tokens", 5, 64),) and large.graph.banks == ()
    assert [c.do for c in small.program or ()].count("fill_bank") == 2
    assert verdict(small) is verdict(large) is Verdict.PROVED
    assert verdict(lower(plan_regimes(replace(small, **_GRAPH))[0].schedule)) is Verdict.PROVED


_GRAPH: dict[str, Any] = {"assignment": (), "splits": None, "placements": (), "program": None}


def test_slots_come_from_the_budget_and_useless_ones_are_refused() -> None:
    graph = model_schedule(TINY, tokens=(1, 1))
    force = frozenset({Guard.FLOODING})
    assert slots_of(cache_experts(graph, EACH * 6)) == {"gpu0.0": 5}
    assert slots_of(cache_experts(graph, EACH * 1000)) == {"gpu0.0": 16}  # all of them
    with pytest.raises(PlanError, match=r"BK011.*2 slots.*3 slots are the least"):
        cache_experts(graph, EACH * 3)
    assert slots_of(cache_experts(graph, EACH * 3, force)) == {"gpu0.0": 2}
    with pytest.raises(PlanError, match="less than one token's experts"):
        cache_experts(graph, EACH, force)


def slots_of(prepared: Prepared) -> dict[str, int]:
    return {bank.group: bank.slots for bank in prepared.schedules[0].graph.banks}


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_flooding_is_refused_up_to_the_bound_and_not_beyond(layers: int) -> None:
    graph = model_schedule(replace(TINY, layers=layers), tokens=(1, 1))
    most = TINY.top_k * (layers - 1)
    for slots in range(TINY.top_k, most + 1):
        with pytest.raises(PlanError, match=rf"BK011.*{most + 1} slots are the least"):
            cache_experts(graph, EACH * (slots + 1))
    assert slots_of(cache_experts(graph, EACH * (most + 2))) == {"gpu0.0": most + 1}
    with pytest.raises(PlanError) as refused:
        cache_experts(graph, EACH * (most + 1))
    due = re.search(r"\((\d+) bytes\)", str(refused.value))
    assert due is not None and slots_of(cache_experts(graph, int(due[1])))  # what is asked for


def test_groups_share_a_devices_bytes_and_not_those_of_another() -> None:
    """Two layouts on one device get half each; each device has the whole budget."""
    two = slots_of(cache_experts(model_schedule(TINY, tokens=(1, 1), devices=2), EACH * 6))
    assert two == {"gpu0.0": 5, "gpu1.1": 5}
    graph = model_schedule(TINY, tokens=(1, 1))
    wide = tuple(
        replace(t, dtype="f32", offset=Expr.of(1 << 24 | k << 20), strides=None)
        if t.name.startswith("blk.1.") and "exps" in t.name
        else t
        for k, t in enumerate(graph.graph.tensors)
    )
    buffers = tuple(replace(b, bytes=1 << 26) for b in graph.graph.buffers)
    mixed = replace(graph, graph=replace(graph.graph, tensors=wide, buffers=buffers))
    budget = 2 * 3 * 64 * 64 * 4 * 4
    assert slots_of(cache_experts(mixed, budget)) == {"gpu0.0": 8, "gpu0.1": 3}  # 8 are all


def test_ggml_has_no_command_that_fills_banks() -> None:
    (schedule,) = banked(model_schedule(TINY, tokens=(1, 2)), lowered=False)
    with pytest.raises(LowerError, match="fills banks in user code"):
        lower_as(schedule, Lowering("ggml"))


def _incapable() -> Schedule:
    """A device that cannot run one of a layer's matmuls."""
    graph = model_schedule(TINY, tokens=(1, 2))
    nodes = tuple(
        replace(n, supported_by=("cpu",)) if n.dst == "ffn_moe_down-1" else n
        for n in graph.graph.nodes
    )
    return replace(graph, graph=replace(graph.graph, nodes=nodes))


def test_a_layer_is_cached_whole_or_not_at_all() -> None:
    (schedule,) = banked(_incapable(), lowered=False)
    assert {bank.layer for bank in schedule.graph.banks} == {0}
    nothing = cache_experts(model_schedule(TINY, tokens=(40, 64)), EACH * 10)
    assert "n_tokens is 40 or more" in nothing.idle


# -- choices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_and_place_of_a_small_model(protocol: str) -> None:
    for place in ("own", "order"):
        lowered = lower_as(tiny(), Lowering(protocol, place=place))
        assert lowered.idle == ()
        assert lowered.schedule.level == "program"


def test_choices_that_do_not_go_together_are_errors() -> None:
    with pytest.raises(PlanError, match="need overlapped"):
        lower_as(tiny(), Lowering("ggml", copy_experts=True))
    with pytest.raises(PlanError, match="one of plain, overlapped"):
        lower_as(tiny(), Lowering("gmgl"))
    with pytest.raises(PlanError, match="1 slot or more"):
        decided(tiny(), "staging", 0)
    for name in ("two-ahead", "expert-cache"):
        with pytest.raises(PlanError, match="one of none, one-ahead, staging, used-experts was"):
            decided(tiny(), name)


def test_what_has_no_effect_is_told() -> None:
    schedule = tiny()
    slow = tuple(replace(d, queues=d.queues[:1]) for d in schedule.graph.devices)
    schedule = replace(schedule, graph=replace(schedule.graph, devices=slow))
    lowered = lower_as(schedule, Lowering("overlapped", "staging", 2))
    assert len(lowered.idle) == 1 and "no device with a second queue" in lowered.idle[0]


# -- models ----------------------------------------------------------------------------------------


@needs_shapes
def test_there_are_24_shapes() -> None:
    assert len(read_shapes(SHAPES)) == 24


def test_a_row_that_lacks_a_size_is_named() -> None:
    with pytest.raises(ShapeFileError, match="m: n_layers, hidden_size"):
        shape_of({"model": "m", "n_experts": 4, "top_k": 2, "expert_ffn_size": 64})


def test_a_model_has_its_layers_on_its_devices() -> None:
    schedule = tiny(2)
    graph: Graph = schedule.graph
    assert [t.name for t in graph.tensors if t.output] == ["l_out-1"]
    homes = {d for n, d in schedule.assignment if n.startswith("attn_out")}
    assert homes == {"gpu0", "gpu1"}
