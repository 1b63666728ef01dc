"""Which CUDA devices there are, and how copies to and from them are ordered: measured, not assumed.

How a copy behaves that is issued to a stream which is still busy, is its contract in a document:
``sync``: the call comes back when the copy is done; ``staged``: at once, and the source may change
from then on; ``stream``: at once, and the source is read when the stream comes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numba import config, cuda

from ...model.device import Contract
from .clock import hold_for

#: Contracts by what they promise, least first.
PROMISES = Contract.STREAM, Contract.STAGED, Contract.SYNC
#: Times that each copy is tried.
TRIES = 3
NO_GPU = "NUMBA_ENABLE_CUDASIM=1 runs the kernels in Numba's simulator"


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """``free`` and ``memory`` are bytes; ``None`` stands for what is not known."""

    number: int
    name: str
    capability: tuple[int, int]
    memory: int | None
    free: int | None
    copy_engines: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """An asynchronous copy that was issued to a busy stream.

    ``direction``: ``upload`` or ``download``; ``host``: ``pinned`` or ``pageable`` memory there;
    ``returned``: seconds until the call came back; ``busy``: seconds that the stream was kept busy.
    """

    direction: str
    host: str
    bytes: int
    returned: float
    busy: float
    contract: Contract


@dataclass(frozen=True, slots=True)
class Copies:
    """``upload``: bytes a second from pinned memory; ``inside``: bytes read plus bytes written a
    second by a copy in the device's memory; ``None``: the simulator has no such speed."""

    calls: tuple[Call, ...]
    upload: float | None
    inside: float | None

    def contract(self, direction: str) -> Contract:
        """That of copies between the device and pinned memory, which is what runs use."""
        (found,) = (c for c in self.calls if (c.direction, c.host) == (direction, "pinned"))
        return found.contract


def simulated() -> bool:
    """Whether kernels run in Numba's simulator."""
    return bool(config.ENABLE_CUDASIM)


def why_not() -> str | None:
    """Why no kernel can run here, in one line; ``None`` if they can."""
    if simulated() or cuda.is_available():
        return None
    error = cuda.cuda_error()
    if not error:
        return "there is a CUDA driver, but no compiler: pip install 'splitproof[cuda]' brings it"
    first = " ".join(str(error).split()).partition(".")[0]
    return f"no CUDA device can be used: {first.rstrip(': ')}; {NO_GPU}"


def available() -> bool:
    """Whether kernels can run here, on a GPU or in the simulator."""
    return why_not() is None


def devices() -> tuple[CudaDevice, ...]:
    """All that can be used, none without a driver."""
    return tuple(_device(number) for number in range(len(cuda.gpus))) if available() else ()


def _device(number: int) -> CudaDevice:
    with cuda.gpus[number]:
        capability = tuple(cuda.gpus[number].compute_capability)
        if simulated():
            return CudaDevice(number, "Numba's simulator", capability, None, None, None)
        found = cuda.current_context().device
        memory = cuda.current_context().get_memory_info()
        name = found.name.decode() if isinstance(found.name, bytes) else str(found.name)
        engines = getattr(found, "ASYNC_ENGINE_COUNT", None)
        return CudaDevice(
            number, name, capability, int(memory.total), int(memory.free),
            None if engines is None else int(engines),
        )  # fmt: skip


def kind_of(returned: float, busy: float, unfinished: bool) -> Contract:
    """The contract that a call shows, which came back after ``returned`` seconds from a stream kept
    busy for ``busy``.  ``unfinished``: it was seen that the copy was not done then."""
    if unfinished:
        return Contract.STREAM
    return Contract.SYNC if returned >= busy else Contract.STAGED


def measure(
    number: int = 0, *, busy: float = 0.05, large: int = 1 << 25, small: int = 1 << 14
) -> Copies:
    """How copies of a device are ordered, and how fast they are.

    ``busy``: seconds that the stream is kept busy; ``large``, ``small``: bytes.  Drivers take over
    small copies from pageable memory where they wait for large ones: both are looked at.  Of a few
    tries the one that promises least counts.  Speeds are those of copies eight times as large.
    """
    with cuda.gpus[number]:
        stream, target = cuda.stream(), cuda.device_array(large, np.uint8)
        hold_for[1, 1, stream](1000)  # compiled, and loaded, before a time is taken
        stream.synchronize()
        calls = []
        for host, size in (("pinned", large), ("pageable", large), ("pageable", small)):
            array = _host_array(host, size)
            for way in (_upload, _download):
                tries = [way(stream, target[:size], host, array, busy) for _ in range(TRIES)]
                calls.append(min(tries, key=lambda call: PROMISES.index(call.contract)))
        if simulated():
            return Copies(tuple(calls), None, None)
        size = 8 * large
        pinned = _host_array("pinned", size)
        one, other = (cuda.device_array(size, np.uint8) for _ in range(2))
        upload = seconds(lambda: one.copy_to_device(pinned, stream=stream), stream)
        inside = seconds(lambda: one.copy_to_device(other, stream=stream), stream)
        return Copies(tuple(calls), size / upload, 2 * size / inside)


def _host_array(kind: str, size: int) -> Any:
    array = cuda.pinned_array(size, np.uint8) if kind == "pinned" else np.empty(size, np.uint8)
    array[:] = 0
    return array


def _upload(stream: Any, target: Any, host: str, array: Any, busy: float) -> Call:
    """The source changes when the call is back: a copy that sees that was not done."""
    array[:] = 1
    returned = _returned(stream, busy, lambda: target.copy_to_device(array, stream=stream))
    array[:] = 2
    stream.synchronize()
    contract = kind_of(returned, busy, bool((target.copy_to_host() == 2).any()))
    return Call("upload", host, len(array), returned, busy, contract)


def _download(stream: Any, source: Any, host: str, array: Any, busy: float) -> Call:
    """The target is looked at when the call is back: a copy that was done has written it."""
    array[:] = 3
    source.copy_to_device(array)

    def call() -> None:
        array[:] = 4
        source.copy_to_host(array, stream=stream)

    returned = _returned(stream, busy, call)
    contract = kind_of(returned, busy, bool((array != 3).any()))
    stream.synchronize()
    return Call("download", host, len(array), returned, busy, contract)


def _returned(stream: Any, busy: float, call: Callable[[], object]) -> float:
    """Seconds from keeping the stream busy until the call comes back; it is made once before, for
    what only a first call does."""
    call()
    stream.synchronize()
    start = perf_counter()
    hold_for[1, 1, stream](int(busy * 1e9))
    call()
    return perf_counter() - start


def seconds(work: Callable[[], object], stream: Any, rounds: int = 9) -> float:
    """The median time that a stream takes for ``work``: by events on a GPU, in the simulator by the
    clock of the host."""
    start = perf_counter()
    work()
    issued = perf_counter() - start
    stream.synchronize()
    if simulated():
        return issued
    return float(np.median([_by_events(work, stream, issued) for _ in range(rounds)]))


def _by_events(work: Callable[[], object], stream: Any, issued: float) -> float:
    """The stream is kept busy for longer than it takes the host to issue the work, so that this
    does not count."""
    before, after = cuda.event(timing=True), cuda.event(timing=True)
    hold_for[1, 1, stream](int(2e9 * issued) + 1_000_000)
    before.record(stream)
    work()
    after.record(stream)
    after.synchronize()
    return float(before.elapsed_time(after)) / 1000
