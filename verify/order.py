"""Happens-before: which parts of commands are ordered in every execution.

A command has one part, or two where the host does something at issue and a queue the rest
(a staged copy, ``copy_experts``, ``fill_bank``).  Parts live on *chains*: the host, and one
chain a queue.  A part's vector clock says how far each chain must have come before it starts.
A copy under the ``unordered`` contract is on no chain: it follows the last wait of its queue
and the host, and is followed by the queue's next record and the host's next wait for the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..model.command import (
    Command,
    Copy,
    CopyExperts,
    FillBank,
    Record,
    SyncEvent,
    SyncQueue,
    Wait,
)
from ..model.device import HOST, Contract
from ..model.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Part:
    """What runs as one piece.  ``index``: its place in issue order, over all passes."""

    index: int
    command: int
    iteration: int
    name: str
    queue: str
    loose: bool = False  # an unordered copy: on no chain


@dataclass(slots=True)
class Order:
    """The parts of all passes, and ``before(a, b)``: a has ended when b starts, always."""

    parts: list[Part] = field(default_factory=list)
    by_command: dict[tuple[int, int], tuple[Part, ...]] = field(default_factory=dict)
    #: direct predecessors of each part, enough to imply the rest
    edges: list[tuple[int, ...]] = field(default_factory=list)
    #: waits that name an event that their queue cannot wait for: ``(command, iteration)``
    void_waits: list[tuple[int, int]] = field(default_factory=list)
    #: waits and event syncs of the last pass that no record precedes
    unmet_waits: list[tuple[int, int]] = field(default_factory=list)
    _chain: list[int] = field(default_factory=list)
    _position: list[int] = field(default_factory=list)
    _clock: list[tuple[int, ...]] = field(default_factory=list)
    #: for loose parts: what follows them directly
    _followers: dict[int, list[int]] = field(default_factory=dict)

    def before(self, a: int, b: int) -> bool:
        """Whether part ``a`` ends before part ``b`` starts in every execution."""
        if a == b:
            return False
        chain = self._chain[a]
        if chain >= 0:
            return self._clock[b][chain] >= self._position[a]
        return any(f == b or self.before(f, b) for f in self._followers[a])

    def part(self, command: int, iteration: int, name: str | None = None) -> Part:
        """The part of that name; without a name the last (the one that writes)."""
        parts = self.by_command[command, iteration]
        return parts[-1] if name is None else next(p for p in parts if p.name == name)


def part_names(schedule: Schedule, command: Command) -> tuple[tuple[str, str, bool], ...]:
    """``(part, queue, loose)`` of a command, in the order in which they happen."""
    queue = schedule.queue_of(command)
    if not isinstance(command, Copy | CopyExperts | FillBank):
        return (("main", queue, False),)
    two = not isinstance(command, Copy)
    contract = copy_contract(schedule, command)
    on_host = queue == HOST or contract is Contract.SYNC
    if on_host:
        return (("read", HOST, False), ("write", HOST, False)) if two else (("main", HOST, False),)
    loose = contract is Contract.UNORDERED
    if two or contract is Contract.STAGED:
        return (("read", HOST, False), ("write", queue, loose))
    return (("main", queue, loose),)


def copy_contract(schedule: Schedule, command: Copy | CopyExperts | FillBank) -> Contract:
    """The contract of the bytes that a command moves; on the host it plays no part."""
    device = schedule.queue_device(command.queue)
    if schedule.queue_of(command) == HOST or device == HOST:
        return Contract.STREAM
    memories = copy_memories(schedule, command)
    contract = schedule.graph.device(device).contract(*memories)
    if contract is None:
        raise ValueError(
            f"device {device!r} has no copy contract from {memories[0]} to {memories[1]}"
        )
    return contract


def copy_memories(schedule: Schedule, command: Copy | CopyExperts | FillBank) -> tuple[str, str]:
    """The memories that a copy goes from and to."""
    if isinstance(command, FillBank):
        bank = schedule.graph.find_bank(command.banks[0])
        assert bank is not None
        source, target = bank.caches, bank.name
    else:
        source, target = command.src, command.dst
    return schedule.location(source).memory or "", schedule.location(target).memory or ""


@dataclass(slots=True)
class _Builder:
    schedule: Schedule
    order: Order
    chains: dict[str, int]
    tails: list[int]  # last part of each chain, -1 if none
    last_wait: dict[str, int] = field(default_factory=dict)
    records: dict[str, tuple[int, str]] = field(default_factory=dict)  # event → (part, queue)
    pending: dict[str, list[int]] = field(default_factory=dict)  # queue → loose, no record yet
    unsynced: dict[str, list[int]] = field(default_factory=dict)  # queue → loose, no host wait yet

    def add(self, command: int, iteration: int, name: str, queue: str, loose: bool) -> Part:
        order = self.order
        part = Part(len(order.parts), command, iteration, name, queue, loose)
        order.parts.append(part)
        edges = [self.tails[0]] if self.tails[0] >= 0 else []
        chain = self.chains[queue]
        if loose:
            wait = self.last_wait.get(queue)
            edges += [wait] if wait is not None else []
            order._chain.append(-1)
            order._position.append(-1)
            order._followers[part.index] = []
            self.pending.setdefault(queue, []).append(part.index)
            self.unsynced.setdefault(queue, []).append(part.index)
        else:
            edges += [self.tails[chain]] if chain and self.tails[chain] >= 0 else []
            order._chain.append(chain)
            order._position.append(self._next(chain))
            self.tails[chain] = part.index
        order.edges.append(tuple(edges))
        order._clock.append(self._join(edges))
        return part

    def _next(self, chain: int) -> int:
        tail = self.tails[chain]
        return 0 if tail < 0 else self.order._position[tail] + 1

    def _join(self, predecessors: list[int]) -> tuple[int, ...]:
        clock = [-1] * len(self.chains)
        for index in predecessors:
            for chain, position in enumerate(self.order._clock[index]):
                clock[chain] = max(clock[chain], position)
            chain = self.order._chain[index]
            if chain >= 0:
                clock[chain] = max(clock[chain], self.order._position[index])
        return tuple(clock)

    def follow(self, part: Part, predecessors: list[int]) -> None:
        """Order ``predecessors`` before a part that is the last of its chain."""
        order = self.order
        for index in predecessors:
            if order._chain[index] < 0:
                order._followers[index].append(part.index)
        joined = self._join(predecessors)
        known = order._clock[part.index]
        order._clock[part.index] = tuple(map(max, known, joined))
        order.edges[part.index] += tuple(predecessors)

    def link(self, part: Part, command: Command) -> None:
        """The edges that waits, records and host synchronisation add."""
        if isinstance(command, Record):
            self.follow(part, self.pending.pop(command.queue, []))
            self.records[command.event] = (part.index, command.queue)
        elif isinstance(command, Wait | SyncEvent):
            self._await(part, command)
        elif isinstance(command, SyncQueue) and command.queue in self.chains:
            tail = self.tails[self.chains[command.queue]] if command.queue != HOST else -1
            awaited = self.unsynced.pop(command.queue, [])
            self.follow(part, awaited + ([tail] if tail >= 0 else []))

    def _await(self, part: Part, command: Wait | SyncEvent) -> None:
        record = self.records.get(command.event)
        place = (part.command, part.iteration)
        if isinstance(command, Wait):
            self.last_wait[command.queue] = part.index
        if record is None:
            if part.iteration == self.schedule.repeat - 1:
                self.order.unmet_waits.append(place)
            return
        index, queue = record
        if isinstance(command, SyncEvent):
            self.follow(part, [index])
            return
        waiter = self.schedule.queue_device(command.queue)
        kind = self.schedule.queue_device(queue)
        if waiter == HOST or self.schedule.graph.device(waiter).may_wait_for(kind):
            self.follow(part, [index])
        else:
            self.order.void_waits.append(place)


def build_order(schedule: Schedule, exists: Callable[[int, int], bool]) -> Order:
    """The order of all passes; ``exists(command, iteration)`` says which commands there are."""
    assert schedule.program is not None
    names = [part_names(schedule, command) for command in schedule.program]
    chains = {HOST: 0}
    for named in names:
        for _, queue, _ in named:
            chains.setdefault(queue, len(chains))
    builder = _Builder(schedule, Order(), chains, [-1] * len(chains))
    for iteration in range(schedule.repeat):
        for index, command in enumerate(schedule.program):
            if not exists(index, iteration):
                continue
            parts = tuple(builder.add(index, iteration, *name) for name in names[index])
            builder.order.by_command[index, iteration] = parts
            builder.link(parts[-1], command)
    return builder.order
