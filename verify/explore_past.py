"""What kernels read past experts in a small program: cells in which only some versions will do.

Read a second time from ``docs/semantics.md``: the byte must be defined, and one of the tensor
itself or nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.command import Compute
from ..model.device import Usage
from ..model.schedule import Schedule
from .explore_program import NOTHING, World
from .explore_queues import Part


class Past:
    """Collects reads past experts while parts are issued, and says which versions are right."""

    def __init__(self, world: World, parts: list[Part], special: dict[int, int]) -> None:
        self.world, self.parts, self.special = world, parts, special
        self.schedule: Schedule = world.schedule
        self.graph = world.schedule.graph
        #: ``(part, tensor, its owners, cell, place)``
        self.reads: list[tuple[Part, str, frozenset[str], int, tuple[str, int]]] = []

    def read(self, part: Part, command: Compute, bound: str, chosen: Iterable[int]) -> None:
        """A node reads past these experts (of a bank: slots) of a tensor."""
        device = self.schedule.compute_device(command)
        tensor, world = self.schedule.tensor(bound), self.world
        op = self.graph.node(command.node).op
        count = self.graph.device(device).over_read_bytes(op, tensor.type.name) if device else 0
        if not count:
            return
        place = self.schedule.location(bound)
        step = world.value(tensor.nb[2]) if len(tensor.shape) > 2 else 0
        plane = world.addresses(bound)[len(world.placed(bound)) // world.value(tensor.ne[2]) - 1]
        first = world.value(place.offset) + plane + world.grain
        for expert in sorted(set(chosen)):
            start = first + expert * step
            for address in range(start, start + count, world.grain):
                self._one(part, bound, place.space, address)

    def _one(self, part: Part, bound: str, space: str, address: int) -> None:
        if not space.startswith("own:") and address >= self.graph.buffer(space).bytes:
            part.broken.append((bound, "a kernel reads past the buffer"))
            return
        cell = self.world.cell(space, address)
        part.loads.add(cell)
        self.reads.append((part, bound, self._owners(bound), cell, (space, address)))

    def _owners(self, name: str) -> frozenset[str]:
        bank = self.graph.find_bank(name)
        if bank is None:
            return frozenset((self.schedule.base(name).name,))
        banks = self.graph.banks
        return frozenset(b.name for b in banks if (b.group, b.role) == (bank.group, bank.role))

    def settle(self) -> None:
        """Once all parts are there: the versions that each such cell may have."""
        cells = {
            tensor.name: frozenset(self.world.placed(tensor.name))
            for tensor in self.graph.tensors
            if tensor.view_of is None
        }
        for part, bound, owners, cell, (space, address) in self.reads:
            lasting = not space.startswith("own:") and (
                self.graph.buffer(space).usage is not Usage.COMPUTE
            )
            own = any(cell in self._cells(name, cells) for name in owners)
            others = [n for n, found in cells.items() if n not in owners and cell in found]
            allowed = self._left(owners, cell, set())
            if lasting and all(self._in_step(bound, name) for name in others):
                start = self.special.get(cell, self.world.initial(space, address))
                allowed |= {start} - {NOTHING}
            elif not lasting and not own:
                (cleared,) = self.world.versions(("cleared", space, address), 1)
                self.special.setdefault(cell, cleared)
                allowed = {cleared}
            if cell in part.stores and not own:
                part.broken.append((bound, "a kernel reads past an expert what it writes"))
            part.past.append((bound, cell, frozenset(allowed)))

    def _cells(self, name: str, known: dict[str, frozenset[int]]) -> frozenset[int]:
        return known[name] if name in known else frozenset(self.world.placed(name))

    def _left(self, owners: frozenset[str], cell: int, seen: set[tuple[str, int]]) -> set[int]:
        """The versions that writes to these tensors can leave in a cell."""
        found: set[int] = set()
        for part in self.parts:
            if part.hands.get(cell, ("", ""))[0] not in owners:
                continue
            if cell in part.stores:
                found.add(part.stores[cell])
            if cell in part.moves:
                source, origin = part.moves[cell], part.hands[cell][1]
                if (origin, source) not in seen:
                    seen.add((origin, source))
                    found |= self._held(origin, source, seen)
        return found

    def _held(self, name: str, cell: int, seen: set[tuple[str, int]]) -> set[int]:
        """The versions that a source of copies can have: its initial one, and written ones."""
        space, address = next(place for place, c in self.world.cells.items() if c == cell)
        start = self.special.get(cell, self.world.initial(space, address))
        return self._left(frozenset((name,)), cell, seen) | ({start} - {NOTHING})

    def _in_step(self, bound: str, other: str) -> bool:
        """Whether another weight of the same type lies there, its blocks in step."""
        one, two = self.schedule.tensor(bound), self.schedule.tensor(other)
        banks = self.graph.find_bank(bound) or self.graph.find_bank(other)
        usage = self.schedule.location(other).usage
        alike = one.type == two.type and not one.type.integer and one.packed and two.packed
        offsets = [self.world.value(self.schedule.location(n).offset) for n in (bound, other)]
        apart = (offsets[1] - offsets[0]) % one.type.block_bytes
        return bool(banks is None and usage is Usage.WEIGHTS and alike and apart == 0)
