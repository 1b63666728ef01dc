"""A program unrolled at concrete symbols: what the host does, step by step, over all passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..model.command import (
    Command,
    Compute,
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
from ..model.symbol import PASS


class Place(StrEnum):
    """Where a part runs: the host waits for it, a queue does it in turn, or it is in flight."""

    HOST = "host"
    QUEUE = "queue"
    FLIGHT = "flight"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a command that starts and ends on its own."""

    command: int
    iteration: int
    name: str
    place: Place
    queue: str

    def __str__(self) -> str:
        part = "" if self.name == "main" else f" ({self.name})"
        return f"command {self.command}{part} of pass {self.iteration}"


@dataclass(frozen=True, slots=True)
class Issue:
    """The host issues part number ``part`` (and waits for it if its place is the host)."""

    part: int


@dataclass(frozen=True, slots=True)
class Signal:
    """The host issues record number ``record`` on a queue."""

    queue: str
    record: int


@dataclass(frozen=True, slots=True)
class Await:
    """A queue (or the host) waits for a record; ``None``: the wait orders nothing."""

    queue: str
    record: int | None


@dataclass(frozen=True, slots=True)
class Drain:
    """The host waits for all that was issued on a queue."""

    queue: str


Action = Issue | Signal | Await | Drain


class ContractError(ValueError):
    """A copy between two memories for which its device has no contract."""


@dataclass(frozen=True, slots=True)
class Script:
    """``actions`` in host order; ``parts`` by number; commands whose guards fail are absent."""

    schedule: Schedule
    parts: tuple[Part, ...]
    actions: tuple[Action, ...]

    @property
    def instances(self) -> tuple[tuple[int, int], ...]:
        """``(command, pass)`` of everything that has a part, as issued."""
        return tuple(dict.fromkeys((part.command, part.iteration) for part in self.parts))


def symbol_values(schedule: Schedule, given: Mapping[str, int]) -> dict[str, int]:
    """A value for each symbol: the given one, else its upper bound.  ``ValueError`` for a symbol
    that there is not, and for a value that the proof does not cover."""
    ranges = schedule.graph.ranges
    for name, value in given.items():
        if name not in ranges:
            raise ValueError(f"there is no symbol {name}; known: {', '.join(ranges) or 'none'}")
        low, high = ranges[name]
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}; the proof covers {low} to {high}")
    return {name: given.get(name, high) for name, (low, high) in ranges.items()}


def unroll(schedule: Schedule, symbols: Mapping[str, int]) -> Script:
    """The script of a program-level schedule.  ``ValueError`` below that level."""
    if schedule.program is None:
        raise ValueError(f"a schedule of level {schedule.level} has no program: lower it first")
    parts: list[Part] = []
    actions: list[Action] = []
    latest: dict[str, tuple[int, str]] = {}
    for pass_ in range(schedule.repeat):
        at = {**symbols, PASS: pass_}
        for index, command in enumerate(schedule.program):
            if not exists(schedule, command, at):
                continue
            if isinstance(command, Record | Wait | SyncEvent | SyncQueue):
                action = _ordering(schedule, command, latest, len(actions))
                if action is not None:
                    actions.append(action)
                continue
            for name, place in parts_of(schedule, command):
                actions.append(Issue(len(parts)))
                parts.append(Part(index, pass_, name, place, schedule.queue_of(command)))
    return Script(schedule, tuple(parts), tuple(actions))


def exists(schedule: Schedule, command: Command, at: Mapping[str, int]) -> bool:
    """Whether a command exists in the pass that ``at`` (with ``pass``) describes."""
    if not command.when.holds(at):
        return False
    return not isinstance(command, Compute) or schedule.graph.node(command.node).when.holds(at)


def parts_of(schedule: Schedule, command: Command) -> tuple[tuple[str, Place], ...]:
    """``(name, place)`` of the parts of a command that is no record, wait or sync."""
    if not isinstance(command, Copy | CopyExperts | FillBank):
        host = schedule.queue_of(command) == HOST
        return (("main", Place.HOST if host else Place.QUEUE),)
    contract = upload_contract(schedule, command)
    place = {
        None: Place.HOST,
        Contract.SYNC: Place.HOST,
        Contract.STREAM: Place.QUEUE,
        Contract.STAGED: Place.QUEUE,
        Contract.UNORDERED: Place.FLIGHT,
    }[contract]
    reads_on_host = not isinstance(command, Copy) or contract is Contract.STAGED
    if isinstance(command, CopyExperts) and command.used_from is not None:
        reads_on_host = contract is Contract.STAGED
    if reads_on_host:
        return ("read", Place.HOST), ("write", place)
    return (("write" if isinstance(command, CopyExperts) else "main", place),)


def upload_contract(schedule: Schedule, command: Copy | CopyExperts | FillBank) -> Contract | None:
    """The contract of a command that moves bytes; ``None`` where the host moves them."""
    queue = schedule.queue_of(command)
    if queue == HOST:
        return None
    if isinstance(command, FillBank):
        bank = schedule.graph.find_bank(command.banks[0])
        if bank is None:
            raise ContractError(f"fill_bank names {command.banks[0]}, which is no bank")
        source, target = bank.caches, bank.name
    else:
        source, target = command.src, command.dst
    memories = [schedule.location(name).memory for name in (source, target)]
    device = schedule.graph.device(schedule.queue_device(queue))
    contract = device.contract(str(memories[0]), str(memories[1]))
    if contract is None:
        raise ContractError(
            f"{command.do} {source} to {target} on {queue}: {device.name} declares no contract "
            f"for copies from {memories[0]} to {memories[1]}"
        )
    return contract


def _ordering(
    schedule: Schedule,
    command: Record | Wait | SyncEvent | SyncQueue,
    latest: dict[str, tuple[int, str]],
    number: int,
) -> Action | None:
    if isinstance(command, SyncQueue):
        device = schedule.queue_device(command.queue)
        idle = device == HOST or not schedule.graph.device(device).asynchronous
        return None if idle else Drain(command.queue)
    queue = schedule.queue_of(command)
    if isinstance(command, Record):
        latest[command.event] = (number, schedule.queue_device(queue))
        return Signal(queue, number)
    record = latest.get(command.event)
    if record is None:
        return Await(queue, None)
    if queue != HOST:
        waiter = schedule.graph.device(schedule.queue_device(queue))
        if not waiter.may_wait_for(record[1]):
            return Await(queue, None)
    return Await(queue, record[0])
