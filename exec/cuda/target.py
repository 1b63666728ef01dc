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

row_place = cuda.jit(device=True)(index.row_place)
row_start = cuda.jit(device=True)(index.row_start)
element_place = cuda.jit(device=True)(index.element_place)
group_place = cuda.jit(device=True)(index.group_place)
warp_row = cuda.jit(device=True)(index.warp_row)
pair_inside = cuda.jit(device=True)(index.pair_inside)
tile_place = cuda.jit(device=True)(index.tile_place)

if SIMULATED:
    from .fragments import mma_brains as mma_brains
    from .fragments import mma_bytes as mma_bytes
    from .fragments import mma_few_bytes as mma_few_bytes
    from .fragments import mma_halves as mma_halves
    from .simulated import LANES as LANES
    from .simulated import barrier as barrier
    from .simulated import bits_of_float as bits_of_float
    from .simulated import brain_of_float as brain_of_float
    from .simulated import dot4 as dot4
    from .simulated import float_of_bits as float_of_bits
    from .simulated import float_of_brain as float_of_brain
    from .simulated import float_of_half as float_of_half
    from .simulated import half_of_float as half_of_float
    from .simulated import lane_max as lane_max
    from .simulated import lane_sum as lane_sum
    from .simulated import quad as quad
    from .simulated import rounded as rounded
    from .simulated import word_of as word_of
else:
    from .ptx import LANES as LANES
    from .ptx import barrier as barrier
    from .ptx import bits_of_float as bits_of_float
    from .ptx import brain_of_float as brain_of_float
    from .ptx import dot4 as dot4
    from .ptx import float_of_bits as float_of_bits
    from .ptx import float_of_brain as float_of_brain
    from .ptx import float_of_half as float_of_half
    from .ptx import half_of_float as half_of_float
    from .ptx import lane_max as lane_max
    from .ptx import lane_sum as lane_sum
    from .ptx import mma_brains as mma_brains
    from .ptx import mma_bytes as mma_bytes
    from .ptx import mma_few_bytes as mma_few_bytes
    from .ptx import mma_halves as mma_halves
    from .ptx import quad as quad
    from .ptx import rounded as rounded
    from .ptx import word_of as word_of

#: Threads of a block, in warps of ``LANES`` threads that share one row of a product.
THREADS = 4 if SIMULATED else 256
WARPS = THREADS // LANES
#: Warps of a block that computes a tile of a product; they have 32 lanes in the simulator too.
TILE_WARPS = 2 if SIMULATED else 8


@cuda.jit(device=True)
def ranked(rank: Any, element: Any, count: Any) -> Any:
    """The rank as an index.  The caller promises, and the bounds proof takes it for granted, that
    it is a rank among ``count`` elements in a total order: different for each of them."""
    return np.int64(rank)


@cuda.jit(device=True)
def pair_at(order: Any, number: Any) -> Any:
    """Place and token of the pair there, or something negative.  The bounds proof takes it for
    granted that no pair is there twice."""
    return np.int64(order[2 * number]), np.int64(order[2 * number + 1])


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


@cuda.jit(device=True)
def block_scan(value: Any, scratch: Any, thread: Any) -> Any:
    """The sum over the threads of a block before this one, and over all of them."""
    scratch[thread] = value
    barrier()
    step = 1
    while step < THREADS:
        total = scratch[thread]
        if thread >= step:
            total += scratch[thread - step]
        barrier()
        scratch[thread] = total
        barrier()
        step *= 2
    before, whole = scratch[thread] - value, scratch[THREADS - 1]
    barrier()
    return before, whole
