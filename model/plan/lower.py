"""The plain lowering: from splits to the program that a host without overlap would issue.

Every split is awaited before the next one starts, and every transfer before it is used.  So the
program is right whenever the splits are, whatever the copy contracts are, and what goes wrong
in it is a fault of the splits, the placements or the callbacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..command import Command, Compute, Copy, FillBank, GetOutput, SetInput, SyncQueue
from ..device import HOST, Usage
from ..graph import Bank, Node
from ..ops import OPS
from ..schedule import Schedule, Split
from ..symbol import Condition

#: With ``n_copies`` > 1 the copies of an input are there so that passes may overlap.  In the
#: plain lowering they never do, and each pass uses the first.
_COPY_INDEX = 0

_Residency = tuple[str, int, str, str | None, str | None, Condition]


class LowerError(ValueError):
    """A schedule that cannot be lowered; the message says what is missing."""


def lower(schedule: Schedule) -> Schedule:
    """The schedule with its program; one that has a program is returned as it is.

    In order: all inputs are set; per split its callbacks, a fill of the banks that it reads and
    that this pass has not filled, its inputs as listed with host weights last, its computes, and
    a wait for its device; then all outputs are read.  A copy is made where a split lists it: a
    later split of the same device that cannot read the original shares it (ggml's scheduler
    copies once per tensor and device), by ``bind``.  With ``n_copies`` > 1 copy 0 is used.

    ``LowerError`` for a graph-level schedule, and for a bank in a memory that no device reads.
    """
    if schedule.program is not None:
        return schedule
    if schedule.splits is None:
        raise LowerError(
            f"schedule {schedule.name!r} has no splits; give it 'assignment' and 'splits', "
            "or plan it first"
        )
    tensors = schedule.graph.tensors
    program: list[Command] = [SetInput(tensor=t.name) for t in tensors if t.input]
    lowering = PlainLowering(schedule)
    for index, split in enumerate(schedule.splits):
        program += lowering.split(index, split)
    program += [GetOutput(tensor=t.name) for t in tensors if t.output]
    return replace(schedule, program=tuple(program))


class PlainLowering:
    """What is known while the splits are gone through: fills and copies made so far."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.graph = schedule.graph
        self.copy_index = _COPY_INDEX if self.graph.n_copies > 1 else None
        self.copied: set[tuple[str, str]] = set()
        self.fills: dict[_Residency, list[Bank]] = {}
        self.fills_of: dict[str, set[_Residency]] = {}
        for bank in self.graph.banks:
            residency = _residency(bank)
            self.fills.setdefault(residency, []).append(bank)
            # A map or slot ids that are read before the bank must be filled before, too.
            for operand in (bank.name, bank.slot_map, bank.slot_ids):
                if operand is not None:
                    self.fills_of.setdefault(operand, set()).add(residency)

    def split(self, index: int, split: Split) -> Iterator[Command]:
        nodes = [
            node for node in self.graph.nodes[split.start : split.end] if not OPS[node.op].view
        ]
        for callback in split.callbacks:
            yield replace(callback, split=index)
        yield from self.fill_banks(index, nodes)
        yield from self.copies(index, split)
        for node in nodes:
            yield Compute(
                node=node.dst, split=index, bind=self.shared(node, split), copy=self.copy_index
            )
        yield from _await(self.graph.device(split.device).first_queue, index)

    # -- banks ------------------------------------------------------------------------------

    def fill_banks(self, index: int, nodes: list[Node]) -> Iterator[Command]:
        read = {name for node in nodes for name in node.src}
        read |= {self.schedule.base(name).name for name in read}
        due = {residency for name in read for residency in self.fills_of.get(name, ())}
        for residency in [known for known in self.fills if known in due]:
            banks = self.fills.pop(residency)  # once a pass
            first = banks[0]
            queue = self.fill_queue(first)
            yield FillBank(
                banks=tuple(bank.name for bank in banks), ids=first.ids, queue=queue,
                slot_ids=first.slot_ids, slot_map=first.slot_map, when=first.when, split=index,
            )  # fmt: skip
            yield from _await(queue, index)

    def fill_queue(self, bank: Bank) -> str:
        memory = self.schedule.location(bank.name).memory
        owners = [device for device in self.graph.devices if device.memory == memory]
        readers = [device for device in self.graph.devices if memory in device.reads]
        for device in owners + readers:
            return device.first_queue
        raise LowerError(
            f"bank {bank.name!r} lies in memory {memory!r}, which no device owns or reads; "
            "put it into a buffer of its device's memory"
        )

    # -- copies -----------------------------------------------------------------------------

    def copies(self, index: int, split: Split) -> Iterator[Command]:
        for tensor in sorted(split.inputs, key=self.host_weight):  # stable: else as listed
            queue = self.copy_queue(split.device, tensor)
            target = self.schedule.copy_name(split.device, tensor, self.copy_index)
            yield Copy(src=tensor, dst=target, queue=queue, split=index)
            yield from _await(queue, index)
            self.copied.add((split.device, tensor))

    def host_weight(self, tensor: str) -> bool:
        where = self.schedule.location(tensor)
        return (
            where.usage is Usage.WEIGHTS
            and where.memory is not None
            and self.graph.memory(where.memory).host
        )

    def copy_queue(self, device: str, source: str) -> str:
        target = self.graph.device(device)
        if target.asynchronous:
            return target.first_queue
        memory = self.schedule.location(source).memory
        for owner in self.graph.devices:
            if owner.asynchronous and owner.memory == memory:
                return owner.first_queue
        return HOST

    def shared(self, node: Node, split: Split) -> tuple[tuple[str, str], ...]:
        """Sources that an earlier split of the device had copied, and this one does not list."""
        reads = self.graph.device(split.device).reads
        return tuple(
            (source, self.schedule.copy_name(split.device, source, self.copy_index))
            for source in dict.fromkeys(node.src)
            if source not in split.inputs
            and (split.device, source) in self.copied
            and self.schedule.location(source).memory not in reads
        )


def _residency(bank: Bank) -> _Residency:
    """What banks have in common that one fill brings up to date."""
    return bank.group, bank.layer, bank.ids, bank.slot_ids, bank.slot_map, bank.when


def _await(queue: str, split: int) -> Iterator[Command]:
    # What the host did itself has ended when it issues the next command.
    if queue != HOST:
        yield SyncQueue(queue=queue, split=split)
