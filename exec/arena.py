"""Separate memories: one allocation per buffer, and one per tensor with bytes of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..model.device import Buffer, Usage
from ..model.schedule import Schedule
from .data import initial_bytes
from .hardware import THREADS, Hardware, Wanted, operand_of
from .layout import Layouts, mentioned_tensors
from .memory import POISON_BYTE
from .operand import Operand
from .panels import PanelBuffer, panel_type, with_copies
from .quant import Bytes
from .window import RemoteOperand, Window, move_bytes

#: Each byte of a slot map that says -1, nowhere, for every expert.
EMPTY = 0xFF
#: The memory of a tensor of which nothing says where it lies.
NOWHERE = "unplaced"


class ArenaError(ValueError):
    """A tensor that leaves its buffer, or bytes of a wrong size; the message names the tensor."""


class Arena:
    """The bytes of a schedule at given values of its symbols.

    Weights start as made from the seed, banks as zeros (what lies past the last slot must be
    finite), slot maps as -1 (empty banks); everything else is poison: a NaN as a float.
    ``hardware``: what lies on a GPU is taken at once, or none of it (``MemoryShortError``).
    ``given``: buffers that come from outside, by name; they are used as they are (a
    ``PanelBuffer`` says which weights in it, and so which copies of them, are panels).  One
    thread alone may ask for operands: bytes are made when they are first asked for.
    """

    def __init__(
        self,
        schedule: Schedule,
        symbols: Mapping[str, int],
        seed: int = 0,
        given: Mapping[str, Bytes | Window] | None = None,
        hardware: Hardware = THREADS,
    ) -> None:
        self.schedule = schedule
        self.layouts = Layouts(schedule, symbols)
        self._hardware = hardware
        self._operands: dict[str, Operand] = {}
        self._given = given or {}
        self._spaces: dict[str, Bytes | Window] = {
            buffer.name: self._take(buffer)
            for buffer in schedule.graph.buffers
            if buffer.name in self._given
        }
        wanted = {
            buffer.name: Wanted(buffer.memory, buffer.bytes, 0 if _lasts(buffer) else POISON_BYTE)
            for buffer in schedule.graph.buffers
            if buffer.name not in self._given
        }
        self._allocate({**wanted, **self._own_on_gpus()})
        held = [raw.panels for raw in self._given.values() if isinstance(raw, PanelBuffer)]
        self._panels = with_copies(schedule, frozenset().union(*held))
        self._fill(seed)

    def _take(self, buffer: Buffer) -> Bytes | Window:
        raw = self._given[buffer.name]
        if len(raw) < buffer.bytes:
            raise ArenaError(f"buffer {buffer.name} has {buffer.bytes} bytes, {len(raw)} are given")
        return raw if isinstance(raw, Window) else raw.view(np.ndarray)

    def _allocate(self, wanted: Mapping[str, Wanted]) -> None:
        self._spaces |= self._hardware.allocate(self.schedule.graph.devices, wanted)

    def _own_on_gpus(self) -> dict[str, Wanted]:
        """Tensors with bytes of their own that lie on GPUs: memory is not asked for in a run."""
        memories = self._hardware.memories(self.schedule.graph.devices)
        if not memories:
            return {}
        named = mentioned_tensors(self.schedule)
        bases = dict.fromkeys(self.schedule.base(name).name for name in named)
        own = [self.layouts.placed(n) for n in bases if self.schedule.location(n).usage is None]
        return {
            layout.space: Wanted(self.memory_of(layout.name), layout.end, POISON_BYTE)
            for layout in own
            if self.memory_of(layout.name) in memories
        }

    def _fill(self, seed: int) -> None:
        graph = self.schedule.graph
        maps = {bank.slot_map for bank in graph.banks}
        banks = {bank.name for bank in graph.banks}
        for tensor in graph.tensors:
            if tensor.name in maps | banks and self._shared(tensor.name):
                continue
            if tensor.name in maps:
                self.operand(tensor.name).assign(np.full(1, EMPTY, np.uint8))
            elif tensor.name in banks:
                self.operand(tensor.name).assign(np.zeros(1, np.uint8))
            elif tensor.view_of is None and not tensor.input and self._lasting(tensor.name):
                operand = self.operand(tensor.name)
                operand.assign(initial_bytes(seed, operand.layout))

    def _shared(self, name: str) -> bool:
        """Whether a tensor lies in a buffer that was given, and so has its content."""
        return self.schedule.location(name).space in self._given

    def _lasting(self, name: str) -> bool:
        """Whether a tensor has a content at the start that is to be made up."""
        place = self.schedule.location(name)
        return place.usage in (Usage.WEIGHTS, Usage.ANY) and not self._shared(name)

    def memory_of(self, name: str) -> str:
        """The name of the memory that a tensor lies in."""
        return self.schedule.location(name).memory or NOWHERE

    def space(self, name: str) -> Bytes | Window:
        """All bytes of a buffer, or of a tensor with bytes of its own (``own:TENSOR``)."""
        return self._spaces[name]

    def size(self, name: str) -> int:
        """How many bytes a space has, or will have once an operand in it was asked for."""
        if name in self._spaces:
            return len(self._spaces[name])
        return self.layouts.placed(name.removeprefix("own:")).end

    def operand(self, name: str) -> Operand:
        """The tensor's window on its memory.  ``ArenaError`` if it leaves its buffer."""
        if name not in self._operands:
            layout = self.layouts.placed(name)
            if name in self._panels:
                layout = replace(layout, dtype=panel_type(layout.dtype))
            if layout.space not in self._spaces:
                base = self.layouts.placed(self.schedule.base(name).name)
                self._allocate({layout.space: Wanted(self.memory_of(name), base.end, POISON_BYTE)})
            space = self._spaces[layout.space]
            if layout.offset < 0 or layout.end > len(space):
                raise ArenaError(
                    f"{name} takes bytes {layout.offset} to {layout.end} of {layout.space}, "
                    f"which has {len(space)}"
                )
            self._operands[name] = operand_of(layout, space[layout.offset : layout.end])
        return self._operands[name]

    def write(self, name: str, raw: Bytes) -> None:
        """Write packed bytes in logical order; as many as the tensor has."""
        write(self.operand(name), raw)

    def copy(self, source: str, target: str) -> int:
        """The k-th byte to the k-th, in logical order.  Returns how many there are."""
        return copy(self.operand(source), self.operand(target))


def _lasts(buffer: Buffer) -> bool:
    return buffer.usage in (Usage.WEIGHTS, Usage.ANY)


def write(target: Operand, raw: Bytes) -> None:
    """Packed bytes in logical order; as many as the tensor has."""
    if len(raw) != target.layout.nbytes:
        raise ArenaError(f"{target.layout.name} has {target.layout.nbytes} bytes, not {len(raw)}")
    target.assign(raw)


def copy(source: Operand, target: Operand) -> int:
    """The k-th byte to the k-th, in logical order.  Returns how many there are."""
    if source.layout.counts == target.layout.counts and source.dtype == target.dtype:
        if source.layout.packed and target.layout.packed:  # one run of bytes moves fastest
            move_bytes(source.data, target.data)
        elif isinstance(source, RemoteOperand) or isinstance(target, RemoteOperand):
            write(target, _gathered(source, target))
        else:
            target.raw[...] = source.raw  # without a gathered copy in between
    else:
        write(target, _gathered(source, target))
    return source.layout.nbytes


def _gathered(source: Operand, target: Operand) -> Bytes:
    """A source with gaps, which the host gathers: as it is when the turn of the copy has come."""
    if isinstance(target, RemoteOperand):
        target.data.settle()
    return source.packed()
