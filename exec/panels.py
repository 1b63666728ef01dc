"""Weights whose rows stand as panels: 16 rows, the same word of each beside each other.

So the fast kernels read quantised weights; they are brought into this form once, when a model is
loaded, in place.  A panel takes as many bytes as its rows did, and an expert consists of whole
panels (rows that fill none stay as they are): experts and tensors are still copied as bytes, and
what arrives is of the same form.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..model.command import Copy, CopyExperts
from ..model.graph import Graph
from ..model.schedule import Schedule
from ..model.tensor import DType
from .quant import Bytes

#: Rows of a panel.
PANEL = 16
#: Types that have panels; the kernels call them by this name and the suffix.
PANEL_TYPES = frozenset({"q8_0", "q4_0", "mxfp4", "q4_k", "q6_k"})
SUFFIX = "x16"
_PRODUCTS = frozenset({"mul_mat", "mul_mat_id"})


class PanelBuffer(np.ndarray):
    """The bytes of a buffer; ``panels``: names of the tensors in it whose rows stand as panels."""

    panels: frozenset[str]


def panel_buffer(raw: np.ndarray, panels: Collection[str]) -> PanelBuffer:
    buffer = raw.view(PanelBuffer)
    buffer.panels = frozenset(panels)
    return buffer


def panel_type(kind: DType) -> DType:
    """The type of the same elements as panels."""
    return DType(kind.name + SUFFIX, kind.block, kind.block_bytes)


def file_type(kind: DType) -> tuple[str, bool]:
    """The name of the type in files, and whether these are panels."""
    return kind.name.removesuffix(SUFFIX), kind.name.endswith(SUFFIX)


def panel_weights(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Those of the tensors that nothing reads but products, as their weights."""
    viewed = {tensor.view_of for tensor in graph.tensors}
    found = {
        name
        for name in names
        if (tensor := graph.tensor(name)).type.name in PANEL_TYPES
        and tensor.strides is None
        and (tensor.ne[1].constant or 0) >= PANEL
        and name not in viewed
        and not tensor.output
    }
    for node in graph.nodes:
        found -= set(node.src[1:] if node.op in _PRODUCTS else node.src)
        found.discard(node.dst)
    return frozenset(found)


def with_copies(schedule: Schedule, panels: Collection[str]) -> frozenset[str]:
    """Also what is copied from them, whole or expert by expert."""
    found = set(panels)
    pairs = [
        (command.src, command.dst)
        for command in schedule.program or ()
        if isinstance(command, (Copy, CopyExperts))
    ]
    pairs += [(bank.caches, bank.name) for bank in schedule.graph.banks]
    while more := {target for source, target in pairs if source in found} - found:
        found |= more
    return frozenset(found)


def pack(raw: Bytes, kind: DType, ne: Sequence[int]) -> None:
    """Bring rows ``[k, rows, experts]`` without holes into panels, in place; rows of an expert
    that fill no panel stay.  ``kind``: one of :data:`PANEL_TYPES`."""
    from .cpu.panels import pack_rows  # Numba takes a third of a second

    pack_rows(raw, kind.name, ne[0], ne[1])
