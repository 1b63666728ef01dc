"""An operational machine: a host, queues and transfers in flight, moving one step at a time.

The host walks through the script.  It waits for what runs on the host, and for ``sync_queue``
and ``sync_event``; everything else it only issues.  A queue works on its oldest entry; a
transfer in flight waits for nothing but the ``wait`` commands that its queue had before it.
Issuing, records and waits happen as soon as they can: doing them later allows no further order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.counterexample import Step
from ..model.device import HOST
from ..model.schedule import Schedule
from .script import Await, Drain, Issue, Place, Script, Signal, unroll


class IllegalOrder(ValueError):
    """An order of steps that the machine cannot take; the message says at which step."""


@dataclass(frozen=True, slots=True)
class Bias:
    """How eagerly parts of each kind move (weights), and how eagerly running parts end."""

    host: float = 1.0
    queue: float = 1.0
    flight: float = 1.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class _Record:
    """A record in a queue: it fires when the transfers that were in flight have ended."""

    number: int
    flights: frozenset[int]


class Machine:
    """One run of a script.  ``start`` and ``end`` take part numbers; ``startable`` and
    ``running`` say what can be done."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.host = 0
        self.queues: dict[str, deque[int | _Record | Await]] = {}
        self.waits_issued: dict[str, int] = {}
        self.waits_passed: dict[str, int] = {}
        #: part → (queue, how many waits of the queue must have passed)
        self.flights: dict[int, tuple[str, int]] = {}
        self.fired: set[int] = set()
        self.running: list[int] = []
        self.ended = bytearray(len(script.parts))
        self._settle()

    @property
    def done(self) -> bool:
        return self.host == len(self.script.actions) and not any(
            (self.running, self.flights, any(self.queues.values()))
        )

    def startable(self) -> list[int]:
        """The parts that can start now."""
        found = []
        if self.host < len(self.script.actions):
            action = self.script.actions[self.host]
            if isinstance(action, Issue):  # a settled host stands before parts of its own only
                found.append(action.part)
        for queue in self.queues.values():
            if queue and isinstance(queue[0], int):
                found.append(queue[0])
        for part, (name, waits) in self.flights.items():
            if self.waits_passed.get(name, 0) >= waits:
                found.append(part)
        return [part for part in found if part not in self.running]

    def start(self, part: int) -> None:
        self.running.append(part)

    def end(self, part: int) -> None:
        self.running.remove(part)
        self.ended[part] = 1
        where = self.script.parts[part]
        if where.place is Place.HOST:
            self.host += 1
        elif where.place is Place.QUEUE:
            self.queues[where.queue].popleft()
        else:
            del self.flights[part]
        self._settle()

    def _settle(self) -> None:
        """Let the host issue, and queues pass records and waits, until nothing moves."""
        moved = True
        while moved:
            moved = self._issue()
            for name, queue in self.queues.items():
                while queue and self._passes(name, queue[0]):
                    queue.popleft()
                    moved = True

    def _passes(self, name: str, entry: int | _Record | Await) -> bool:
        if isinstance(entry, _Record):
            if any(not self.ended[part] for part in entry.flights):
                return False
            self.fired.add(entry.number)
            return True
        if isinstance(entry, Await) and (entry.record is None or entry.record in self.fired):
            self.waits_passed[name] = self.waits_passed.get(name, 0) + 1
            return True
        return False

    def _issue(self) -> bool:
        before = self.host
        actions = self.script.actions
        while self.host < len(actions) and self._issue_one(actions[self.host]):
            self.host += 1
        return self.host > before

    def _issue_one(self, action: Issue | Signal | Await | Drain) -> bool:
        """Whether the host could move past the action."""
        if isinstance(action, Issue):
            part = self.script.parts[action.part]
            if part.place is Place.HOST:
                return False
            if part.place is Place.QUEUE:
                self.queues.setdefault(part.queue, deque()).append(action.part)
            else:
                self.flights[action.part] = part.queue, self.waits_issued.get(part.queue, 0)
            return True
        if isinstance(action, Drain):
            flying = any(queue == action.queue for queue, _ in self.flights.values())
            return not flying and not self.queues.get(action.queue)
        if action.queue == HOST:
            if isinstance(action, Signal):
                self.fired.add(action.record)
                return True
            return action.record is None or action.record in self.fired
        queue = self.queues.setdefault(action.queue, deque())
        if isinstance(action, Signal):
            flights = frozenset(p for p, (name, _) in self.flights.items() if name == action.queue)
            queue.append(_Record(action.record, flights))
        else:
            self.waits_issued[action.queue] = self.waits_issued.get(action.queue, 0) + 1
            queue.append(action)
        return True


# -- orders -----------------------------------------------------------------------------------


def random_order(
    schedule: Schedule,
    symbols: Mapping[str, int],
    rng: random.Random,
    *,
    bias: Bias | None = None,
) -> tuple[Step, ...]:
    """A complete legal order, drawn at random.

    Without a ``bias`` each order draws one, some of them extreme: a host that runs far ahead,
    a queue that hardly moves, transfers that do not end.  Those are the orders that show races.
    """
    script = unroll(schedule, symbols)
    return tuple(step_of(script, part, starts) for part, starts in random_moves(script, rng, bias))


def random_moves(
    script: Script, rng: random.Random, bias: Bias | None = None
) -> Iterator[tuple[int, bool]]:
    """``(part, whether it starts)`` of a random legal order."""
    weight = _weights(script, rng, bias)
    eager_end = bias.end if bias else rng.choice((0.05, 1.0, 20.0))
    machine = Machine(script)
    while True:
        choices = [(part, True, weight[script.parts[part].queue, script.parts[part].place])
                   for part in machine.startable()]  # fmt: skip
        choices += [
            (part, False, eager_end * weight[script.parts[part].queue, script.parts[part].place])
            for part in machine.running
        ]
        if not choices:
            return
        mark = rng.random() * sum(choice[2] for choice in choices)
        part, starts = choices[-1][:2]
        for candidate, phase, share in choices:
            mark -= share
            if mark <= 0:
                part, starts = candidate, phase
                break
        if starts:
            machine.start(part)
        else:
            machine.end(part)
        yield part, starts


def _weights(
    script: Script, rng: random.Random, bias: Bias | None
) -> dict[tuple[str, Place], float]:
    kinds = dict.fromkeys((part.queue, part.place) for part in script.parts)
    if bias is None:
        return {kind: rng.choice((0.02, 1.0, 50.0)) for kind in kinds}
    share = {Place.HOST: bias.host, Place.QUEUE: bias.queue, Place.FLIGHT: bias.flight}
    return {kind: share[kind[1]] for kind in kinds}


def issue_order(schedule: Schedule, symbols: Mapping[str, int]) -> tuple[Step, ...]:
    """The order in which every part runs to its end as soon as it can after its issue."""
    script = unroll(schedule, symbols)
    machine = Machine(script)
    steps = []
    while startable := machine.startable():
        part = min(startable)
        machine.start(part)
        machine.end(part)
        steps += [step_of(script, part, True), step_of(script, part, False)]
    return tuple(steps)


def step_of(script: Script, part: int, starts: bool) -> Step:
    where = script.parts[part]
    return Step(where.command, where.iteration, where.name, "start" if starts else "end")


def checked_moves(script: Script, order: Sequence[Step]) -> tuple[tuple[int, bool], ...]:
    """An order as ``(part, whether it starts)``; ``IllegalOrder`` unless it is complete and legal.

    Steps of records, waits and syncs may stand in an order; they move no bytes and are left out.
    """
    number = {(p.command, p.iteration, p.name): i for i, p in enumerate(script.parts)}
    machine = Machine(script)
    moves = []
    for place, step in enumerate(order):
        part = number.get((step.command, step.iteration, step.part))
        if part is None:
            if _moves_nothing(script, step):
                continue
            raise IllegalOrder(
                f"step {place} ({_text(step)}): there is no such part at these symbols"
            )
        if step.phase == "start":
            if part not in machine.startable():
                raise IllegalOrder(f"step {place} ({_text(step)}) {_why(machine, part)}")
            machine.start(part)
        else:
            if part not in machine.running:
                raise IllegalOrder(f"step {place} ({_text(step)}): it ends but is not running")
            machine.end(part)
        moves.append((part, step.phase == "start"))
    if not machine.done:
        left = [str(p) for i, p in enumerate(script.parts) if not machine.ended[i]]
        raise IllegalOrder(f"the order is not complete: {left[0]} has not ended")
    return tuple(moves)


def legal(schedule: Schedule, symbols: Mapping[str, int], order: Sequence[Step]) -> bool:
    """Whether an order is complete and the machine can take it."""
    try:
        checked_moves(unroll(schedule, symbols), order)
    except IllegalOrder:
        return False
    return True


def _moves_nothing(script: Script, step: Step) -> bool:
    program = script.schedule.program or ()
    if not 0 <= step.command < len(program) or not 0 <= step.iteration < script.schedule.repeat:
        return False
    command = program[step.command]
    if command.do in ("record", "wait", "sync_event", "sync_queue"):
        return True
    # A copy_experts that takes over an earlier set reads no ids.
    return step.part == "read" and getattr(command, "used_from", None) is not None


def _why(machine: Machine, part: int) -> str:
    if machine.ended[part] or part in machine.running:
        return "starts a second time"
    where = machine.script.parts[part]
    waiting = machine.queues.get(where.queue)
    if waiting and part in waiting:
        head = waiting[0]
        if isinstance(head, int):
            return f"starts too early: {where.queue} is at {machine.script.parts[head]}"
        return f"starts too early: {where.queue} stands before an event"
    if part in machine.flights:
        return f"starts too early: a wait of {where.queue} before it has not passed"
    return "starts before the host has come to it"


def _text(step: Step) -> str:
    part = "" if step.part == "main" else f" {step.part}"
    return f"command {step.command}{part} {step.phase}, pass {step.iteration}"
