"""Rounds on real streams: a stream for each queue, events of CUDA, deeds as small kernels.

Versions of host memory lie in pinned memory that the GPU sees too.  A run of bytes that moves
between the memories, or within the GPU's, is copied by the driver, asynchronously; everything else
is done by kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from deeds import Check, Deed, Move, Plan, Region, Stamp
from numba import config, cuda
from splitproof.exec.cuda.clock import hold_for, hold_until, tell

SIMULATED = bool(config.ENABLE_CUDASIM)
BLOCKS, THREADS = (1, 2) if SIMULATED else (4, 128)
#: Nanoseconds of a step of a timetable, and of the longest random delay.
UNIT = 20_000 if SIMULATED else 300_000

Launch = Callable[[Any], object]


@cuda.jit
def check(space: Any, places: Any, due: Any, wrong: Any, part: Any) -> None:
    for k in range(cuda.grid(1), places.size, cuda.gridsize(1)):
        if space[places[k]] != due[k]:
            cuda.atomic.add(wrong, part, 1)


@cuda.jit
def stamp(space: Any, places: Any, versions: Any) -> None:
    for k in range(cuda.grid(1), places.size, cuda.gridsize(1)):
        space[places[k]] = versions[k]


@cuda.jit
def move(source: Any, here: Any, target: Any, there: Any) -> None:
    for k in range(cuda.grid(1), here.size, cuda.gridsize(1)):
        target[there[k]] = source[here[k]]


def mapped(count: int) -> tuple[Any, Any]:
    """Pinned memory, as the GPU sees it and as the host does."""
    if SIMULATED:
        array = np.zeros(count, np.int32)
        return array, array
    there = cuda.mapped_array(count, np.int32)
    return there, np.asarray(there)


def new_event() -> Any:
    """One that takes no times, where there is a choice."""
    return cuda.event() if SIMULATED else cuda.event(timing=False)


class Streams:
    """An :class:`rounds.Executor`.  ``late``: the most units by which the host came late to what a
    timetable asked for; from a half on the round did not keep the order."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.late = plan, 0.0
        self._streams: dict[str, Any] = {}
        self._events: dict[int, Any] = {}
        self._arrays: dict[str, Any] = {}
        self._host: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        for name, space in plan.spaces.items():
            if space.host:
                self._arrays[name], self._host[name] = mapped(max(len(space.first), 1))
            else:
                self._first[name] = cuda.to_device(_some(space.first))
                self._arrays[name] = cuda.to_device(_some(space.first))
        self._wrong = cuda.to_device(np.zeros(len(plan.deeds), np.int32))
        self._none = cuda.to_device(np.zeros(len(plan.deeds), np.int32))
        self._on_host: Counter[int] = Counter()
        self._base = cuda.to_device(np.zeros(1, np.int64))
        self._made = {
            id(deed): self._launches(part, deed)
            for part, deeds in enumerate(plan.deeds)
            for deed in (*deeds.start, *deeds.end)
            if _region(deed).places.size
        }
        self._began = 0.0

    # -- a round --------------------------------------------------------------------------------

    def begin(self) -> None:
        stream = self._stream("host")
        for name, space in self.plan.spaces.items():
            if space.host:
                self._host[name][: len(space.first)] = space.first
            else:
                self._arrays[name].copy_to_device(self._first[name], stream=stream)
        self._wrong.copy_to_device(self._none, stream=stream)
        self._on_host.clear()
        self.late = 0.0
        tell[1, 1, stream](self._base)
        stream.synchronize()
        self._began = perf_counter()

    def put(self, queue: str, part: int, deeds: Sequence[Deed]) -> None:
        stream = self._stream(queue)
        for deed in deeds:
            launch = self._made.get(id(deed))
            if launch is not None:
                launch(stream)

    def hold_until(self, queue: str, time: float) -> None:
        self._note(time)
        hold_until[1, 1, self._stream(queue)](self._base, int(time * UNIT))

    def hold_for(self, queue: str, time: float) -> None:
        hold_for[1, 1, self._stream(queue)](int(time * UNIT))

    def record(self, queue: str, event: int) -> None:
        self._event(event).record(self._stream(queue))

    def wait(self, queue: str, event: int) -> None:
        self._event(event).wait(self._stream(queue))

    def sync_event(self, event: int) -> None:
        self._event(event).synchronize()

    def drain(self, queue: str) -> None:
        self._stream(queue).synchronize()

    def host_until(self, time: float) -> None:
        self._note(time)
        while self._now() < time:
            pass

    def host(self, part: int, deeds: Sequence[Deed]) -> None:
        for deed in deeds:
            if all(region.space in self._host for region in _regions(deed)):
                self._by_host(part, deed)
            else:
                self.put("host", part, (deed,))
                self.drain("host")

    def finish(self) -> dict[int, int]:
        for stream in self._streams.values():
            stream.synchronize()
        found = self._wrong.copy_to_host()
        counts = {part: int(count) + self._on_host[part] for part, count in enumerate(found)}
        return {part: count for part, count in counts.items() if count}

    # -- time -----------------------------------------------------------------------------------

    def _now(self) -> float:
        return (perf_counter() - self._began) * 1e9 / UNIT

    def _note(self, time: float) -> None:
        self.late = max(self.late, self._now() - time)

    # -- what is launched -----------------------------------------------------------------------

    def _stream(self, name: str) -> Any:
        if name not in self._streams:
            self._streams[name] = cuda.stream()
        return self._streams[name]

    def _event(self, number: int) -> Any:
        if number not in self._events:
            self._events[number] = new_event()
        return self._events[number]

    def _launches(self, part: int, deed: Deed) -> Launch:
        """Everything that a deed needs lies on the GPU before the first round."""
        match deed:
            case Check(region=region, due=due):
                return _kernel(
                    check, self._arrays[region.space], cuda.to_device(region.places),
                    cuda.to_device(due), self._wrong, part,
                )  # fmt: skip
            case Stamp(region=region, versions=versions):
                return _kernel(
                    stamp, self._arrays[region.space], cuda.to_device(region.places),
                    cuda.to_device(versions),
                )  # fmt: skip
            case Move(source=source, target=target):
                return self._copy(source, target) or _kernel(
                    move, self._arrays[source.space], cuda.to_device(source.places),
                    self._arrays[target.space], cuda.to_device(target.places),
                )  # fmt: skip

    def _copy(self, source: Region, target: Region) -> Launch | None:
        """A copy by the driver; ``None`` if the bytes are no run, or both lie in host memory."""
        here, there = source.run, target.run
        if here is None or there is None:
            return None
        from_host, to_host = source.space in self._host, target.space in self._host
        if from_host and to_host:
            return None
        if to_host:
            left, right = self._arrays[source.space][here], self._host[target.space][there]
            return lambda stream: left.copy_to_host(right, stream=stream)
        origin = self._host if from_host else self._arrays
        left, right = origin[source.space][here], self._arrays[target.space][there]
        return lambda stream: right.copy_to_device(left, stream=stream)

    def _by_host(self, part: int, deed: Deed) -> None:
        match deed:
            case Check(region=region, due=due):
                found = self._host[region.space][region.places]
                self._on_host[part] += int(np.count_nonzero(found != due))
            case Stamp(region=region, versions=versions):
                self._host[region.space][region.places] = versions
            case Move(source=source, target=target):
                moved = self._host[source.space][source.places]
                self._host[target.space][target.places] = moved


def _kernel(kernel: Any, *arguments: Any) -> Launch:
    return lambda stream: kernel[BLOCKS, THREADS, stream](*arguments)


def _some(versions: Any) -> Any:
    """Nothing cannot be allocated."""
    return versions if len(versions) else np.zeros(1, np.int32)


def _region(deed: Deed) -> Region:
    return deed.source if isinstance(deed, Move) else deed.region


def _regions(deed: Deed) -> tuple[Region, ...]:
    return (deed.source, deed.target) if isinstance(deed, Move) else (deed.region,)
