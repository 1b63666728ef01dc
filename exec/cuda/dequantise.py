"""One element of a table of any type, as float32.  Block formats: see ``packing.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from .target import float_of_brain, float_of_half

F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K = range(7)
KINDS = {
    "f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0, "q4_0": Q4_0, "q4_k": Q4_K, "q6_k": Q6_K,
}  # fmt: skip
BLOCK, SUPER = 32, 256


@cuda.jit(device=True)
def element_of(table: Any, halves: Any, floats: Any, at: Any, step: Any, k: Any, kind: Any) -> Any:
    """Element ``k`` of the row at byte ``at``; ``step``: bytes from one block to the next.

    ``table``, ``halves``, ``floats``: the same bytes as uint8, uint16 and float32.
    """
    if kind == F32:
        return np.float32(floats[(at + k * step) // 4])
    if kind == F16:
        return float_of_half(halves[(at + k * step) // 2])
    if kind == BF16:
        return float_of_brain(halves[(at + k * step) // 2])
    if kind == Q4_K:
        return _of_q4_k(table, halves, at + k // SUPER * step, k % SUPER)
    if kind == Q6_K:
        return _of_q6_k(table, halves, at + k // SUPER * step, k % SUPER)
    place = k % BLOCK
    first = at + k // BLOCK * step
    scale = float_of_half(halves[first // 2])
    if kind == Q8_0:
        return scale * np.float32(_signed(table[first + 2 + place]))
    both = np.int32(table[first + 2 + place % 16])
    return scale * np.float32(((both >> (place // 16 * 4)) & 15) - 8)


@cuda.jit(device=True)
def _signed(byte: Any) -> Any:
    # The sign by hand: a conversion of 255 to int8 means something else in the simulator.
    return (np.int32(byte) ^ 128) - 128


@cuda.jit(device=True)
def _of_q4_k(table: Any, halves: Any, first: Any, place: Any) -> Any:
    """The scale and the minimum of a group of 32 have six bits: those of the first four groups a
    byte each; the others four bits in a byte that they share, two in the bytes of the first."""
    group = place // 32
    low = np.int32(table[first + 4 + group % 4])
    mid = np.int32(table[first + 8 + group % 4])
    high = np.int32(table[first + 12 + group % 4])
    if group < 4:
        scale, least = low & 63, mid & 63
    else:
        scale, least = (high & 15) | ((low >> 6) << 4), (high >> 4) | ((mid >> 6) << 4)
    both = np.int32(table[first + 16 + place // 64 * 32 + place % 32])
    step = float_of_half(halves[first // 2]) * np.float32(scale)
    lower = float_of_half(halves[first // 2 + 1]) * np.float32(least)
    return step * np.float32((both >> (group % 2 * 4)) & 15) - lower


@cuda.jit(device=True)
def _of_q6_k(table: Any, halves: Any, first: Any, place: Any) -> Any:
    half, q, k = place // 128, place % 128 // 32, place % 32
    nibbles = np.int32(table[first + half * 64 + q % 2 * 32 + k])
    bits = np.int32(table[first + 128 + half * 32 + k])
    number = ((nibbles >> (q // 2 * 4)) & 15) | (((bits >> (2 * q)) & 3) << 4)
    scale = _signed(table[first + 192 + place // 16])
    return float_of_half(halves[first // 2 + 104]) * np.float32(scale) * np.float32(number - 32)
