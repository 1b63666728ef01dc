"""Threads that work off queues in order, and stop together when one of them fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class Stopped(Exception):
    """Raised in whoever waits for a queue after a job of some queue has failed."""


class Lane:
    """One thread that carries out jobs in the order in which they were put.

    ``issued`` counts jobs that were put, ``done`` those that have ended (or were dropped after
    a failure); only one thread, the host, puts jobs.
    """

    def __init__(self, crew: Crew, name: str, core: int | None) -> None:
        self.name, self.issued, self.done = name, 0, 0
        self._crew, self._core = crew, core
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"splitproof {name}", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> int:
        """Issue a job; its number, for :meth:`reach`."""
        self.issued += 1
        self._jobs.put(job)
        return self.issued

    def reach(self, number: int) -> None:
        """Return when job ``number`` has ended.  ``Stopped`` if any job has failed."""
        if self.done < number:
            with self._moved:
                self._moved.wait_for(lambda: self.done >= number or self._crew.failure is not None)
        if self._crew.failure is not None:
            raise Stopped(self.name)

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._moved:
            self._moved.notify_all()

    def close(self) -> None:
        """Work off what was put, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        while (job := self._jobs.get()) is not None:
            if self._crew.failure is None:
                try:
                    job()
                except Stopped:
                    pass  # another queue has failed; its error is the one that is told
                except BaseException as error:
                    self._crew.stop(error)
            with self._moved:
                self.done += 1
                self._moved.notify_all()


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

    def lane(self, name: str) -> Lane:
        """The lane of that name."""
        lane = self.lanes.get(name)
        if lane is None:
            count = len(self.lanes)
            core = self._cores[count % len(self._cores)] if self._cores else None
            lane = self.lanes[name] = Lane(self, name, core)
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
            lane.reach(lane.issued)

    def close(self) -> None:
        """End all threads; none is left behind."""
        lanes, self.lanes = self.lanes, {}
        for lane in lanes.values():
            lane.close()
        self.failure = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
