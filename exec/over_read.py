"""What a kernel reads past the experts that it uses, held against memory as it is then."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..model.device import Usage
from ..model.schedule import Schedule
from ..model.tensor import Tensor
from .judge import WrongRead
from .layout import Layout
from .memory import POISON, Memory, Region
from .reference import World
from .script import Part

Mask = NDArray[np.bool_]


class OverRead:
    """``count`` bytes past each expert of ``source`` that a node uses.

    Such a byte may have any defined version; it must be one of the tensor itself, or nobody's.
    """

    def __init__(self, world: World, part: Part, source: Layout, count: int) -> None:
        self.world, self.part, self.source, self.count = world, part, source, count
        schedule = world.schedule
        graph = schedule.graph
        self.owners = _owners(schedule, source.name)
        self.lasting, self.room = False, None
        if not source.space.startswith("own:"):
            buffer = graph.buffer(source.space)
            self.lasting = buffer.usage in (Usage.WEIGHTS, Usage.ANY)
            self.room = buffer.bytes
        bases = [t for t in graph.tensors if t.view_of is None]
        names = dict.fromkeys([*(t.name for t in bases), schedule.base(source.name).name])
        here = [world.layouts.placed(name) for name in names]
        here = [layout for layout in here if layout.space == source.space]
        self.own = [layout for layout in here if layout.name in self.owners]
        self.others = [o for o in here if o.name not in self.owners and not self._in_step(o)]

    def _in_step(self, other: Layout) -> bool:
        """Whether blocks of another weight will do in the place of the next expert's."""
        graph, location = self.world.schedule.graph, self.world.schedule.location(other.name)
        banks = graph.find_bank(self.source.name) or graph.find_bank(other.name)
        alike = self.source.dtype == other.dtype and not other.dtype.integer
        packed = self.source.packed and other.packed and banks is None
        apart = (other.offset - self.source.offset) % self.source.dtype.block_bytes
        return location.usage is Usage.WEIGHTS and alike and packed and apart == 0

    def faults(self, memory: Memory, experts: Iterable[int], began: int) -> list[WrongRead]:
        """The faults of a read that started at clock ``began``."""
        found = []
        for expert in experts:
            end = self.source.part(2, expert).end
            wrong = self._wrong(memory, end, began)
            if wrong.any():
                first = end + int(np.argmax(wrong))
                found.append(self._fault(expert, first, int(wrong.sum())))
        return found

    def _wrong(self, memory: Memory, end: int, began: int) -> Mask:
        stop, space = end + self.count, self.source.space
        where = np.arange(end, stop)
        known = min(stop, len(memory.data[space]))
        wrong = np.zeros(self.count, bool)
        if self.room is not None:
            wrong |= where >= self.room
        inside = slice(end, max(known, end))
        content = memory.read_since(Region(space, inside), began)
        touched = memory.touched[space][inside] > 0
        own, other = (
            _within(layouts, where)[: len(touched)] for layouts in (self.own, self.others)
        )
        poison = content.version == POISON
        if self.lasting:
            bad = poison | other
        else:
            # What nobody writes past a tensor counts as cleared by its device.
            bad = np.where(own, poison, touched)
            bad |= own & self._written_by_others(memory, inside)
        wrong[: len(touched)] |= bad
        return wrong

    def _written_by_others(self, memory: Memory, inside: slice) -> Mask:
        clocks = memory.touched[self.source.space][inside]
        bases = {name: self.world.schedule.base(name).name for name in set(memory.writers) if name}
        names = [memory.writers[clock - 1] if clock else "" for clock in clocks]
        return np.array([bool(n) and bases[n] not in self.owners for n in names], bool)

    def _fault(self, expert: int, first: int, count: int) -> WrongRead:
        return WrongRead(
            self.part.command, self.part.iteration, self.source.name, first - self.source.offset,
            count, "undefined bytes, or another tensor's",
            f"defined bytes ({self.count} past expert {expert})", poison=True, differs=True,
        )  # fmt: skip


def _owners(schedule: Schedule, name: str) -> frozenset[str]:
    """The tensors whose bytes count as those of the one that is read."""
    base: Tensor = schedule.base(name)
    bank = schedule.graph.find_bank(name)
    if bank is None:
        return frozenset((base.name,))
    banks = schedule.graph.banks
    return frozenset(b.name for b in banks if (b.group, b.role) == (bank.group, bank.role))


def _within(layouts: Iterable[Layout], where: NDArray[np.int64]) -> Mask:
    """Which addresses are bytes of one of the tensors."""
    found = np.zeros(len(where), bool)
    for layout in layouts:
        found |= np.isin(where, layout.addresses)
    return found
