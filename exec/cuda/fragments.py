"""``mma.sync`` for Numba's simulator: each lane gives its fragments and gets its results.

Who has what, by the PTX ISA ("Matrix Fragments for mma.m16n8k32", "… k16"), of a lane of 32 with
``g = lane // 4`` and ``t = lane % 4``.  A register of four bytes holds the elements ``4 t`` to
``4 t + 3`` of a sixteen, one of two halves ``2 t`` and ``2 t + 1`` of an eight:

=====  =======================================
a0     row g, the first sixteen (eight)
a1     row g + 8, the same
a2     row g, the second sixteen (eight)
a3     row g + 8, the same
b0     column g, the first sixteen (eight)
b1     column g, the second
c0 c1  row g, columns 2 t and 2 t + 1
c2 c3  row g + 8, the same
=====  =======================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import mul
from typing import Any

import numpy as np

from .simulated import barrier, float_of_brain, float_of_half

WARP = 32
#: Fragments by turn and thread.  Blocks run one after the other; threads of a block alternate
#: between two turns, so that no lane overwrites what another has still to read.
_GIVEN: dict[tuple[int, int], tuple[list[Any], ...]] = {}
_MINE = threading.local()

Elements = Callable[[int], list[Any]]


def _bytes(word: int) -> list[Any]:
    return [((word >> shift & 255) ^ 128) - 128 for shift in (0, 8, 16, 24)]


def _halves(word: int) -> list[Any]:
    return [float(float_of_half(half)) for half in (word & 0xFFFF, word >> 16)]


def _brains(word: int) -> list[Any]:
    return [float(float_of_brain(half)) for half in (word & 0xFFFF, word >> 16)]


def _exchanged(thread: int, mine: tuple[list[Any], ...]) -> list[tuple[list[Any], ...]]:
    """The fragments of all lanes of the warp."""
    turn = _MINE.turn = 1 - getattr(_MINE, "turn", 0)
    _GIVEN[turn, thread] = mine
    barrier()
    first = thread // WARP * WARP
    return [_GIVEN[turn, first + lane] for lane in range(WARP)]


def _products(thread: int, words: tuple[Any, ...], elements: Elements) -> list[Any]:
    """The four sums of products that belong to a lane; the last third of ``words`` is of b."""
    given = _exchanged(thread, tuple(elements(int(word)) for word in words))
    lane = thread % WARP
    place, of_four, registers = lane // 4, lane % 4, len(words) // 3

    def along(group: int, numbers: range) -> list[Any]:
        return [x for n in numbers for t in range(4) for x in given[4 * group + t][n]]

    rows = [along(place, range(first, 2 * registers, 2)) for first in (0, 1)]
    columns = [along(2 * of_four + k, range(2 * registers, 3 * registers)) for k in (0, 1)]
    return [sum(map(mul, row, column)) for row in rows for column in columns]


def mma_bytes(thread: Any, *words: Any) -> Any:
    """``[16, 32]`` times ``[32, 8]`` int8."""
    return tuple(np.int32(total) for total in _products(thread, words, _bytes))


#: ``[16, 16]`` times ``[16, 8]`` int8: half of the registers.
mma_few_bytes = mma_bytes


def mma_halves(thread: Any, *given: Any) -> Any:
    """``[16, 16]`` times ``[16, 8]`` float16, added to the last four."""
    return _added(thread, given, _halves)


def mma_brains(thread: Any, *given: Any) -> Any:
    """``[16, 16]`` times ``[16, 8]`` bfloat16, added to the last four."""
    return _added(thread, given, _brains)


def _added(thread: int, given: tuple[Any, ...], elements: Elements) -> Any:
    totals = _products(thread, given[:6], elements)
    return tuple(np.float32(c + total) for c, total in zip(given[6:], totals, strict=True))
