"""The bytes that each part of a command touches in a run, and the versions that are due there.

Where a footprint hangs on ids, it is that of the ids that lie in memory when the part starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from ..model.cache import SlotStep
from ..model.command import (
    Callback,
    Compute,
    Copy,
    CopyExperts,
    FillBank,
    GetOutput,
    SetInput,
)  # fmt: skip
from ..model.device import Contract
from ..model.graph import Bank, Node
from ..model.ops import OPS
from .arena import Arena
from .due import Due, DueVersions
from .evaluate import bank_of, meant_tensors, names_target, read_tensors, remaps, written_tensors
from .layout import Layout
from .memory import VersionArray
from .reference import World, input_commands
from .script import upload_contract
from .shadow import Where, of_planes, planes


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of a tensor, in logical order.

    A read: ``version`` is due there (``None``: whatever there is, as a copy takes it).  A write:
    ``version`` is what it leaves; without one, what read number ``source`` found.
    """

    tensor: str
    space: str
    where: Where
    version: VersionArray | None = None
    source: int = 0


@dataclass(slots=True)
class Accesses:
    """Reads, then writes.  ``keeps``: a later part of the command writes what these reads find."""

    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    keeps: bool = False

    def move(self, source: Layout, target: Layout, places: Sequence[tuple[Where, Where]]) -> None:
        for here, there in places:
            self.reads.append(Access(source.name, source.space, here))
            number = len(self.reads) - 1
            self.writes.append(Access(target.name, target.space, there, source=number))


class WrongSlots(ValueError):
    """A node that finds other slots than the fill has chosen for its ids."""


class Footprints:
    """Of one run of a program."""

    def __init__(self, world: World, arena: Arena, versions: DueVersions) -> None:
        self.world, self.arena, self.versions = world, arena, versions
        self.schedule, self.graph = world.schedule, world.schedule.graph
        self._dues: dict[int, Due] = {}
        self._following: dict[int, int] = {}
        self._used: dict[tuple[str, int], list[int]] = {}
        self._steps: dict[tuple[int, int], SlotStep] = {}
        self._latest: dict[tuple[str, int, int], SlotStep] = {}
        self._held: dict[tuple[int, int], list[VersionArray]] = {}

    def begin_pass(self, pass_: int) -> None:
        at = self.world.at(pass_)
        self._dues[pass_] = self.versions.one_pass(pass_)
        self._following = {i: later for i, _, later in input_commands(self.schedule, at)}

    def keep(self, index: int, pass_: int, found: list[VersionArray]) -> None:
        """What the host part of a staged command has read."""
        self._held[index, pass_] = found

    def of(self, index: int, pass_: int, part: str) -> Accesses:
        """The accesses of one part."""
        command, due = (self.schedule.program or ())[index], self._dues[pass_]
        match command:
            case Compute():
                return self._compute(command, pass_, due)
            case Copy():
                return self._copy(index, command, pass_, part)
            case CopyExperts():
                return self._copy_experts(index, command, pass_, part, due)
            case FillBank():
                return self._fill(index, command, pass_, part, due)
            case SetInput(tensor=name):
                version = self.versions.input_write(name, self._following.get(index, 0), pass_)
                return Accesses(writes=[self._whole(name, version)])
            case GetOutput(tensor=name):
                return Accesses([self._whole(name, due.outputs[name])])
            case Callback():
                return self._callback(index, command, pass_, due)
        return Accesses()  # records, waits and host synchronisation

    # -- computes -------------------------------------------------------------------------------

    def _compute(self, command: Compute, pass_: int, due: Due) -> Accesses:
        node = self.graph.node(command.node)
        found = Accesses(list(self._node_reads(command, node, pass_, due)))
        for name in written_tensors(node):
            if remaps(self.graph, node):
                version = self.versions.write("slots", name, self._layout(name), pass_)
            else:
                version = self.versions.node_write(node.dst, name, pass_)
            found.writes.append(self._whole(name, version))
        return found

    def _node_reads(self, command: Compute, node: Node, pass_: int, due: Due) -> Iterator[Access]:
        meant, versions = meant_tensors(self.schedule, node), due.nodes.get(node.dst, {})
        bank = bank_of(self.graph, node) if node.op == "mul_mat_id" else None
        for place, name in enumerate(read_tensors(node)):
            if names_target(node, place):
                continue
            index = node.src.index(name) if name in node.src else None
            bound = name if index is None else self.schedule.bound(command, index)
            version = versions.get(meant[place])
            if node.op == "mul_mat_id" and place == 0:
                ids = self.arena.operand(self.schedule.bound(command, 2)).array.reshape(-1)
                yield self._experts(bound, bank, ids, version, pass_)
            elif bank is not None and place == 2:
                yield self._whole(bound)  # slots: in the sequential run there are none
            else:
                yield self._whole(bound, version)
        if node.op in OPS and OPS[node.op].updates:
            yield self._whole(node.dst, versions.get(None))

    def _experts(
        self,
        name: str,
        bank: Bank | None,
        ids: NDArray[Any],
        version: VersionArray | None,
        pass_: int,
    ) -> Access:
        layout = self._layout(name)
        # Ids beyond the experts are none: that they are wrong shows where they are read.
        slots = experts = sorted({int(i) for i in ids if 0 <= i < layout.ne[2]})
        if bank is not None:
            step = self._latest.get((bank.group, bank.layer, pass_))
            if step is None or list(step.slot_ids) != ids.tolist():
                raise WrongSlots(f"{name} is read by slots that its fill has not chosen")
            owners = step.state.owners
            experts = [owner[1] for owner in (owners[s] for s in slots) if owner is not None]
            layout_of_due = self.world.layouts.sequential(bank.caches)
        else:
            layout_of_due = layout
        due = None if version is None else of_planes(version, layout_of_due, experts)
        return Access(name, layout.space, planes(layout, slots), due)

    # -- transfers ------------------------------------------------------------------------------

    def _copy(self, index: int, command: Copy, pass_: int, part: str) -> Accesses:
        source, target = self._layout(command.src), self._layout(command.dst)
        if part == "write":
            return Accesses(writes=[self._whole(command.dst, self._held[index, pass_][0])])
        if part == "read":
            return Accesses([self._whole(command.src)], keeps=True)
        found = Accesses()
        found.move(source, target, [(source.where, target.where)])
        return found

    def _copy_experts(
        self, index: int, command: CopyExperts, pass_: int, part: str, due: Due
    ) -> Accesses:
        source, target = self._layout(command.src), self._layout(command.dst)
        reads = []
        if part == "read":
            if command.used_from is not None:
                used = self._used[command.used_from, pass_]
            else:
                assert command.ids is not None
                ids = self.arena.operand(command.ids).array.reshape(-1)
                used = sorted({int(i) for i in ids if 0 <= i < source.ne[2]})
                reads = [self._whole(command.ids, self._due_ids(command.ids, due))]
            self._used[command.dst, pass_] = used
        places = [
            (source.addresses[first:last], target.addresses[first:last])
            for first, last in _spans(source, self._used[command.dst, pass_], command.padding)
        ]
        return self._parted(index, command, pass_, part, reads, [(source, target, places)])

    def decided(self, index: int, pass_: int, step: SlotStep) -> Accesses:
        """A fill has chosen slots; of a staged one, the experts that are read now."""
        command = (self.schedule.program or ())[index]
        assert isinstance(command, FillBank)
        first = self.graph.find_bank(command.banks[0])
        assert first is not None
        self._steps[index, pass_] = step
        self._latest[first.group, first.layer, pass_] = step
        if not self._staged(command):
            return Accesses()
        return self._parted(index, command, pass_, "read", [], self._uploads(command, step))

    def _fill(self, index: int, command: FillBank, pass_: int, part: str, due: Due) -> Accesses:
        table = command.slot_ids or command.slot_map
        assert table is not None
        memory = self.schedule.location(table).memory
        on_host = memory is not None and self.graph.memory(memory).host
        if part == "read":
            found = Accesses([self._whole(command.ids, self._due_ids(command.ids, due))])
        else:
            uploads = self._uploads(command, self._steps[index, pass_])
            found = self._parted(index, command, pass_, part, [], uploads)
        if on_host == (part == "read"):
            layout = self._layout(table)
            version = self.versions.write("fill", f"{table} by {index}", layout, pass_)
            found.writes.append(self._whole(table, version))
        return found

    def _uploads(
        self, command: FillBank, step: SlotStep
    ) -> list[tuple[Layout, Layout, list[tuple[Where, Where]]]]:
        moves = []
        for name in command.banks:
            bank = self.graph.find_bank(name)
            assert bank is not None
            source, target = self._layout(bank.caches), self._layout(name)
            places = [(planes(source, [e]), planes(target, [s])) for e, s in step.uploads]
            moves.append((source, target, places))
        return moves

    def _parted(
        self,
        index: int,
        command: CopyExperts | FillBank,
        pass_: int,
        part: str,
        reads: list[Access],
        moves: Sequence[tuple[Layout, Layout, Sequence[tuple[Where, Where]]]],
    ) -> Accesses:
        """What a command in two parts moves: staged, it reads all on the host."""
        found, whole = Accesses(), Accesses()
        for source, target, places in moves:
            whole.move(source, target, places)
        if not self._staged(command):
            found = whole if part == "write" else found
        elif part == "read":
            found = Accesses(whole.reads, keeps=True)
        else:
            held = self._held[index, pass_]
            found.writes = [
                Access(w.tensor, w.space, w.where, held[w.source]) for w in whole.writes
            ]
        if found.keeps and reads:
            found.reads = found.reads + reads
        elif reads:
            found.reads = reads + found.reads
        return found

    def _staged(self, command: Copy | CopyExperts | FillBank) -> bool:
        return upload_contract(self.schedule, command) is Contract.STAGED

    def _due_ids(self, name: str, due: Due) -> VersionArray | None:
        """What the product that reads these ids is to find there."""
        copied = self.schedule.copy_of(name)
        original = copied[1] if copied is not None else name
        for node in self.graph.nodes:
            if node.op == "mul_mat_id" and node.dst in due.nodes:
                meant = meant_tensors(self.schedule, node)
                if meant[2] == original:
                    return due.nodes[node.dst][original]
        return None

    # -- the host -------------------------------------------------------------------------------

    def _callback(self, index: int, command: Callback, pass_: int, due: Due) -> Accesses:
        reads = due.callbacks.get(index, {})
        return Accesses(
            [self._whole(name, version) for name, version in reads.items()],
            [
                self._whole(name, self.versions.callback_write(index, command, name, pass_))
                for name in self.world.footprint(command.writes)
            ],
        )

    # -- tensors --------------------------------------------------------------------------------

    def _layout(self, name: str) -> Layout:
        return self.world.layouts.placed(name)

    def _whole(self, name: str, version: VersionArray | None = None) -> Access:
        layout = self._layout(name)
        return Access(name, layout.space, layout.where, version)


def _spans(layout: Layout, used: Sequence[int], padding: int) -> Iterator[tuple[int, int]]:
    """``[first, last)`` of the bytes that travel, in logical order; neighbours as one."""
    size = layout.nbytes // max(layout.ne[2], 1)
    place = 0
    while place < len(used):
        end = place
        while end + 1 < len(used) and used[end + 1] == used[end] + 1:
            end += 1
        yield used[place] * size, min((used[end] + 1) * size + padding, layout.nbytes)
        place = end + 1
