"""What a program orders, as far as an allocator needs it: clocks of its accesses.

The parts of commands run on chains: the host, and one chain a queue.  A clock says for each
chain how many of its parts have certainly ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..command import Command, Record, SyncEvent, SyncQueue, Wait
from ..device import HOST
from ..schedule import Schedule
from ..symbol import PASS
from .access import Access, Accesses

#: The end of what nothing awaits.
NEVER = 1 << 60

Clock = tuple[int, ...]


@dataclass(slots=True)
class Use:
    """An access in one pass: the clock when it starts, and the chain and count of its end.

    ``ends`` is where a later command must have come; for an unordered copy that is the next
    record or host wait.
    """

    access: Access
    number: int
    turn: int
    start: Clock
    chain: int
    ends: int


@dataclass(slots=True)
class _Run:
    clocks: list[list[int]]
    counts: list[int]
    chains: dict[str, int]
    records: dict[str, tuple[list[int], str]] = field(default_factory=dict)
    last_wait: dict[str, list[int]] = field(default_factory=dict)
    loose: dict[str, list[Use]] = field(default_factory=dict)


def uses(schedule: Schedule, passes: int) -> list[Use]:
    """All accesses of a program in so many passes, in issue order.

    Guards are taken at the passes alone: a command that may exist is there, and a wait that may
    be missing is not.
    """
    assert schedule.program is not None
    accesses = Accesses(schedule)
    chains = {HOST: 0}
    for device in schedule.graph.devices:
        if device.asynchronous:
            for queue in device.queues:
                chains[f"{device.name}.{queue}"] = len(chains)
    width = len(chains)
    run = _Run([[0] * width for _ in chains], [0] * width, chains)
    known = [accesses.of(command) for command in schedule.program]
    found: list[Use] = []
    for turn in range(passes):
        for number, command in enumerate(schedule.program):
            guard = command.when.substitute({PASS: turn})
            if any(not part.symbols for part in guard.parts):
                continue  # false in this pass
            if guard.symbols and isinstance(command, Wait | SyncEvent | SyncQueue | Record):
                continue
            _step(schedule, run, command, known[number], number, turn, found)
    return found


def _step(
    schedule: Schedule,
    run: _Run,
    command: Command,
    accesses: tuple[Access, ...],
    number: int,
    turn: int,
    found: list[Use],
) -> None:
    host = run.clocks[0]
    if isinstance(command, SyncQueue):
        _host_waits(run, command.queue)
    elif isinstance(command, Record):
        chain = run.chains[command.queue]
        clock = _tick(run, chain)
        run.records[command.event] = (clock, command.queue)
        for use in run.loose.get(command.queue, ()):
            if use.ends == NEVER:
                use.chain, use.ends = chain, run.counts[chain]
    elif isinstance(command, SyncEvent | Wait):
        record = run.records.get(command.event)
        if isinstance(command, Wait):
            _wait(schedule, run, command, record)
        elif record is not None:
            _join(host, record[0])
            _tick(run, 0)
    else:
        for queue in dict.fromkeys(a.queue for a in accesses):
            here = [a for a in accesses if a.queue == queue]
            _part(run, queue, here, number, turn, found)


def _part(
    run: _Run, queue: str, here: list[Access], number: int, turn: int, found: list[Use]
) -> None:
    chain = run.chains[queue]
    if any(a.loose for a in here):
        start = list(run.clocks[0])
        _join(start, run.last_wait.get(queue, start))
        for access in here:
            use = Use(access, number, turn, tuple(start), chain, NEVER)
            run.loose.setdefault(queue, []).append(use)
            found.append(use)
        return
    _join(run.clocks[chain], run.clocks[0])
    start = list(run.clocks[chain])
    _tick(run, chain)
    for access in here:
        found.append(Use(access, number, turn, tuple(start), chain, run.counts[chain]))


def _wait(
    schedule: Schedule, run: _Run, command: Wait, record: tuple[list[int], str] | None
) -> None:
    queue = schedule.queue_of(command)
    chain = run.chains[queue]
    clock = run.clocks[chain]
    _join(clock, run.clocks[0])
    if record is not None:
        waiter, kind = (schedule.queue_device(q) for q in (queue, record[1]))
        if waiter == HOST or schedule.graph.device(waiter).may_wait_for(kind):
            _join(clock, record[0])
    run.last_wait[queue] = _tick(run, chain)


def _host_waits(run: _Run, queue: str) -> None:
    if queue not in run.chains:
        return
    _join(run.clocks[0], run.clocks[run.chains[queue]])
    _tick(run, 0)
    for use in run.loose.pop(queue, []):
        if use.ends == NEVER:
            use.chain, use.ends = 0, run.counts[0]


def _tick(run: _Run, chain: int) -> list[int]:
    """One more part of a chain ends; its clock with it."""
    if chain:
        _join(run.clocks[chain], run.clocks[0])
    run.counts[chain] += 1
    run.clocks[chain][chain] = run.counts[chain]
    return list(run.clocks[chain])


def _join(clock: list[int], other: list[int]) -> None:
    for k, count in enumerate(other):
        if count > clock[k]:
            clock[k] = count
