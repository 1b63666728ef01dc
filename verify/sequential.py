"""The sequential run: which version each byte has when it is read.

In it every base tensor in a compute buffer has bytes of its own; only what is placed in
``weights`` and ``any`` buffers shares bytes there, by address.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.command import Callback, SetInput
from ..model.device import Usage
from ..model.graph import Node
from ..model.ops import OPS
from ..model.schedule import Schedule
from ..model.symbol import Expr
from .region import Region, moved_region, region_of
from .spans import Spans
from .term import Bool, Int, Scope, conj, neg, size


class Time(NamedTuple):
    """A moment of the sequential run.

    ``phase``: 0 inputs, 1 nodes, 2 outputs.  ``step``: 0 for the callbacks before a node, 1 for
    the node.
    """

    iteration: int
    phase: int
    position: int
    step: int
    issue: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """What gives bytes a version.

    ``kind``: ``node`` (``index``: position), ``input`` and ``callback`` (command),
    ``slots``, ``map`` and ``state`` (the fill's command; ``name``: the bank), ``initial``.
    """

    kind: str
    index: int = 0
    iteration: int = 0
    name: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """``(command, pass)`` of a command's event."""
        return self.index, self.iteration


INITIAL = Event("initial")


@dataclass(frozen=True, slots=True)
class Due:
    """Where ``condition`` holds, the byte has the version of ``event`` (``None``: none)."""

    condition: Bool
    event: Event | None


@dataclass(frozen=True, slots=True)
class _Entry:
    time: Time
    event: Event
    region: Region


def logical_space(schedule: Schedule, name: str) -> str:
    """The space in which the sequential run keeps a tensor: its base, or its shared buffer."""
    place = schedule.location(schedule.base(name).name)
    if place.usage in (Usage.WEIGHTS, Usage.ANY):
        return place.space
    return f"base:{schedule.base(name).name}"


@dataclass(slots=True)
class Sequential:
    """Who wrote what, pass after pass.  Addresses are those of the placement, relative to the
    base's first byte where the base has bytes of its own."""

    schedule: Schedule
    exists: Callable[[int, int], bool]
    node_exists: Callable[[Node, int], bool]
    entries: dict[str, list[_Entry]] = field(default_factory=dict)
    #: spaces that something of unknown place writes
    inexact: set[str] = field(default_factory=set)
    _written: dict[str, Spans[_Entry]] = field(default_factory=dict)
    _times: dict[Event, Time] = field(default_factory=dict)
    _slots: dict[str, list[Region]] = field(default_factory=dict)
    _places: dict[str, Region] = field(default_factory=dict)
    _regions: dict[str, Region] = field(default_factory=dict)
    _logical: dict[str, tuple[str, Int]] = field(default_factory=dict)
    _sets: dict[tuple[str, Time], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schedule = self.schedule
        assert schedule.program is not None
        for iteration in range(schedule.repeat):
            last_input: dict[str, int] = {}
            for index, command in enumerate(schedule.program):
                if not self.exists(index, iteration):
                    continue
                if isinstance(command, SetInput):
                    last_input[command.tensor] = index
                elif isinstance(command, Callback):
                    time = callback_time(schedule, command, index, iteration)
                    for name in callback_names(schedule, command.writes):
                        self._add(name, time, Event("callback", index, iteration))
            for name, index in last_input.items():
                time = Time(iteration, 0, 0, 0, index)
                self._add(name, time, Event("input", index, iteration))
            for position, node in enumerate(schedule.graph.nodes):
                if OPS[node.op].view or not self.node_exists(node, iteration):
                    continue
                time = Time(iteration, 1, position, 1)
                for name in node.writes if node.writes is not None else (node.dst,):
                    self._add(name, time, Event("node", position, iteration))
        for space, found in self.entries.items():
            found.sort(key=_time)
            self._times.update((entry.event, entry.time) for entry in found)
            self._written[space] = Spans((entry.region.span, entry) for entry in found)
            self.inexact |= {space for entry in found if not entry.region.exact}
        self._find_slots()

    def _add(self, name: str, time: Time, event: Event) -> None:
        space = logical_space(self.schedule, name)
        self.entries.setdefault(space, []).append(_Entry(time, event, self.region(name)))

    def placed(self, name: str) -> Region:
        """A tensor's bytes where it is placed."""
        if name not in self._places:
            self._places[name] = region_of(self.schedule, name)
        return self._places[name]

    def region(self, name: str) -> Region:
        """A tensor's bytes in its logical space."""
        if name not in self._regions:
            base = self.schedule.base(name).name
            space, origin = (
                logical_space(self.schedule, name),
                shift_to_logical(self.schedule, base),
            )
            self._regions[name] = moved_region(self.schedule, self.placed(name), space, origin)
        return self._regions[name]

    def logical(self, name: str) -> tuple[str, Int]:
        """The logical space of a tensor's base, and what to take from an address in the base's
        placement to get its address there."""
        if name not in self._logical:
            base = self.schedule.base(name).name
            shift = size(shift_to_logical(self.schedule, base))
            self._logical[name] = logical_space(self.schedule, base), shift
        return self._logical[name]

    def writers(self, region: Region, before: Time) -> Iterator[tuple[Event, Region]]:
        """Events that may have written bytes of that region before a moment, latest first."""
        spans = self._written.get(region.space)
        if spans is None:
            return
        runs = []
        for group in spans.meeting(region.span):
            earlier = bisect_left(group, before, key=_time)
            if earlier:
                runs.append(group[earlier - 1 :: -1])
        merged = runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_time, reverse=True)
        for entry in merged:
            yield entry.event, entry.region

    def time_of(self, event: Event) -> Time | None:
        """When an event happens in the sequential run; ``None`` if it is none of its writes."""
        return self._times.get(event)

    def due(self, read: Region, address: Int, time: Time, scope: Scope) -> list[Due]:
        """The version of a byte of a region of a logical space when it is read at ``time``: cases
        that exclude each other."""
        cases: list[Due] = []
        rest: list[Bool] = []
        space = read.space
        for event, region in self.writers(read, time):
            here = region.contains(address, scope)
            if here is False:
                continue
            condition = conj([*rest, here])
            if condition is not False:
                cases.append(Due(condition, event))
            if here is True:
                return cases
            rest.append(neg(here))
        if space.startswith("base:"):
            return [*cases, Due(conj(rest), None)]
        for region in self._slots.get(
            space, ()
        ):  # what they hold at the start is no version of theirs
            here = region.contains(address, scope)
            cases.append(Due(conj([*rest, here]), None))
            rest.append(neg(here))
        cases.append(Due(conj(rest), INITIAL))
        return cases

    def _find_slots(self) -> None:
        """The banks, and the slot ids, that lie in each space: no byte of them has a version."""
        graph = self.schedule.graph
        names = [name for bank in graph.banks for name in (bank.name, bank.slot_ids) if name]
        for name in dict.fromkeys(names):
            region = self.placed(name)
            self._slots.setdefault(region.space, []).append(region)

    def holds_slots(self, space: str) -> bool:
        """Whether a bank, or slot ids, lie in that space."""
        return space in self._slots

    def used_set(self, ids: str, time: Time) -> str:
        """A name for ``used(ids)`` as of a moment: equal names are equal sets.

        It lists the events that wrote the ids last, so that two readers of one version share
        it and readers of different versions do not.  A view of all of its base names the same
        numbers.
        """
        key = (ids, time)
        if key not in self._sets:
            region, base = self.region(ids), self.schedule.base(ids)
            whole = self.region(base.name)
            alike = region.tensor.dtype == base.dtype and region.contiguous
            if alike and covers(whole, region):
                ids = base.name
            last = []
            for event, written in self.writers(region, time):
                last.append(f"{event.kind}{event.index}.{event.iteration}")
                if covers(written, region):
                    break
            self._sets[key] = f"{ids}[{','.join(last) or 'start'}]"
        return self._sets[key]


def _time(entry: _Entry) -> Time:
    return entry.time


def covers(outer: Region, inner: Region) -> bool:
    """Whether one region plainly has all bytes of another (equal start and extent)."""
    return outer.start == inner.start and outer.contiguous and outer.extent == inner.extent


def shift_to_logical(schedule: Schedule, base: str) -> Expr:
    """What to take from an address in a base's placement to get its logical address."""
    if logical_space(schedule, base).startswith("base:"):
        return schedule.location(base).offset
    return Expr.of(0)


def callback_time(schedule: Schedule, command: Callback, index: int, iteration: int) -> Time:
    """In the sequential run a split's callbacks run just before its first node."""
    assert command.split is not None
    start = schedule.splits[command.split].start if schedule.splits is not None else 0
    return Time(iteration, 1, start, 0, index)


def callback_names(schedule: Schedule, names: tuple[str, ...] | None) -> Iterator[str]:
    """The tensors of a callback's footprint; ``usage:NAME`` is every base tensor of that usage
    except copies and banks with their slot ids and maps, and no declaration is all of them."""
    wanted = names if names is not None else tuple(f"usage:{usage}" for usage in Usage)
    graph = schedule.graph
    kept_out = {name for b in graph.banks for name in (b.name, b.slot_ids, b.slot_map)}
    for name in wanted:
        kind, _, usage = name.partition(":")
        if kind != "usage":
            yield name
            continue
        for tensor in graph.tensors:
            if tensor.view_of is not None or tensor.name in kept_out:
                continue
            if schedule.copy_of(tensor.name) is not None:
                continue
            if (schedule.location(tensor.name).usage or Usage.COMPUTE) == usage:
                yield tensor.name
