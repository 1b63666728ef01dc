"""Queues, events and contracts of a small program: what must have ended before a part starts.

The same rules as in ``order.py``, read a second time: predecessors are sets of parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.command import Copy, CopyExperts, FillBank, Wait
from ..model.device import HOST, Contract
from ..model.schedule import Schedule
from .explore_program import CannotExplore


@dataclass(slots=True)
class Part:
    """One piece of one command in one pass.

    ``after``: bit set of parts that end before it starts.  ``due``: ``(tensor, cell, version)``
    of what it reads.  ``loads``: cells that it reads to hand them on.  ``stores``: ``(cell,
    version)`` that it leaves, ``moves``: ``(cell, from cell)``, loaded by part ``loader``.
    ``hands``: per cell written, the tensor that owns it and, of a move, the one it comes from.
    ``past``: ``(tensor, cell, versions)`` of what it reads past experts: any of these will do.
    """

    index: int
    command: int
    iteration: int
    name: str
    after: int
    due: list[tuple[str, int, int]] = field(default_factory=list)
    past: list[tuple[str, int, frozenset[int]]] = field(default_factory=list)
    loads: set[int] = field(default_factory=set)
    stores: dict[int, int] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)
    hands: dict[int, tuple[str, str]] = field(default_factory=dict)
    loader: int = -1
    #: what is wrong whatever the order: ``(tensor, why)``
    broken: list[tuple[str, str]] = field(default_factory=list)


class Queues:
    """Parts in issue order, each behind what the machine makes it wait for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.graph = schedule, schedule.graph
        self.parts: list[Part] = []
        self.host = 0  # the last host part, as a bit
        self.tails: dict[str, int] = {}
        self.loose: dict[str, int] = {}
        self.waits: dict[str, int] = {}
        self.records: dict[str, tuple[int, str]] = {}

    def _part(self, index: int, iteration: int, name: str, queue: str, loose: bool = False) -> Part:
        after = self.host
        if loose:
            after |= self.waits.get(queue, 0)
        elif queue != HOST:
            after |= self.tails.get(queue, 0)
        part = Part(len(self.parts), index, iteration, name, after)
        self.parts.append(part)
        bit = 1 << part.index
        if loose:
            self.loose[queue] = self.loose.get(queue, 0) | bit
        elif queue == HOST:
            self.host = bit
        else:
            self.tails[queue] = bit
        return part

    def _wait(self, command: Wait, part: Part) -> None:
        bit, queue = self.records.get(command.event, (0, HOST))
        device, kind = self.schedule.queue_device(command.queue), self.schedule.queue_device(queue)
        if device == HOST or self.graph.device(device).may_wait_for(kind):
            part.after |= bit
        self.waits[command.queue] = self.waits.get(command.queue, 0) | 1 << part.index

    def _moving(
        self, index: int, iteration: int, command: Copy | CopyExperts | FillBank
    ) -> tuple[Part, Part]:
        """The parts of what moves bytes, by the contract of its queue."""
        queue, device = self.schedule.queue_of(command), self.schedule.queue_device(command.queue)
        contract: Contract | None = Contract.SYNC
        if queue != HOST:
            contract = self.graph.device(device).contract(*self._memories(command))
        if contract is None:
            raise CannotExplore(f"no copy contract for command {index}")
        if contract is Contract.SYNC:
            queue = HOST
        loose = contract is Contract.UNORDERED
        if isinstance(command, Copy) and contract is not Contract.STAGED:
            part = self._part(index, iteration, "main", queue, loose)
            return part, part
        first = self._part(index, iteration, "read", HOST)
        last = self._part(index, iteration, "write", queue, loose)
        if contract is not Contract.STAGED:
            last.loader = last.index
        return first, last

    def _memories(self, command: Copy | CopyExperts | FillBank) -> tuple[str, str]:
        if isinstance(command, FillBank):
            bank = self.graph.find_bank(command.banks[0])
            assert bank is not None
            source, target = bank.caches, bank.name
        else:
            source, target = command.src, command.dst
        where = self.schedule.location
        return where(source).memory or "", where(target).memory or ""
