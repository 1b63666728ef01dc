"""Errors, options, regimes, overrides and reasons, on small graphs by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from splitproof.model.device import Buffer, Device, Memory, OpPattern, SizeRange, Usage
from splitproof.model.document import dumps, loads
from splitproof.model.graph import Bank, Graph, Node
from splitproof.model.plan.error import PlanError
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import plan, plan_regimes
from splitproof.model.plan.remedy import Change, Remedy
from splitproof.model.plan.why import why
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Condition, Expr
from splitproof.model.tensor import Tensor

GPU = Device("gpu", "vram", ("vram",))
CPU = Device("cpu", "host", ("host",))
WIDE = "blk.0.ffn_up_exps.weight"


def size(*shape: int | str) -> tuple[Expr, ...]:
    return tuple(map(Expr.of, shape))


def graph(**change: Any) -> Graph:
    """x → norm (weight n on the device) → experts (weights in host memory) → y."""
    facts: dict[str, Any] = {
        "symbols": (("n_tokens", 1, 512),),
        "memories": (Memory("host", True), Memory("vram")),
        "devices": (GPU, CPU),
        "buffers": (
            Buffer("wh", "host", Usage.WEIGHTS, 65536),
            Buffer("wd", "vram", Usage.WEIGHTS, 65536),
            Buffer("kv", "vram", Usage.ANY, 65536),
        ),
        "tensors": (
            Tensor("x", shape=size(32, "n_tokens"), input=True),
            Tensor("ids", "i32", size(2, "n_tokens"), input=True, values=(0, 4)),
            Tensor("n", shape=size(32), buffer="wd", offset=Expr.of(0)),
            Tensor(WIDE, shape=size(32, 32, 4), buffer="wh", offset=Expr.of(256)),
            Tensor("small", shape=size(32), buffer="wh", offset=Expr.of(0)),
            Tensor("h", shape=size(32, "n_tokens")),
            Tensor("h3", shape=size(32, 1, "n_tokens"), view_of="h", offset=Expr.of(0)),
            Tensor("up", shape=size(32, 2, "n_tokens")),
            Tensor("y", shape=size(32, 2, "n_tokens"), output=True),
        ),
        "nodes": (
            Node("mul", "h", ("x", "n")),
            Node("reshape", "h3", ("h",)),
            Node("mul_mat_id", "up", (WIDE, "h3", "ids")),
            Node("silu", "y", ("up",)),
        ),
    }
    return Graph(**{**facts, **change})


def schedule(**change: Any) -> Schedule:
    return Schedule(graph=graph(**change), name="layer")


def devices(found: Schedule) -> list[str | None]:
    return [found.device_of(n.dst) for n in found.graph.nodes]


# -- errors ---------------------------------------------------------------------------------------


def test_a_placed_result_that_nobody_can_compute() -> None:
    placed = replace(graph().tensor("up"), buffer="kv", offset=Expr.of(0))
    tensors = tuple(placed if t.name == "up" else t for t in graph().tensors)
    gpu = replace(GPU, deny=(OpPattern("mul_mat_id"),))
    with pytest.raises(PlanError) as error:
        plan(schedule(tensors=tensors, devices=(gpu, CPU)), at={"n_tokens": 4})
    assert (error.value.tensor, error.value.buffer, error.value.op) == ("up", "kv", "mul_mat_id")
    assert "'kv' (memory 'vram')" in str(error.value)


def test_an_op_that_nobody_supports() -> None:
    fussy = tuple(replace(d, deny=(OpPattern("silu"),)) for d in (GPU, CPU))
    with pytest.raises(PlanError) as error:
        plan(schedule(devices=fussy), at={"n_tokens": 4})
    assert (error.value.tensor, error.value.op) == ("y", "silu")


def test_a_source_whose_base_nothing_knows() -> None:
    base, view = Tensor("base", shape=size(32)), Tensor("v", shape=size(32), view_of="base")
    nodes = (Node("mul", "h", ("x", "v")),)
    tensors = (*graph().tensors, base, view)
    with pytest.raises(PlanError, match="a view of 'base'") as error:
        plan(schedule(tensors=tensors, nodes=nodes), at={"n_tokens": 1})
    assert error.value.tensor == "v"


def test_an_input_list_that_may_not_grow() -> None:
    options = PlanOptions(at=(("n_tokens", 64),), split_inputs=2, grows=False)
    many = tuple(Tensor(f"i{k}", shape=size(32), input=True) for k in range(3))
    nodes = (Node("mul", "h", ("x", "n")), Node("custom", "y", tuple(t.name for t in many)))
    found = schedule(tensors=(*graph().tensors, *many), nodes=nodes)
    with pytest.raises(PlanError, match=r"'i1' does not fit.*2 places") as error:
        plan(found, options)
    assert error.value.tensor == "i1"
    (split,) = plan(found, replace(options, grows=True)).splits or ()
    assert split.inputs == ("x", "i0", "i1", "i2")


def test_no_devices() -> None:
    with pytest.raises(PlanError, match="no devices"):
        plan(schedule(devices=()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PlanOptions(at=(("n_token", 4),)), 'no such symbol (did you mean "n_tokens"?)'),
        (PlanOptions(at=(("n_tokens", 513),)), "at n_tokens=513: 1 to 512 was due"),
        (PlanOptions(pins=(("upp", "gpu"),)), 'there is no tensor "upp" (did you mean "up"?)'),
        (PlanOptions(pins=(("up", "tpu"),)), "pin up=tpu: no such device"),
        (PlanOptions(overrides=(("exps", "hots"),)), 'no memory "hots" (did you mean "host"?)'),
        (PlanOptions(overrides=(("(", "host"),)), "not a regular expression"),
        (PlanOptions(n_copies=0), "n_copies 0: 1 or more was due"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(options: PlanOptions, message: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_regimes(schedule(), options)
    assert message in str(error.value)


def test_a_size_that_nobody_knows() -> None:
    blind = Tensor("up", about=True, bytes=256)
    tensors = tuple(blind if t.name == "up" else t for t in graph().tensors)
    with pytest.raises(PlanError, match="only the size in bytes is known") as error:
        plan(schedule(tensors=tensors), at={"n_tokens": 4})
    assert error.value.tensor == "up"


# -- symbols --------------------------------------------------------------------------------------


def test_offload_cuts_the_range_where_the_batch_is_reached() -> None:
    few, many = plan_regimes(schedule())
    assert few.schedule.graph.ranges == {"n_tokens": (1, 31)}
    assert many.schedule.graph.ranges == {"n_tokens": (32, 512)}
    assert few.schedule.device_of("up") == "cpu"
    assert many.schedule.device_of("up") == "gpu"
    assert few.cuts == many.cuts
    (cut,) = few.cuts
    assert (cut.symbol, cut.value, cut.kind, cut.about) == ("n_tokens", 32, "offload", "up")
    assert cut.question == "n_tokens >= 32"
    assert many.schedule.name == "layer [n_tokens = 32..512]"


def test_each_value_is_planned_as_its_regime() -> None:
    regimes = plan_regimes(schedule())
    for value in (1, 31, 32, 512):
        (here,) = [r for r in regimes if _holds(r.schedule, value)]
        found = plan(schedule(), at={"n_tokens": value})
        assert found.splits == here.schedule.splits
        assert found.graph.ranges == {"n_tokens": (value, value)}


def _holds(found: Schedule, value: int) -> bool:
    low, high = found.graph.ranges["n_tokens"]
    return low <= value <= high


def test_several_regimes_are_no_single_plan() -> None:
    with pytest.raises(PlanError, match=r"2 plans are needed.*n_tokens = 32 \(n_tokens >= 32\)"):
        plan(schedule())


def test_a_cut_that_changes_nothing_is_no_cut() -> None:
    (found,) = plan_regimes(schedule(devices=(replace(GPU, deny=(OpPattern("mul_mat_id"),)), CPU)))
    assert found.cuts == ()
    assert found.schedule.graph.ranges == {"n_tokens": (1, 512)}


def test_a_capability_with_bounds_cuts() -> None:
    small = OpPattern("mul_mat_id", (), (("src1", 2, SizeRange(None, 100)),))
    gpu = replace(GPU, ops=(OpPattern("mul"), OpPattern("silu"), small))
    found = plan_regimes(schedule(devices=(gpu, CPU)))
    spans = [p.schedule.graph.ranges["n_tokens"] for p in found]
    assert spans == [(1, 31), (32, 100), (101, 512)]
    assert [p.schedule.device_of("up") for p in found] == ["cpu", "gpu", "cpu"]
    assert [(c.value, c.kind, c.device) for c in found[1].cuts] == [
        (32, "offload", "gpu"), (101, "capability", "gpu"),
    ]  # fmt: skip


def test_guards_cut_and_what_never_exists_is_left_out() -> None:
    nodes = graph().nodes
    small = replace(nodes[3], when=Condition.of("2*n_tokens <= 40"))
    big = Node("custom", "z", ("up",), when=Condition.of("n_tokens > 20 and pass % 2 == 1"))
    tensors = (*graph().tensors, Tensor("z", shape=size(32, 2, "n_tokens")))
    found = plan_regimes(schedule(nodes=(*nodes[:3], small, big), tensors=tensors))
    assert found[0].schedule.graph.ranges == {"n_tokens": (1, 20)}
    assert [n.dst for n in found[0].schedule.graph.nodes] == ["h", "h3", "up", "y"]
    assert all("z" not in [n.dst for n in p.schedule.graph.nodes] for p in found)  # one pass only


def test_a_bank_is_there_where_its_guard_holds() -> None:
    tensors = (
        *graph().tensors,
        Tensor("bank", shape=size(32, 32, 3), buffer="kv", offset=Expr.of(0)),
        Tensor("slots", "i32", size(2, "n_tokens")),
    )
    bank = Bank("bank", WIDE, 0, "up", "g", 2, "ids", slot_ids="slots",
                when=Condition.of("n_tokens <= 4"))  # fmt: skip
    found = plan_regimes(schedule(tensors=tensors, banks=(bank,)))
    assert [(p.schedule.graph.ranges["n_tokens"], len(p.schedule.graph.banks)) for p in found] == [
        ((1, 4), 1), ((5, 31), 0), ((32, 512), 0),
    ]  # fmt: skip


def test_two_symbols_at_once_need_a_value() -> None:
    tensors = tuple(
        replace(t, shape=size(32, 2, "n_tokens + n_seqs")) if t.name == "up" else t
        for t in graph().tensors
    )
    both = schedule(tensors=tensors, symbols=(("n_tokens", 1, 64), ("n_seqs", 1, 64)))
    with pytest.raises(PlanError, match="n_seqs and n_tokens at once"):
        plan_regimes(both)
    found = plan_regimes(both, PlanOptions(at=(("n_seqs", 2),)))
    assert [p.schedule.graph.ranges["n_tokens"] for p in found] == [(1, 29), (30, 64)]


# -- options --------------------------------------------------------------------------------------

FEW = (("n_tokens", 4),)


def test_offload_off_minimum_and_pins() -> None:
    def up(**options: Any) -> str | None:
        (found,) = plan_regimes(schedule(), PlanOptions(at=(("n_tokens", 64),), **options))
        return found.schedule.device_of("up")

    assert up() == "gpu"
    assert up(op_offload=False) == "cpu"
    assert up(offload_min_tokens=65) == "cpu"
    assert up(pins=(("up", "cpu"),)) == "cpu"


def test_copies_make_passes() -> None:
    found = plan(schedule(), PlanOptions(n_copies=3, at=FEW))
    assert (found.graph.n_copies, found.repeat) == (3, 4)


def test_an_override_moves_weights_and_the_rest_closes_up() -> None:
    options = PlanOptions(at=FEW, overrides=(("ffn_.*_exps", "vram"), ("exps", "host")))
    (found,) = plan_regimes(schedule(), options)
    moved, kept = found.schedule.graph.tensor(WIDE), found.schedule.graph.tensor("small")
    assert found.schedule.graph.buffer(moved.buffer or "").memory == "vram"
    assert (kept.buffer, kept.offset) == ("wh", Expr.of(0))
    assert found.schedule.graph.buffer("wh").bytes == 128
    assert found.schedule.device_of("up") == "gpu"
    (idle,) = found.findings
    assert idle.rule == "PL006" and "override exps=host moves nothing" in idle.message
    assert loads(dumps(found.schedule)) == found.schedule


@pytest.mark.parametrize("layers", [1, None])
def test_the_experts_of_some_layers_and_of_all(layers: int | None) -> None:
    on_device = tuple(
        replace(t, buffer="wd", offset=Expr.of(256)) if t.name == WIDE else t
        for t in graph().tensors
    )
    base = schedule(tensors=on_device)
    assert plan(base).device_of("up") == "gpu"
    found = plan(base, PlanOptions(cpu_moe=layers, at=FEW))
    assert found.graph.buffer(found.graph.tensor(WIDE).buffer or "").memory == "host"
    assert found.device_of("up") == "cpu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PlanOptions(at=FEW, overrides=(("nothing", "host"),)), "no tensor has such a name"),
        (PlanOptions(at=FEW, overrides=(("^up$", "host"),)), '"up" is no weight'),
        (PlanOptions(at=FEW, overrides=(("small", "host"),)), "lie in host already"),
        (PlanOptions(at=FEW, pins=(("h", "gpu"),)), "pin h=gpu changes no device and no split"),
        (PlanOptions(at=FEW, op_offload=False), "op_offload false changes no device"),
        (PlanOptions(at=FEW, offload_min_tokens=5), "offload_min_tokens 5 changes no device"),
    ],
)
def test_what_has_no_effect_is_said(options: PlanOptions, message: str) -> None:
    (found,) = plan_regimes(schedule(), options)
    (finding,) = found.findings
    assert finding.rule == "PL006"
    assert message in finding.message


def test_what_has_an_effect_is_not_said() -> None:
    options = PlanOptions(at=(("n_tokens", 64),), pins=(("up", "cpu"),), cpu_moe=0)
    assert plan_regimes(schedule(), options)[0].findings == ()


def test_weights_that_share_bytes_cannot_be_moved() -> None:
    twin = Tensor("twin", shape=size(32), buffer="wh", offset=Expr.of(512))
    both = schedule(tensors=(*graph().tensors, twin))
    with pytest.raises(PlanError, match="share bytes of buffer 'wh'"):
        plan(both, PlanOptions(at=FEW, overrides=(("exps", "vram"),)))


# -- reasons --------------------------------------------------------------------------------------


def test_reasons_of_nodes_and_splits() -> None:
    (found,) = plan_regimes(schedule(), PlanOptions(at=FEW))
    reasons = why(found)
    assert [(n.node, n.device, n.step, n.cause, n.recorded, n.led_by) for n in reasons.nodes] == [
        ("h", "gpu", 1, "weight", "1.wgt1", "n"),
        ("up", "cpu", 1, "weight", "1.wgt0", WIDE),
        ("y", "cpu", 2, "rest_down", "2.sup", "up"),
    ]
    first, second = reasons.splits
    assert (first.begins, first.made_by, first.remedies) == ("graph", None, ())
    assert [(c.tensor, c.bytes, c.memory, c.weight) for c in first.crossing] == [
        ("x", 512, "host", False)
    ]
    assert (second.begins, second.node, second.device) == ("device", "up", "cpu")
    assert [(c.tensor, c.bytes) for c in second.crossing] == [("h3", 512)]
    assert Remedy((Change("placement", "gpu", (WIDE,)),), 1) in second.remedies
    assert Remedy((Change("pin", "cpu", ("h",)),), 1) in second.remedies
    assert reasons.bytes == 1024


def test_a_capability_that_would_remove_a_split() -> None:
    gpu = replace(GPU, deny=(OpPattern("silu"),))
    (found,) = plan_regimes(schedule(devices=(gpu, CPU)), PlanOptions(at=(("n_tokens", 64),)))
    last = why(found).splits[-1]
    assert (last.device, last.node) == ("cpu", "y")
    assert Remedy((Change("capability", "gpu", ("silu",)),), 2) in last.remedies


def test_a_weight_that_is_brought_and_a_list_that_is_full() -> None:
    (found,) = plan_regimes(schedule(), PlanOptions(at=(("n_tokens", 64),)))
    brought = why(found).splits[1]
    assert (brought.begins, brought.made_by) == ("weight", WIDE)
    assert [c.weight for c in brought.crossing] == [True, False]
    assert Remedy((Change("placement", "gpu", (WIDE,)),), 1) in brought.remedies

    vram = PlanOptions(at=FEW, overrides=(("exps", "vram"),), split_inputs=1)
    (full,) = plan_regimes(schedule(), vram)
    split = why(full, vram).splits[1]
    assert (split.begins, split.made_by) == ("full", "ids")
    assert split.remedies == (Remedy((Change("list", "gpu", ()),), 1),)


def test_two_changes_that_do_it_only_together() -> None:
    """The wide product runs on the CPU for two reasons: its weight, and that the GPU cannot."""
    gpu = replace(GPU, deny=(OpPattern("mul_mat_id"),))
    (found,) = plan_regimes(schedule(devices=(gpu, CPU)), PlanOptions(at=FEW, pins=(("y", "gpu"),)))
    split = next(s for s in why(found).splits if s.node == "up")
    able = Change("capability", "gpu", ("mul_mat_id",))
    moved = Change("placement", "gpu", (WIDE,))
    assert Remedy((able, moved), 1) in split.remedies
    gone = [r for r in split.remedies if r.changes[0].device == "gpu"]
    assert {len(remedy.changes) for remedy in gone} == {2}


def test_effort_has_an_end() -> None:
    (found,) = plan_regimes(schedule(), PlanOptions(at=FEW))
    assert {r.splits for s in why(found, effort=0).splits for r in s.remedies} == {None}
