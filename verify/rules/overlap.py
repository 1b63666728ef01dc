"""What may run at the same time, and CO004: an upload that waits for a split for no reason."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ...model.command import Compute, Copy, CopyExperts, Prefetch
from ...model.device import HOST, Contract
from ..footprint import Footprints
from ..order import Order, Part, copy_contract
from ..region import Region
from .static import Broken, Statics


class Chains:
    """The parts of an order by the queue that they follow each other on."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.of: dict[str, list[Part]] = {}
        for part in order.parts:
            # A loose part follows nothing: it is a chain of its own.
            self.of.setdefault(f"{part.index}" if part.loose else part.queue, []).append(part)

    def beside(self, part: Part) -> Iterator[Part]:
        """The parts that may run while this one does: of each chain a stretch."""
        before = self.order.before
        for chain in self.of.values():
            first = bisect_left(chain, True, key=lambda p: not before(p.index, part.index))
            last = bisect_left(chain, True, key=lambda p: before(part.index, p.index))
            yield from (p for p in chain[first:last] if p.index != part.index)


class _Accesses:
    """The bytes that each part reads and writes."""

    def __init__(self, footprints: Footprints) -> None:
        self.reads: dict[int, list[Region]] = {}
        self.writes: dict[int, list[Region]] = {}
        for read in footprints.reads:
            self.reads.setdefault(read.part, []).append(read.region)
        for write in footprints.writes:
            self.writes.setdefault(write.part, []).append(write.region)
            if write.source is not None:
                self.reads.setdefault(write.source.part, []).append(write.source.region)

    def conflict(self, left: int, right: int) -> bool:
        """Whether the order of two parts matters."""
        return (
            _meet(self.writes.get(left, ()), self.writes.get(right, ()))
            or _meet(self.writes.get(left, ()), self.reads.get(right, ()))
            or _meet(self.reads.get(left, ()), self.writes.get(right, ()))
        )


def _meet(left: Sequence[Region], right: Sequence[Region]) -> bool:
    return any(a.space == b.space and a.may_meet(b) for a in left for b in right)


# ∀ upload u of split t, computes C of split t − 1 on an asynchronous device, C → u:
#   something from C up to u meets the bytes of u, or there is no queue on which u could overlap C
def co004(s: Statics, footprints: Footprints) -> Iterator[Broken]:
    accesses = _Accesses(footprints)
    starts, computes = _splits_of(s)
    told: set[int] = set()
    for (index, iteration), parts in s.order.by_command.items():
        command = (s.schedule.program or ())[index]
        if not isinstance(command, Copy | CopyExperts) or isinstance(command, Prefetch):
            continue
        if index in told or not command.split:
            continue
        before = computes.get((command.split - 1, iteration), [])
        if not before or not _is_upload(s, command):
            continue
        if not all(s.order.before(part, parts[-1].index) for part in before):
            continue  # it overlaps as it is
        if not _has_a_place(s, command, before, starts[command.split, iteration]):
            continue
        between = range(before[0], parts[0].index)
        if any(accesses.conflict(other, part.index) for other in between for part in parts):
            continue
        told.add(index)
        yield _serial(s, index, command, iteration)


def _splits_of(
    s: Statics,
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], list[int]]]:
    """By split and pass: where its commands begin, and the parts of its computes."""
    starts: dict[tuple[int, int], int] = {}
    computes: dict[tuple[int, int], list[int]] = {}
    for (index, iteration), parts in s.order.by_command.items():
        command = (s.schedule.program or ())[index]
        if command.split is None:
            continue
        key = command.split, iteration
        starts.setdefault(key, parts[0].index)
        if isinstance(command, Compute):
            computes.setdefault(key, []).append(parts[0].index)
    return starts, computes


def _is_upload(s: Statics, command: Copy | CopyExperts) -> bool:
    """Whether it goes from host memory to another."""
    source = s.schedule.location(command.src).memory
    target = s.schedule.location(command.dst).memory
    return source is not None and source != target and s.schedule.graph.memory(source).host


def _has_a_place(s: Statics, command: Copy | CopyExperts, computes: list[int], start: int) -> bool:
    """Whether there is a queue, and a moment, at which the upload would run beside the split
    before: a second queue of the device; or, if that split is another device's and the host makes
    the copy, the beginning of its own split, unless the host has waited for the computes by then.
    """
    assert command.split is not None and s.schedule.splits is not None
    device = s.schedule.graph.device(s.schedule.splits[command.split].device)
    other = s.schedule.graph.device(s.schedule.splits[command.split - 1].device)
    if not (device.asynchronous and other.asynchronous):
        return False
    by_host = HOST in (s.schedule.queue_of(command), command.queue)
    by_host = by_host or copy_contract(s.schedule, command) is Contract.SYNC
    if device.name == other.name:
        return len(device.queues) > 1 and not by_host
    if not by_host:
        return False
    host = (i for i in range(start - 1, -1, -1) if s.order.parts[i].queue == HOST)
    waited = next(host, None)
    return waited is None or not all(s.order.before(part, waited) for part in computes)


def _serial(s: Statics, index: int, command: Copy | CopyExperts, iteration: int) -> Broken:
    assert command.split is not None and s.schedule.splits is not None
    count = s.schedule.tensor(command.src).data_bytes.bounds(s.regime.ranges)[1]
    other = s.schedule.splits[command.split - 1].device
    return Broken(
        "CO004",
        f"the upload of {command.src!r} for split {command.split} starts after split "
        f"{command.split - 1} has ended on {other}, and does not need to: {count} bytes",
        f"$.program[{index}]",
        (
            ("bytes that could travel meanwhile", count), ("split before it", command.split - 1),
            ("on", other), ("pass", iteration),
        ),
    )  # fmt: skip
