"""What stands in for the instructions of ``ptx.py`` in Numba's simulator: the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cuda.simulator.kernel import _get_kernel_context

#: Threads of a warp, where they only share a row of a product.
LANES = 2


def float_of_half(bits: Any) -> Any:
    """The float32 of a float16, given as its 16 bits."""
    return np.float32(np.uint16(bits).view(np.float16))


def half_of_float(value: Any) -> Any:
    """The 16 bits of a float32 rounded to float16, ties to even."""
    with np.errstate(over="ignore"):
        return np.float32(value).astype(np.float16).view(np.uint16)


def bits_of_float(value: Any) -> Any:
    """The 32 bits of a float32."""
    return np.float32(value).view(np.uint32)


def float_of_bits(bits: Any) -> Any:
    """The float32 of 32 bits."""
    return np.uint32(bits).view(np.float32)


def float_of_brain(bits: Any) -> Any:
    """The float32 of a bfloat16, given as its 16 bits."""
    return float_of_bits(int(bits) << 16)


def brain_of_float(value: Any) -> Any:
    """The 16 bits of a float32 rounded to bfloat16, ties to even."""
    if np.isnan(value):
        return np.uint16(0x7FFF)
    bits = int(bits_of_float(value))
    return np.uint16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def dot4(a: Any, b: Any, total: Any) -> Any:
    """``total`` plus the four products of the signed bytes of two words."""
    for shift in (0, 8, 16, 24):
        left, right = (((int(word) >> shift & 255) ^ 128) - 128 for word in (a, b))
        total += left * right
    return total


def rounded(value: Any) -> Any:
    """The nearest int32, halves to even."""
    return np.int32(np.rint(value))


def word_of(low: Any, high: Any) -> Any:
    """A word of two half-words."""
    return int(low) | int(high) << 16


def quad(array: Any, at: Any) -> Any:
    """Four words of an array of uint32."""
    assert at % 4 == 0, f"a load of 16 bytes from word {at}"
    return int(array[at]), int(array[at + 1]), int(array[at + 2]), int(array[at + 3])


def barrier() -> None:
    """Wait for all threads of the block."""
    _get_kernel_context().syncthreads()


def lane_sum(value: Any, scratch: Any, thread: Any) -> Any:
    """The sum over the lanes of a warp, in each of them.  ``scratch``: one per thread."""
    scratch[thread] = value
    barrier()
    first = thread // LANES * LANES
    total = scratch[first]
    for lane in range(1, LANES):
        total += scratch[first + lane]
    barrier()
    return total


def lane_max(value: Any, scratch: Any, thread: Any) -> Any:
    """The greatest int64 of the lanes of a warp, in each of them.  ``scratch``: one per thread."""
    scratch[thread] = value
    barrier()
    first = thread // LANES * LANES
    most = max(scratch[first + lane] for lane in range(LANES))
    barrier()
    return most
