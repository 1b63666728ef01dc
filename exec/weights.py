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
from .arena import allocate
from .panels import pack, panel_buffer, panel_weights
from .quant import Bytes

#: Each byte of a slot map that says -1, nowhere, for every expert.
EMPTY = 0xFF


def model_buffers(
    model: ModelFile, graph: Graph, loaded: Mapping[str, tuple[str, int]]
) -> dict[str, Bytes]:
    """A buffer's bytes by its name.

    The file is mapped, not read: its pages come in when they are first used.  (Privately: a
    program that writes to a weight does not write to the file.)  ``loaded``: where weights
    with a place of their own go, ``(buffer, offset)``.  Quantised weights of products are
    brought into panels where they lie.
    """
    # A plain array on the mapping: slices of a memmap carry its bookkeeping around.
    file: Bytes = np.asarray(np.memmap(model.path, np.uint8, "c")).view(np.ndarray)
    buffers = {FILE: file}
    for buffer in graph.buffers:
        if buffer.name != FILE:
            buffers[buffer.name] = allocate(buffer.bytes, 0)
    panels: dict[str, list[str]] = {}
    used = panel_weights(graph, [t.name for t in graph.tensors if t.name in model.tensors])
    for name, entry in model.tensors.items():
        raw = file[entry.offset : entry.offset + entry.nbytes]
        place, offset = loaded.get(name, (FILE, entry.offset))
        target = buffers[place][offset : offset + entry.nbytes]
        if place != FILE:
            target[...] = raw
        if name in used:
            pack(target, dtype(entry.dtype), entry.shape)
            panels.setdefault(place, []).append(name)
    return {name: panel_buffer(raw, panels.get(name, ())) for name, raw in buffers.items()}


class SharedBanks:
    """Expert caches that the programs of a model take turns with: bytes, and what they hold.

    Programs share a cache if their banks are the same in everything but the condition of use.
    """

    def __init__(self) -> None:
        self._known: dict[object, tuple[dict[str, Bytes], dict[str, SlotState]]] = {}

    def of(self, schedule: Schedule) -> tuple[dict[str, Bytes], dict[str, SlotState]]:
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
            self._known[key] = (
                {
                    buffer.name: allocate(buffer.bytes, 0)
                    for buffer in graph.buffers
                    if buffer.name in spaces
                },
                {},
            )
            for name in tables:
                place, size = places[name], schedule.tensor(name).extent.value({})
                start = place.offset.value({})
                self._known[key][0][place.space][start : start + size] = EMPTY
        return self._known[key]


def _identity(bank: Bank) -> tuple[str, str, int, str, str, int]:
    return bank.name, bank.caches, bank.layer, bank.role, bank.group, bank.slots
