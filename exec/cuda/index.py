"""Where each thread reads and writes: the index arithmetic of all kernels, once.

Kernels call these functions compiled; the bounds proof calls them on symbols.  Sizes and indices
are 64-bit integers; ``//`` and ``%`` are only ever taken of what is not negative.
"""

from __future__ import annotations

from typing import Any


def row_place(row: Any, ne1: Any, ne2: Any) -> Any:
    """Row number ``row`` of a tensor: its place in dimensions 1, 2 and 3."""
    plane = row // ne1
    return row % ne1, plane % ne2, plane // ne2


def row_start(i1: Any, i2: Any, i3: Any, step1: Any, step2: Any, step3: Any) -> Any:
    """Where a row starts, in units of the steps."""
    return i1 * step1 + i2 * step2 + i3 * step3


def element_place(number: Any, ne0: Any, ne1: Any, ne2: Any) -> Any:
    """Element ``number`` in logical order: its place in dimensions 0 to 3."""
    row = number // ne0
    plane = row // ne1
    return number % ne0, row % ne1, plane % ne2, plane // ne2


def group_place(place: Any, count: Any, groups: Any) -> Any:
    """The group of ``groups`` that member ``place`` of ``count`` is in (grouped heads)."""
    return place // (count // groups)


def warp_row(block: Any, thread: Any, lanes: Any, warps: Any) -> Any:
    """The row that a warp computes: a block has ``warps`` of them."""
    return block * warps + thread // lanes


def pair_inside(i1: Any, ne1: Any, i2: Any, ne2: Any) -> bool:
    """Whether two places are inside their dimensions."""
    return bool(i1 >= 0 and i1 < ne1 and i2 >= 0 and i2 < ne2)


def tile_place(thread: Any, eighth: Any, k: Any) -> Any:
    """Row and column in a tile of result ``k`` of four that a thread has of eight columns: each
    warp of 32 has sixteen rows (``fragments.py``)."""
    lane = thread % 32
    return thread // 32 * 16 + lane // 4 + k // 2 * 8, eighth * 8 + lane % 4 * 2 + k % 2
