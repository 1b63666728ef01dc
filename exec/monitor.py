"""A sanitizer: vector clocks and versions of real bytes, while a program runs on its threads.

It knows only what the runtime really waited for.  A read that some write is not ordered with, or
that finds another version than the sequential run reads there, ends the run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..model.cache import SlotStep
from ..model.command import Command, Compute
from ..model.device import HOST, Usage
from ..model.schedule import Schedule
from .arena import Arena
from .due import DueVersions
from .footprint import Access, Accesses, Footprints, WrongSlots
from .memory import POISON, VersionArray, Versions
from .reference import World
from .shadow import Clash, Shadow
from .watch import Stretch, Watcher, WatchError
from .window import Window


class SanitizeError(WatchError):
    """Bytes that a part touches out of order, or that are not of the version that is due."""


@dataclass(slots=True)
class _Run:
    """The program that runs now."""

    arena: Arena
    footprints: Footprints
    shadows: dict[str, Shadow]


def _reads_past(schedule: Schedule, command: Command) -> bool:
    """Whether a command's kernel reads bytes past the experts that it uses."""
    if not isinstance(command, Compute):
        return False
    device, node = schedule.compute_device(command), schedule.graph.node(command.node)
    if device is None or not node.src:
        return False
    kind = schedule.tensor(node.src[0]).dtype
    return schedule.graph.device(device).over_read_bytes(node.op, kind) > 0


class Monitor(Watcher):
    """Watches runs, one after another; lasting buffers are followed through all of them.

    ``checked``: how many accesses were held against order and version; ``unwatched``: computes of
    a program whose device reads past experts (``over_read``), which is not followed.  A byte
    of memory takes 8 bytes for its version and 16 for each queue that touches its buffer.
    """

    def __init__(self) -> None:
        self.checked = 0
        self.unwatched = 0
        self._lock = threading.Lock()
        self._runs = 0
        self._versions = Versions()  # of all runs: what lasts is compared over them
        self._run: _Run | None = None
        #: shadows of lasting buffers, by their address; with the bytes, which keep it taken
        self._lasting: dict[int, tuple[object, Shadow]] = {}
        self._clocks: dict[str, dict[str, int]] = {}
        self._ended: dict[Stretch, dict[str, int]] = {}
        self._joins: dict[Stretch, list[dict[str, int]]] = {}
        self._parts: dict[tuple[str, int], Stretch] = {}
        self._positions: dict[str, int] = {}

    # -- runs -----------------------------------------------------------------------------------

    def begin_run(self, arena: Arena, schedule: Schedule, symbols: Mapping[str, int]) -> None:
        self._runs += 1
        self._clocks, self._positions = {}, {}
        self._ended, self._joins, self._parts = {}, {}, {}
        world = World(schedule, symbols)
        self.unwatched = sum(_reads_past(schedule, command) for command in schedule.program or ())
        shadows = {
            buffer.name: self._lasting_shadow(arena, buffer.name)
            for buffer in schedule.graph.buffers
            if buffer.usage is not Usage.COMPUTE
        }
        start = {name: shadow.version for name, shadow in shadows.items()}
        due = DueVersions(world, self._versions, start, self._runs)
        self._run = _Run(arena, Footprints(world, arena, due), shadows)

    def _lasting_shadow(self, arena: Arena, space: str) -> Shadow:
        raw = arena.space(space)
        if isinstance(raw, Window):
            raise SanitizeError(f"{space} lies in the memory of a GPU, which is not watched")
        address = int(raw.ctypes.data)
        if address not in self._lasting:
            first = 1 + sum(len(shadow.version) for _, shadow in self._lasting.values())
            # Versions that a buffer starts with are below zero, those of writes above.
            start = -np.arange(first, first + len(raw), dtype=np.int64)
            self._lasting[address] = raw, Shadow(len(raw), start)
        shadow = self._lasting[address][1]
        shadow.settle()
        return shadow

    def begin_pass(self, pass_: int) -> None:
        with self._lock:
            self._running.footprints.begin_pass(pass_)

    @property
    def _running(self) -> _Run:
        assert self._run is not None
        return self._run

    # -- clocks ---------------------------------------------------------------------------------

    def issue(self, stretch: Stretch) -> object:
        with self._lock:
            return dict(self._clock(HOST))

    def saw(self, waiter: Stretch, record: Stretch) -> None:
        with self._lock:
            self._joins.setdefault(waiter, []).append(self._ended[record])

    def drained(self, waiter: Stretch, lane: str) -> None:
        with self._lock:
            self._joins.setdefault(waiter, []).append(dict(self._clock(lane)))

    def decided(self, stretch: Stretch, step: SlotStep) -> None:
        with self._lock:
            found = self._running.footprints.decided(stretch.index, stretch.pass_, step)
            self._touch(stretch, found, self._clock(HOST), HOST, self._positions[HOST])

    def start(self, stretch: Stretch, token: object, flights: str = "", flown: int = 0) -> None:
        assert isinstance(token, dict)
        chain = _chain(stretch)
        with self._lock:
            clock = {} if stretch.loose else self._clock(chain)
            for other in (token, *self._joins.pop(stretch, ())):
                for name, known in other.items():
                    clock[name] = max(clock.get(name, 0), known)
            if flights:
                clock[flights] = max(clock.get(flights, 0), flown)
            position = self._positions[chain] = self._positions.get(chain, 0) + 1
            self._parts[chain, position] = stretch
            self._touch(stretch, self._accesses(stretch), clock, chain, position)
            clock[chain] = position
            if stretch.loose:
                self._clock(chain)[chain] = position
            self._ended[stretch] = dict(clock)

    def _clock(self, chain: str) -> dict[str, int]:
        return self._clocks.setdefault(chain, {})

    # -- bytes ----------------------------------------------------------------------------------

    def _accesses(self, stretch: Stretch) -> Accesses:
        try:
            return self._running.footprints.of(stretch.index, stretch.pass_, stretch.part)
        except WrongSlots as error:
            raise SanitizeError(f"{_name(stretch)}: {error}") from None

    def _touch(
        self,
        stretch: Stretch,
        accesses: Accesses,
        clock: Mapping[str, int],
        chain: str,
        position: int,
    ) -> None:
        """Hold all accesses against the clock, then let them happen."""
        found: list[VersionArray] = []
        for read in accesses.reads:
            shadow = self._ordered(stretch, read, clock, writes=False)
            found.append(shadow.version[read.where].copy())
            self._due(stretch, read, found[-1])
        shadows = [self._ordered(stretch, w, clock, writes=True) for w in accesses.writes]
        for read in accesses.reads:
            self._shadow(read.space).mark(read.where, chain, position, writes=False)
        for write, shadow in zip(accesses.writes, shadows, strict=True):
            version = write.version if write.version is not None else found[write.source]
            shadow.version[write.where] = version
            shadow.mark(write.where, chain, position, writes=True)
        if accesses.keeps:
            self._running.footprints.keep(stretch.index, stretch.pass_, found)

    def _shadow(self, space: str) -> Shadow:
        run = self._running
        if space not in run.shadows:
            run.shadows[space] = Shadow(run.arena.size(space), None)
        return run.shadows[space]

    def _ordered(
        self, stretch: Stretch, access: Access, clock: Mapping[str, int], *, writes: bool
    ) -> Shadow:
        self.checked += 1
        shadow = self._shadow(access.space)
        clash = shadow.late(access.where, clock, readers=writes)
        if clash is not None:
            raise SanitizeError(self._race(stretch, access, clash, "writes" if writes else "reads"))
        return shadow

    def _race(self, stretch: Stretch, access: Access, clash: Clash, does: str) -> str:
        other = self._parts[clash.chain, clash.position]
        did = "wrote" if clash.wrote else "reads"
        return (
            f"{_name(stretch)} {does} {access.tensor}, byte {clash.byte} of {access.space}, "
            f"which {_name(other)} {did}, and nothing orders the two: {_chain(stretch)} knows "
            f"{clash.chain} up to part {clash.known}, {clash.position} was due"
        )

    def _due(self, stretch: Stretch, read: Access, found: VersionArray) -> None:
        if read.version is None:
            return
        wrong = np.flatnonzero(found != read.version)
        if len(wrong):
            at = int(wrong[0])
            raise SanitizeError(
                f"{_name(stretch)} reads {len(wrong):,} bytes of {read.tensor} ({read.space}) of "
                f"another version than is due, the first at byte {at} of the tensor: "
                f"{self._text(found[at])}; {self._text(read.version[at])} was due"
            )

    def _text(self, version: np.int64) -> str:
        if version < POISON:
            return f"initial content (byte {-int(version)} of all buffers)"
        return self._versions.text(int(version))


def _chain(stretch: Stretch) -> str:
    return stretch.queue + ("~" if stretch.loose else "")


def _name(stretch: Stretch) -> str:
    part = "" if stretch.part == "main" else f" ({stretch.part})"
    return f"command {stretch.index} [{stretch.text}]{part} of pass {stretch.pass_}"
