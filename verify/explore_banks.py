"""Banks of a small program, run as the policy runs them: slots, fills, and what is read there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model.command import Compute, FillBank
from ..model.graph import Bank, Node
from .explore_past import Past
from .explore_program import NOTHING, CannotExplore, Meaning, Start, World
from .explore_queues import Part, Queues


@dataclass(slots=True)
class Slots:
    """A bank group as it runs: owners of slots, and slots from least to most recently used."""

    owners: list[tuple[int, int] | None]
    recency: list[int]

    def serve(self, layer: int, ids: Sequence[int]) -> dict[int, int] | None:
        """Bring experts in; slots of the missed ones, ``None`` if they do not fit."""
        wanted = list(dict.fromkeys(i for i in ids if i >= 0))
        if len(wanted) > len(self.owners):
            return None
        missed = sorted(e for e in wanted if (layer, e) not in self.owners)
        for expert in wanted:
            if expert not in missed:
                self._use(self.owners.index((layer, expert)))
        found = {}
        for expert in missed:
            found[expert] = slot = self.recency[0]
            self.owners[slot] = (layer, expert)
            self._use(slot)
        return found

    def _use(self, slot: int) -> None:
        self.recency.remove(slot)
        self.recency.append(slot)

    def slot(self, layer: int, expert: int) -> int:
        return self.owners.index((layer, expert)) if (layer, expert) in self.owners else -1


@dataclass(slots=True)
class Fill:
    """One fill that was issued: where each expert of its layer is, and its slot ids."""

    banks: tuple[str, ...]
    slot_ids: list[int] | None
    places: dict[int, int]
    event: tuple[str, int, int]


class Banks(Queues):
    """Reads and writes of parts; those through banks among them."""

    def __init__(self, world: World, meaning: Meaning, start: Sequence[Start]) -> None:
        super().__init__(world.schedule)
        self.world, self.meaning = world, meaning
        self.fills: list[Fill] = []
        self.rows: dict[str, Fill | None] = {}
        self.slots = self._slots(dict(start))
        self.special = self._resident()
        self.past = Past(world, self.parts, self.special)

    def memory(self) -> tuple[int, ...]:
        """What each cell holds before anything runs."""
        return tuple(
            self.special[cell] if cell in self.special else self.world.initial(*place)
            for place, cell in self.world.cells.items()
        )

    def _slots(self, content: dict[str, tuple[tuple[int, int, int], ...]]) -> dict[str, Slots]:
        found = {}
        for bank in self.graph.banks:
            if bank.policy != "lru-slots":
                raise CannotExplore(f"no fill of bank {bank.name!r}: policy {bank.policy}")
            owners: list[tuple[int, int] | None] = [None] * bank.slots
            full = []
            for slot, layer, expert in content.get(bank.group, ()):
                owners[slot] = (layer, expert)
                full.append(slot)
            rest = [slot for slot in range(bank.slots) if slot not in full]
            found[bank.group] = Slots(owners, rest + full)
        return found

    def _resident(self) -> dict[int, int]:
        """Cells of slots, slot ids and maps at the start."""
        world, found = self.world, {}
        for bank in self.graph.banks:
            for cell in world.placed(bank.slot_ids) if bank.slot_ids else ():
                found[cell] = NOTHING
            for plane in world.planes(bank.name, world.placed(bank.name))[: bank.slots]:
                found.update(dict.fromkeys(plane, NOTHING))
        for bank in self.graph.banks:
            slots = world.planes(bank.name, world.placed(bank.name))
            experts = world.planes(bank.caches, tuple(range(len(world.placed(bank.caches)))))
            places = world.logical(bank.caches)
            for slot, owner in enumerate(self.slots[bank.group].owners):
                if owner is None or owner[0] != bank.layer or owner[1] >= len(experts):
                    continue
                for cell, k in zip(slots[slot], experts[owner[1]], strict=True):
                    found[cell] = world.initial(*places[k])
            if bank.slot_map:
                cells = world.placed(bank.slot_map)
                found.update(
                    zip(cells, world.versions(("map", bank.slot_map), len(cells)), strict=True)
                )
        return found

    # -- reads and writes --------------------------------------------------------

    def _hold(self, part: Part, tensor: str, cells: Sequence[int], due: Sequence[int]) -> None:
        if len(cells) != len(due):
            raise CannotExplore(f"{tensor!r} has not the size of what it stands for")
        part.due += [(tensor, cell, version) for cell, version in zip(cells, due, strict=True)]
        part.loads.update(cells)

    def _read(
        self, part: Part, name: str, key: tuple[str, str | int, str], may: bool = False
    ) -> None:
        """``may``: user code that may read all of a usage has no use for what nobody wrote."""
        due = self.meaning.due.get((*key, part.iteration))
        assert due is not None, key
        cells = self.world.placed(name)
        if may:
            kept = [pair for pair in zip(cells, due, strict=True) if pair[1] != NOTHING]
            cells, due = tuple(cell for cell, _ in kept), tuple(version for _, version in kept)
        self._hold(part, name, cells, due)

    def _write(self, part: Part, event: tuple[str, int | str, int], name: str) -> None:
        versions = self.world.store(event, name, part.iteration)
        part.stores.update(zip(self.world.placed(name), versions, strict=True))
        owner = self.schedule.base(name).name
        part.hands.update(dict.fromkeys(self.world.placed(name), (owner, "")))

    def _move(
        self, first: Part, last: Part, names: tuple[str, str], source: Sequence[int],
        target: Sequence[int],
    ) -> None:  # fmt: skip
        """``names``: the tensors that the cells are of."""
        if len(source) != len(target):
            raise CannotExplore(f"command {last.command} copies between different sizes")
        loader = last if last.loader == last.index else first
        loader.loads.update(source)
        last.loader = loader.index
        last.moves.update(zip(target, source, strict=True))
        origin, owner = (self.schedule.base(name).name for name in names)
        last.hands.update(dict.fromkeys(target, (owner, origin)))

    def _ids(self, node: Node, name: str, iteration: int) -> list[int]:
        due = self.meaning.due["node", node.dst, name, iteration]
        return self.world.ids(name, due)

    # -- banks --------------------------------------------------------

    def _remaps(self, part: Part, node: Node, bound: str) -> bool:
        """``get_rows`` of a slot map: each entry is the one of the latest fill of that map."""
        if not any(bank.slot_map == node.src[0] for bank in self.graph.banks):
            return False
        fill = self._latest(lambda f: f.event[0] == "map" and self._table(f) == node.src[0])
        cells = self.world.placed(bound)
        if fill is None:
            part.broken.append((bound, "no fill wrote the slot map"))
        else:
            self._hold(
                part, bound, cells, self.world.versions((fill.event, node.src[0]), len(cells))
            )
        self.rows[node.dst] = fill
        return True

    def _table(self, fill: Fill) -> str | None:
        command = (self.schedule.program or ())[fill.event[1]]
        assert isinstance(command, FillBank)
        return command.slot_ids if fill.event[0] == "slots" else command.slot_map

    def _latest(self, wanted: Callable[[Fill], bool]) -> Fill | None:
        return next((fill for fill in reversed(self.fills) if wanted(fill)), None)

    def _bank_matmul(self, part: Part, command: Compute, node: Node, bank: Bank) -> None:
        """Each slot that the slot ids name must hold the expert that the ids name."""
        world, iteration = self.world, part.iteration
        ids = self._ids(node, bank.ids, iteration)
        weight = self.meaning.due["node", node.dst, bank.caches, iteration]
        tables = [self.schedule.bound(command, i) for i in range(3)]
        self._hold(part, tables[1], world.placed(tables[1]),
                   self.meaning.due["node", node.dst, node.src[1], iteration])  # fmt: skip
        cells = world.placed(tables[2])
        if node.src[2] == bank.slot_ids:
            fill = self._latest(lambda f: f.event[0] == "slots" and self._table(f) == node.src[2])
            if fill is None:
                part.broken.append((tables[2], "no fill wrote the slot ids"))
            else:
                due = world.versions((fill.event, node.src[2]), len(cells))
                self._hold(part, tables[2], cells, due)
        else:
            rows = self.schedule.base(node.src[2]).name
            if rows not in self.rows:
                part.broken.append((node.src[2], "ids that are no slots"))
                return
            fill = self.rows[rows]
            if self.graph.node(rows).src[1] != bank.ids:
                part.broken.append((node.src[2], "slots of other ids"))
            self._hold(part, tables[2], cells,
                       self.meaning.due["node", node.dst, node.src[2], iteration])  # fmt: skip
        if fill is None:
            part.broken.append((bank.name, "no fill"))
            return
        slots, experts = (
            world.planes(tables[0], world.placed(tables[0])),
            world.planes(bank.caches, weight),
        )
        chosen = (
            fill.slot_ids if fill.slot_ids is not None else [fill.places.get(e, -1) for e in ids]
        )
        for expert, slot in set(zip(ids, chosen, strict=True)):
            if expert < 0:
                continue  # its row is zero
            if not 0 <= slot < len(slots):
                part.broken.append((bank.name, f"expert {expert} has no slot"))
            else:
                self._hold(part, tables[0], slots[slot], experts[expert])
        held = [slot for slot in set(chosen) if 0 <= slot < len(slots)]
        self.past.read(part, command, tables[0], held)

    def _fill(self, first: Part, last: Part, command: FillBank) -> None:
        world, graph = self.world, self.graph
        banks = [b for b in (graph.find_bank(name) for name in command.banks) if b is not None]
        bank, iteration = banks[0], first.iteration
        reader = self._bank_reader(command, iteration)
        cells = world.placed(command.ids)
        if reader is None:
            raise CannotExplore(f"no node reads what fill {first.command} brings")
        due = self.meaning.due["node", reader.dst, bank.ids, iteration]
        self._hold(first, command.ids, cells, due)
        ids = world.ids(command.ids, due)
        count = world.value(world.schedule.tensor(bank.caches).ne[2])
        least = None if reader.param("negative_ids") else 0
        if any(expert >= count or (least is not None and expert < least) for expert in ids):
            raise CannotExplore(f"fill {first.command} has an id that is no expert")
        slots = self.slots[bank.group]
        missed = slots.serve(bank.layer, ids)
        kind, table = ("slots", command.slot_ids) if command.slot_ids else ("map", command.slot_map)
        assert table is not None
        memory = self.schedule.location(table).memory
        writer = first if memory is not None and graph.memory(memory).host else last
        if missed is None:
            first.broken.append((command.ids, "more experts than slots"))
            writer.stores.update(dict.fromkeys(world.placed(table), NOTHING))
            return
        event = (kind, first.command, iteration)
        places = {e: slots.slot(bank.layer, e) for e in range(count)}
        chosen = [places.get(e, -1) for e in ids] if kind == "slots" else None
        self.fills.append(Fill(command.banks, chosen, places, event))
        versions = world.versions((event, table), len(world.placed(table)))
        writer.stores.update(zip(world.placed(table), versions, strict=True))
        for member in banks:
            source = world.planes(member.caches, world.placed(member.caches))
            target = world.planes(member.name, world.placed(member.name))
            for expert, slot in missed.items():
                names = member.caches, member.name
                self._move(first, last, names, source[expert], target[slot])

    def _bank_reader(self, command: FillBank, iteration: int) -> Node | None:
        for node in self.graph.nodes:
            present = (
                ("node", node.dst, node.src[0], iteration) in self.meaning.due
                if node.src
                else False
            )
            if present and node.op == "mul_mat_id" and node.src[0] in command.banks:
                return node
        return None
