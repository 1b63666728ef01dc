"""Waits for commands that have none: every two uses of the same bytes in the order of issue.

A command that uses bytes which another queue has used before waits for an event that is recorded
right after that use: of this pass, or, if that use comes later in the program, of the pass before.
The host waits where a host command uses the bytes, and for devices without events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..command import (
    Callback,
    Command,
    Compute,
    Copy,
    CopyExperts,
    FillBank,
    GetOutput,
    Prefetch,
    Record,
    SetInput,
    SyncEvent,
    SyncQueue,
    Wait,
)
from ..device import HOST
from ..schedule import Schedule
from ..symbol import ALWAYS, Condition
from .access import EVERYTHING, Access, Accesses
from .guard import NONE_OFF, Guard, Off

_COPIES = Copy, CopyExperts
#: Who waits for whom, and whether before a read or before a write.
_WAITS: dict[Guard, tuple[tuple[type[Command], ...], tuple[type[Command], ...], bool]] = {
    Guard.PREFETCH_AWAITED: ((Compute,), (Prefetch,), False),
    Guard.SLOT_READERS: ((Prefetch,), (Compute,), True),
    Guard.COPY_AWAITED: ((Compute,), _COPIES, False),
    Guard.SOURCE_AWAITED: (_COPIES, (Compute,), False),
    Guard.TARGET_READERS: (_COPIES, (Compute,), True),
    Guard.IDS_AWAITED: ((CopyExperts, FillBank), (Compute,), False),
    Guard.FILL_AWAITED: ((Compute,), (FillBank,), False),
    Guard.VICTIM_READERS: ((FillBank,), (Compute,), True),
    Guard.INPUT_READERS: ((SetInput,), (Command,), True),
    Guard.CALLBACK_READERS: ((Callback,), (Command,), True),
    Guard.OUTPUT_AWAITED: ((GetOutput,), (Command,), False),
}


@dataclass(frozen=True, slots=True)
class _Due:
    """A use that must have ended before a part of a command on the queue ``waiter`` starts: the
    last of its kind on its queue.  ``loose``: one of both is an unordered copy, so that a common
    queue does not order them.

    ``rank``: its place in issue order, counted from this pass's first command; below zero in an
    earlier pass.  ``tells``: it was in the pass that the rank says, so that its end tells of all
    that its queue did before.
    """

    number: int
    waiter: str
    queue: str
    when: Condition
    rank: int
    loose: bool
    tells: bool


@dataclass(slots=True)
class _Known:
    """Up to which rank a waiter has seen the end of a queue's work, per guard of the wait."""

    ranks: dict[tuple[str, str, Condition], int] = field(default_factory=dict)

    def reached(self, waiter: str, queue: str, when: Condition) -> int:
        places = ((w, queue, g) for w in (waiter, HOST) for g in (when, ALWAYS))
        return max(self.ranks.get(place, _NOTHING) for place in places)

    def reach(self, waiter: str, queue: str, when: Condition, rank: int) -> None:
        place = waiter, queue, when
        self.ranks[place] = max(self.ranks.get(place, _NOTHING), rank)


_NOTHING = -(1 << 60)


def synchronize(
    schedule: Schedule, program: Sequence[Command], off: Off = NONE_OFF
) -> tuple[Command, ...]:
    """The program with all records, waits and host waits that its uses of bytes ask for.

    ``program``: commands without any of these.  ``off``: dependences that do not count.
    """
    return tuple(_Synchronizer(schedule, program, off).commands())


class _Synchronizer:
    def __init__(self, schedule: Schedule, program: Sequence[Command], off: Off) -> None:
        self.schedule, self.graph = schedule, schedule.graph
        self.program = program
        self.ignored = [waits for guard, waits in _WAITS.items() if guard in off]
        accesses = Accesses(schedule)
        self.uses = [accesses.of(command) for command in program]
        self.by_space: dict[str, list[tuple[int, Access]]] = {}
        for number, found in enumerate(self.uses):
            for access in found:
                self.by_space.setdefault(access.space, []).append((number, access))
        self.written = {
            space for space, users in self.by_space.items() if any(a.writes for _, a in users)
        }
        self.everything = self.by_space.get(EVERYTHING, [])
        self.known = _Known()
        #: what is issued just before each command, and after which commands an event is recorded
        self.before: dict[int, list[Command]] = {}
        self.recorded: set[int] = set()

    def commands(self) -> Iterator[Command]:
        for number in range(len(self.program)):
            self.before[number] = list(self.waits(number))
        for number, command in enumerate(self.program):
            yield from self.before[number]
            yield command
            if number in self.recorded:
                queue = self.queue(number)
                yield Record(
                    event=self.event(number), queue=queue, when=command.when, split=command.split
                )

    # -- waits ----------------------------------------------------------------------------------

    def waits(self, number: int) -> Iterator[Command]:
        command = self.program[number]
        for due in self.dues(number):
            yield from self.wait(number, due, command)

    def wait(self, number: int, due: _Due, command: Command) -> Iterator[Command]:
        waiter = due.waiter
        if waiter == due.queue and not due.loose:
            return  # in order
        if due.rank <= self.known.reached(waiter, due.queue, command.when):
            return
        device = self.graph.device(self.schedule.queue_device(due.queue))
        guard = command.when
        if not device.events:
            # All that was issued before this command, which may itself run on that queue.
            self.known.reach(HOST, due.queue, guard, number - 1)
            yield SyncQueue(queue=due.queue, when=guard, split=command.split)
            return
        self.recorded.add(due.number)
        event = self.event(due.number)
        if waiter != HOST:
            waits = self.graph.device(self.schedule.queue_device(waiter))
            if waits.may_wait_for(device.name):
                self.reach(waiter, due, guard)
                yield Wait(event=event, queue=waiter, when=guard, split=command.split)
                return
        self.reach(HOST, due, guard)
        yield SyncEvent(event=event, when=guard, split=command.split)

    def reach(self, waiter: str, due: _Due, guard: Condition) -> None:
        if due.tells:
            self.known.reach(waiter, due.queue, guard, due.rank)

    # -- dependences ----------------------------------------------------------------------------

    def dues(self, number: int) -> list[_Due]:
        """What must have ended: before the host's part first, and of each queue's uses the
        latest, as it covers what its queue did before."""
        when = self.program[number].when
        found: dict[tuple[str, str, Condition, bool, bool], _Due] = {}
        for access in self.uses[number]:
            for other, use in self.users(access):
                if use.queue == HOST or other == number:
                    continue
                if not self.due_to(number, access, other, use):
                    continue
                due = self.due(number, access, other, use)
                # A use under another guard may be of this pass or of one before: both count.
                earlier = other < number and due.when not in (ALWAYS, when)
                key = access.queue, use.queue, due.when, due.loose, earlier
                if key not in found or found[key].rank < due.rank:
                    found[key] = due
        return sorted(found.values(), key=lambda due: (due.waiter != HOST, -due.rank))

    def due_to(self, number: int, access: Access, other: int, use: Access) -> bool:
        """Whether one access has to wait for another."""
        if not _conflict(access, use):
            return False
        waiter, awaited = self.program[number], self.program[other]
        return not any(
            isinstance(waiter, waiters) and isinstance(awaited, others) and access.writes == writes
            for waiters, others, writes in self.ignored
        )

    def due(self, number: int, access: Access, other: int, use: Access) -> _Due:
        guard = self.program[other].when
        same_pass = other < number
        tells = guard == ALWAYS or (guard == self.program[number].when and same_pass)
        rank = other if same_pass else other - len(self.program)
        loose = access.loose or use.loose
        return _Due(other, access.queue, use.queue, guard, rank, loose, tells)

    def users(self, access: Access) -> list[tuple[int, Access]]:
        if access.space == EVERYTHING:
            return [user for users in self.by_space.values() for user in users]
        if access.space not in self.written and not self.everything:
            return []
        return self.by_space[access.space] + self.everything

    def queue(self, number: int) -> str:
        return next(a.queue for a in self.uses[number] if a.queue != HOST)

    def event(self, number: int) -> str:
        return f"{self.queue(number)} {number}"


def _conflict(a: Access, b: Access) -> bool:
    if not (a.writes or b.writes):
        return False
    return a.space == b.space or EVERYTHING in (a.space, b.space)
