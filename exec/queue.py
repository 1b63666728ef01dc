"""Threads that work off queues in order, and stop together when one of them fails."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

Job = Callable[[], None]


class Stopped(Exception):
    """Raised in whoever waits for a queue after a job of some queue has failed."""


class Mark(Protocol):
    """A point in the work of a lane."""

    def reach(self) -> None:
        """Return when all that was put before has ended.  ``Stopped`` if any job has failed."""


class Lane(ABC):
    """Carries out jobs in the order in which they were put; only one thread, the host, puts them.

    ``issued`` counts them.
    """

    def __init__(self, crew: Crew, name: str) -> None:
        self.crew, self.name, self.issued = crew, name, 0

    @abstractmethod
    def put(self, job: Job) -> int:
        """Issue a job; its number."""

    @abstractmethod
    def mark(self) -> Mark:
        """The point after all that was put so far."""

    def follow(self, mark: Mark) -> None:
        """In a job of this lane: what comes after this is done once the mark has been reached."""
        mark.reach()

    def carry_out(self, job: Job) -> None:
        """In a job of this lane: do the work of a command."""
        job()

    def drain(self) -> None:
        """Return when all that was put has ended.  ``Stopped`` if any job has failed."""
        self.mark().reach()

    @abstractmethod
    def wake(self) -> None:
        """Let those who wait look whether a job has failed."""

    @abstractmethod
    def close(self) -> None:
        """Work off what was put, then end."""


class ThreadLane(Lane):
    """A thread.  ``done`` counts jobs that have ended, or were dropped after a failure."""

    def __init__(self, crew: Crew, name: str, core: int | None) -> None:
        super().__init__(crew, name)
        self.done, self._core = 0, core
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"splitproof {name}", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> int:
        self.issued += 1
        self._jobs.put(job)
        return self.issued

    def mark(self) -> Mark:
        return _Number(self, self.issued)

    def reach(self, number: int) -> None:
        """Return when job ``number`` has ended.  ``Stopped`` if any job has failed."""
        if self.done < number:
            with self._moved:
                self._moved.wait_for(lambda: self.done >= number or self.crew.failure is not None)
        if self.crew.failure is not None:
            raise Stopped(self.name)

    def wake(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        while (job := self._jobs.get()) is not None:
            if self.crew.failure is None:
                try:
                    job()
                except Stopped:
                    pass  # another queue has failed; its error is the one that is told
                except BaseException as error:
                    self.crew.stop(error)
            with self._moved:
                self.done += 1
                self._moved.notify_all()


@dataclass(frozen=True, slots=True)
class _Number:
    """After so many jobs of a thread."""

    lane: ThreadLane
    number: int

    def reach(self) -> None:
        self.lane.reach(self.number)


#: From the crew, the name and a core to stay on.
MakeLane = Callable[["Crew", str, "int | None"], Lane]


class Crew:
    """The lanes of the programs that share memories; a lane is made when it is first asked for.

    ``pinned``: each thread stays on one of the cores that this process may use, in turn (where
    the system can do that, and there is more than one).  ``failure``: the first error; then all
    lanes drop what is left, until :meth:`close`, after which new lanes can be made.
    """

    def __init__(self, *, pinned: bool = True) -> None:
        self.failure: BaseException | None = None
        self.lanes: dict[str, Lane] = {}
        self._lock = threading.Lock()
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        # The host stays on the first core if it can.
        self._cores = [*cores[1:], cores[0]] if pinned and len(cores) > 1 else []

    def lane(self, name: str, make: MakeLane = ThreadLane) -> Lane:
        """The lane of that name.  ``make``: what kind of lane it is if there is none yet."""
        lane = self.lanes.get(name)
        if lane is None:
            count = len(self.lanes)
            core = self._cores[count % len(self._cores)] if self._cores else None
            lane = self.lanes[name] = make(self, name, core)
        return lane

    def stop(self, error: BaseException) -> None:
        """Remember the first error, and let every waiting thread give up."""
        with self._lock:
            if self.failure is None:
                self.failure = error
        for lane in list(self.lanes.values()):
            lane.wake()

    def drain(self) -> None:
        """Wait for all jobs of all lanes.  ``Stopped`` if one has failed."""
        for lane in self.lanes.values():
            lane.drain()

    def close(self) -> None:
        """End all lanes; no thread is left behind.  An error that only this finds is raised."""
        known = self.failure
        lanes, self.lanes = self.lanes, {}
        for lane in lanes.values():
            lane.close()
        failure, self.failure = self.failure, None
        if known is None and failure is not None:
            raise failure

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
