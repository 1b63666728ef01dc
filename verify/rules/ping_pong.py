"""CO003: work that leaves a device and comes back, where the device could have kept it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...model.device import Device, Usage
from ...model.graph import Node
from ...model.schedule import Schedule
from .placement import operands_of, reads_bank, unsupported
from .static import Broken, Site, Statics, readable

#: an op, and what an imported log calls one that has no name here
Kind = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive splits of one device, with their nodes that are computed."""

    device: Device
    splits: tuple[int, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Uses:
    """Who computes what: ``of`` a base, the sites that touch it; ``kinds``: ``(device, kind)`` of
    ops that run."""

    of: dict[str, list[Site]]
    kinds: set[tuple[str, Kind]]

    @staticmethod
    def found(s: Statics) -> Uses:
        uses = Uses({}, set())
        for site in s.sites():
            uses.kinds.add((site.device.name, kind(site.node)))
            for name in touched(s.schedule, site.node):
                uses.of.setdefault(name, []).append(site)
        return uses


@dataclass(frozen=True, slots=True)
class Saving:
    """What it takes to run a stretch elsewhere.  ``moved``: bytes that are placed anew, once;
    ``before`` and ``after``: bytes that cross memories for it in each pass."""

    moved: int
    before: int
    after: int


# ∀ stretches A on d, B on e ≠ d, C on d in a row:  d cannot run B, or more bytes would cross
# ∀ first stretch B of the host, then stretches on asynchronous devices d, d′:  d cannot run B, or
#   no fewer bytes would cross
def co003(s: Statics) -> Iterator[Broken]:
    row, uses = stretches(s), Uses.found(s)
    for number, between in enumerate(row):
        device = _around(row, number)
        if device is None or device == s.schedule.graph.devices[-1]:
            continue  # what an accelerator does is not sent back to the CPU
        saving = saved(s, uses, between, device, first=number == 0)
        if saving is None or (number == 0 and saving.after == saving.before):
            continue
        names = ", ".join(str(split) for split in between.splits)
        yield Broken(
            "CO003",
            f"the work of split {names} on {between.device.name} could stay on {device.name}, "
            "which runs what is beside it",
            f"$.splits[{between.splits[0]}]",
            (
                ("splits", names), ("could run on", device.name),
                ("nodes", len(between.nodes)),
                ("bytes that cross for them in each pass", saving.before),
                ("bytes that would cross", saving.after),
                ("bytes to place anew, once", saving.moved),
            ),
        )  # fmt: skip


def stretches(s: Statics) -> list[Stretch]:
    """The splits that compute something in this regime, joined where the device stays."""
    nodes: dict[int, list[Node]] = {}
    for site in s.sites():
        if site.command.split is not None:
            nodes.setdefault(site.command.split, []).append(site.node)
    row: list[Stretch] = []
    for number, split in enumerate(s.schedule.splits or ()):
        if number not in nodes:
            continue
        device, found = s.schedule.graph.device(split.device), tuple(nodes[number])
        if row and row[-1].device == device:
            last = row.pop()
            row.append(Stretch(device, (*last.splits, number), (*last.nodes, *found)))
        else:
            row.append(Stretch(device, (number,), found))
    return row


def _around(row: list[Stretch], number: int) -> Device | None:
    """The device to which a stretch's work could go for fewer changes of device."""
    between, ahead = row[number].device, [stretch.device for stretch in row[number + 1 :]]
    if number and ahead and row[number - 1].device == ahead[0]:
        return ahead[0]
    chain = number == 0 and not between.asynchronous and len(ahead) > 1
    return ahead[0] if chain and ahead[0].asynchronous and ahead[1].asynchronous else None


def saved(
    s: Statics, uses: Uses, between: Stretch, device: Device, *, first: bool
) -> Saving | None:
    """What is gained if the device runs the stretch; ``None`` if it cannot, or loses by it.

    Weights and state go along from one asynchronous device to another, and with the ``first``
    stretch (the embedding); what else lies in host memory is taken to be there for want of room.
    """
    schedule = s.schedule
    for number in between.splits:
        if (schedule.splits or ())[number].callbacks:
            return None
    for node in between.nodes:
        if schedule.tensor(node.dst).pin is not None or reads_bank(schedule, node):
            return None
        if not _runs(s, uses, node, device):
            return None
    moved = _moved(s, uses, between, device)
    if moved is None or (moved and not first and not between.device.asynchronous):
        return None
    before = _crossing(s, uses, between, between.device, set())
    after = _crossing(s, uses, between, device, moved)
    if after is None or before is None or after > before:
        return None
    return Saving(sum(_bytes(s, name) for name in moved), before, after)


def _runs(s: Statics, uses: Uses, node: Node, device: Device) -> bool:
    """Whether the device is known to run the node at all sizes.  Where types and shapes are not
    known, a node of the same op that it does run has to vouch for it."""
    if any(not tensor.shape for tensor in operands_of(s.schedule, node).values()):
        return (device.name, kind(node)) in uses.kinds
    given_up = len(s.undecided)
    return s.possible(unsupported(s, node, device)) is None and len(s.undecided) == given_up


def kind(node: Node) -> Kind:
    return node.op, node.param("ggml_op")


def touched(schedule: Schedule, node: Node) -> tuple[str, ...]:
    """Bases of what a node reads and writes."""
    names = (*(node.reads or node.src), *(node.writes or (node.dst,)))
    return tuple(dict.fromkeys(schedule.base(name).name for name in names))


def _moved(s: Statics, uses: Uses, between: Stretch, device: Device) -> set[str] | None:
    """The weights and state that would have to lie in the device's memory.  ``None`` where
    other devices use them too, or the memory is not known to have room."""
    schedule, found = s.schedule, set[str]()
    for node in between.nodes:
        for name in touched(schedule, node):
            place = schedule.location(name)
            placed = place.usage in (Usage.WEIGHTS, Usage.ANY)
            if placed and not (place.memory and readable(device, place.memory)):
                found.add(name)
    for site in (site for name in found for site in uses.of.get(name, ())):
        if site.node not in between.nodes and site.device != device:
            return None
    memory = schedule.graph.memory(device.memory)
    taken = sum(b.bytes for b in schedule.graph.buffers if b.memory == memory.name)
    needed = sum(_bytes(s, name) for name in found)
    if found and (memory.bytes is None or taken + needed > memory.bytes):
        return None
    return found


def _crossing(
    s: Statics, uses: Uses, between: Stretch, device: Device, moved: set[str]
) -> int | None:
    """Bytes that cross for the stretch in a pass if the device runs it; ``None`` if there is no
    way for them."""
    schedule = s.schedule
    made = {schedule.base(node.dst).name for node in between.nodes}
    total, here = 0, set[str]()
    for node in between.nodes:
        for source in node.src:
            memory = schedule.location(source).memory
            base = schedule.base(source).name
            if base in made or base in moved or source in here or memory is None:
                continue
            if not readable(device, memory):
                if device.contract(memory, device.memory) is None:
                    return None
                here.add(source)
                total += _bytes(s, source)
    sent = {
        (site.device.memory, source)
        for base in made
        for site in uses.of.get(base, ())
        if site.node not in between.nodes and not readable(site.device, device.memory)
        for source in site.node.src
        if schedule.base(source).name == base
    }
    return total + sum(_bytes(s, source) for _, source in sent)


def _bytes(s: Statics, name: str) -> int:
    return s.schedule.tensor(name).data_bytes.bounds(s.regime.ranges)[1]
