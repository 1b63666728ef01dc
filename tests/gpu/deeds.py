"""What each part of a program does to bytes, said with versions in the place of numbers.

A byte of a document's memory is an int32: the number of the write that it comes from.  A part that
reads holds the versions that it finds against those of the sequential run; a copy moves them; a
write leaves its own.  At its start a part poisons what it is about to write, as in a replay.
Which bytes these are is what ``exec/footprint.py`` says, at the ids of the issue order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from splitproof.exec.due import DueVersions
from splitproof.exec.footprint import Access, Accesses, Footprints
from splitproof.exec.memory import POISON, Memory
from splitproof.exec.operand import Operand
from splitproof.exec.quant import to_array
from splitproof.exec.reference import World
from splitproof.exec.replay import Banks, Bench, Start
from splitproof.exec.script import Script
from splitproof.model.cache import lru_slots
from splitproof.model.command import FillBank
from splitproof.model.device import Usage
from splitproof.model.schedule import Schedule

Versions = NDArray[np.int32]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of a space, by their places."""

    space: str
    places: Places

    @property
    def run(self) -> slice | None:
        """The bytes, if each follows the one before."""
        if not len(self.places) or (np.diff(self.places) != 1).any():
            return None
        return slice(int(self.places[0]), int(self.places[-1]) + 1)

    def meets(self, other: Region) -> bool:
        return self.space == other.space and bool(np.isin(self.places, other.places).any())


@dataclass(frozen=True, slots=True)
class Check:
    """Count the bytes that hold another version than is due."""

    region: Region
    due: Versions


@dataclass(frozen=True, slots=True)
class Stamp:
    """Leave versions."""

    region: Region
    versions: Versions


@dataclass(frozen=True, slots=True)
class Move:
    """Copy versions, byte for byte."""

    source: Region
    target: Region


Deed = Check | Stamp | Move


@dataclass(frozen=True, slots=True)
class Deeds:
    """Of one part: what it does when it starts and when it ends."""

    start: tuple[Deed, ...]
    end: tuple[Deed, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """``first``: its versions before the first part."""

    host: bool
    first: Versions


@dataclass(frozen=True)
class Plan:
    """A program at concrete symbols and ids, with the deeds of each part of its script."""

    script: Script
    deeds: tuple[Deeds, ...]
    spaces: Mapping[str, Space]


@dataclass(frozen=True)
class _Looking:
    """The memory of a replay, as footprints look for ids in it."""

    world: World
    memory: Memory

    def operand(self, name: str) -> Operand:
        layout = self.world.layouts.placed(name)
        return Operand(layout, self.memory.data[layout.space][layout.offset : layout.end])


def plan(
    schedule: Schedule,
    symbols: Mapping[str, int],
    integers: Iterable[tuple[str, int, tuple[int, ...]]] = (),
    banks: Banks = (),
) -> Plan:
    """The deeds of a program-level schedule.  ``ValueError`` where its ids do not allow any."""
    fixed = {(name, pass_): values for name, pass_, values in integers}
    return _Planning(World(schedule, symbols, 0, fixed, lenient=True), banks).plan()


class _Planning:
    """One walk through the parts, in the order of their issue."""

    def __init__(self, world: World, banks: Banks) -> None:
        self.world, self.bench = world, Bench(world)
        self.first = Start.of(world, banks)
        run = self.bench.execution
        run.memory.reset(self.first.memory)
        run.slots = dict(self.first.slots)
        graph = world.schedule.graph
        lasting = {
            buffer.name: self.first.memory.version[buffer.name]
            for buffer in graph.buffers
            if buffer.usage is not Usage.COMPUTE and buffer.name in self.first.memory.version
        }
        due = DueVersions(world, world.versions, lasting, 0)
        looking = _Looking(world, run.memory)
        self.footprints = Footprints(world, looking, due)  # type: ignore[arg-type]
        #: what a host part took → the region where it is kept
        self.kept: dict[int, Region] = {}
        self.shelves: dict[str, Space] = {}
        self._alive: list[object] = []

    def plan(self) -> Plan:
        deeds, pass_ = [], -1
        for number, part in enumerate(self.bench.script.parts):
            if part.iteration != pass_:
                pass_ = part.iteration
                self.footprints.begin_pass(pass_)
            found = self.footprints.of(part.command, pass_, part.name)
            task, slots = self.bench.tasks[number], dict(self.bench.execution.slots)
            task.start(part.name)
            if part.name == "read":
                found = self._decided(found, part.command, pass_, slots)
            task.end(part.name)
            deeds.append(self._deeds(found, part.command, pass_))
        return Plan(self.bench.script, tuple(deeds), self._spaces())

    def _decided(
        self, found: Accesses, index: int, pass_: int, slots: Mapping[str, object]
    ) -> Accesses:
        """A fill chooses its slots when its host part reads the ids."""
        schedule = self.world.schedule
        command = (schedule.program or ())[index]
        if not isinstance(command, FillBank):
            return found
        bank = schedule.graph.find_bank(command.banks[0])
        assert bank is not None
        ids = self.footprints.arena.operand(command.ids)
        flat = to_array(ids.layout.dtype, ids.packed(), ids.ne).reshape(-1, order="F")
        step = lru_slots(slots[bank.group], bank.layer, [int(i) for i in flat])  # type: ignore[arg-type]
        more = self.footprints.decided(index, pass_, step)
        reads = more.reads + found.reads
        return Accesses(reads, found.writes, keeps=more.keeps)

    # -- deeds ----------------------------------------------------------------------------------

    def _deeds(self, found: Accesses, index: int, pass_: int) -> Deeds:
        writes = [region(write) for write in found.writes]
        start: list[Deed] = []
        end: list[Deed] = []
        for read in found.reads:
            if read.version is not None:
                own = any(region(read).meets(write) for write in writes)
                (start if own else end).append(Check(region(read), narrow(read.version)))
        start += [Stamp(write, np.full(len(write.places), POISON, np.int32)) for write in writes]
        if found.keeps:
            end += self._keep(found.reads, index, pass_)
        moves: list[Deed] = []
        for write, target in zip(found.writes, writes, strict=True):
            if write.version is None:
                moves.append(Move(region(found.reads[write.source]), target))
            elif id(write.version) in self.kept:
                moves.append(Move(self.kept[id(write.version)], target))
            else:
                moves.append(Stamp(target, narrow(write.version)))
        return Deeds(tuple(start), (*end, *moves))

    def _keep(self, reads: Sequence[Access], index: int, pass_: int) -> list[Deed]:
        """Take what a host part reads into a space of its own, for the part that writes it."""
        marks, deeds = [], []
        for number, read in enumerate(reads):
            mark = np.zeros(0, np.int64)
            marks.append(mark)
            self._alive.append(mark)  # its id stays its own
            if read.version is not None:
                continue
            source, name = region(read), f"kept by {index} in {pass_}: {number}"
            count = len(source.places)
            self.shelves[name] = Space(True, np.zeros(count, np.int32))
            self.kept[id(mark)] = Region(name, np.arange(count))
            deeds.append(Move(source, self.kept[id(mark)]))
        self.footprints.keep(index, pass_, marks)
        return list(deeds)

    def _spaces(self) -> dict[str, Space]:
        graph, schedule = self.world.schedule.graph, self.world.schedule
        found = dict(self.shelves)
        memories = {buffer.name: buffer.memory for buffer in graph.buffers}
        for name, version in self.first.memory.version.items():
            memory = memories.get(name)
            if memory is None:
                memory = schedule.location(name.removeprefix("own:")).memory
            host = memory is None or graph.memory(memory).host
            found[name] = Space(host, narrow(version))
        return found


def region(access: Access) -> Region:
    where = access.where
    if isinstance(where, slice):
        where = np.arange(where.start, where.stop, dtype=np.int64)
    return Region(access.space, where)


def narrow(versions: NDArray[np.int64]) -> Versions:
    if len(versions) and int(versions.max()) >= 2**31:
        raise ValueError(f"version {int(versions.max())} has no place in 31 bits")
    return versions.astype(np.int32)
