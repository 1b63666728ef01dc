"""One interleaving, tried out on the few bytes of a fault: does the reader see a wrong version?

The witness has several sequences to choose from; this picks one that shows the fault, a wrong
version rather than a torn one where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ..model.counterexample import Step
from .access import Read, Write, starts_with_content
from .footprint import Footprints
from .obligation import BYTE, Fault, Judge
from .region import rearrange
from .sequential import INITIAL, Event, logical_space, shift_to_logical
from .term import Scope, number, size

Place = tuple[str, int]
#: an event and a logical address; ``None`` is poison
Version = tuple[Event, int] | None


class Outcome(IntEnum):
    """What the reader saw, best shown first."""

    WRONG = 0
    POISON = 1
    RIGHT = 2


class Trial:
    """The bytes that a fault's reader can see, through all copies that can bring them."""

    def __init__(self, judge: Judge, fault: Fault) -> None:
        self.judge, self.fault, values = judge, fault, fault.values
        self.footprints: Footprints = judge.footprints
        self.scope = Scope({n: (v, v) for n, v in values.symbols.items()}, {})
        start = values.value(size(fault.read.region.start))
        self.origin: Place = (fault.read.region.space, start + values.variables.get(BYTE, 0))
        #: ``(write, place written, place read)`` of each write that meets these bytes
        self.writes: list[tuple[Write, Place, Place | None]] = []
        self.places: set[Place] = set()
        self._collect(self.origin)

    def _collect(self, place: Place) -> None:
        if place in self.places:
            return
        self.places.add(place)
        space, address = place
        for write in self.footprints.by_space.get(space, ()):
            covered = self.judge.covers(write, number(address), self.scope)
            if not self.fault.values.holds(covered):
                continue
            source = self._source(write, address)
            self.writes.append((write, place, source))
            if source is not None:
                self._collect(source)

    def _source(self, write: Write, address: int) -> Place | None:
        if write.source is None:
            return None
        values, source = self.fault.values, write.source.region
        inside = number(address - values.value(size(write.region.start)))
        moved = rearrange(inside, write.region.tensor, source.tensor)
        return source.space, values.value(size(source.start) + moved)

    def run(self, steps: Sequence[Step]) -> Outcome:
        """What the fault's reader sees in that sequence."""
        memory: dict[Place, Version] = {place: self._initial(place) for place in self.places}
        seen: dict[tuple[int, Place], Version] = {}
        carried: dict[tuple[int, Place], Version] = {}
        reader = self.fault.read
        for step in steps:
            part = self.footprints.order.part(step.command, step.iteration, step.part).index
            if step.phase == "start":
                self._start(part, memory, seen)
                continue
            if part == reader.part:
                return self._judged(reader, memory, seen)
            self._end(part, memory, seen, carried)
        raise ValueError("the reader does not occur in the sequence")

    def _start(
        self, part: int, memory: dict[Place, Version], seen: dict[tuple[int, Place], Version]
    ) -> None:
        for place in self.places:
            seen[part, place] = memory[place]
        for write, place, _ in self.writes:
            if write.part == part:
                memory[place] = None

    def _end(
        self,
        part: int,
        memory: dict[Place, Version],
        seen: dict[tuple[int, Place], Version],
        carried: dict[tuple[int, Place], Version],
    ) -> None:
        for write, place, source in self.writes:
            if source is not None and write.source is not None and write.source.part == part:
                before, now = seen[part, source], memory[source]
                carried[write.part, place] = before if before == now else None
        for write, place, source in self.writes:
            if write.part == part:
                if source is not None:
                    memory[place] = carried.get((part, place))
                else:
                    memory[place] = self._version(write, place[1])

    def _judged(
        self, reader: Read, memory: dict[Place, Version], seen: dict[tuple[int, Place], Version]
    ) -> Outcome:
        before, now = seen[reader.part, self.origin], memory[self.origin]
        mine = any(w.part == reader.part and p == self.origin for w, p, _ in self.writes)
        if before is None or (before != now and not mine):
            return Outcome.POISON
        return Outcome.RIGHT if before == self._due() else Outcome.WRONG

    def _due(self) -> Version:
        target = self.fault.target
        if target is None:
            return None
        return target.event, self.fault.values.value(target.address)

    def _version(self, write: Write, address: int) -> Version:
        assert write.event is not None
        schedule = self.footprints.schedule
        base = schedule.base(write.region.tensor.name).name
        shift = self.fault.values.value(size(shift_to_logical(schedule, base)))
        target = self.fault.target
        mine = target is None or logical_space(schedule, base) == target.space
        if target is not None and write.event == target.event and not mine:
            return write.event, -1  # another tensor of the same event
        return write.event, address - shift

    def _initial(self, place: Place) -> Version:
        return (
            (INITIAL, place[1]) if starts_with_content(self.footprints.schedule, place[0]) else None
        )
