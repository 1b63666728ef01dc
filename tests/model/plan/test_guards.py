"""Each guard of the planner: with it the program is proved, without it the named rule is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import splitproof
from splitproof.api import execute_finding
from splitproof.exec.evidence import examine
from splitproof.model.command import Callback, Prefetch
from splitproof.model.device import InPlace
from splitproof.model.document import dumps, loads
from splitproof.model.graph import Node
from splitproof.model.plan.error import PlanError
from splitproof.model.plan.guard import GUARDS, NONE_OFF, Guard, Off
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import plan, plan_regimes
from splitproof.model.plan.policy.expert_cache import cache_experts
from splitproof.model.read.model_config import ModelShape, model_schedule
from splitproof.model.report import Finding, Kind, Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor
from splitproof.verify.rules.table import RULES

TINY = ModelShape("tiny", layers=2, dense=0, hidden=64, experts=8, top_k=2, ffn=64)
#: bytes of one expert's gate, up and down in q8_0
EACH = 3 * 64 * 68

ROOT = Path(__file__).parents[3]
Planned = Callable[[Off], Schedule]


def graph(devices: int = 1, tokens: tuple[int, int] = (1, 3)) -> Schedule:
    return model_schedule(TINY, tokens=tokens, devices=devices)


def tiny(devices: int = 1) -> Schedule:
    return plan(graph(devices))


def lowered(
    schedule: Schedule, off: Off, prefetch: str = "none", slots: int = 2, **choices: Any
) -> Schedule:
    choice = Lowering("overlapped", prefetch, slots, off=off, **choices)
    return lower_as(schedule, choice).schedule


def cached(
    schedule: Schedule, off: Off, slots: int = 9, *, slot_ids: bool = False, **choices: Any
) -> Schedule:
    budget = EACH * (slots + 1)
    small = cache_experts(schedule, budget, off, slot_ids=slot_ids).schedules[0]
    return lowered(plan_regimes(small, PlanOptions(off=off))[0].schedule, off, **choices)


def with_callback(schedule: Schedule, split: int, *writes: str) -> Schedule:
    callback = Callback(name="user", reads=(), writes=writes)
    splits = list(schedule.splits or ())
    splits[split] = replace(splits[split], callbacks=(callback,))
    return replace(schedule, splits=tuple(splits))


def bringing(schedule: Schedule, name: str) -> int:
    """The split that lists a tensor."""
    return next(k for k, s in enumerate(schedule.splits or ()) if name in s.inputs)


def with_nodes(schedule: Schedule, change: Callable[[Node], Node]) -> Schedule:
    nodes = tuple(change(node) for node in schedule.graph.nodes)
    return replace(schedule, graph=replace(schedule.graph, nodes=nodes))


def custom(*steps: tuple[str, ...]) -> Schedule:
    """Two accelerators and the CPU, and nodes ``(name, device, sources)``; the last one is the
    output of the graph, and ``x`` its input."""
    schedule = graph(2, (1, 1))
    size = (Expr.of(64),)
    tensors = [Tensor("x", "f32", size, input=True)]
    tensors += [Tensor(name, "f32", size, pin=device) for name, device, *_ in steps]
    tensors[-1] = replace(tensors[-1], output=True)
    nodes = tuple(Node("custom", name, tuple(sources)) for name, _, *sources in steps)
    changed = replace(schedule.graph, tensors=tuple(tensors), nodes=nodes, buffers=())
    return replace(schedule, graph=changed)


def over_reading(schedule: Schedule) -> Schedule:
    """Devices whose kernels read 256 bytes past an expert."""
    devices = tuple(
        replace(d, over_read=(("mul_mat_id", "q8_0", 256),)) for d in schedule.graph.devices
    )
    return replace(schedule, graph=replace(schedule.graph, devices=devices))


# -- prefetch --------------------------------------------------------------------------------------

GATE, UP, DOWN = (f"blk.0.ffn_{role}_exps.weight" for role in ("gate", "up", "down"))


def usage(off: Off) -> Schedule:
    """User code loads a weight just before the split that reads it."""
    schedule = tiny()
    return lowered(with_callback(schedule, bringing(schedule, GATE), GATE), off, "one-ahead")


def not_written(off: Off) -> Schedule:
    return lowered(tiny(2), off, "one-ahead")


def through_views(off: Off) -> Schedule:
    """The running split overwrites, in place, what the next one is brought under another name."""
    return lowered(plan(_in_place()), off, "one-ahead")


def _in_place() -> Schedule:
    schedule = custom(
        ("a", "gpu0", "x"), ("b", "cpu", "x"), ("over a", "gpu0", "a", "b"), ("y", "gpu1", "again")
    )
    changes = {"over a": "a", "again": "a"}
    tensors = tuple(
        replace(t, view_of="a", offset=Expr.of(0)) if t.name in changes else t
        for t in (*schedule.graph.tensors, Tensor("again", "f32", (Expr.of(64),)))
    )
    nodes = list(schedule.graph.nodes)
    nodes.insert(3, Node("view", "again", ("a",)))
    devices = tuple(replace(d, in_place=(InPlace("custom", 0),)) for d in schedule.graph.devices)
    changed = replace(schedule.graph, devices=devices, tensors=tensors, nodes=tuple(nodes))
    return replace(schedule, graph=changed)


def host_writes(off: Off) -> Schedule:
    """User code changes a computed tensor just before the split that it is copied to."""
    schedule = tiny(2)
    moved = next(
        c for c in lowered(schedule, NONE_OFF, "one-ahead").program or () if isinstance(c, Prefetch)
    )
    assert moved.for_split is not None
    return lowered(with_callback(schedule, moved.for_split, moved.src), off, "one-ahead")


def unwritten(off: Off) -> Schedule:
    return cached(graph(), off, prefetch="staging")


def one_reader(off: Off) -> Schedule:
    """Both layers read the same weight."""

    def tied(node: Node) -> Node:
        late = node.dst == "ffn_moe_down-1"
        return replace(node, src=(DOWN, *node.src[1:])) if late else node

    return lowered(plan(with_nodes(graph(), tied)), off, "staging")


def staged(off: Off) -> Schedule:
    return lowered(tiny(), off, "staging")


# -- selective copies ------------------------------------------------------------------------------


def selected(off: Off) -> Schedule:
    return lowered(tiny(), off, copy_experts=True)


def one_split(off: Off) -> Schedule:
    """The split that computes the ids also reads the weights."""
    schedule = tiny()
    splits = schedule.splits or ()
    whole = replace(
        splits[0], end=splits[-1].end,
        inputs=tuple(dict.fromkeys(name for split in splits for name in split.inputs)),
    )  # fmt: skip
    return lowered(replace(schedule, splits=(whole,)), off, copy_experts=True)


def ids_again(off: Off) -> Schedule:
    """User code chooses other experts between the copies of gate and up."""
    schedule = tiny()
    changed = with_callback(schedule, bringing(schedule, UP), "ffn_moe_argsort-0")
    return lowered(changed, off, copy_experts=True)


def two_matmuls(off: Off) -> Schedule:
    """A second matmul of the split reads the weight by other ids."""
    schedule = graph()
    nodes = list(schedule.graph.nodes)
    at = next(k for k, node in enumerate(nodes) if node.dst == "ffn_moe_down-0")
    ids, out = schedule.graph.tensor("ffn_moe_topk-0"), schedule.graph.tensor("ffn_moe_down-0")
    nodes.insert(at + 1, Node("mul_mat_id", "second", (*nodes[at].src[:2], "other ids")))
    tensors = (
        *schedule.graph.tensors,
        Tensor("other ids", "i32", ids.shape, values=(0, 8), input=True),
        replace(out, name="second", output=True),
    )
    changed = replace(schedule.graph, tensors=tensors, nodes=tuple(nodes))
    return lowered(plan(replace(schedule, graph=changed)), off, copy_experts=True)


def run_tail(off: Off) -> Schedule:
    return lowered(plan(over_reading(graph())), off, copy_experts=True)


# -- the expert cache ------------------------------------------------------------------------------


def incapable(off: Off) -> Schedule:
    """A device that cannot run one of a layer's matmuls."""

    def elsewhere(node: Node) -> Node:
        return replace(node, supported_by=("cpu",)) if node.dst == "ffn_moe_down-1" else node

    return cached(with_nodes(graph(), elsewhere), off)


def slots(off: Off) -> Schedule:
    return cached(graph(tokens=(1, 8)), off, 5)


def slot_padding(off: Off) -> Schedule:
    return cached(over_reading(graph()), off)


def capacity(off: Off) -> Schedule:
    schedule = graph()
    memories = tuple(m if m.host else replace(m, bytes=EACH * 9) for m in schedule.graph.memories)
    return cached(replace(schedule, graph=replace(schedule.graph, memories=memories)), off)


def flooding(off: Off) -> Schedule:
    return cached(graph(), off, 2)


def told_by_ids(off: Off) -> Schedule:
    """No slot map: what a reader needs comes with the fill alone."""
    return cached(graph(), off, slot_ids=True)


def early_ids(off: Off) -> Schedule:
    """The second layer's experts are chosen before the first layer's are read."""
    schedule = graph()
    nodes = list(schedule.graph.nodes)
    names = "ffn_moe_logits-1", "ffn_moe_argsort-1", "ffn_moe_topk-1"
    moved = [node for node in nodes if node.dst in names]
    moved[0] = replace(moved[0], src=(moved[0].src[0], "ffn_norm-0"))
    nodes = [node for node in nodes if node.dst not in names]
    at = next(k for k, node in enumerate(nodes) if node.dst == "ffn_moe_topk-0")
    nodes[at + 1 : at + 1] = moved
    changed = replace(schedule, graph=replace(schedule.graph, nodes=tuple(nodes)))
    return cached(changed, off, 4, slot_ids=True)


# -- waits and compute memory ----------------------------------------------------------------------


def two_devices(off: Off) -> Schedule:
    return lowered(tiny(2), off)


def pipelined(schedule: Schedule) -> Schedule:
    """Nothing waits at the end of a pass."""
    return replace(schedule, graph=replace(schedule.graph, n_copies=2))


def two_stages(off: Off) -> Schedule:
    return lowered(pipelined(plan(custom(("a", "gpu0", "x"), ("y", "gpu1", "a")))), off)


def user_code(off: Off) -> Schedule:
    schedule = pipelined(tiny())
    return lowered(with_callback(schedule, bringing(schedule, GATE), GATE), off)


def reused(off: Off) -> Schedule:
    return lowered(tiny(2), off, place="order")


PROGRAMS: dict[Guard, Planned] = {
    Guard.USAGE: usage,
    Guard.NOT_WRITTEN: not_written,
    Guard.THROUGH_VIEWS: through_views,
    Guard.HOST_WRITES: host_writes,
    Guard.UNWRITTEN: unwritten,
    Guard.ONE_READER: one_reader,
    Guard.RING_DEPTH: staged,
    Guard.IDS_BEFORE_SPLIT: one_split,
    Guard.SAME_IDS: selected,
    Guard.SAME_VERSION: ids_again,
    Guard.ONE_MATMUL: two_matmuls,
    Guard.RUN_TAIL: run_tail,
    Guard.CAPABILITY: incapable,
    Guard.IDS_BEFORE_FILL: told_by_ids,
    Guard.SLOTS: slots,
    Guard.SLOT_PADDING: slot_padding,
    Guard.CAPACITY: capacity,
    Guard.FLOODING: flooding,
    Guard.PREFETCH_AWAITED: staged,
    Guard.SLOT_READERS: staged,
    Guard.COPY_AWAITED: two_devices,
    Guard.SOURCE_AWAITED: two_devices,
    Guard.TARGET_READERS: two_stages,
    Guard.IDS_AWAITED: selected,
    Guard.FILL_AWAITED: told_by_ids,
    Guard.VICTIM_READERS: early_ids,
    Guard.INPUT_READERS: two_stages,
    Guard.CALLBACK_READERS: user_code,
    Guard.OUTPUT_AWAITED: two_devices,
    Guard.LIFETIMES: reused,
}


#: Guards with which there is no plan at all, and what the planner says.
REFUSED = {Guard.CAPACITY: "are left for banks", Guard.FLOODING: "BK011: the 2 layers"}


def checked(schedule: Schedule) -> Report:
    return splitproof.check(loads(dumps(schedule)), time_limit=60)


def confirmed(schedule: Schedule, finding: Finding) -> bool:
    """By execution, or by the rule on concrete sizes.  How many experts a computed ids tensor
    names is not in the hands of a replay."""
    if finding.rule == "BK004":
        return examine(schedule, finding, {}).confirmed
    return execute_finding(schedule, finding).holds is True


def test_every_guard_has_a_row_and_a_program() -> None:
    assert list(GUARDS) == list(Guard)
    assert PROGRAMS.keys() == set(Guard)
    page = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    for guard, row in GUARDS.items():
        assert f"| `{guard}` | {row.keeps} | {row.rule} |" in page


@pytest.mark.parametrize("guard", Guard)
def test_a_guard_keeps_the_rule_that_its_row_names(guard: Guard) -> None:
    if GUARDS[guard].rule not in RULES:
        pytest.skip(f"the checker has no rule {GUARDS[guard].rule}")
    if guard in REFUSED:
        with pytest.raises(PlanError, match=REFUSED[guard]):
            PROGRAMS[guard](NONE_OFF)
    else:
        assert checked(PROGRAMS[guard](NONE_OFF)).verdict is Verdict.PROVED
    schedule = PROGRAMS[guard](frozenset({guard}))
    report = checked(schedule)
    found = [f for f in report.findings if GUARDS[guard].rule in (f.rule, *f.also)]
    assert found, [(f.rule, f.also, f.message) for f in report.findings]
    if found[0].kind is Kind.COST:
        assert report.verdict is Verdict.PROVED
    else:
        assert report.verdict is Verdict.VIOLATED
        assert confirmed(schedule, found[0])
