"""CO: right, but wasteful."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import Copy, CopyExperts
from ...model.schedule import Schedule
from ..regime import Regime
from .static import Broken, Statics, readable


def expert_weights(schedule: Schedule) -> dict[str, str]:
    """Tensors that hold experts → the node that reads them first: banks, and weights of a
    ``mul_mat_id``."""
    found: dict[str, str] = {}
    for node in schedule.graph.nodes:
        if node.op == "mul_mat_id":
            found.setdefault(node.src[0], node.dst)
    for bank in schedule.graph.banks:
        found.setdefault(bank.name, "")
    return found


# ∀ pass, whole expert weight or bank W crossing memories:  no device could run its matmul in place
def co001(s: Statics) -> Iterator[Broken]:
    """Whole expert weights that cross memories each pass though some device could read them."""
    schedule, regime, order = s.schedule, s.regime, s.order
    experts = expert_weights(schedule)
    assert schedule.program is not None
    for index, command in enumerate(schedule.program):
        if not all((index, iteration) in order.by_command for iteration in range(schedule.repeat)):
            continue
        if not isinstance(command, Copy) or command.src not in experts:
            continue
        source, target = schedule.location(command.src), schedule.location(command.dst)
        if source.memory == target.memory or source.memory is None:
            continue
        if not _could_stay(schedule, experts[command.src], source.memory):
            continue
        count = schedule.tensor(command.src).data_bytes.bounds(regime.ranges)[1]
        kind = "bank" if schedule.graph.find_bank(command.src) is not None else "expert weight"
        yield Broken(
            "CO001",
            f"{kind} {command.src!r} crosses from {source.memory} to {target.memory} in each pass: "
            f"{count} bytes",
            f"$.program[{index}]",
            (("bytes each pass", count), ("from", source.memory), ("to", target.memory or "?")),
        )


def _could_stay(schedule: Schedule, node: str, memory: str) -> bool:
    """Whether some device reads the memory where the weight is and is not known to lack the op."""
    for device in schedule.graph.devices:
        if not readable(device, memory):
            continue
        support = schedule.graph.node(node).supported_by if node else None
        if support is None or device.name in support:
            return True
    return False


def crossing(schedule: Schedule, regime: Regime) -> tuple[tuple[int, str, str, int], ...]:
    """Bytes that cross memories into each split in one pass: ``(split, from, to, bytes)``, at the
    upper bounds of the symbols; a selective copy counts whole."""
    totals: dict[tuple[int, str, str], int] = {}
    for command in schedule.program or ():
        if not isinstance(command, Copy | CopyExperts):
            continue
        source = schedule.location(command.src).memory or "?"
        target = schedule.location(command.dst).memory or "?"
        if source == target:
            continue
        split = command.for_split if command.for_split is not None else command.split
        key = (split if split is not None else -1, source, target)
        count = schedule.tensor(command.src).data_bytes.bounds(regime.ranges)[1]
        totals[key] = totals.get(key, 0) + count
    return tuple((split, a, b, count) for (split, a, b), count in sorted(totals.items()))
