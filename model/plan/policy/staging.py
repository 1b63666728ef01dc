"""Host weights go through a ring of slots, each filled again when its reader was issued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...device import Buffer, Device, Usage
from ...schedule import Schedule
from ...symbol import Expr
from ..allocate import ALIGNMENT
from ..error import PlanError
from ..guard import Guard, Off
from ..operands import Operands, copies_aside
from ..transfer import Bring, Input, Policy, Transfers
from ..written import Written, host_writes, node_writes


def staging(transfers: Transfers, slots: int, off: Off) -> Transfers:
    """The first ``slots`` weights of a device are fetched at once, each other after the nodes
    that read what lay in its slot."""
    if slots < 1:
        raise PlanError(f"staging {slots}: 1 slot or more was due")
    schedule = transfers.schedule
    if schedule.graph.n_copies > 1:
        raise PlanError("staging keeps one copy of a weight, and n_copies asks for several")
    found: dict[Input, Bring] = {}
    written = Written()
    for part in schedule.splits or ():
        written |= node_writes(schedule, part) | host_writes(schedule, part)
    early = int(Guard.RING_DEPTH in off)
    for device in schedule.graph.devices:
        if not copies_aside(device):
            continue
        staged = [
            place
            for place in _staged(schedule, device, off)
            if place not in transfers.brings
            and (Guard.UNWRITTEN in off or not written.meets(schedule, place[1]))
        ]
        schedule = _ring(schedule, device, [name for _, name in staged], slots)
        for number, (split, name) in enumerate(staged):
            before = number - slots
            issuing = staged[before][0] - early if before >= 0 else 0
            if issuing < split:  # else nothing passes between: an ordinary copy
                found[split, name] = Bring(issued=issuing, after=before >= 0)
    idle = "no device with a second queue is brought weights from host memory that stay the same"
    transfers = replace(transfers, schedule=schedule)
    return transfers.bring(found, f"prefetch staging moves nothing: {idle}")


def _staged(schedule: Schedule, device: Device, off: Off) -> Iterator[Input]:
    """The host weights that a device is brought and that one split alone reads."""
    operands = Operands(schedule)
    splits = [(k, s) for k, s in enumerate(schedule.splits or ()) if s.device == device.name]
    readers: dict[str, set[int]] = {}
    for index, split in splits:
        for node in operands.nodes(split):
            for source in node.src:
                readers.setdefault(source, set()).add(index)
    for index, split in splits:
        for name in operands.inputs(split):
            alone = readers.get(name) == {index} or Guard.ONE_READER in off
            placed = schedule.location(schedule.copy_name(device.name, name)).usage
            if alone and placed is None and operands.host_weight(name):
                yield index, name


def _ring(schedule: Schedule, device: Device, names: list[str], slots: int) -> Schedule:
    """Copies of weights in slots of one buffer, in rotation."""
    if not names:
        return schedule
    ranges = schedule.graph.ranges
    sizes = [schedule.tensor(name).data_bytes.bounds(ranges)[1] for name in names]
    stride = -(-max(sizes) // ALIGNMENT) * ALIGNMENT
    count = min(slots, len(names))
    buffer = Buffer(f"staging:{device.name}", device.memory, Usage.COMPUTE, stride * count)
    placements = tuple(
        (schedule.copy_name(device.name, name), buffer.name, Expr.of(number % count * stride))
        for number, name in enumerate(names)
    )
    graph = replace(schedule.graph, buffers=(*schedule.graph.buffers, buffer))
    return replace(schedule, graph=graph, placements=(*schedule.placements, *placements))


POLICY = Policy("staging", "weights in host memory, through a ring of slots", "N", decide=staging)
