"""Moving experts: ``copy_experts`` and ``fill_bank``.  Both read ids on the host first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.cache import CacheError, SlotState, lru_slots
from ..model.command import Compute, CopyExperts, FillBank
from ..model.graph import Bank
from .evaluate import bank_of
from .functions import UnsupportedOp
from .judge import WrongRead, wrong_read
from .layout import Layout
from .memory import Content
from .quant import from_array, to_array
from .script import Part, exists, upload_contract
from .tasks import Execution, Reading, Transfer, logical_region


class CopyExpertsTask:
    """The used experts of ``src`` to the same places of ``dst``, with a tail after each run."""

    def __init__(self, run: Execution, part: Part, command: CopyExperts) -> None:
        self.run, self.part, self.command = run, part, command
        self.source, self.target = run.placed(command.src), run.placed(command.dst)
        self.staged = str(upload_contract(run.world.schedule, command)) == "staged"
        self.transfer = Transfer(run.memory)
        self.ids: Layout | None = None
        self.due: Content | None = None
        if command.used_from is None:
            if command.ids is None:
                raise ValueError(f"{part}: copy_experts needs ids, or used_from")
            self.ids = run.placed(command.ids)
            self.due = _due_ids(run, part, command)
            self.reading = Reading(run.memory, [self.ids])

    def start(self, part: str) -> None:
        if part == "read":
            self.began = self.run.memory.clock
            if self.ids is not None:
                self.reading.start()
            return
        if self.ids is None and not self.staged:
            self._plan(self._earlier_set())
        self.transfer.start()

    def end(self, part: str) -> None:
        if part == "write":
            self.transfer.finish(self.staged)
            return
        if self.ids is not None:
            ids = _checked_ids(self.run, self.part, self.ids, self.reading.end()[0], self.due)
            self._plan(tuple(sorted({i for i in ids if 0 <= i < self.source.ne[2]})))
        else:
            self._plan(self._earlier_set())
        if self.staged:
            self.transfer.read(self.began)

    def _earlier_set(self) -> tuple[int, ...]:
        """What the ``copy_experts`` to ``used_from`` used; empty if it was skipped."""
        return self.run.used.get((str(self.command.used_from), self.part.iteration), ())

    def _plan(self, experts: tuple[int, ...]) -> None:
        self.run.used[self.command.dst, self.part.iteration] = experts
        size = self.source.nbytes // max(self.source.ne[2], 1)
        self.transfer.pieces = []
        for first, last in runs(experts):
            stop = min((last + 1) * size + self.command.padding, self.source.nbytes)
            self.transfer.pieces.append(
                (
                    logical_region(self.source, first * size, stop),
                    logical_region(self.target, first * size, stop),
                )
            )


def runs(experts: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs ``(first, last)`` of consecutive ones."""
    found: list[tuple[int, int]] = []
    for expert in experts:
        if found and found[-1][1] == expert - 1:
            found[-1] = (found[-1][0], expert)
        else:
            found.append((expert, expert))
    return found


class FillTask:
    """``fill_bank``: the policy decides on the host, uploads bring the missed experts."""

    def __init__(self, run: Execution, part: Part, command: FillBank) -> None:
        self.run, self.part, self.command = run, part, command
        schedule = run.world.schedule
        self.banks: list[Bank] = []
        for name in command.banks:
            bank = schedule.graph.find_bank(name)
            if bank is None:
                raise ValueError(f"{part}: fill_bank names {name}, which is no bank")
            self.banks.append(bank)
            if bank.policy != "lru-slots":
                raise UnsupportedOp(f"{part}: a fill of {name} with {bank.policy} is not executed")
        self.staged = str(upload_contract(schedule, command)) == "staged"
        self.ids = run.placed(command.ids)
        self.due = _due_fill_ids(run, part, self.banks)
        self.reading = Reading(run.memory, [self.ids])
        self.transfer = Transfer(run.memory)
        table = command.slot_ids or command.slot_map
        if table is None:
            raise ValueError(f"{part}: fill_bank needs slot_ids or slot_map")
        self.slots = run.placed(table)
        memory = schedule.location(table).memory
        self.slots_on_host = memory is not None and schedule.graph.memory(memory).host
        self.slot_version = run.world.versions.of(
            "fill", f"{table} (command {part.command})", part.iteration, self.slots.nbytes
        )
        self.slot_bytes: Content | None = None

    def start(self, part: str) -> None:
        if part == "read":
            self.began = self.run.memory.clock
            self.reading.start()
        if self.slots_on_host == (part == "read"):
            self.run.memory.poison(self.slots)
        if part == "write":
            self.transfer.start()

    def end(self, part: str) -> None:
        if part == "read":
            content = self.reading.end()[0]
            self._decide(_checked_ids(self.run, self.part, self.ids, content, self.due))
            if self.staged:
                self.transfer.read(self.began)
        else:
            self.transfer.finish(self.staged)
        if self.slots_on_host == (part == "read") and self.slot_bytes is not None:
            self.run.memory.write_content(self.slots, self.slot_bytes)

    def _decide(self, ids: list[int]) -> None:
        """One step of the policy; a call that it cannot serve leaves the slot ids undefined."""
        bank = self.banks[0]
        self.transfer.pieces, self.slot_bytes = [], None
        experts = self.run.placed(bank.caches).ne[2]
        state = self.run.slots[bank.group]
        try:
            if any(i >= experts for i in ids):
                raise CacheError(
                    f"id {max(ids)} is no expert of {bank.caches} (0 to {experts - 1})"
                )
            step = lru_slots(state, bank.layer, ids)
        except CacheError as error:
            self.run.note(self._failed(error))
            return
        self.run.slots[bank.group] = step.state
        for member in self.banks:
            source, target = self.run.placed(member.caches), self.run.placed(member.name)
            size = target.nbytes // target.ne[2]
            for expert, slot in step.uploads:
                self.transfer.pieces.append(
                    (
                        logical_region(source, expert * size, (expert + 1) * size),
                        logical_region(target, slot * size, (slot + 1) * size),
                    )
                )
        self.slot_bytes = Content(self._slot_bytes(step.state, step.slot_ids), self.slot_version)

    def _slot_bytes(self, state: SlotState, slot_ids: tuple[int, ...]) -> np.ndarray:
        values = slot_ids
        if self.command.slot_ids is None:
            values = map_values(state, self.banks[0].layer, self.slots.ne[1])
        array = np.array(values, np.int64).reshape(self.slots.ne[::-1]).T
        return from_array(self.slots.dtype, array)

    def _failed(self, error: CacheError) -> WrongRead:
        return WrongRead(
            self.part.command, self.part.iteration, self.ids.name, 0, 0,
            str(error), "ids that the bank can serve", poison=False, differs=True,
        )  # fmt: skip


def map_values(state: SlotState, layer: int, experts: int) -> tuple[int, ...]:
    """A layer's slot map: the slot of each expert, -1 where it has none."""
    slot_of = state.slot_of
    return tuple(slot_of.get((layer, expert), -1) for expert in range(experts))


def _checked_ids(
    run: Execution, part: Part, layout: Layout, content: Content, due: Content | None
) -> list[int]:
    """The ids that the host read, held against what the matmul reads."""
    if due is not None and len(due.raw) != len(content.raw):
        due = None
    run.note(wrong_read(run.world, part, layout, content, due))
    array = to_array(layout.dtype, content.raw, layout.ne)
    return [int(i) for i in array.reshape(-1, order="F")]


def _due_ids(run: Execution, part: Part, command: CopyExperts) -> Content | None:
    """What the ``mul_mat_id`` that reads the copy reads as its ids; of several that read it, the
    one that selects by the ids of the copy."""
    schedule = run.world.schedule
    found: dict[str, Content] = {}
    pass_ = part.iteration
    if command.for_split is not None and command.split is not None:
        pass_ += command.for_split <= command.split and command.for_split != command.split
    wanted = command.for_split if command.for_split is not None else command.split
    at = run.world.at(pass_)
    for reader in schedule.program or ():
        if not isinstance(reader, Compute) or not exists(schedule, reader, at):
            continue
        node = schedule.graph.node(reader.node)
        if node.op != "mul_mat_id" or (wanted is not None and reader.split != wanted):
            continue
        if schedule.bound(reader, 0) == command.dst and (node.dst, pass_) in run.reference.reads:
            ids = schedule.base(node.src[2]).name
            found.setdefault(ids, run.reference.reads[node.dst, pass_][2])
    copy = schedule.copy_of(str(command.ids))
    chosen = schedule.base(copy[1] if copy is not None else str(command.ids)).name
    return found.get(chosen) or next(iter(found.values()), None)


def _due_fill_ids(run: Execution, part: Part, banks: Sequence[Bank]) -> Content | None:
    """What the node that reads one of the banks means by its ids."""
    names = {bank.name for bank in banks}
    for node in run.world.schedule.graph.nodes:
        bank = bank_of(run.world.schedule.graph, node)
        if bank is not None and bank.name in names and node.op == "mul_mat_id":
            reads = run.reference.reads.get((node.dst, part.iteration))
            if reads is not None:
                return reads[2]
    return None
