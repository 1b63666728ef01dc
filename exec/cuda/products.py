"""Products of a row of weights and columns of activations, for the lanes of a warp.

A block of threads computes ``WARPS`` rows; the lanes of a warp share a row and take parts of its
blocks (or its elements) in turn.  Weights come from memory once for all columns of a tile.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32

from .dequantise import BF16, F16, F32
from .packing import PACKINGS
from .target import (
    LANES,
    THREADS,
    WARPS,
    brain_of_float,
    float_of_brain,
    float_of_half,
    group_place,
    half_of_float,
    lane_sum,
    row_place,
    row_start,
    warp_row,
)

#: Columns that one warp computes at a time.
TILE = 4


@cache
def block_product(name: str) -> Any:
    """The kernel ``dst = w · x`` for packed rows of a type of ``PACKINGS``."""
    packing = PACKINGS[name]
    weights, size, unit, parts = packing.weights, packing.size, packing.unit, packing.parts
    take, dot = packing.take, packing.dot

    @cuda.jit
    def product(
        w: Any, nb: Any, w_ne: Any, words: Any, scales: Any, sums: Any, x_ne: Any, dst: Any, d: Any
    ) -> None:
        scratch = cuda.shared.array(THREADS, float32)
        totals = cuda.local.array(TILE, float32)
        row = warp_row(cuda.blockIdx.x, cuda.threadIdx.x, LANES, WARPS)
        lane, first = cuda.threadIdx.x % LANES, cuda.blockIdx.y * TILE
        i2, i3, _ = row_place(cuda.blockIdx.z, x_ne[2], x_ne[3])
        blocks = w_ne[0] // weights
        plane = row_start(
            0, group_place(i2, x_ne[2], w_ne[2]), group_place(i3, x_ne[3], w_ne[3]), 0, nb[2], nb[3]
        )
        column = (i3 * x_ne[2] + i2) * x_ne[1] + first
        count = x_ne[1] - first
        for c in range(TILE):
            totals[c] = 0
        if row < w_ne[1]:
            for number in range(lane, blocks * parts, LANES):
                b, part = number // parts, number % parts
                taken = take(w, (plane + row * nb[1]) // unit + b * size, part)
                for c in range(TILE):
                    if c < count:
                        to = (column + c) * blocks + b
                        totals[c] += dot(taken, part, words, scales, sums, to)
        for c in range(TILE):
            total = lane_sum(totals[c], scratch, cuda.threadIdx.x)
            if lane == 0 and row < w_ne[1] and c < count:
                dst[row * d[0] + row_start(first + c, i2, i3, d[1], d[2], d[3])] = total

    return product


@cache
def block_product_id(name: str) -> Any:
    """The kernel ``dst = w[ids] · x`` for packed rows, a pair of token and expert at a time."""
    packing = PACKINGS[name]
    weights, size, unit, parts = packing.weights, packing.size, packing.unit, packing.parts
    take, dot = packing.take, packing.dot

    @cuda.jit
    def product(
        w: Any, nb: Any, w_ne: Any, words: Any, scales: Any, sums: Any, x_ne: Any, ids: Any, i: Any,
        i_ne: Any, dst: Any, d: Any, fault: Any,
    ) -> None:  # fmt: skip
        scratch = cuda.shared.array(THREADS, float32)
        row = warp_row(cuda.blockIdx.x, cuda.threadIdx.x, LANES, WARPS)
        lane = cuda.threadIdx.x % LANES
        place, token, _ = row_place(cuda.blockIdx.y, i_ne[0], i_ne[1])
        expert = np.int64(ids[row_start(place, token, 0, i[0], i[1], 0)])
        blocks = w_ne[0] // weights
        column = (token * x_ne[1] + place % x_ne[1]) * blocks
        total = np.float32(0)
        if expert >= w_ne[2]:
            fault[0] = 1
            total = np.float32(np.nan)
        elif expert >= 0 and row < w_ne[1]:
            start = row_start(row, expert, 0, nb[1], nb[2], 0) // unit
            for number in range(lane, blocks * parts, LANES):
                b, part = number // parts, number % parts
                taken = take(w, start + b * size, part)
                total += dot(taken, part, words, scales, sums, column + b)
        total = lane_sum(total, scratch, cuda.threadIdx.x)
        if lane == 0 and row < w_ne[1]:
            dst[row * d[0] + row_start(place, token, 0, d[1], d[2], 0)] = total

    return product


@cuda.jit(device=True)
def _rounded(kind: Any, value: Any) -> Any:
    """An activation as ggml's CPU kernels round it for weights of that type."""
    if kind == F16:
        return float_of_half(half_of_float(value))
    if kind == BF16:
        return float_of_brain(brain_of_float(value))
    return value


@cuda.jit(device=True)
def _element(kind: Any, w: Any, at: Any) -> Any:
    if kind == F32:
        return w[at]
    if kind == BF16:
        return float_of_brain(w[at])
    return float_of_half(w[at])


@cache
def plain_product(kind: int) -> Any:
    """The kernel ``dst = w · x`` for weights without blocks; ``w`` in elements."""

    @cuda.jit
    def product(w: Any, ws: Any, w_ne: Any, x: Any, s: Any, x_ne: Any, dst: Any, d: Any) -> None:
        scratch = cuda.shared.array(THREADS, float32)
        totals = cuda.local.array(TILE, float32)
        row = warp_row(cuda.blockIdx.x, cuda.threadIdx.x, LANES, WARPS)
        lane, first = cuda.threadIdx.x % LANES, cuda.blockIdx.y * TILE
        i2, i3, _ = row_place(cuda.blockIdx.z, x_ne[2], x_ne[3])
        at = row_start(
            row, group_place(i2, x_ne[2], w_ne[2]), group_place(i3, x_ne[3], w_ne[3]),
            ws[1], ws[2], ws[3],
        )  # fmt: skip
        count = x_ne[1] - first
        for c in range(TILE):
            totals[c] = 0
        if row < w_ne[1]:
            for k in range(lane, w_ne[0], LANES):
                weight = _element(kind, w, at + k * ws[0])
                for c in range(TILE):
                    if c < count:
                        column = row_start(first + c, i2, i3, s[1], s[2], s[3])
                        totals[c] += weight * _rounded(kind, x[column + k * s[0]])
        for c in range(TILE):
            total = lane_sum(totals[c], scratch, cuda.threadIdx.x)
            if lane == 0 and row < w_ne[1] and c < count:
                dst[row * d[0] + row_start(first + c, i2, i3, d[1], d[2], d[3])] = total

    return product


@cache
def plain_product_id(kind: int) -> Any:
    """The kernel ``dst = w[ids] · x`` for weights without blocks; ``w`` in elements."""

    @cuda.jit
    def product(
        w: Any, ws: Any, w_ne: Any, x: Any, s: Any, x_ne: Any, ids: Any, i: Any, i_ne: Any,
        dst: Any, d: Any, fault: Any,
    ) -> None:  # fmt: skip
        scratch = cuda.shared.array(THREADS, float32)
        row = warp_row(cuda.blockIdx.x, cuda.threadIdx.x, LANES, WARPS)
        lane = cuda.threadIdx.x % LANES
        place, token, _ = row_place(cuda.blockIdx.y, i_ne[0], i_ne[1])
        expert = np.int64(ids[row_start(place, token, 0, i[0], i[1], 0)])
        column = row_start(place % x_ne[1], token, 0, s[1], s[2], 0)
        total = np.float32(0)
        if expert >= w_ne[2]:
            fault[0] = 1
            total = np.float32(np.nan)
        elif expert >= 0 and row < w_ne[1]:
            at = row_start(row, expert, 0, ws[1], ws[2], 0)
            for k in range(lane, w_ne[0], LANES):
                value = _rounded(kind, x[column + k * s[0]])
                total += _element(kind, w, at + k * ws[0]) * value
        total = lane_sum(total, scratch, cuda.threadIdx.x)
        if lane == 0 and row < w_ne[1]:
            dst[row * d[0] + row_start(place, token, 0, d[1], d[2], 0)] = total

    return product
