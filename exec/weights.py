"""Buffers of a model: its mapped file, weights that are loaded elsewhere, and empty caches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..model.decoder.site import FILE
from ..model.graph import Graph
from ..model.read.gguf import ModelFile
from ..model.tensor import dtype
from .arena import allocate
from .panels import pack, panel_buffer, panel_weights
from .quant import Bytes


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
