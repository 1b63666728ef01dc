"""One element of a table of any type, as float32.

Block formats as in ggml: ``q8_0`` is a float16 scale and 32 int8; ``q4_0`` a float16 scale and 16
bytes, element j in the low half of byte j less 8, element 16 + j in the high half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from .target import float_of_bits, float_of_half

F32, F16, BF16, Q8_0, Q4_0 = range(5)
KINDS = {"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0, "q4_0": Q4_0}
BLOCK = 32


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
        return float_of_bits(np.uint32(np.uint32(halves[(at + k * step) // 2]) << np.uint32(16)))
    place = k % BLOCK
    first = at + k // BLOCK * step
    scale = float_of_half(halves[first // 2])
    if kind == Q8_0:
        # The sign by hand: a conversion of 255 to int8 means something else in the simulator.
        return scale * np.float32((np.int32(table[first + 2 + place]) ^ 128) - 128)
    both = np.int32(table[first + 2 + place % 16])
    return scale * np.float32(((both >> (place // 16 * 4)) & 15) - 8)
