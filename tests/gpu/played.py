"""Streams that are played on the host: what is queued is done when the clock has come so far.

In Numba's simulator each call does its work at once, so that no wait can be missed.  Here queues
are worked off as a GPU does: each in its own order, delays and events included; time passes only
while the host waits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from deeds import Check, Deed, Move, Plan, Stamp


@dataclass(frozen=True, slots=True)
class _Work:
    part: int
    deeds: Sequence[Deed]


@dataclass(frozen=True, slots=True)
class _Until:
    time: float


@dataclass(frozen=True, slots=True)
class _For:
    time: float


@dataclass(frozen=True, slots=True)
class _Record:
    event: int


@dataclass(frozen=True, slots=True)
class _Wait:
    event: int


_Entry = _Work | _Until | _For | _Record | _Wait


class Deadlock(RuntimeError):
    """The host waits for what can never happen."""


class Played:
    """An :class:`rounds.Executor` that is never late.  ``seed``: which of the queues that can go on
    does so first."""

    def __init__(self, plan: Plan, seed: int = 0) -> None:
        self.plan, self.random, self.late = plan, Random(seed), 0.0
        self.memory = {name: space.first.copy() for name, space in plan.spaces.items()}
        self.begin()

    def begin(self) -> None:
        for name, space in self.plan.spaces.items():
            self.memory[name][:] = space.first
        self.now = 0.0
        self.queues: dict[str, deque[_Entry]] = {}
        self.happened: set[int] = set()
        self.wrong: Counter[int] = Counter()

    # -- what is queued -------------------------------------------------------------------------

    def put(self, queue: str, part: int, deeds: Sequence[Deed]) -> None:
        self._queue(queue, _Work(part, deeds))

    def hold_until(self, queue: str, time: float) -> None:
        self._queue(queue, _Until(time))

    def hold_for(self, queue: str, time: float) -> None:
        self._queue(queue, _For(time))

    def record(self, queue: str, event: int) -> None:
        self._queue(queue, _Record(event))

    def wait(self, queue: str, event: int) -> None:
        self._queue(queue, _Wait(event))

    def _queue(self, name: str, entry: _Entry) -> None:
        self.queues.setdefault(name, deque()).append(entry)
        self._settle()

    # -- what the host does ---------------------------------------------------------------------

    def sync_event(self, event: int) -> None:
        self._pass_until(lambda: event in self.happened)

    def drain(self, queue: str) -> None:
        self._pass_until(lambda: not self.queues.get(queue))

    def host_until(self, time: float) -> None:
        while True:
            self._settle()
            following = self._next()
            if following is None or following > time:
                break
            self.now = following
        self.now = max(self.now, time)
        self._settle()

    def host(self, part: int, deeds: Sequence[Deed]) -> None:
        self._do(part, deeds)

    def finish(self) -> dict[int, int]:
        self._pass_until(lambda: not any(self.queues.values()))
        return {part: count for part, count in self.wrong.items() if count}

    # -- time -----------------------------------------------------------------------------------

    def _pass_until(self, reached: Callable[[], bool]) -> None:
        while True:
            self._settle()
            if reached():
                return
            following = self._next()
            if following is None:
                raise Deadlock(f"the host waits at time {self.now:g}, and no queue goes on")
            self.now = following

    def _next(self) -> float | None:
        """When the first of the delays that run now ends."""
        heads = (queue[0] for queue in self.queues.values() if queue)
        return min((head.time for head in heads if isinstance(head, _Until)), default=None)

    def _settle(self) -> None:
        """Do what can be done now, a queue at a time."""
        names = list(self.queues)
        moved = True
        while moved:
            self.random.shuffle(names)
            moved = sum(self._step(self.queues[name]) for name in names) > 0

    def _step(self, queue: deque[_Entry]) -> bool:
        """Whether the head of a queue is done with."""
        if not queue:
            return False
        match queue[0]:
            case _For(time=time):
                queue[0] = _Until(self.now + time)
                return True
            case _Until(time=time) if time > self.now:
                return False
            case _Wait(event=event) if event not in self.happened:
                return False
            case _Record(event=event):
                self.happened.add(event)
            case _Work(part=part, deeds=deeds):
                self._do(part, deeds)
        queue.popleft()
        return True

    def _do(self, part: int, deeds: Sequence[Deed]) -> None:
        for deed in deeds:
            match deed:
                case Check(region=region, due=due):
                    found = self.memory[region.space][region.places]
                    self.wrong[part] += int(np.count_nonzero(found != due))
                case Stamp(region=region, versions=versions):
                    self.memory[region.space][region.places] = versions
                case Move(source=source, target=target):
                    moved = self.memory[source.space][source.places]
                    self.memory[target.space][target.places] = moved
