"""Ops along rows: norm, soft-max, and moving rows by number.  For one thread, without the GIL.

Every helper that a kernel here inlines stands in this file (the cache of compiled code knows
only the file of the kernel).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from ...model.graph import Node
from ..functions import OutOfRange, UnsupportedOp
from ..operand import Operand

BLOCK = 32


@njit(cache=True, nogil=True)
def _widen(bits: Any) -> Any:
    """The float32 of a float16, given as its 16 bits, in plain arithmetic; exact."""
    magnitude = np.uint32((np.uint32(bits) & np.uint32(0x7FFF)) << np.uint32(13))
    value = np.float32(magnitude.view(np.float32) * np.float32(2.0**112))
    if np.uint32(bits) & np.uint32(0x7C00) == np.uint32(0x7C00):  # an infinity or a NaN
        value = np.uint32(magnitude | np.uint32(0x7F800000)).view(np.float32)
    return -value if np.uint32(bits) & np.uint32(0x8000) else value


@njit(cache=True, nogil=True)
def _narrow(value: Any) -> Any:
    """The 16 bits of a float32 rounded to the nearest float16, ties to even."""
    bits = np.float32(value).view(np.uint32)
    sign = np.uint32((bits >> np.uint32(16)) & np.uint32(0x8000))
    bits = np.uint32(bits & np.uint32(0x7FFFFFFF))
    if bits > np.uint32(0x7F800000):
        half = np.uint32(0x7E00)  # a NaN
    elif bits >= np.uint32(0x477FF000):
        half = np.uint32(0x7C00)  # too large: infinity
    elif bits < np.uint32(0x38800000):
        # Below 2⁻¹⁴ float16 has steps of 2⁻²⁴: those of float32 between 1/2 and 1.
        shifted = np.float32(bits.view(np.float32) + np.float32(0.5))
        half = np.uint32(shifted.view(np.uint32) - np.uint32(0x3F000000))
    else:
        odd = (bits >> np.uint32(13)) & np.uint32(1)
        half = np.uint32((bits - np.uint32(0x38000000) + np.uint32(0xFFF) + odd) >> np.uint32(13))
    return np.uint16(sign | half)


@njit(cache=True, nogil=True)
def _rms_norm(x: Any, s: Any, ne: Any, eps: Any, dst: Any, d: Any) -> None:
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                squares = 0.0
                for k in range(ne[0]):
                    value = np.float64(x[at + k * s[0]])
                    squares += value * value
                factor = 1.0 / np.sqrt(squares / ne[0] + eps)
                for k in range(ne[0]):
                    dst[out + k * d[0]] = np.float32(x[at + k * s[0]] * factor)


@njit(cache=True, nogil=True)
def _soft_max(
    x: Any,
    s: Any,
    ne: Any,
    scale: Any,
    mask: Any,
    m_steps: Any,
    m_ne: Any,
    sinks: Any,
    dst: Any,
    d: Any,
) -> None:
    row = np.empty(ne[0], np.float64)
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                most = -np.inf
                if len(sinks):
                    most = np.float64(sinks[i2])
                for k in range(ne[0]):
                    row[k] = x[at + k * s[0]] * scale
                    if len(mask):
                        m = i3 % m_ne[3] * m_steps[3] + i2 % m_ne[2] * m_steps[2]
                        row[k] += mask[m + i1 * m_steps[1] + k % m_ne[0] * m_steps[0]]
                    most = max(most, row[k])
                total = 0.0
                if len(sinks):
                    total = np.exp(sinks[i2] - most)
                for k in range(ne[0]):
                    if row[k] == -np.inf and most > -np.inf:  # masked: most cells of a cache are
                        row[k] = 0.0
                    else:
                        row[k] = np.exp(row[k] - most)
                    total += row[k]
                for k in range(ne[0]):
                    dst[out + k * d[0]] = np.float32(row[k] / total)


@njit(cache=True, nogil=True)
def _get_row(
    table: Any, at: Any, step: Any, kind: Any, dst: Any, out: Any, d0: Any, count: Any
) -> None:
    """Row at byte ``at``; ``kind``: 4 for f32, 2 for f16, 18 for q4_0, 34 for q8_0; ``step``: bytes
    from one block to the next."""
    if kind == 4:
        for k in range(count):
            first = at + k * step
            dst[out + k * d0] = table[first : first + 4].view(np.float32)[0]
    elif kind == 2:
        for k in range(count):
            first = at + k * step
            dst[out + k * d0] = _widen(table[first : first + 2].view(np.uint16)[0])
    elif kind == 18:
        for b in range(count // BLOCK):
            first = at + b * step
            scale = _widen(table[first : first + 2].view(np.uint16)[0])
            for k in range(BLOCK // 2):
                both, to = np.int32(table[first + 2 + k]), out + (b * BLOCK + k) * d0
                dst[to] = scale * np.float32((both & 15) - 8)
                dst[to + BLOCK // 2 * d0] = scale * np.float32((both >> 4) - 8)
    else:
        for b in range(count // BLOCK):
            first = at + b * step
            scale = _widen(table[first : first + 2].view(np.uint16)[0])
            for k in range(BLOCK):
                value = np.float32(np.int8(table[first + 2 + k]))
                dst[out + (b * BLOCK + k) * d0] = scale * value


@njit(cache=True, nogil=True)
def _get_rows(
    table: Any, nb: Any, t_ne: Any, kind: Any, ids: Any, i: Any, dst: Any, d: Any, ne: Any
) -> None:
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                row = ids[i3 * i[2] + i2 * i[1] + i1 * i[0]]
                at = i3 % t_ne[3] * nb[3] + i2 % t_ne[2] * nb[2] + row * nb[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                _get_row(table, at, nb[0], kind, dst, out, d[0], ne[0])


@njit(cache=True, nogil=True)
def _get_numbers(
    table: Any, s: Any, t_ne: Any, ids: Any, i: Any, dst: Any, d: Any, ne: Any
) -> None:
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                row = ids[i3 * i[2] + i2 * i[1] + i1 * i[0]]
                at = i3 % t_ne[3] * s[3] + i2 % t_ne[2] * s[2] + row * s[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                for k in range(ne[0]):
                    dst[out + k * d[0]] = table[at + k * s[0]]


@njit(cache=True, nogil=True)
def _set_rows(
    rows: Any, s: Any, ne: Any, ids: Any, i: Any, i_ne: Any, dst: Any, d: Any, half: Any
) -> None:
    """``dst`` in elements: float32 bits, or (``half``) float16 bits, in unsigned integers."""
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                row = ids[i3 % i_ne[2] * i[2] + i2 % i_ne[1] * i[1] + i1 * i[0]]
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                out = i3 * d[3] + i2 * d[2] + row * d[1]
                for k in range(ne[0]):
                    if half:
                        dst[out + k * d[0]] = _narrow(rows[at + k * s[0]])
                    else:
                        dst[out + k * d[0]] = np.float32(rows[at + k * s[0]]).view(np.uint32)


@njit(cache=True, nogil=True)
def _sum_rows(x: Any, s: Any, ne: Any, dst: Any, d: Any) -> None:
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                total = 0.0
                for k in range(ne[0]):
                    total += x[at + k * s[0]]
                dst[i3 * d[3] + i2 * d[2] + i1 * d[1]] = np.float32(total)


@njit(cache=True, nogil=True)
def _argsort(x: Any, s: Any, ne: Any, sign: Any, dst: Any, d: Any) -> None:
    keys = np.empty(ne[0], np.float32)
    order = np.empty(ne[0], np.int32)
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                # By insertion: rows are as long as there are experts, and equal values keep
                # their order.
                for k in range(ne[0]):
                    key, place = sign * x[at + k * s[0]], k
                    while place > 0 and keys[place - 1] > key:
                        keys[place], order[place] = keys[place - 1], order[place - 1]
                        place -= 1
                    keys[place], order[place] = key, k
                for k in range(ne[0]):
                    dst[out + k * d[0]] = order[k]


_NOTHING = np.empty(0, np.float32)


def rms_norm(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``x / sqrt(mean(x²) + eps)`` along dimension 0, f32; the squares are summed in float64."""
    x = sources[0]
    if not dst.empty:
        eps = float(node.param("eps", 0.0))
        _rms_norm(x.flat, x.steps, x.ne, eps, dst.flat, dst.steps)


def soft_max(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``softmax(x · scale + mask)`` along dimension 0, f32.

    Source 1, if given: the mask (f32 or f16), repeated over planes; source 2: a sink per plane.
    ``UnsupportedOp`` for a ``max_bias``.
    """
    if node.param("max_bias", 0.0):
        raise UnsupportedOp(f"soft_max {node.dst}: max_bias (ALiBi) has no kernel")
    if dst.empty:
        return
    x, mask, mask_ne, mask_steps, sinks = sources[0], _NOTHING, (1,) * 4, (0,) * 4, _NOTHING
    if len(sources) > 1:
        values = np.ascontiguousarray(sources[1].array, np.float32)
        a, b, c, e = (stride // 4 for stride in values.strides)
        mask, mask_ne, mask_steps = values.reshape(-1), sources[1].ne, (e, c, b, a)
    if len(sources) > 2:
        sinks = np.ascontiguousarray(sources[2].array, np.float32).reshape(-1)
    scale = float(node.param("scale", 1.0))
    _soft_max(x.flat, x.steps, x.ne, scale, mask, mask_steps, mask_ne, sinks, dst.flat, dst.steps)


def sum_rows(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """The sum of each row, f32; taken in float64."""
    x = sources[0]
    if not dst.empty:
        _sum_rows(x.flat, x.steps, x.ne, dst.flat, dst.steps)


def argsort(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """Numbers (i32) that sort each row of f32, ascending, or descending by ``order``."""
    order = node.param("order", "asc")
    if order not in ("asc", "desc", 0, 1):
        raise UnsupportedOp(f"argsort {node.dst}: order is 'asc' or 'desc', not {order!r}")
    x = sources[0]
    if not dst.empty:
        sign = np.float32(-1 if order in ("desc", 1) else 1)
        _argsort(x.flat, x.steps, x.ne, sign, dst.flat, dst.steps)


def get_rows(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[:, i, j, k] = table[:, ids[i, j, k], j, k]``; table f32, f16, q8_0, q4_0, and dst f32,
    or both i32 (the slot map of a bank).

    ``OutOfRange`` if a row number is negative or past the table.
    """
    table, ids = sources
    _require_range(ids, table.ne[1], node)
    if dst.empty:
        return
    if table.dtype == "i32":
        _get_numbers(
            table.flat, table.steps, table.ne, ids.flat, ids.steps, dst.flat, dst.steps, dst.ne
        )
    else:
        kind = table.layout.dtype.block_bytes
        _get_rows(
            table.data, table.layout.nb, table.ne, kind, ids.flat, ids.steps,
            dst.flat, dst.steps, dst.ne,
        )  # fmt: skip


def set_rows(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[:, ids[i, j, k], j, k] = rows[:, i, j, k]``; dst f32 or f16, rows f32; the rest stays.

    ``OutOfRange`` if a row number is negative or past the destination.
    """
    rows, ids = sources[:2]
    _require_range(ids, dst.ne[1], node)
    if not rows.empty:
        half = dst.dtype == "f16"
        elements = dst.data.view(np.uint16 if half else np.uint32)
        _set_rows(
            rows.flat, rows.steps, rows.ne, ids.flat, ids.steps, ids.ne, elements, dst.steps, half
        )


def _require_range(ids: Operand, count: int, node: Node) -> None:
    if ids.empty:
        return
    low, high = int(ids.array.min()), int(ids.array.max())
    if low < 0 or high >= count:
        wrong = low if low < 0 else high
        raise OutOfRange(
            f"{node.op} {node.dst}: {ids.layout.name} holds {wrong}; 0 to {count - 1} was due"
        )
