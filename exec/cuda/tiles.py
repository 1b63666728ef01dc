"""Products for prompts: a block of threads computes a tile of rows and columns by tensor cores.

Each warp has sixteen rows of the tile and all of its columns.  Groups of eight words of weights and
of activations go through shared memory, ``STEPS`` groups at a time; ``mma.sync`` multiplies a group
of sixteen rows with one of eight columns.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, uint32

from .packing import GROUP, PACKINGS
from .target import (
    TILE_WARPS,
    barrier,
    group_place,
    mma_brains,
    mma_bytes,
    mma_few_bytes,
    mma_halves,
    pair_at,
    pair_inside,
    quad,
    row_place,
    row_start,
    tile_place,
)

WARP = 32
TILE_THREADS = WARP * TILE_WARPS
#: Groups at a time: each thread fetches one of a column, and one each of two rows.
STEPS = 4
COLUMNS, ROWS = TILE_THREADS // STEPS, 2 * TILE_THREADS // STEPS
#: Columns of an instruction, eight each, that a warp has.
EIGHTS = COLUMNS // 8
#: Words from one row in shared memory to the next: four more, so that the rows and words that a
#: warp reads at a time lie in different banks.
LINE = STEPS * GROUP + 4
#: Elements of shared memory: words of rows and columns, and two factors for each of their groups.
ROW_WORDS, COLUMN_WORDS = ROWS * LINE, COLUMNS * LINE
ROW_FACTORS, COLUMN_FACTORS = 2 * ROWS * STEPS, 2 * COLUMNS * STEPS
RESULTS = 4 * EIGHTS


@cuda.jit(device=True)
def _keep(tile: Any, at: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    tile[at], tile[at + 1], tile[at + 2], tile[at + 3] = a, b, c, d


@cuda.jit(device=True)
def _zero(totals: Any) -> None:
    for n in range(RESULTS):
        totals[n] = 0


@cuda.jit(device=True)
def _fragment(tile: Any, line: Any, step: Any, t: Any) -> Any:
    """The words of a row or column that a lane gives to an instruction."""
    at = line * LINE + step * GROUP + t
    return tile[at], tile[at + 4]


@cuda.jit(device=True)
def _multiply_halves(thread: Any, rows: Any, columns: Any, f: Any, s: Any, totals: Any) -> None:
    place, t = thread % WARP // 4, thread % 4
    line = thread // WARP * 16 + place
    for step in range(STEPS):
        a0, a2 = _fragment(rows, line, step, t)
        a1, a3 = _fragment(rows, line + 8, step, t)
        for n in range(EIGHTS):
            b0, b1 = _fragment(columns, 8 * n + place, step, t)
            totals[4 * n], totals[4 * n + 1], totals[4 * n + 2], totals[4 * n + 3] = mma_halves(
                thread, a0, a1, a2, a3, b0, b1,
                totals[4 * n], totals[4 * n + 1], totals[4 * n + 2], totals[4 * n + 3],
            )  # fmt: skip


@cuda.jit(device=True)
def _multiply_brains(thread: Any, rows: Any, columns: Any, f: Any, s: Any, totals: Any) -> None:
    place, t = thread % WARP // 4, thread % 4
    line = thread // WARP * 16 + place
    for step in range(STEPS):
        a0, a2 = _fragment(rows, line, step, t)
        a1, a3 = _fragment(rows, line + 8, step, t)
        for n in range(EIGHTS):
            b0, b1 = _fragment(columns, 8 * n + place, step, t)
            totals[4 * n], totals[4 * n + 1], totals[4 * n + 2], totals[4 * n + 3] = mma_brains(
                thread, a0, a1, a2, a3, b0, b1,
                totals[4 * n], totals[4 * n + 1], totals[4 * n + 2], totals[4 * n + 3],
            )  # fmt: skip


@cuda.jit(device=True)
def _factors(numbers: Any, line: Any, step: Any) -> Any:
    at = 2 * (line * STEPS + step)
    return numbers[at], numbers[at + 1]


@cuda.jit(device=True)
def _multiply_bytes(thread: Any, rows: Any, columns: Any, f: Any, s: Any, totals: Any) -> None:
    """Weights have a scale, and what is taken off for each activation (q4_K)."""
    place, t = thread % WARP // 4, thread % 4
    line = thread // WARP * 16 + place
    for step in range(STEPS):
        a0, a2 = _fragment(rows, line, step, t)
        a1, a3 = _fragment(rows, line + 8, step, t)
        (scale, least), (scale_8, least_8) = _factors(f, line, step), _factors(f, line + 8, step)
        for n in range(EIGHTS):
            b0, b1 = _fragment(columns, 8 * n + place, step, t)
            (x, total), (x_1, total_1) = (
                _factors(s, 8 * n + 2 * t, step), _factors(s, 8 * n + 2 * t + 1, step)
            )  # fmt: skip
            c0, c1, c2, c3 = mma_bytes(thread, a0, a1, a2, a3, b0, b1)
            totals[4 * n] += scale * np.float32(c0) * x - least * total
            totals[4 * n + 1] += scale * np.float32(c1) * x_1 - least * total_1
            totals[4 * n + 2] += scale_8 * np.float32(c2) * x - least_8 * total
            totals[4 * n + 3] += scale_8 * np.float32(c3) * x_1 - least_8 * total_1


@cuda.jit(device=True)
def _multiply_sixteens(thread: Any, rows: Any, columns: Any, f: Any, s: Any, totals: Any) -> None:
    """Each half of a group has a scale of its own (q6_K)."""
    place, t = thread % WARP // 4, thread % 4
    line = thread // WARP * 16 + place
    for step in range(STEPS):
        a0, a2 = _fragment(rows, line, step, t)
        a1, a3 = _fragment(rows, line + 8, step, t)
        (low, high), (low_8, high_8) = _factors(f, line, step), _factors(f, line + 8, step)
        for n in range(EIGHTS):
            b0, b1 = _fragment(columns, 8 * n + place, step, t)
            (x, _), (x_1, _) = (
                _factors(s, 8 * n + 2 * t, step), _factors(s, 8 * n + 2 * t + 1, step)
            )  # fmt: skip
            c0, c1, c2, c3 = mma_few_bytes(thread, a0, a1, b0)
            d0, d1, d2, d3 = mma_few_bytes(thread, a2, a3, b1)
            totals[4 * n] += (low * np.float32(c0) + high * np.float32(d0)) * x
            totals[4 * n + 1] += (low * np.float32(c1) + high * np.float32(d1)) * x_1
            totals[4 * n + 2] += (low_8 * np.float32(c2) + high_8 * np.float32(d2)) * x
            totals[4 * n + 3] += (low_8 * np.float32(c3) + high_8 * np.float32(d3)) * x_1


MULTIPLY = {
    "q8_0": _multiply_bytes, "q4_0": _multiply_bytes, "q4_k": _multiply_bytes,
    "q6_k": _multiply_sixteens, "f16": _multiply_halves, "bf16": _multiply_brains,
}  # fmt: skip


@cache
def _fetch_weights(name: str) -> Any:
    packing = PACKINGS[name]
    groups, size, unit, fill = packing.groups, packing.size, packing.unit, packing.fill

    @cuda.jit(device=True)
    def fetch(
        w: Any, plane: Any, step: Any, row: Any, count: Any, group: Any, most: Any, tile: Any,
        f: Any, to: Any,
    ) -> None:  # fmt: skip
        """Group ``group`` of ``most`` of row ``row`` of ``count`` into the tile; zeros beside."""
        at, place = to // STEPS * LINE + to % STEPS * GROUP, 2 * to
        if row < count and group < most:
            start = (plane + row * step) // unit + group // groups * size
            low, high, a, b, c, d, e, g, h, i = fill(w, start, group % groups)
            f[place], f[place + 1] = low, high
            _keep(tile, at, a, b, c, d)
            _keep(tile, at + 4, e, g, h, i)
        else:
            f[place], f[place + 1] = 0, 0
            _keep(tile, at, 0, 0, 0, 0)
            _keep(tile, at + 4, 0, 0, 0, 0)

    return fetch


@cache
def _fetch_activations(name: str) -> Any:
    packing = PACKINGS[name]
    groups, count, sums_ = packing.groups, packing.words, packing.sums
    halves, minima = packing.halves, name == "q4_k"

    @cuda.jit(device=True)
    def fetch(
        words: Any, scales: Any, sums: Any, first: Any, used: Any, group: Any, most: Any,
        tile: Any, s: Any, to: Any,
    ) -> None:  # fmt: skip
        """A group of the column whose blocks start with number ``first`` into the tile, zeros if
        it is not ``used``."""
        at, place = to // STEPS * LINE + to % STEPS * GROUP, 2 * to
        s[place], s[place + 1] = 0, 0
        if used and group < most:
            block, part = first + group // groups, group % groups
            a, b, c, d = quad(words, block * count + part * GROUP)
            e, f, g, h = quad(words, block * count + part * GROUP + 4)
            _keep(tile, at, a, b, c, d)
            _keep(tile, at + 4, e, f, g, h)
            if not halves:
                s[place] = scales[block]
            if minima:
                total = sums[block * sums_ + 2 * part] + sums[block * sums_ + 2 * part + 1]
                s[place + 1] = scales[block] * np.float32(total)
        else:
            _keep(tile, at, 0, 0, 0, 0)
            _keep(tile, at + 4, 0, 0, 0, 0)

    return fetch


@cuda.jit(device=True)
def _store(
    dst: Any, d: Any, thread: Any, totals: Any, rows: Any, columns: Any, i2: Any, i3: Any,
    block_x: Any, block_y: Any,
) -> None:  # fmt: skip
    for n in range(EIGHTS):
        for k in range(4):
            line, place = tile_place(thread, n, k)
            row, column = block_x * ROWS + line, block_y * COLUMNS + place
            if row < rows and column < columns:
                at = row * d[0] + row_start(column, i2, i3, d[1], d[2], d[3])
                dst[at] = totals[4 * n + k]


@cuda.jit(device=True)
def _store_pairs(
    dst: Any, d: Any, thread: Any, totals: Any, rows: Any, order: Any, i_ne: Any, block_x: Any,
    block_y: Any,
) -> None:  # fmt: skip
    for n in range(EIGHTS):
        for k in range(4):
            line, place = tile_place(thread, n, k)
            row = block_x * ROWS + line
            i1, i2 = pair_at(order, block_y * COLUMNS + place)
            if row < rows and pair_inside(i1, i_ne[0], i2, i_ne[1]):
                dst[row * d[0] + row_start(i1, i2, 0, d[1], d[2], 0)] = totals[4 * n + k]


@cuda.jit(device=True)
def _mark_pairs(
    dst: Any, d: Any, thread: Any, rows: Any, order: Any, ids: Any, i: Any, i_ne: Any,
    experts: Any, fault: Any, block_x: Any, block_y: Any,
) -> None:  # fmt: skip
    """NaNs for those of an expert that is not there, over the zeros of this thread."""
    for n in range(EIGHTS):
        for k in range(4):
            line, place = tile_place(thread, n, k)
            row = block_x * ROWS + line
            i1, i2 = pair_at(order, block_y * COLUMNS + place)
            inside = row < rows and pair_inside(i1, i_ne[0], i2, i_ne[1])
            if inside and ids[row_start(i1, i2, 0, i[0], i[1], 0)] >= experts:
                fault[0] = 1
                dst[row * d[0] + row_start(i1, i2, 0, d[1], d[2], 0)] = np.float32(np.nan)


@cache
def tiled_product(name: str) -> Any:
    """The kernel ``dst = w · x`` for packed rows of a type of ``PACKINGS``."""
    packing, multiply = PACKINGS[name], MULTIPLY[name]
    weights, groups_of = packing.weights, packing.groups
    fetch_weights, fetch_activations = _fetch_weights(name), _fetch_activations(name)

    @cuda.jit
    def product(
        w: Any, nb: Any, w_ne: Any, words: Any, scales: Any, sums: Any, x_ne: Any, dst: Any, d: Any
    ) -> None:
        rows = cuda.shared.array(ROW_WORDS, uint32)
        columns = cuda.shared.array(COLUMN_WORDS, uint32)
        f = cuda.shared.array(ROW_FACTORS, float32)
        s = cuda.shared.array(COLUMN_FACTORS, float32)
        totals = cuda.local.array(RESULTS, float32)
        thread = cuda.threadIdx.x
        place, step = thread // STEPS, thread % STEPS
        row, column = cuda.blockIdx.x * ROWS + place, cuda.blockIdx.y * COLUMNS + place
        row_2, used = row + ROWS // 2, column < x_ne[1]
        i2, i3, _ = row_place(cuda.blockIdx.z, x_ne[2], x_ne[3])
        plane = row_start(
            0, group_place(i2, x_ne[2], w_ne[2]), group_place(i3, x_ne[3], w_ne[3]), 0, nb[2], nb[3]
        )
        blocks = w_ne[0] // weights
        first = ((i3 * x_ne[2] + i2) * x_ne[1] + column) * blocks
        groups = blocks * groups_of
        _zero(totals)
        for base in range(0, groups, STEPS):
            group, to = base + step, thread + TILE_THREADS
            fetch_weights(w, plane, nb[1], row, w_ne[1], group, groups, rows, f, thread)
            fetch_weights(w, plane, nb[1], row_2, w_ne[1], group, groups, rows, f, to)
            fetch_activations(words, scales, sums, first, used, group, groups, columns, s, thread)
            barrier()
            multiply(thread, rows, columns, f, s, totals)
            barrier()
        _store(dst, d, thread, totals, w_ne[1], x_ne[1], i2, i3, cuda.blockIdx.x, cuda.blockIdx.y)

    return product


@cache
def tiled_product_id(name: str) -> Any:
    """The kernel ``dst = w[ids] · x`` for packed rows; ``order``: pairs of token and expert,
    by expert, each of which has whole tiles of columns (see ``group.py``)."""
    packing, multiply = PACKINGS[name], MULTIPLY[name]
    weights, groups_of = packing.weights, packing.groups
    fetch_weights, fetch_activations = _fetch_weights(name), _fetch_activations(name)

    @cuda.jit
    def product(
        w: Any, nb: Any, w_ne: Any, words: Any, scales: Any, sums: Any, x_ne: Any, ids: Any, i: Any,
        i_ne: Any, order: Any, dst: Any, d: Any, fault: Any,
    ) -> None:  # fmt: skip
        rows = cuda.shared.array(ROW_WORDS, uint32)
        columns = cuda.shared.array(COLUMN_WORDS, uint32)
        f = cuda.shared.array(ROW_FACTORS, float32)
        s = cuda.shared.array(COLUMN_FACTORS, float32)
        totals = cuda.local.array(RESULTS, float32)
        thread = cuda.threadIdx.x
        place, step = thread // STEPS, thread % STEPS
        row = cuda.blockIdx.x * ROWS + place
        row_2 = row + ROWS // 2
        i1, i2 = pair_at(order, cuda.blockIdx.y * COLUMNS)
        if not pair_inside(i1, i_ne[0], i2, i_ne[1]):
            return
        expert = np.int64(ids[row_start(i1, i2, 0, i[0], i[1], 0)])
        blocks = w_ne[0] // weights
        groups, plane = 0, 0
        known = expert >= 0 and expert < w_ne[2]
        if known:
            groups, plane = blocks * groups_of, expert * nb[2]
        i1, i2 = pair_at(order, cuda.blockIdx.y * COLUMNS + place)
        used = pair_inside(i1, i_ne[0], i2, i_ne[1])
        if not used:
            i1, i2 = 0, 0
        first = (i2 * x_ne[1] + i1 % x_ne[1]) * blocks
        _zero(totals)
        for base in range(0, groups, STEPS):
            group, to = base + step, thread + TILE_THREADS
            fetch_weights(w, plane, nb[1], row, w_ne[1], group, groups, rows, f, thread)
            fetch_weights(w, plane, nb[1], row_2, w_ne[1], group, groups, rows, f, to)
            fetch_activations(words, scales, sums, first, used, group, groups, columns, s, thread)
            barrier()
            multiply(thread, rows, columns, f, s, totals)
            barrier()
        _store_pairs(dst, d, thread, totals, w_ne[1], order, i_ne, cuda.blockIdx.x, cuda.blockIdx.y)
        if not known:
            _mark_pairs(
                dst, d, thread, w_ne[1], order, ids, i, i_ne, w_ne[2], fault, cuda.blockIdx.x,
                cuda.blockIdx.y,
            )  # fmt: skip

    return product
