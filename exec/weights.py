"""Buffers of a model: its mapped file, weights that are loaded elsewhere, and empty caches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..model.decoder.site import FILE
from ..model.graph import Graph
from ..model.read.gguf import ModelFile
from .arena import allocate
from .quant import Bytes


def model_buffers(
    model: ModelFile, graph: Graph, loaded: Mapping[str, tuple[str, int]]
) -> dict[str, Bytes]:
    """A buffer's bytes by its name.

    The file is mapped, not read: its pages come in when they are first used.  (Privately: a
    program that writes to a weight does not write to the file.)  ``loaded``: where weights
    with a place of their own go, ``(buffer, offset)``.
    """
    # A plain array on the mapping: slices of a memmap carry its bookkeeping around.
    file: Bytes = np.asarray(np.memmap(model.path, np.uint8, "c")).view(np.ndarray)
    buffers = {FILE: file}
    for buffer in graph.buffers:
        if buffer.name != FILE:
            buffers[buffer.name] = allocate(buffer.bytes, 0)
    for name, (place, offset) in loaded.items():
        entry = model.tensors[name]
        raw = file[entry.offset : entry.offset + entry.nbytes]
        buffers[place][offset : offset + entry.nbytes] = raw
    return buffers
