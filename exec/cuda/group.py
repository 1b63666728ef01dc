"""Pairs of token and expert in the order of their experts: a counting sort on the device.

An expert is a group of its pairs; those without an expert (a negative id, or one past the last) are
a group after the last.  Each group starts a tile of columns: its pairs (place in the token, and
token) in their order, then -1 up to the next tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

from ..operand import Operand
from .launch import Launch
from .target import THREADS, block_scan, block_sum, ranked, row_place, row_start
from .tiles import COLUMNS


@cuda.jit(device=True)
def _group_of(ids: Any, i: Any, place: Any, token: Any, groups: Any) -> Any:
    number = np.int64(ids[row_start(place, token, 0, i[0], i[1], 0)])
    if number < 0 or number >= groups - 1:
        return groups - 1
    return number


@cuda.jit(device=True)
def _tiles_of(count: Any) -> Any:
    """Columns of the whole tiles that so many pairs need."""
    return np.float64((count + (COLUMNS - 1)) // COLUMNS * COLUMNS)


@cuda.jit
def _clear(order: Any) -> None:
    """A block per tile."""
    for c in range(cuda.threadIdx.x, 2 * COLUMNS, cuda.blockDim.x):
        order[cuda.blockIdx.x * 2 * COLUMNS + c] = -1


@cuda.jit
def _count(ids: Any, i: Any, i_ne: Any, groups: Any, counts: Any) -> None:
    """A block per group."""
    scratch = cuda.shared.array(THREADS, float64)
    total = np.float64(0)
    for pair in range(cuda.threadIdx.x, i_ne[0] * i_ne[1], cuda.blockDim.x):
        place, token, _ = row_place(pair, i_ne[0], i_ne[1])
        if _group_of(ids, i, place, token, groups) == cuda.blockIdx.x:
            total += 1
    total = block_sum(total, scratch, cuda.threadIdx.x)
    if cuda.threadIdx.x == 0:
        counts[cuda.blockIdx.x] = total


@cuda.jit
def _order(ids: Any, i: Any, i_ne: Any, groups: Any, counts: Any, order: Any, size: Any) -> None:
    """A block per group; ``size`` pairs of numbers in ``order``."""
    scratch = cuda.shared.array(THREADS, float64)
    first = np.float64(0)
    for group in range(cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockDim.x):
        first += _tiles_of(counts[group])
    first = block_sum(first, scratch, cuda.threadIdx.x)
    pairs = i_ne[0] * i_ne[1]
    for base in range(0, pairs, THREADS):
        pair, mine = base + cuda.threadIdx.x, False
        if pair < pairs:
            place, token, _ = row_place(pair, i_ne[0], i_ne[1])
            mine = _group_of(ids, i, place, token, groups) == cuda.blockIdx.x
        before, total = block_scan(np.float64(mine), scratch, cuda.threadIdx.x)
        if mine:
            rank = ranked(first + before, pair, size)
            order[2 * rank], order[2 * rank + 1] = place, token
        first += total


def ordered(ids: Operand, experts: int, launch: Launch) -> tuple[Any, int]:
    """The order (int32) and how many tiles it has at most; every id is of a pair."""
    groups, pairs = experts + 1, ids.ne[0] * ids.ne[1]
    tiles = pairs // COLUMNS + groups
    order = launch.scratch("order", 2 * tiles * COLUMNS, np.int32)
    counts = launch.scratch("counts", groups, np.int32)
    chosen = (ids.flat, ids.steps, ids.ne)
    _clear[tiles, THREADS, launch.stream](order)
    _count[groups, THREADS, launch.stream](*chosen, groups, counts)
    _order[groups, THREADS, launch.stream](*chosen, groups, counts, order, tiles * COLUMNS)
    return order, tiles
