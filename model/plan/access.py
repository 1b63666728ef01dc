"""Which bytes each command reads and writes, and where it runs: in whole tensors.

A *space* is what is written or read together: a base tensor, a copy, or tensors that share bytes
of a buffer.  Coarser than bytes, so what is ordered here is ordered there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..command import (
    Callback,
    Command,
    Compute,
    Copy,
    CopyExperts,
    FillBank,
    GetOutput,
    SetInput,
)
from ..device import HOST, Contract
from ..schedule import Schedule
from ..tensor import Tensor

#: What a callback without a declared footprint touches.
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """One tensor's bytes, read or written by one part of a command.

    ``queue``: where the part runs; ``loose``: it is an unordered copy there.
    """

    space: str
    writes: bool
    queue: str
    loose: bool = False


class Accesses:
    """The accesses of commands, and the spaces of tensors."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.graph = schedule.graph
        self._shared = _shared_bytes(schedule)
        self._space: dict[str, str] = {}

    def space(self, name: str) -> str:
        known = self._space.get(name)
        if known is None:
            base = self.schedule.base(name).name
            known = self._space[name] = self._shared.get(base, base)
        return known

    def of(self, command: Command) -> tuple[Access, ...]:
        """All accesses, without repetition."""
        return tuple(dict.fromkeys(self._of(command)))

    def _of(self, command: Command) -> Iterator[Access]:
        if isinstance(command, Compute):
            yield from self._compute(command)
        elif isinstance(command, Copy):
            reader, queue, loose = self.places(command, command.src, command.dst)
            yield Access(self.space(command.src), False, reader, loose and reader == queue)
            yield Access(self.space(command.dst), True, queue, loose)
        elif isinstance(command, CopyExperts):
            reader, queue, loose = self.places(command, command.src, command.dst)
            if command.ids is not None:
                yield Access(self.space(command.ids), False, HOST)
            yield Access(self.space(command.src), False, reader, loose and reader == queue)
            yield Access(self.space(command.dst), True, queue, loose)
        elif isinstance(command, FillBank):
            yield from self._fill(command)
        elif isinstance(command, SetInput):
            yield Access(self.space(command.tensor), True, HOST)
        elif isinstance(command, GetOutput):
            yield Access(self.space(command.tensor), False, HOST)
        elif isinstance(command, Callback):
            for names, writes in ((command.reads, False), (command.writes, True)):
                for name in (EVERYTHING,) if names is None else names:
                    whole = name == EVERYTHING or name.startswith("usage:")
                    yield Access(EVERYTHING if whole else self.space(name), writes, HOST)

    def _compute(self, command: Compute) -> Iterator[Access]:
        node, queue = self.graph.node(command.node), self.schedule.queue_of(command)
        for index in range(len(node.src)):
            yield Access(self.space(self.schedule.bound(command, index)), False, queue)
        for name in node.reads or ():
            yield Access(self.space(name), False, queue)
        for name in node.writes if node.writes is not None else (node.dst,):
            yield Access(self.space(name), True, queue)

    def _fill(self, command: FillBank) -> Iterator[Access]:
        yield Access(self.space(command.ids), False, HOST)
        for name in command.banks:
            bank = self.graph.find_bank(name)
            assert bank is not None
            reader, queue, loose = self.places(command, bank.caches, name)
            yield Access(self.space(bank.caches), False, reader, loose and reader == queue)
            yield Access(self.space(name), True, queue, loose)
            for told in (command.slot_ids, command.slot_map):
                if told is not None:
                    on_host = self.on_host(told)
                    yield Access(
                        self.space(told), True, HOST if on_host else queue, loose and not on_host
                    )

    def on_host(self, name: str) -> bool:
        memory = self.schedule.location(name).memory
        return memory is not None and self.graph.memory(memory).host

    def places(self, command: Command, source: str, target: str) -> tuple[str, str, bool]:
        """Where a copy reads, where it writes, and whether it is unordered there."""
        queue = self.schedule.queue_of(command)
        if queue == HOST:
            return HOST, HOST, False
        device = self.graph.device(self.schedule.queue_device(queue))
        memory, to = (self.schedule.location(n).memory or "" for n in (source, target))
        contract = device.contract(memory, to)
        if contract is Contract.SYNC:
            return HOST, HOST, False
        return (
            HOST if contract is Contract.STAGED else queue,
            queue,
            contract is Contract.UNORDERED,
        )


def _shared_bytes(schedule: Schedule) -> dict[str, str]:
    """For tensors that are placed over each other by hand, the space that they make together."""
    ranges = schedule.graph.ranges
    placed: dict[str, list[tuple[int, int, str]]] = {}
    for tensor in _placed(schedule):
        where = schedule.location(tensor.name)
        low = where.offset.bounds(ranges)[0]
        high = (where.offset + tensor.extent).bounds(ranges)[1]
        placed.setdefault(where.space, []).append((low, high, tensor.name))
    shared: dict[str, str] = {}
    for spans in placed.values():
        spans.sort()
        end, first = 0, ""
        for low, high, name in spans:
            if first and low < end:
                shared[first] = shared[name] = f"bytes of {first}"
                end = max(end, high)
            else:
                first, end = name, high
    return shared


def _placed(schedule: Schedule) -> Iterator[Tensor]:
    names = [t.name for t in schedule.graph.tensors if t.view_of is None and t.buffer is not None]
    names += [name for name, _, _ in schedule.placements]
    for name in dict.fromkeys(names):
        tensor = schedule.tensor(name)
        if tensor.view_of is None and schedule.location(name).usage is not None:
            yield tensor
