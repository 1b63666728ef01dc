"""What differs between a GPU and Numba's simulator, in one place.

The simulator runs each thread as a thread of Python and knows neither shuffles nor inline PTX; it
raises on an access out of bounds.  Its integers follow NumPy's rules: kernels widen every load.
It puts its own module in the place of ``cuda`` among the globals of the running kernel's file, so a
helper that kernels of other files call must not name ``cuda``: it takes the thread's number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import config, cuda

from . import index

SIMULATED = bool(config.ENABLE_CUDASIM)
#: Threads that share one row of a product, and their number in a block.
LANES = 2 if SIMULATED else 32
THREADS = 4 if SIMULATED else 256
WARPS = THREADS // LANES

row_place = cuda.jit(device=True)(index.row_place)
row_start = cuda.jit(device=True)(index.row_start)
element_place = cuda.jit(device=True)(index.element_place)
group_place = cuda.jit(device=True)(index.group_place)
warp_row = cuda.jit(device=True)(index.warp_row)

if SIMULATED:
    from numba.cuda.simulator.kernel import _get_kernel_context

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

else:
    from .ptx import barrier as barrier
    from .ptx import bits_of_float as bits_of_float
    from .ptx import dot4 as dot4
    from .ptx import float_of_bits as float_of_bits
    from .ptx import float_of_half as float_of_half
    from .ptx import half_of_float as half_of_float
    from .ptx import lane_sum as lane_sum
    from .ptx import rounded as rounded
    from .ptx import word_of as word_of


@cuda.jit(device=True)
def block_sum(value: Any, scratch: Any, thread: Any) -> Any:
    """The sum over the ``THREADS`` of a block, in each of them.  ``scratch``: one per thread."""
    scratch[thread] = value
    barrier()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            scratch[thread] += scratch[thread + step]
        barrier()
        step //= 2
    total = scratch[0]
    barrier()
    return total


@cuda.jit(device=True)
def block_max(value: Any, scratch: Any, thread: Any) -> Any:
    """The greatest value of the threads of a block; a NaN is greater than all."""
    scratch[thread] = value
    barrier()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            mine, other = scratch[thread], scratch[thread + step]
            if other > mine or math.isnan(other):
                scratch[thread] = other
        barrier()
        step //= 2
    most = scratch[0]
    barrier()
    return most
