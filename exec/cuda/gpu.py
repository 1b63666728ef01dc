"""A GPU as the runtime sees it: its memory, its streams, and the kernels of a program on it.

Every copy and every kernel goes to a stream that is named: the default stream would wait for all
others.  What the host does itself has a stream of its own, which it waits for each time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numba import cuda

from ...model.graph import Node
from ..hardware import MemoryShortError
from ..operand import Operand
from ..quant import Bytes
from ..queue import Crew, Job, Lane, MakeLane
from ..window import Window
from .launch import Launch
from .table import choose
from .target import SIMULATED

#: Bytes of host memory with one value, from which device memory is filled.
BLOCK = 1 << 20
_SIMULATOR = threading.Lock()
#: Seconds after which Python lets another thread go on, while the simulator waits for its threads.
SIMULATED_TURN = 1e-4


@dataclass(eq=False, slots=True)
class Stream:
    """A CUDA stream, with the memory that its kernels use one after the other."""

    handle: Any
    scratch: dict[str, Any] = field(default_factory=dict)


class CudaGpu:
    """GPU number ``number``, as the device ``name`` of a schedule."""

    def __init__(self, number: int, name: str) -> None:
        self.name = name
        self.context = cuda.gpus[number]
        self._current = threading.local()
        self._blocks: dict[int, Bytes] = {}
        self._host = self.stream()

    def stream(self) -> Stream:
        with self.context:
            return Stream(cuda.stream())

    # -- where commands go ----------------------------------------------------------------------

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """In this thread, commands go to that stream."""
        before = getattr(self._current, "stream", None)
        self._current.stream = stream
        try:
            with self.context:
                yield
        finally:
            self._current.stream = before

    @contextmanager
    def issuing(self) -> Iterator[Stream]:
        """The stream that commands go to; outside :meth:`on` the host waits for them."""
        stream = getattr(self._current, "stream", None)
        if stream is not None:
            yield stream
            return
        with self.context:
            yield self._host
            self._host.handle.synchronize()

    def catch_up(self) -> None:
        """The host waits for what was issued to the stream of :meth:`on`."""
        with self.issuing() as stream:
            stream.handle.synchronize()

    # -- memory ---------------------------------------------------------------------------------

    def require(self, count: int, purpose: str) -> None:
        with self.context:
            free = cuda.current_context().get_memory_info().free
        if count > free:
            raise MemoryShortError(
                f"AL003: {self.name} needs {count:,} bytes, {free:,} are free; it is to hold "
                f"{purpose}: give it less (weights in host memory, a smaller --moe-cache, context "
                "or --ubatch)"
            )

    def allocate(self, count: int, value: int) -> Window:
        with self.context:
            array = cuda.device_array(max(count, 1), np.uint8, stream=self._host.handle)
        window = DeviceWindow(self, array, 0, count)
        window.fill(value)
        return window

    def host_bytes(self, count: int, value: int) -> Bytes:
        with self.context:
            raw: Bytes = cuda.pinned_array(max(count, 1), np.uint8)[:count]
        raw[...] = value
        return raw

    def block(self, value: int) -> Bytes:
        """Host memory with that byte everywhere."""
        if value not in self._blocks:
            self._blocks[value] = self.host_bytes(BLOCK, value)
        return self._blocks[value]

    # -- queues and kernels ---------------------------------------------------------------------

    def make_lane(self, watched: bool) -> MakeLane:
        from .lanes import StreamLane, WatchedLane

        kind: Callable[[CudaGpu, Crew, str, int | None], Lane]
        kind = WatchedLane if watched else StreamLane
        return partial(kind, self)

    def kernels(self, commands: int) -> CudaKernels:
        return CudaKernels(self, commands)


class DeviceWindow(Window):
    """Bytes ``start`` to ``stop`` of an allocation on a GPU."""

    def __init__(self, gpu: CudaGpu, base: Any, start: int, stop: int) -> None:
        self.gpu, self._base, self._start, self._stop = gpu, base, start, stop

    @property
    def size(self) -> int:
        return self._stop - self._start

    @cached_property
    def array(self) -> Any:
        """The bytes as kernels take them (of no bytes: some byte, which nobody touches)."""
        if not self.size:
            return self._base[:1]
        return self._base[self._start : self._stop]

    def __getitem__(self, part: slice) -> DeviceWindow:
        first, last, step = part.indices(self.size)
        if step != 1:
            raise IndexError(f"a window has no step of {step}")
        return DeviceWindow(
            self.gpu, self._base, self._start + first, self._start + max(first, last)
        )

    def fill(self, value: int) -> None:
        block = self.gpu.block(value)
        with self.gpu.issuing() as stream, self.gpu.on(stream):
            for first in range(0, self.size, BLOCK):
                part = self[first : first + BLOCK]
                part.take(block[: part.size])

    def take(self, source: Bytes | Window) -> None:
        if not self.size:
            return
        if isinstance(source, DeviceWindow):
            if source.gpu is not self.gpu:  # through the host, which waits for both
                source.gpu.catch_up()
                self.gpu.catch_up()
                self.take(source.fetch())
                return
            given = source.array
        else:
            given = source
        with self.gpu.issuing() as stream:
            self.array.copy_to_device(given, stream=stream.handle)

    def give(self, target: Bytes) -> None:
        if self.size:
            with self.gpu.issuing() as stream:
                self.array.copy_to_host(target, stream=stream.handle)

    def settle(self) -> None:
        self.gpu.catch_up()

    def fetch(self) -> Bytes:
        raw = np.empty(self.size, np.uint8)
        self.give(raw)
        self.settle()
        return raw


@contextmanager
def launching() -> Iterator[None]:
    """Around a launch: the simulator runs one kernel at a time, and asks again and again whether
    its threads have met."""
    if not SIMULATED:
        yield
        return
    with _SIMULATOR:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SIMULATED_TURN)
        try:
            yield
        finally:
            sys.setswitchinterval(before)


class CudaKernels:
    """The kernels of one program of ``commands`` commands."""

    def __init__(self, gpu: CudaGpu, commands: int) -> None:
        self.gpu = gpu
        self._launches: dict[tuple[int, Stream], Launch] = {}
        self._constants: dict[tuple[str, str], Any] = {}
        #: for each command, whether a kernel of it met an id out of range
        self._faults = gpu.allocate(4 * max(commands, 1), 0)

    def compute(self, index: int, node: Node, target: Operand, sources: Sequence[Operand]) -> Job:
        kernel = choose(node, [target, *sources])
        result, given = on_device(target), [on_device(source) for source in sources]

        def run() -> None:
            with self.gpu.issuing() as stream, launching():
                kernel(result, given, node, self._launch(index, stream))

        return run

    def _launch(self, index: int, stream: Stream) -> Launch:
        if (index, stream) not in self._launches:
            fault = self._faults[4 * index : 4 * index + 4]
            assert isinstance(fault, DeviceWindow)
            self._launches[index, stream] = Launch(
                stream.handle, stream.scratch, self._constants, fault.array.view(np.int32)
            )
        return self._launches[index, stream]

    def begin(self) -> None:
        self._faults.fill(0)

    def faulty(self) -> int | None:
        found = np.flatnonzero(self._faults.fetch().view(np.int32))
        return int(found[0]) if len(found) else None


def on_device(operand: Operand) -> Operand:
    """The same tensor as kernels take it."""
    window: Any = operand.data
    assert isinstance(window, DeviceWindow)
    return Operand(operand.layout, window.array)
