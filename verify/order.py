"""Happens-before: which parts of commands are ordered in every execution.

A command has one part, or two where the host does something at issue and a queue the rest
(a staged copy, ``copy_experts``, ``fill_bank``).  Parts live on *chains*: the host, and one
chain a queue.  A part's vector clock says how far each chain must have come before it starts.
A copy under the ``unordered`` contract is on no chain: it follows the last wait of its queue
and the host, and is followed by the queue's next record and the host's next wait for the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

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
from .closure import (
    NONE,
    PLAIN,
    RECORD,
    SYNC_EVENT,
    SYNC_QUEUE,
    VOID,
    WAIT,
    Clocks,
    Ints,
    Steps,
    closure,
)

#: From so many parts the compiled twin is worth its loading time: rows are shared, so that plain
#: Python takes under 2 µs a part, and Numba takes over half a second to load.
LARGE = 400_000


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

    parts: list[Part]
    by_command: dict[tuple[int, int], tuple[Part, ...]]
    #: waits that name an event that their queue cannot wait for: ``(command, iteration)``
    void_waits: list[tuple[int, int]]
    #: waits and event syncs of the last pass that no record precedes
    unmet_waits: list[tuple[int, int]]
    steps: Steps
    clocks: Clocks
    width: int
    #: chain of each part, ``NONE`` of a loose one
    _chain: Ints
    _edges: list[tuple[int, ...]] | None = None

    def before(self, a: int, b: int) -> bool:
        """Whether part ``a`` ends before part ``b`` starts in every execution."""
        if a >= b:
            return False  # nothing that is issued later must end first
        chain = self._chain[a]
        if chain == 0 or chain == self._chain[b] != NONE:
            return True
        if chain != NONE:
            return self.clocks.rows[self.clocks.row[b] * self.width + chain] >= a
        followers = self.clocks.recorded[a], self.clocks.synced[a]
        return any(f == b or (f != NONE and self.before(f, b)) for f in followers)

    def part(self, command: int, iteration: int, name: str | None = None) -> Part:
        """The part of that name; without a name the last (the one that writes)."""
        parts = self.by_command[command, iteration]
        return parts[-1] if name is None else next(p for p in parts if p.name == name)

    @property
    def edges(self) -> list[tuple[int, ...]]:
        """Direct predecessors of each part, enough to imply the rest."""
        if self._edges is None:
            self._edges = list(self._direct())
        return self._edges

    def _direct(self) -> Iterator[tuple[int, ...]]:
        chain_of, loose, does, of, _ = self.steps
        tails, waits = [NONE] * self.width, [NONE] * self.width
        followed: dict[int, list[int]] = {}  # loose parts, by what follows them
        for part, chain in enumerate(chain_of):
            found = [tails[0], waits[chain] if loose[part] else tails[chain]]
            if loose[part]:
                for follower in (self.clocks.recorded[part], self.clocks.synced[part]):
                    followed.setdefault(follower, []).append(part)
            else:
                found += [self.clocks.met[part], *followed.get(part, ())]
                if does[part] == SYNC_QUEUE and of[part] > 0:
                    found.append(tails[of[part]])
                if does[part] == WAIT:
                    waits[chain] = part
                tails[chain] = part
            yield tuple(dict.fromkeys(other for other in found if other >= 0))


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


_DOES = {Record: RECORD, Wait: WAIT, SyncEvent: SYNC_EVENT, SyncQueue: SYNC_QUEUE}


class _Numbers:
    """Queues, events and devices as the numbers that the closure works on."""

    def __init__(self, schedule: Schedule, queues: Iterable[str]) -> None:
        self.schedule = schedule
        self.chains = {HOST: 0}
        for queue in queues:
            self.chains.setdefault(queue, len(self.chains))
        self.events: dict[str, int] = {}
        self.kinds = [HOST, *(device.name for device in schedule.graph.devices)]
        self._kind = {name: number for number, name in enumerate(self.kinds)}

    def of(self, command: Command) -> tuple[int, int, int]:
        """``(does, of, kind)`` of :class:`.closure.Steps`."""
        does = _DOES.get(type(command), PLAIN)
        if isinstance(command, SyncQueue):
            return does, self.chains.get(command.queue, NONE), 0
        if not isinstance(command, Record | Wait | SyncEvent):
            return does, NONE, 0
        event = self.events.setdefault(command.event, len(self.events))
        if isinstance(command, SyncEvent):
            return does, event, 0
        return does, event, self._kind[self.schedule.queue_device(command.queue)]

    def may_wait(self) -> list[int]:
        """Of each two devices: whether queues of the first can wait for events of the second."""
        device = self.schedule.graph.device
        return [
            int(waiter == HOST or device(waiter).may_wait_for(kind))
            for waiter in self.kinds
            for kind in self.kinds
        ]


def build_order(
    schedule: Schedule, exists: Callable[[int, int], bool], compiled: bool | None = None
) -> Order:
    """The order of all passes; ``exists(command, iteration)`` says which commands there are.

    ``compiled``: which twin of the closure runs (``None``: by the program's size).
    """
    assert schedule.program is not None
    names = [part_names(schedule, command) for command in schedule.program]
    numbers = _Numbers(schedule, (queue for named in names for _, queue, _ in named))
    actions = [numbers.of(command) for command in schedule.program]
    parts: list[Part] = []
    by_command: dict[tuple[int, int], tuple[Part, ...]] = {}
    done: list[tuple[int, int, int]] = []
    for iteration in range(schedule.repeat):
        for index, named in enumerate(names):
            if exists(index, iteration):
                first = len(parts)
                for name, queue, loose in named:
                    parts.append(Part(len(parts), index, iteration, name, queue, loose))
                    done.append(actions[index])
                by_command[index, iteration] = tuple(parts[first:])
    chain = [numbers.chains[part.queue] for part in parts]
    free = [int(part.loose) for part in parts]
    does = [entry[0] for entry in done]
    steps = Steps(chain, free, does, [entry[1] for entry in done], [entry[2] for entry in done])
    width = len(numbers.chains)
    if compiled is None:
        compiled = len(parts) >= LARGE
    run = _compiled if compiled else _plain
    clocks = run(steps, width, numbers)
    waits = [part for part in parts if does[part.index] in (WAIT, SYNC_EVENT)]
    return Order(
        parts, by_command,
        [(p.command, p.iteration) for p in waits if clocks.met[p.index] == VOID],
        [
            (p.command, p.iteration)
            for p in waits
            if clocks.met[p.index] == NONE and p.iteration == schedule.repeat - 1
        ],
        steps, clocks, width,
        [NONE if loose else c for c, loose in zip(chain, free, strict=True)],
    )  # fmt: skip


def _plain(steps: Steps, width: int, numbers: _Numbers) -> Clocks:
    count = len(steps.chain)
    none = [NONE] * count
    out = Clocks([0] * count, [0] * ((4 * count + 1) * width), none, none.copy(), none.copy())
    kinds, events = len(numbers.kinds), [NONE] * len(numbers.events)
    used = closure(steps, width, kinds, numbers.may_wait(), events, [NONE] * (6 * width), out)
    del out.rows[used * width :]
    return out


def _compiled(steps: Steps, width: int, numbers: _Numbers) -> Clocks:
    from .closure_compiled import run

    return run(steps, width, len(numbers.kinds), numbers.may_wait(), len(numbers.events))
