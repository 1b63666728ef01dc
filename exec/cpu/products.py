"""The loops around the inner loops of products: rows, panels, and groups of activations.

A *group* is some rows of activations (columns) that meet one matrix: those of a plane, or those
that chose an expert.  A part of a matrix is walked through once per group, so that a weight comes
from memory once and serves every column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import carray, cfunc, types
from numba.extending import intrinsic

from .blocks import FORMS, emit_tile
from .emit import I8, PANEL, PATHS
from .jobs import KERNEL
from .native import pointer, stamp
from .panels import to_panel

#: Columns that are multiplied at once.
TILE = 4
#: Bytes for the results of a tile, at the head of a thread's room.
RESULTS = 4 * TILE * PANEL

#: What a kernel is told: numbers, and addresses of what is longer.
#:
#: ``w``: of the weights; ``planes``: offset of each group's matrix; ``groups``: where its columns
#: begin in ``columns`` (rows of activations) and ``results`` (offsets in ``dst``, ``elements``
#: float32, of which ``d0`` lies between rows); ``step``: bytes of a row of weights; ``parts``: of
#: a matrix, ``part`` rows each: the units of work; ``depth``: blocks of a row, or its elements if
#: it is plain; ``packed``: whether rows stand as panels; ``x``: of the activations, ``record``
#: bytes a row, of which ``block`` stay in the cache while a part is walked through; ``room``:
#: ``room_bytes`` for each thread.
ARGUMENTS = np.dtype([
    (name, np.int64)
    for name in (
        "w", "planes", "groups", "columns", "count", "results", "dst", "elements", "d0", "step",
        "rows", "parts", "part", "depth", "packed", "x", "record", "block", "room", "room_bytes",
    )
])  # fmt: skip


def _tile_code(form: int, path: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        panel, out, *columns = (
            builder.inttoptr(value, I8.as_pointer()) for value in (args[3], *args[5:])
        )
        emit_tile(PATHS[path](builder), FORMS[form], panel, args[4], columns, out)
        return context.get_dummy_value()

    return generate


def _tile(form: Any, path: Any, text: Any, columns: int) -> Any:
    """``form``, ``path`` and ``text`` are known when it is compiled."""
    signature = types.void(form, path, text, *[types.int64] * (3 + columns))
    return signature, _tile_code(int(form.literal_value), int(path.literal_value))


@intrinsic(prefer_literal=True)
def _one(
    typing: Any, form: Any, path: Any, text: Any, panel: Any, blocks: Any, out: Any, c0: Any
) -> Any:
    return _tile(form, path, text, 1)


@intrinsic(prefer_literal=True)
def _four(
    typing: Any, form: Any, path: Any, text: Any, panel: Any, blocks: Any, out: Any,
    c0: Any, c1: Any, c2: Any, c3: Any,
) -> Any:  # fmt: skip
    return _tile(form, path, text, TILE)


@cache
def quantised(form: int, path: int) -> Any:
    """The kernel for one type (an index of ``FORMS``) and one instruction set."""
    text, shape = (
        stamp("../panels", "emit", "blocks", "jobs", "panels", "products"),
        FORMS[form].shape,
    )

    @cfunc(KERNEL, cache=True)
    def kernel(arguments: Any, unit: Any, thread: Any) -> None:
        a = carray(pointer(arguments), 1, ARGUMENTS)[0]
        g = unit // a.parts
        planes = carray(pointer(a.planes), g + 1, np.int64)
        groups = carray(pointer(a.groups), g + 2, np.int64)
        columns = carray(pointer(a.columns), a.count, np.int64)
        results = carray(pointer(a.results), a.count, np.int64)
        dst = carray(pointer(a.dst), a.elements, np.float32)
        room = a.room + thread * a.room_bytes
        out = carray(pointer(room), TILE * PANEL, np.float32)
        panel = room + RESULTS
        x, record, d0 = a.x, a.record, a.d0
        start = unit % a.parts * a.part
        end = min(start + a.part, a.rows)
        for head in range(groups[g], groups[g + 1], a.block):
            last = min(head + a.block, groups[g + 1])
            for row in range(start, end, PANEL):
                count = min(PANEL, a.rows - row)
                source = a.w + planes[g] + row * a.step
                if a.packed == 0 or count < PANEL:
                    to_panel(panel, source, a.step, count, a.depth, shape)
                    source = panel
                c = head
                while c < last:
                    # Three columns take about as long as four: the last one is there twice.
                    width = min(last - c, TILE)
                    if width >= TILE - 1:
                        _four(
                            form, path, text, source, a.depth, room, x + columns[c] * record,
                            x + columns[c + 1] * record, x + columns[c + 2] * record,
                            x + columns[c + width - 1] * record,
                        )  # fmt: skip
                    else:
                        width = 1
                        _one(form, path, text, source, a.depth, room, x + columns[c] * record)
                    for k in range(width):
                        at = results[c + k] + row * d0
                        for r in range(count):
                            dst[at + r * d0] = out[k * PANEL + r]
                    c += width

    return kernel
