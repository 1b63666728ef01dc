"""A ``compute``: what it reads is held against the sequential run, then it really computes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..model.command import Compute
from ..model.graph import Bank, Node
from ..model.ops import OPS, Reads
from .evaluate import (
    Written,
    bank_of,
    evaluate,
    names_target,
    read_tensors,
    remaps,
    selects_slots,
    undefined,
    written_tensors,
)
from .functions import OutOfRange
from .judge import WrongRead, wrong_read, wrong_value
from .layout import Layout
from .memory import Content, Region
from .over_read import OverRead
from .quant import to_array
from .reference import node_write, operand
from .script import Part
from .tasks import Execution, Reading

Mask = NDArray[np.bool_]


class ComputeTask:
    """One node in one pass."""

    def __init__(self, run: Execution, part: Part, command: Compute) -> None:
        self.run, self.part = run, part
        schedule = run.world.schedule
        graph = schedule.graph
        self.node: Node = graph.node(command.node)
        self.names = read_tensors(self.node)
        bound = [
            schedule.bound(command, self.node.src.index(n)) if n in self.node.src else n
            for n in self.names
        ]
        self.sources = [run.placed(name) for name in bound]
        self.targets = [run.placed(name) for name in written_tensors(self.node)]
        self.updates = self.node.op in OPS and OPS[self.node.op].updates
        self.reading = Reading(run.memory, self.sources, () if self.updates else self.targets)
        self.remap = remaps(graph, self.node)
        self.bank: Bank | None = bank_of(graph, self.node)
        key = self.node.dst, part.iteration
        self.due = None if self.remap else run.reference.reads[key]
        self.results = None if self.remap else run.reference.results[key]
        self.versions = [
            run.world.versions.of("node", node_write(self.node, t.name), part.iteration, t.nbytes)
            for t in self.targets
        ]
        device = schedule.compute_device(command)
        self.over_read: OverRead | None = None
        self.undefined = False
        if device is not None and self.sources and self._by_expert(0):
            source = self.sources[0]
            count = graph.device(device).over_read_bytes(self.node.op, source.dtype.name)
            if count:
                self.over_read = OverRead(run.world, part, source, count)
        self.regions: list[Layout | Region] = list(self.targets)

    # -- moments ----------------------------------------------------------------------------

    def start(self, part: str) -> None:
        self.reading.start()
        if self.updates:
            self.regions = [self._rows_to_update()]
        for region in self.regions:
            self.run.memory.poison(region)

    def end(self, part: str) -> None:
        contents = self.reading.end()
        for index, content in enumerate(contents):
            self._judge(index, content, contents)
        self._judge_over_read(contents)
        self._write(contents)

    def _write(self, contents: list[Content]) -> None:
        memory = self.run.memory
        known = None if self.updates else self._known_result(contents)
        for place, target in enumerate(self.targets):
            if self.undefined:
                memory.poison(target)
                continue
            if known is not None and not known[target.name].poisoned:
                memory.write(target, known[target.name].raw, self.versions[place])
                continue
            written = self._evaluated(contents)[place]
            if written.undefined:
                memory.poison(target)
            elif written.mask is None:
                memory.write(target, written.raw, self.versions[place])
            elif written.mask.any():
                region = Region(target.space, target.addresses[written.mask], target.name)
                memory.write(region, written.raw[written.mask], self.versions[place][written.mask])
            if self.results is not None:
                due = self.results[target.name].raw
                self.run.note(wrong_value(self.part, target, written.raw, due, written.mask))

    def _known_result(self, contents: list[Content]) -> dict[str, Content] | None:
        """The sequential result, if every source holds the very bytes that it had there: an op
        is a function of its bytes, so that computing again would only take time."""
        if self.due is None or self.bank is not None or self.results is None:
            return None
        same = all(np.array_equal(c.raw, d.raw) for c, d in zip(contents, self.due, strict=True))
        return dict(self.results) if same else None

    def _evaluated(self, contents: list[Content]) -> tuple[Written, ...]:
        operands = [operand(s, c.raw) for s, c in zip(self.sources, contents, strict=True)]
        old = self.run.memory.read(self.targets[0]).raw if self.updates else None
        try:
            with np.errstate(all="ignore"):
                return evaluate(self.node, operands, self.targets, old, self.run.world.rounded)
        except OutOfRange:
            return undefined(self.targets)

    def _rows_to_update(self) -> Layout | Region:
        """The bytes that ``set_rows`` is about to write, as far as its ids say so now."""
        target = self.targets[0]
        contents = [self.run.memory.read(source) for source in self.sources]
        mask = self._evaluated(contents)[0].mask
        return target if mask is None else Region(target.space, target.addresses[mask], target.name)

    # -- judging reads ----------------------------------------------------------------------

    def _judge(self, index: int, content: Content, contents: list[Content]) -> None:
        run, source = self.run, self.sources[index]
        if names_target(self.node, index):
            return
        if self.remap:
            mask = self._mapped(contents) if index == 0 else None
            run.note(wrong_read(run.world, self.part, source, content, None, mask))
            return
        assert self.due is not None
        bank = self.bank
        if bank is not None and self.names[index] == bank.name:
            self._judge_slots(index, content, contents)
        elif bank is not None and selects_slots(run.world.schedule, bank, self.names[index]):
            run.note(wrong_read(run.world, self.part, source, content, None))
        else:
            mask = self._used(content, contents) if self._by_expert(index) else None
            run.note(wrong_read(run.world, self.part, source, content, self.due[index], mask))

    def _by_expert(self, index: int) -> bool:
        op = OPS.get(self.node.op)
        return op is not None and op.source_reads(index) is Reads.EXPERTS

    def _ids(self, index: int, contents: list[Content]) -> NDArray[np.int64]:
        layout = self.sources[index]
        return to_array(layout.dtype, contents[index].raw, layout.ne).astype(np.int64)

    def _used(self, content: Content, contents: list[Content]) -> Mask:
        """The bytes of the experts that the ids select."""
        source = self.sources[0]
        experts = np.zeros(source.ne[2], bool)
        ids = self._ids(2, contents)
        experts[ids[(ids >= 0) & (ids < source.ne[2])]] = True
        return np.repeat(experts, source.nbytes // max(source.ne[2], 1))

    def _mapped(self, contents: list[Content]) -> Mask:
        """The bytes of the slot map that the ids look up."""
        source = self.sources[0]
        rows = np.zeros(source.ne[1], bool)
        ids = self._ids(1, contents)
        rows[ids[(ids >= 0) & (ids < source.ne[1])]] = True
        return np.repeat(rows, source.nbytes // max(source.ne[1], 1))

    def _judge_slots(self, index: int, content: Content, contents: list[Content]) -> None:
        """Slot ``slots[i]`` must hold the current bytes of expert ``ids[i]`` of the layer."""
        assert self.due is not None and self.bank is not None
        schedule = self.run.world.schedule
        bank = self.bank
        selecting = next(
            i for i, name in enumerate(self.names) if selects_slots(schedule, bank, name)
        )
        slots = self._ids(selecting, contents).reshape(-1, order="F")
        layout = self.run.world.layouts.sequential(bank.ids)
        ids = to_array(layout.dtype, self.due[selecting].raw, layout.ne).reshape(-1, order="F")
        held, due = self.sources[index], self.due[index]
        size = held.nbytes // held.ne[2]
        for slot, expert in sorted(set(zip(slots.tolist(), ids.tolist(), strict=True))):
            if expert < 0:
                continue
            wanted = due.part(expert * size, (expert + 1) * size)
            if not 0 <= slot < held.ne[2]:
                self.run.note(self._no_slot(held, slot, expert))
                continue
            got = content.part(slot * size, (slot + 1) * size)
            fault = wrong_read(self.run.world, self.part, held, got, wanted)
            self.run.note(_moved(fault, slot * size))

    def _no_slot(self, held: Layout, slot: int, expert: int) -> WrongRead:
        return WrongRead(
            self.part.command, self.part.iteration, held.name, 0, 0,
            f"no slot ({slot})", f"a slot with expert {expert}", poison=False, differs=True,
        )  # fmt: skip

    def _judge_over_read(self, contents: list[Content]) -> None:
        """What the kernel reads past an expert must be defined; else its result is not."""
        if self.over_read is None:
            return
        ids = self._ids(2, contents)
        used = np.unique(ids[(ids >= 0) & (ids < self.sources[0].ne[2])]).tolist()
        faults = self.over_read.faults(self.run.memory, used, self.reading.began)
        self.undefined = bool(faults)
        for fault in faults:
            self.run.note(fault)


def _moved(fault: WrongRead | None, by: int) -> WrongRead | None:
    """The fault of a part of a tensor, with its byte counted in the whole."""
    if fault is None:
        return None
    return WrongRead(
        fault.command, fault.iteration, fault.tensor, fault.byte + by, fault.count,
        fault.got, fault.due, fault.poison, fault.differs,
    )  # fmt: skip
