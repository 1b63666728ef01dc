"""The loops around the inner loops of products: rows, panels, and groups of activations.

A *group* is some rows of activations (columns) that meet one matrix: those of a plane, or those
that chose an expert.  A matrix is walked through once per group, so that a weight comes from
memory once and serves every column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from .blocks import FORMS, Activations, emit_tile
from .emit import I8, PANEL, PATHS
from .native import stamp
from .panels import to_panel

#: Columns that are multiplied at once.
TILE = 4


def _tile_code(form: int, path: int, count: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p = PATHS[path](builder)
        panel, blocks, quants, scales, sums, out = (
            value if kind is types.int64 else builder.inttoptr(value, I8.as_pointer())
            for kind, value in zip(sig.args[3:9], args[3:9], strict=True)
        )
        rows = list(args[9 : 9 + count])
        emit_tile(p, FORMS[form], panel, blocks, Activations(quants, scales, sums), rows, out)
        return context.get_dummy_value()

    return generate


def _literal(kind: Any) -> int:
    return int(kind.literal_value)


@intrinsic(prefer_literal=True)
def _one(
    typing: Any, form: Any, path: Any, text: Any, panel: Any, blocks: Any, quants: Any,
    scales: Any, sums: Any, out: Any, row: Any,
) -> Any:  # fmt: skip
    """One column; ``form``, ``path`` and ``text`` are known when it is compiled."""
    u, i = types.uint64, types.int64
    signature = types.void(form, path, text, u, i, u, u, u, u, i)
    return signature, _tile_code(_literal(form), _literal(path), 1)


@intrinsic(prefer_literal=True)
def _four(
    typing: Any, form: Any, path: Any, text: Any, panel: Any, blocks: Any, quants: Any,
    scales: Any, sums: Any, out: Any, r0: Any, r1: Any, r2: Any, r3: Any,
) -> Any:  # fmt: skip
    u, i = types.uint64, types.int64
    signature = types.void(form, path, text, u, i, u, u, u, u, i, i, i, i)
    return signature, _tile_code(_literal(form), _literal(path), TILE)


@cache
def quantised(form: int, path: int) -> Any:
    """The kernel for one type (an index of ``FORMS``) and one instruction set."""
    text = stamp("../panels", "emit", "blocks", "panels", "products")

    @njit(cache=True, nogil=True)
    def kernel(
        w: Any, planes: Any, step: Any, rows: Any, blocks: Any, packed: Any, shape: Any,
        groups: Any, columns: Any, results: Any, quants: Any, scales: Any, sums: Any,
        dst: Any, d0: Any, panel: Any, out: Any, out_at: Any,
    ) -> None:  # fmt: skip
        """``w``: address of the weights; ``planes``: offset of each group's matrix; ``groups``:
        where its columns begin in ``columns`` (rows of activations) and ``results`` (offsets in
        ``dst``); ``packed``: whether the rows stand as panels; ``panel``: address of room for one;
        ``out``, at ``out_at``: room for the results of a tile."""
        u = np.uint64
        for g in range(len(groups) - 1):
            first, last = groups[g], groups[g + 1]
            if first == last:
                continue
            for row in range(0, rows, PANEL):
                count = min(PANEL, rows - row)
                source = w + u(planes[g]) + u(row) * u(step)
                if not packed or count < PANEL:
                    to_panel(panel, source, step, count, blocks, shape)
                    source = panel
                c = first
                while c < last:
                    width = 1
                    if c + TILE <= last:
                        width = TILE
                        _four(
                            form, path, text, source, blocks, quants, scales, sums, out_at,
                            columns[c], columns[c + 1], columns[c + 2], columns[c + 3],
                        )  # fmt: skip
                    else:
                        _one(
                            form, path, text, source, blocks, quants, scales, sums, out_at,
                            columns[c],
                        )  # fmt: skip
                    for k in range(width):
                        at = results[c + k] + row * d0
                        for r in range(count):
                            dst[at + r * d0] = out[k * PANEL + r]
                    c += width

    return kernel
