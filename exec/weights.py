"""Buffers of a model: its mapped file, weights that are loaded elsewhere, and empty caches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..model.cache import SlotState
from ..model.decoder.site import FILE
from ..model.graph import Bank, Graph
from ..model.read.gguf import ModelFile
from ..model.schedule import Schedule
from ..model.tensor import dtype
from .arena import EMPTY
from .hardware import THREADS, Hardware, Wanted
from .panels import pack, panel_buffer, panel_weights
from .quant import Bytes
from .window import Window, move_bytes


def model_buffers(
    model: ModelFile,
    graph: Graph,
    loaded: Mapping[str, tuple[str, int]],
    hardware: Hardware = THREADS,
) -> dict[str, Bytes | Window]:
    """A buffer's bytes by its name.

    The file is mapped, not read: its pages come in when they are first used.  (Privately: a
    program that writes to a weight does not write to the file.)  ``loaded``: where weights
    with a place of their own go, ``(buffer, offset)``.  Quantised weights of products are
    brought into panels where they lie.

    With a GPU the file is read into memory that it copies from, and weights stay as the file has
    them: that is how its kernels read them.
    """
    # A plain array on the mapping: slices of a memmap carry its bookkeeping around.
    file: Bytes = np.asarray(np.memmap(model.path, np.uint8, "c")).view(np.ndarray)
    wanted = {
        buffer.name: Wanted(buffer.memory, buffer.bytes, 0)
        for buffer in graph.buffers
        if buffer.name != FILE
    }
    buffers = {FILE: _read(file, hardware), **hardware.allocate(graph.devices, wanted)}
    panels: dict[str, list[str]] = {}
    names = [t.name for t in graph.tensors if t.name in model.tensors]
    used = panel_weights(graph, names) if not hardware.gpus else frozenset()
    for name, entry in model.tensors.items():
        raw = file[entry.offset : entry.offset + entry.nbytes]
        place, offset = loaded.get(name, (FILE, entry.offset))
        target = buffers[place][offset : offset + entry.nbytes]
        if place != FILE:
            move_bytes(raw, target)
        if name in used and not isinstance(target, Window):
            pack(target, dtype(entry.dtype), entry.shape)
            panels.setdefault(place, []).append(name)
    return {
        name: raw if isinstance(raw, Window) else panel_buffer(raw, panels.get(name, ()))
        for name, raw in buffers.items()
    }


def _read(file: Bytes, hardware: Hardware) -> Bytes:
    if not hardware.gpus:
        return file
    raw = hardware.host_bytes(len(file), 0)
    raw[...] = file
    return raw


class SharedBanks:
    """Expert caches that the programs of a model take turns with: bytes, and what they hold.

    Programs share a cache if their banks are the same in everything but the condition of use.
    """

    def __init__(self, hardware: Hardware = THREADS) -> None:
        self._hardware = hardware
        self._known: dict[object, tuple[dict[str, Bytes | Window], dict[str, SlotState]]] = {}

    def of(self, schedule: Schedule) -> tuple[dict[str, Bytes | Window], dict[str, SlotState]]:
        """The buffers of a schedule's banks and slot maps, empty at first, and their state."""
        graph = schedule.graph
        tables = {bank.slot_map for bank in graph.banks if bank.slot_map is not None}
        places = {
            name: schedule.location(name) for name in (*(b.name for b in graph.banks), *tables)
        }
        key = (
            tuple(sorted((*_identity(bank), str(places[bank.name])) for bank in graph.banks)),
            tuple(sorted((name, str(places[name])) for name in tables)),
        )
        if key not in self._known:
            spaces = {place.space for place in places.values()}
            wanted = {
                buffer.name: Wanted(buffer.memory, buffer.bytes, 0)
                for buffer in graph.buffers
                if buffer.name in spaces
            }
            made = self._hardware.allocate(graph.devices, wanted)
            self._known[key] = made, {}
            for name in tables:
                place, size = places[name], schedule.tensor(name).extent.value({})
                start = place.offset.value({})
                empty = np.full(size, EMPTY, np.uint8)
                move_bytes(empty, made[place.space][start : start + size])
        return self._known[key]


def _identity(bank: Bank) -> tuple[str, str, int, str, str, int]:
    return bank.name, bank.caches, bank.layer, bank.role, bank.group, bank.slots
