"""One round of a program on streams: what the host issues, and when each part is let go.

The streams are those of a GPU (``streams.py``) or ones that are played (``played.py``).  A round
is free, with random delays, or follows a timetable: each part starts and ends at the place that an
order of steps gives it, so that a counterexample happens as it was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from deeds import Deed, Plan
from splitproof.exec.interleave import checked_moves
from splitproof.exec.script import Action, Await, Drain, Issue, Place, Signal
from splitproof.model.counterexample import Step
from splitproof.model.device import HOST

#: Part → when it starts and ends, in steps of the order.
Timetable = Mapping[int, tuple[int, int]]


class Executor(Protocol):
    """Where a round runs.  Times count from its beginning, in units of the executor."""

    def begin(self) -> None:
        """Everything as it was before the first part."""

    def put(self, queue: str, part: int, deeds: Sequence[Deed]) -> None:
        """Queue the deeds of a part."""

    def hold_until(self, queue: str, time: float) -> None:
        """Queue a delay that ends then."""

    def hold_for(self, queue: str, time: float) -> None:
        """Queue a delay of that length."""

    def record(self, queue: str, event: int) -> None: ...

    def wait(self, queue: str, event: int) -> None: ...

    def sync_event(self, event: int) -> None: ...

    def drain(self, queue: str) -> None: ...

    def host_until(self, time: float) -> None:
        """The host does nothing until then."""

    def host(self, part: int, deeds: Sequence[Deed]) -> None:
        """The host does a part's deeds now."""

    def finish(self) -> dict[int, int]:
        """Wait for all queues: how many bytes each part found wrong, those without any left out."""


@dataclass(frozen=True)
class Pace:
    """When parts are let go: by a timetable, or after a random delay of at most ``longest`` with
    probability ``share``."""

    timetable: Timetable | None = None
    random: Random | None = None
    share: float = 0.25
    longest: float = 1.0


def timetable(plan: Plan, order: Sequence[Step]) -> Timetable:
    """When each part starts and ends in an order.  ``IllegalOrder`` if no machine can take it."""
    begun: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for place, (part, starts) in enumerate(checked_moves(plan.script, order), 1):
        if starts:
            begun[part] = place
        else:
            found[part] = begun[part], place
    return found


def one_round(plan: Plan, on: Executor, pace: Pace) -> dict[int, int]:
    """Issue the whole program; what :meth:`Executor.finish` says."""
    on.begin()
    issuing = _Issuing(plan, on, pace)
    for action in plan.script.actions:
        issuing.one(action)
    return on.finish()


class _Issuing:
    """The host of one round.

    A transfer in flight has a lane of its own: it waits for what its queue was told to wait for
    before it, and a record of its queue, or waiting for the queue, waits for it.
    """

    def __init__(self, plan: Plan, on: Executor, pace: Pace) -> None:
        self.plan, self.on, self.pace = plan, on, pace
        self.host_events: set[int] = set()
        self.waited: dict[str, list[int]] = {}
        self.flying: dict[str, list[int]] = {}

    def one(self, action: Action) -> None:
        match action:
            case Issue(part=number):
                self._part(number)
            case Signal(queue=queue, record=event) if queue == HOST:
                self.host_events.add(event)  # the host has done what is before it
            case Signal(queue=queue, record=event):
                for number in self.flying.get(queue, ()):
                    self.on.wait(queue, _landed(number))
                self.on.record(queue, event)
            case Await(queue=queue, record=event):
                if event is not None and event not in self.host_events:
                    self._await(queue, event)
            case Drain(queue=queue):
                for number in self.flying.pop(queue, ()):
                    self.on.sync_event(_landed(number))
                self.on.drain(queue)

    def _await(self, queue: str, event: int) -> None:
        if queue == HOST:
            self.on.sync_event(event)
        else:
            self.on.wait(queue, event)
            self.waited.setdefault(queue, []).append(event)

    def _part(self, number: int) -> None:
        part = self.plan.script.parts[number]
        if part.place is Place.HOST:
            self._on_host(number)
        elif part.place is Place.QUEUE:
            self._queued(part.queue, number)
        else:
            lane = f"{part.queue}~{number}"
            for event in self.waited.get(part.queue, ()):
                self.on.wait(lane, event)
            self._queued(lane, number)
            self.on.record(lane, _landed(number))
            self.flying.setdefault(part.queue, []).append(number)

    def _on_host(self, number: int) -> None:
        deeds, table = self.plan.deeds[number], self.pace.timetable
        if table is None:
            self.on.host(number, (*deeds.start, *deeds.end))
            return
        self.on.host_until(table[number][0])
        self.on.host(number, deeds.start)
        self.on.host_until(table[number][1])
        self.on.host(number, deeds.end)

    def _queued(self, lane: str, number: int) -> None:
        deeds, table, random = self.plan.deeds[number], self.pace.timetable, self.pace.random
        if table is None:
            if random is not None and random.random() < self.pace.share:
                self.on.hold_for(lane, random.random() * self.pace.longest)
            self.on.put(lane, number, (*deeds.start, *deeds.end))
            return
        self.on.hold_until(lane, table[number][0])
        self.on.put(lane, number, deeds.start)
        self.on.hold_until(lane, table[number][1])
        self.on.put(lane, number, deeds.end)


def _landed(part: int) -> int:
    """The event of a transfer in flight; those of records are not negative."""
    return -1 - part
