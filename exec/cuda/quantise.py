"""Activations as the products take them: words of four integers (or two halves), a scale for each
block, and sums of the integers.

As in ggml, by the type of the weights.  ``q8_0``: blocks of 32, the scale is ``max |x| / 127``
rounded to float16, the integers are rounded half to even with the unrounded scale.  ``q8_K``:
blocks of 256, the first element of the largest size becomes -127, the scale is not rounded.  For
f16 and bf16 weights the activations are rounded to that type.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, int64

from ..operand import Operand
from .launch import Launch
from .packing import PACKINGS, Packing
from .target import (
    LANES,
    THREADS,
    WARPS,
    bits_of_float,
    brain_of_float,
    float_of_bits,
    float_of_half,
    half_of_float,
    lane_max,
    rounded,
    row_place,
    row_start,
    warp_row,
    word_of,
)

BLOCK = 32
WORDS = 8
#: Elements, words and sums of a block of q8_K; a sum is of 16 elements.
SUPER, SUPER_WORDS, SUPER_SUMS = 256, 64, 16
#: Bits of float32: infinity, and 127 · 2⁻¹²⁸, at which -127 over it starts to overflow.
INFINITE, TOO_SMALL = 0x7F800000, 0x02FE0000


@cuda.jit
def _quantise(x: Any, s: Any, ne: Any, blocks: Any, words: Any, scales: Any, sums: Any) -> None:
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    start = row_start(i1, i2, i3, s[1], s[2], s[3])
    for b in range(cuda.threadIdx.x, blocks, cuda.blockDim.x):
        at, to = start + b * BLOCK * s[0], cuda.blockIdx.x * blocks + b
        most = np.float32(0)
        unknown = np.float32(0)
        for k in range(BLOCK):
            value = x[at + k * s[0]]
            size = abs(value)
            if size > most:
                most = size
            unknown += value * np.float32(0)  # a NaN if there is one, or an infinity
        scale = float_of_half(half_of_float(most / np.float32(127))) + unknown
        scales[to] = scale
        inverse = np.float32(0)
        if scale > 0:
            inverse = np.float32(127) / most
        total = np.int32(0)
        for j in range(WORDS):
            word = np.int64(0)
            for k in range(4):
                value = x[at + (4 * j + k) * s[0]] * inverse
                if math.isnan(value):
                    value = np.float32(0)
                number = rounded(value)
                total += number
                word |= np.int64(number & 255) << 8 * k
            words[to * WORDS + j] = word
        sums[to] = total


@cuda.jit(device=True)
def _key(value: Any, k: Any) -> Any:
    """Larger for larger sizes, then for smaller ``k``; a NaN has the largest size.  The last bit is
    the sign."""
    bits = np.int64(bits_of_float(value))
    return ((bits & 0x7FFFFFFF) << 9) | ((SUPER - 1 - k) << 1) | (bits >> 31)


@cuda.jit(device=True)
def _larger(a: Any, b: Any) -> Any:
    return a if a > b else b


@cuda.jit(device=True)
def _factor(key: Any) -> Any:
    """What the elements of a block with that largest one are multiplied with."""
    bits = key >> 9
    if bits <= TOO_SMALL or bits >= INFINITE:
        return np.float32(0)
    return np.float32(-127) / float_of_bits(np.uint32(bits | ((key & 1) << 31)))


@cuda.jit(device=True)
def _scale(key: Any, factor: Any) -> Any:
    if key >> 9 >= INFINITE:
        return np.float32(np.nan)
    if factor == 0:
        return np.float32(0)
    return np.float32(1) / factor


@cuda.jit(device=True)
def _integer(value: Any, factor: Any) -> Any:
    if factor == 0:
        return np.int32(0)
    number = rounded(value * factor)
    return np.int32(127) if number > 127 else number


@cuda.jit
def _quantise_super(
    x: Any, s: Any, ne: Any, blocks: Any, words: Any, scales: Any, sums: Any
) -> None:
    """A warp per block of 256; a lane takes sixteen elements at a time."""
    scratch = cuda.shared.array(THREADS, int64)
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    b = warp_row(cuda.blockIdx.y, cuda.threadIdx.x, LANES, WARPS)
    lane = cuda.threadIdx.x % LANES
    at = row_start(i1, i2, i3, s[1], s[2], s[3]) + b * SUPER * s[0]
    to = cuda.blockIdx.x * blocks + b
    key = np.int64(0)
    if b < blocks:
        for k in range(lane, SUPER, LANES):
            key = _larger(key, _key(x[at + k * s[0]], k))
    key = lane_max(key, scratch, cuda.threadIdx.x)
    factor = _factor(key)
    if b < blocks:
        if lane == 0:
            scales[to] = _scale(key, factor)
        for j in range(lane, SUPER_SUMS, LANES):
            total = np.int32(0)
            for i in range(4):
                word = np.int64(0)
                for k in range(4):
                    number = _integer(x[at + (16 * j + 4 * i + k) * s[0]], factor)
                    total += number
                    word |= np.int64(number & 255) << 8 * k
                words[to * SUPER_WORDS + 4 * j + i] = word
            sums[to * SUPER_SUMS + j] = total


@cuda.jit
def _halve(x: Any, s: Any, ne: Any, pairs: Any, brain: Any, words: Any) -> None:
    """Two halves a word; ``brain``: whether they are bfloat16."""
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    for k in range(cuda.threadIdx.x, pairs, cuda.blockDim.x):
        low, high = x[at + 2 * k * s[0]], x[at + (2 * k + 1) * s[0]]
        if brain:
            word = word_of(brain_of_float(low), brain_of_float(high))
        else:
            word = word_of(half_of_float(low), half_of_float(high))
        words[cuda.blockIdx.x * pairs + k] = word


def prepared(x: Operand, kind: str, launch: Launch) -> tuple[Any, Any, Any]:
    """For weights of a type of ``PACKINGS``: words (uint32 ``[rows, blocks, words of a block]``),
    scales (float32, one for each block) and sums (int32)."""
    packing: Packing = PACKINGS[kind]
    blocks, rows = x.ne[0] // packing.weights, x.ne[1] * x.ne[2] * x.ne[3]
    words = launch.scratch("words", rows * blocks * packing.words, np.uint32)
    scales = launch.scratch("scales", rows * blocks, np.float32)
    sums = launch.scratch("sums", rows * blocks * packing.sums, np.int32)
    given = (x.flat, x.steps, x.ne)
    if packing.halves:
        launch.rows(_halve, x.ne, *given, x.ne[0] // 2, int(kind == "bf16"), words)
    elif packing.weights == BLOCK:
        launch.rows(_quantise, x.ne, *given, blocks, words, scales, sums)
    elif rows and blocks:
        grid = rows, -(-blocks // WARPS)
        _quantise_super[grid, THREADS, launch.stream](*given, blocks, words, scales, sums)
    return words, scales, sums
