"""Activations as q8_0: 32 integers in words of four, a scale and a sum for each block.

As in ggml's ``quantize_row_q8_0``: the scale is ``max |x| / 127`` rounded to float16, the integers
are rounded half to even with the unrounded scale.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from ..operand import Operand
from .launch import Launch
from .target import float_of_half, half_of_float, rounded, row_place, row_start

BLOCK = 32
WORDS = 8


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
        scales[to] = float_of_half(half_of_float(most / np.float32(127))) + unknown
        inverse = np.float32(0)
        if most > 0 and not math.isnan(unknown):
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


def quantised(x: Operand, launch: Launch) -> tuple[Any, Any, Any]:
    """Words (uint32 ``[rows, blocks, 8]``), scales (float32) and sums (int32) of each block."""
    blocks = x.ne[0] // BLOCK
    count = blocks * x.ne[1] * x.ne[2] * x.ne[3]
    words = launch.scratch("words", count * WORDS, np.uint32)
    scales = launch.scratch("scales", count, np.float32)
    sums = launch.scratch("sums", count, np.int32)
    launch.rows(_quantise, x.ne, x.flat, x.steps, x.ne, blocks, words, scales, sums)
    return words, scales, sums
