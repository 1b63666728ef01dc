"""The parts of a small program, each with what must have ended before it and what it touches.

The same page of rules as ``order.py`` and ``footprint.py``, read a second time: predecessors are
sets of parts, footprints are sets of cells, and banks are run, not reasoned about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.command import (
    Callback, Command, Compute, Copy, CopyExperts, FillBank, GetOutput, Record, SetInput,
    SyncEvent, SyncQueue, Wait,
)  # fmt: skip
from ..model.device import HOST, Contract
from ..model.graph import Bank, Node
from ..model.ops import OPS
from .explore_program import (
    NOTHING, CannotExplore, Cells, Meaning, Start, World, meant_reads, only_names_target, user_names,
)  # fmt: skip


@dataclass(slots=True)
class Part:
    """One piece of one command in one pass.

    ``after``: bit set of parts that end before it starts.  ``due``: ``(tensor, cell, version)``
    of what it reads.  ``loads``: cells that it reads to hand them on.  ``stores``: ``(cell,
    version)`` that it leaves, ``moves``: ``(cell, from cell)``, loaded by part ``loader``.
    """

    index: int
    command: int
    iteration: int
    name: str
    after: int
    due: list[tuple[str, int, int]] = field(default_factory=list)
    loads: set[int] = field(default_factory=set)
    stores: dict[int, int] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)
    loader: int = -1
    #: what is wrong whatever the order: ``(tensor, why)``
    broken: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Slots:
    """A bank group as it runs: owners of slots, and slots from least to most recently used."""

    owners: list[tuple[int, int] | None]
    recency: list[int]

    def serve(self, layer: int, ids: Sequence[int]) -> dict[int, int] | None:
        """Bring experts in; slots of the missed ones, ``None`` if they do not fit."""
        wanted = list(dict.fromkeys(ids))
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


class Unrolled:
    """All parts in issue order, and memory at the start."""

    def __init__(self, world: World, meaning: Meaning, start: Sequence[Start] = ()) -> None:
        self.world, self.schedule, self.meaning = world, world.schedule, meaning
        self.graph = self.schedule.graph
        self.parts: list[Part] = []
        self.host = 0  # the last host part, as a bit
        self.tails: dict[str, int] = {}
        self.loose: dict[str, int] = {}
        self.waits: dict[str, int] = {}
        self.records: dict[str, tuple[int, str]] = {}
        self.used: dict[tuple[str, int], list[int]] = {}
        self.fills: list[Fill] = []
        self.rows: dict[str, Fill | None] = {}
        self.slots = self._slots(dict(start))
        self.special = self._resident()
        for iteration in range(self.schedule.repeat):
            for index, command in enumerate(self.schedule.program or ()):
                if world.exists(command, iteration):
                    self._issue(index, iteration, command)

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
                found.update(zip(cells, world.versions(("map", bank.slot_map), len(cells)), strict=True))
        return found

    # -- order ----------------------------------------------------------------------------------

    def _part(self, index: int, iteration: int, name: str, queue: str, loose: bool = False) -> Part:
        after = self.host
        if loose:
            after |= self.waits.get(queue, 0)
        elif queue != HOST:
            after |= self.tails.get(queue, 0)
        part = Part(len(self.parts), index, iteration, name, after)
        self.parts.append(part)
        bit = 1 << part.index
        if loose:
            self.loose[queue] = self.loose.get(queue, 0) | bit
        elif queue == HOST:
            self.host = bit
        else:
            self.tails[queue] = bit
        return part

    def _issue(self, index: int, iteration: int, command: Command) -> None:
        schedule = self.schedule
        if isinstance(command, Copy | CopyExperts | FillBank):
            first, last = self._moving(index, iteration, command)
        else:
            first = last = self._part(index, iteration, "main", schedule.queue_of(command))
        match command:
            case Record():
                last.after |= self.loose.get(command.queue, 0)
                self.records[command.event] = (1 << last.index, command.queue)
            case Wait():
                self._wait(command, last)
            case SyncEvent():
                last.after |= self.records.get(command.event, (0, ""))[0]
            case SyncQueue():
                last.after |= self.tails.get(command.queue, 0) | self.loose.get(command.queue, 0)
            case SetInput():
                self._write(last, ("input", index, iteration), command.tensor)
            case GetOutput():
                self._read(last, command.tensor, ("output", "", command.tensor))
            case Callback():
                for name in user_names(schedule, command.reads):
                    may = name not in (command.reads or ())
                    self._read(last, name, ("callback", index, name), may)
                for name in user_names(schedule, command.writes):
                    self._write(last, ("callback", index, iteration), name)
            case Compute():
                self._compute(last, command)
            case Copy():
                self._move(first, last, self.world.placed(command.src), self.world.placed(command.dst))
            case CopyExperts():
                self._copy_experts(first, last, command)
            case FillBank():
                self._fill(first, last, command)

    def _wait(self, command: Wait, part: Part) -> None:
        bit, queue = self.records.get(command.event, (0, HOST))
        device, kind = self.schedule.queue_device(command.queue), self.schedule.queue_device(queue)
        if device == HOST or self.graph.device(device).may_wait_for(kind):
            part.after |= bit
        self.waits[command.queue] = self.waits.get(command.queue, 0) | 1 << part.index

    def _moving(
        self, index: int, iteration: int, command: Copy | CopyExperts | FillBank
    ) -> tuple[Part, Part]:
        """The parts of what moves bytes, by the contract of its queue."""
        queue, device = self.schedule.queue_of(command), self.schedule.queue_device(command.queue)
        contract: Contract | None = Contract.SYNC
        if queue != HOST:
            contract = self.graph.device(device).contract(*self._memories(command))
        if contract is None:
            raise CannotExplore(f"no copy contract for command {index}")
        if contract is Contract.SYNC:
            queue = HOST
        loose = contract is Contract.UNORDERED
        if isinstance(command, Copy) and contract is not Contract.STAGED:
            part = self._part(index, iteration, "main", queue, loose)
            return part, part
        first = self._part(index, iteration, "read", HOST)
        last = self._part(index, iteration, "write", queue, loose)
        if contract is not Contract.STAGED:
            last.loader = last.index
        return first, last

    def _memories(self, command: Copy | CopyExperts | FillBank) -> tuple[str, str]:
        if isinstance(command, FillBank):
            bank = self.graph.find_bank(command.banks[0])
            assert bank is not None
            source, target = bank.caches, bank.name
        else:
            source, target = command.src, command.dst
        where = self.schedule.location
        return where(source).memory or "", where(target).memory or ""

    # -- footprints -----------------------------------------------------------------------------

    def _due(self, part: Part, key: tuple[str, str | int, str], iteration: int) -> Cells | None:
        return self.meaning.due.get((*key, iteration))

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

    def _move(self, first: Part, last: Part, source: Sequence[int], target: Sequence[int]) -> None:
        if len(source) != len(target):
            raise CannotExplore(f"command {last.command} copies between different sizes")
        loader = last if last.loader == last.index else first
        loader.loads.update(source)
        last.loader = loader.index
        last.moves.update(zip(target, source, strict=True))

    def _compute(self, part: Part, command: Compute) -> None:
        node, world = self.graph.node(command.node), self.world
        key = ("node", node.dst)
        bank = self.graph.find_bank(node.src[0]) if node.src else None
        if node.reads is not None:
            for name in node.reads:
                bound = name
                if name in node.src:
                    bound = self.schedule.bound(command, node.src.index(name))
                due = self.meaning.due[*key, name, part.iteration]
                self._hold(part, bound, world.placed(bound), due)
        elif node.op == "mul_mat_id" and bank is not None:
            self._bank_matmul(part, command, node, bank)
        else:
            for index, name in enumerate(node.src):
                if only_names_target(node, index):
                    continue
                bound = self.schedule.bound(command, index)
                due, cells = self.meaning.due[*key, name, part.iteration], world.placed(bound)
                if node.op == "mul_mat_id" and index == 0:
                    chosen = self._known(part, node, name)
                    due, cells = self._experts(name, due, chosen), self._experts(bound, cells, chosen)
                if node.op == "get_rows" and index == 0 and self._remaps(part, node, bound):
                    continue
                self._hold(part, bound, cells, due)
            if OPS[node.op].updates:
                self._read(part, node.dst, (*key, node.dst))
        for name in node.writes if node.writes is not None else (node.dst,):
            self._write(part, (*key, part.iteration), name)

    def _ids(self, node: Node, name: str, iteration: int) -> list[int]:
        due = self.meaning.due["node", node.dst, name, iteration]
        return self.world.ids(name, due)

    def _known(self, part: Part, node: Node, weight: str) -> list[int]:
        """The experts that a matmul selects; an id of none is wrong by itself."""
        count = self.world.value(self.schedule.tensor(weight).ne[2])
        ids = set(self._ids(node, node.src[2], part.iteration))
        strange = {i for i in ids if not 0 <= i < count and not (i < 0 and node.param("negative_ids"))}
        if strange:
            part.broken.append((node.src[2], f"{min(strange)} is no expert"))
        return sorted(i for i in ids if 0 <= i < count)

    def _experts(self, name: str, cells: Cells, chosen: Sequence[int]) -> Cells:
        planes = self.world.planes(name, cells)
        return tuple(c for expert in sorted(set(chosen)) for c in planes[expert])

    # -- banks ----------------------------------------------------------------------------------

    def _remaps(self, part: Part, node: Node, bound: str) -> bool:
        """``get_rows`` of a slot map: each entry is the one of the latest fill of that map."""
        if not any(bank.slot_map == node.src[0] for bank in self.graph.banks):
            return False
        fill = self._latest(lambda f: f.event[0] == "map" and self._table(f) == node.src[0])
        cells = self.world.placed(bound)
        if fill is None:
            part.broken.append((bound, "no fill wrote the slot map"))
        else:
            self._hold(part, bound, cells, self.world.versions((fill.event, node.src[0]), len(cells)))
        self.rows[node.dst] = fill
        return True

    def _table(self, fill: Fill) -> str | None:
        command = (self.schedule.program or ())[fill.event[1]]
        assert isinstance(command, FillBank)
        return command.slot_ids if fill.event[0] == "slots" else command.slot_map

    def _latest(self, wanted) -> Fill | None:  # type: ignore[no-untyped-def]
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
            if fill is not None:
                due = world.versions((fill.event, node.src[2]), len(cells))
                self._hold(part, tables[2], cells, due)
        else:
            rows = self.schedule.base(node.src[2]).name
            if rows not in self.rows:
                part.broken.append((node.src[2], "ids that are no slots"))
                return
            fill = self.rows[rows]
            self._hold(part, tables[2], cells,
                       self.meaning.due["node", node.dst, node.src[2], iteration])  # fmt: skip
        if fill is None:
            part.broken.append((bank.name, "no fill"))
            return
        slots, experts = world.planes(tables[0], world.placed(tables[0])), world.planes(bank.caches, weight)
        chosen = fill.slot_ids if fill.slot_ids is not None else [fill.places.get(e, -1) for e in ids]
        for expert, slot in set(zip(ids, chosen, strict=True)):
            if not 0 <= slot < len(slots):
                part.broken.append((bank.name, f"expert {expert} has no slot"))
            else:
                self._hold(part, tables[0], slots[slot], experts[expert])

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
        if not all(0 <= expert < count for expert in ids):
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
        chosen = [places[e] for e in ids] if kind == "slots" else None
        self.fills.append(Fill(command.banks, chosen, places, event))
        versions = world.versions((event, table), len(world.placed(table)))
        writer.stores.update(zip(world.placed(table), versions, strict=True))
        for member in banks:
            source = world.planes(member.caches, world.placed(member.caches))
            target = world.planes(member.name, world.placed(member.name))
            for expert, slot in missed.items():
                self._move(first, last, source[expert], target[slot])

    def _bank_reader(self, command: FillBank, iteration: int) -> Node | None:
        for node in self.graph.nodes:
            present = ("node", node.dst, node.src[0], iteration) in self.meaning.due if node.src else False
            if present and node.op == "mul_mat_id" and node.src[0] in command.banks:
                return node
        return None

    # -- selective copies -----------------------------------------------------------------------

    def _copy_experts(self, first: Part, last: Part, command: CopyExperts) -> None:
        world, iteration = self.world, first.iteration
        if command.used_from is not None:
            used = self.used.get((command.used_from, iteration), [])
        else:
            assert command.ids is not None
            node, when = self._matmul(command, iteration)
            due = self.meaning.due["node", node.dst, node.src[2], when]
            self._hold(first, command.ids, world.placed(command.ids), due)
            count = world.value(self.schedule.tensor(command.src).ne[2])
            used = sorted({i for i in world.ids(command.ids, due) if 0 <= i < count})
        self.used[command.dst, iteration] = used
        source, target = world.placed(command.src), world.placed(command.dst)
        count = world.value(self.schedule.tensor(command.src).ne[2])
        size, tail = len(source) // count, command.padding // world.grain
        moved: set[int] = set()
        for expert in used:
            moved.update(range(expert * size, min((expert + 1) * size + tail, len(source))))
        cells = sorted(moved)
        self._move(first, last, [source[k] for k in cells], [target[k] for k in cells])

    def _matmul(self, command: CopyExperts, iteration: int) -> tuple[Node, int]:
        """The matmul that reads the copy, and in which pass."""
        split = command.for_split if command.for_split is not None else command.split
        when = iteration
        if command.for_split is not None and command.split is not None:
            when += command.for_split < command.split
        for other in self.schedule.program or ():
            if not isinstance(other, Compute) or other.split != split:
                continue
            node = self.graph.node(other.node)
            present = ("node", node.dst, node.src[0], when) in self.meaning.due if node.src else False
            if present and node.op == "mul_mat_id" and self.schedule.bound(other, 0) == command.dst:
                return node, when
        raise CannotExplore(f"no matmul of split {split} reads the experts of {command.dst!r}")


__all__ = ["Fill", "Part", "Slots", "Unrolled", "meant_reads"]
