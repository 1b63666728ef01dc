"""Queues as CUDA streams: the host issues, records and waits are events.

No thread stands behind a stream: a job is carried out by the host at once, and issues commands
that the GPU works off in order.  A watched run has a thread for each queue, as on the CPU, which
waits for each command: then the beginnings and ends that it tells of are those of the work itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import cuda

from ..queue import Crew, Job, Lane, Mark, Stopped, ThreadLane
from .gpu import CudaGpu
from .target import SIMULATED


def event(gpu: CudaGpu) -> Any:
    """An event that orders, and keeps no time."""
    with gpu.context:
        return cuda.event() if SIMULATED else cuda.event(timing=False)


class StreamLane(Lane):
    """A stream of a GPU."""

    def __init__(self, gpu: CudaGpu, crew: Crew, name: str, core: int | None) -> None:
        super().__init__(crew, name)
        self.gpu, self.stream = gpu, gpu.stream()

    def put(self, job: Job) -> int:
        """``Stopped`` if any job has failed; an error of this one is raised here."""
        if self.crew.failure is not None:
            raise Stopped(self.name)
        self.issued += 1
        with self.gpu.on(self.stream):
            job()
        return self.issued

    def mark(self) -> Mark:
        made = event(self.gpu)
        with self.gpu.context:
            made.record(self.stream.handle)
        return EventMark(self, made)

    def follow(self, mark: Mark) -> None:
        if isinstance(mark, EventMark):
            mark.event.wait(self.stream.handle)
        else:  # a thread has to get there first
            mark.reach()

    def drain(self) -> None:
        with self.gpu.context:
            self.stream.handle.synchronize()
        if self.crew.failure is not None:
            raise Stopped(self.name)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        try:
            with self.gpu.context:
                self.stream.handle.synchronize()
        except Exception as error:
            self.crew.stop(error)


@dataclass(frozen=True, slots=True)
class EventMark:
    """A point of a stream."""

    lane: StreamLane
    event: Any

    def reach(self) -> None:
        with self.lane.gpu.context:
            self.event.synchronize()
        if self.lane.crew.failure is not None:
            raise Stopped(self.lane.name)


class WatchedLane(ThreadLane):
    """A thread with a stream of a GPU, which has done the work of a command when its job ends."""

    def __init__(self, gpu: CudaGpu, crew: Crew, name: str, core: int | None) -> None:
        self.gpu, self.stream = gpu, gpu.stream()
        super().__init__(crew, name, core)

    def carry_out(self, job: Job) -> None:
        with self.gpu.on(self.stream):
            job()
            self.stream.handle.synchronize()
