"""Numba's simulator as the tests need it: faster, and with streams that are not eager.

Blocks: the simulator asks its threads in a busy loop whether they have met; here they wait for
each other.  Streams: it carries out each call at once, so that a missing wait never shows; here a
stream is a list of calls, and whoever waits has them carried out in an order that the events allow,
drawn by chance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

Call = Callable[[], object]


class _Meeting:
    """Where the threads of a block meet; one that has ended is not waited for."""

    def __init__(self, count: int) -> None:
        self.live, self.waiting, self.round = count, 0, 0
        self.error: Any = None
        self.moved = threading.Condition()

    def meet(self) -> None:
        with self.moved:
            self.waiting += 1
            before = self.round
            self._look()
            self.moved.wait_for(lambda: self.round != before or self.error is not None)
            if self.error is not None:
                raise RuntimeError("another thread of the block has failed")

    def leave(self, error: Any) -> None:
        with self.moved:
            self.live -= 1
            self.error = self.error or error
            self._look()
            if self.error is not None:
                self.moved.notify_all()

    def _look(self) -> None:
        if self.waiting and self.waiting == self.live:
            self.waiting, self.round = 0, self.round + 1
            self.moved.notify_all()


class _Thread(simulator.BlockThread):  # type: ignore[misc]
    meeting: _Meeting

    def syncthreads(self) -> None:
        self.meeting.meet()

    def run(self) -> None:
        super().run()
        self.meeting.leave(self.exception)


class QuickBlocks(simulator.BlockManager):  # type: ignore[misc]
    """The threads of a block, which wait for each other without a busy loop."""

    def run(self, grid_point: Any, *args: Any) -> None:
        points = list(np.ndindex(*self._block_dim))
        meeting = _Meeting(len(points))
        threads = [
            _Thread(partial(self._f, *args), self, grid_point, point, self._debug)
            for point in points
        ]
        for thread in threads:
            thread.meeting = meeting
            thread.start()
        for thread in threads:
            thread.join()
        if meeting.error is not None:
            error, trace = meeting.error
            raise error.with_traceback(trace)


def quicken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulator, "BlockManager", QuickBlocks)


# -- streams --------------------------------------------------------------------------------------


class LateStream:
    """Calls that have not been carried out yet."""

    def __init__(self, streams: LateStreams) -> None:
        self._streams = streams
        self.calls: list[Call | LateEvent.Wait] = []
        streams.all.append(self)

    def synchronize(self) -> None:
        self._streams.carry_out(lambda: not self.calls)


class LateEvent:
    """The latest record says which calls of its stream must have been carried out."""

    class Wait:
        def __init__(self, reached: Callable[[], bool]) -> None:
            self.reached = reached

    def __init__(self, streams: LateStreams) -> None:
        self._streams = streams
        self._records: list[list[bool]] = []

    def record(self, stream: LateStream) -> None:
        done = [False]
        self._records.append(done)
        stream.calls.append(partial(done.__setitem__, 0, True))

    def wait(self, stream: LateStream) -> None:
        if self._records:  # a wait for an event without a record orders nothing
            stream.calls.append(LateEvent.Wait(self._reached()))

    def synchronize(self) -> None:
        self._streams.carry_out(self._reached())

    def _reached(self) -> Callable[[], bool]:
        done = self._records[-1] if self._records else [True]
        return lambda: done[0]


class LateStreams:
    """All streams.  ``carried_out`` counts calls."""

    def __init__(self, seed: int) -> None:
        self.all: list[LateStream] = []
        self.carried_out = 0
        self._chance = Random(seed)
        self._pinned: list[Any] = []

    def carry_out(self, until: Callable[[], bool]) -> None:
        """Calls, one after the other, each time of a stream drawn by chance."""
        while not until():
            ready = [stream for stream in self.all if self._ready(stream)]
            if not ready:
                raise RuntimeError("what is waited for cannot happen")
            # A few calls of one stream in a row, so that streams get far ahead of each other.
            stream = self._chance.choice(ready)
            for _ in range(self._chance.choice((1, 1, 2, 8))):
                if until() or not self._ready(stream):
                    break
                call = stream.calls.pop(0)
                if not isinstance(call, LateEvent.Wait):
                    call()
                    self.carried_out += 1

    def _ready(self, stream: LateStream) -> bool:
        if not stream.calls:
            return False
        first = stream.calls[0]
        return not isinstance(first, LateEvent.Wait) or first.reached()

    def pinned_array(self, shape: Any, dtype: Any = np.float64) -> Any:
        self._pinned.append(np.empty(shape, dtype))
        return self._pinned[-1]

    def is_pinned(self, array: Any) -> bool:
        return any(np.shares_memory(array, memory) for memory in self._pinned)


@contextmanager
def late(patch: pytest.MonkeyPatch, seed: int) -> Iterator[LateStreams]:
    """While it lasts, what is issued to a stream is carried out when somebody waits.

    As on a GPU, a copy reads pinned memory when its turn has come and pageable memory at once, and
    a copy to pageable memory is over when the call returns.
    """
    streams = LateStreams(seed)
    call, configure = simulator.FakeCUDAKernel.__call__, simulator.FakeCUDAKernel.__getitem__
    upload, download = FakeCUDAArray.copy_to_device, FakeCUDAArray.copy_to_host

    def configured(self: Any, configuration: Any) -> Any:
        configure(self, configuration)
        self.stream = configuration[2] if len(configuration) > 2 else 0
        return self

    def launched(self: Any, *args: Any) -> Any:
        if self._device or not isinstance(self.stream, LateStream):
            return call(self, *args)
        grid, block = self.grid_dim, self.block_dim

        def run() -> None:
            self.grid_dim, self.block_dim = grid, block
            call(self, *args)

        self.stream.calls.append(run)
        return None

    def uploaded(self: Any, source: Any, stream: Any = 0) -> None:
        if not isinstance(stream, LateStream):
            upload(self, source)
            return
        if not isinstance(source, FakeCUDAArray) and not streams.is_pinned(source):
            source = source.copy()
        stream.calls.append(partial(upload, self, source))

    def downloaded(self: Any, target: Any = None, stream: Any = 0) -> Any:
        if isinstance(stream, LateStream) and target is not None and streams.is_pinned(target):
            stream.calls.append(partial(download, self, target))
            return target
        if isinstance(stream, LateStream):
            stream.synchronize()
        return download(self, target)

    with patch.context() as inner:
        inner.setattr(cuda, "stream", partial(LateStream, streams))
        inner.setattr(cuda, "event", partial(LateEvent, streams))
        inner.setattr(cuda, "pinned_array", streams.pinned_array)
        inner.setattr(simulator.FakeCUDAKernel, "__call__", launched)
        inner.setattr(simulator.FakeCUDAKernel, "__getitem__", configured)
        inner.setattr(FakeCUDAArray, "copy_to_device", uploaded)
        inner.setattr(FakeCUDAArray, "copy_to_host", downloaded)
        yield streams
