"""Ops along rows: one block per row, f32 unless a kernel says more.  Sums are taken in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda, float64

from ...model.graph import Node
from ..functions import UnsupportedOp
from ..operand import Operand
from .dequantise import KINDS, element_of
from .launch import Launch, whole
from .target import (
    THREADS,
    block_max,
    block_sum,
    float_of_half,
    half_of_float,
    row_place,
    row_start,
)

#: kinds of a mask, and of the rows that ``set_rows`` writes
NO_MASK, HALF, FLOAT = range(3)


@cuda.jit
def _rms_norm(x: Any, s: Any, ne: Any, eps: Any, dst: Any, d: Any) -> None:
    scratch = cuda.shared.array(THREADS, float64)
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    squares = np.float64(0)
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = np.float64(x[at + k * s[0]])
        squares += value * value
    factor = 1.0 / math.sqrt(block_sum(squares, scratch, cuda.threadIdx.x) / ne[0] + eps)
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        dst[out + k * d[0]] = np.float32(x[at + k * s[0]] * factor)


@cuda.jit(device=True)
def _masked(x: Any, scale: Any, mask: Any, at: Any, kind: Any) -> Any:
    if kind == HALF:
        return x * scale + np.float64(float_of_half(mask[at]))
    return x * scale + np.float64(mask[at])


@cuda.jit
def _soft_max(
    x: Any, s: Any, ne: Any, scale: Any, mask: Any, m: Any, m_ne: Any, kind: Any,
    sinks: Any, sink_step: Any, dst: Any, d: Any,
) -> None:  # fmt: skip
    scratch = cuda.shared.array(THREADS, float64)
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    to = row_start(i1, i2 % m_ne[2], i3 % m_ne[3], m[1], m[2], m[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    most = np.float64(-math.inf)
    if sink_step:
        most = np.float64(sinks[i2 * sink_step])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = x[at + k * s[0]] * scale
        if kind != NO_MASK:
            value = _masked(x[at + k * s[0]], scale, mask, to + k % m_ne[0] * m[0], kind)
        if value > most or math.isnan(value):
            most = value
    most = block_max(most, scratch, cuda.threadIdx.x)
    total = np.float64(0)
    if sink_step and cuda.threadIdx.x == 0:
        total += math.exp(np.float64(sinks[i2 * sink_step]) - most)
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = x[at + k * s[0]] * scale
        if kind != NO_MASK:
            value = _masked(x[at + k * s[0]], scale, mask, to + k % m_ne[0] * m[0], kind)
        total += math.exp(value - most)
    total = block_sum(total, scratch, cuda.threadIdx.x)
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = x[at + k * s[0]] * scale
        if kind != NO_MASK:
            value = _masked(x[at + k * s[0]], scale, mask, to + k % m_ne[0] * m[0], kind)
        dst[out + k * d[0]] = np.float32(math.exp(value - most) / total)


@cuda.jit
def _sum_rows(x: Any, s: Any, ne: Any, dst: Any, d: Any) -> None:
    scratch = cuda.shared.array(THREADS, float64)
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    total = np.float64(0)
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        total += x[at + k * s[0]]
    total = block_sum(total, scratch, cuda.threadIdx.x)
    if cuda.threadIdx.x == 0:
        dst[row_start(i1, i2, i3, d[1], d[2], d[3])] = np.float32(total)


@cuda.jit(device=True)
def _precedes(a: Any, b: Any, a_place: Any, b_place: Any) -> Any:
    """A total order of the elements of a row: by value, NaNs last, equal ones by place."""
    if math.isnan(a) or math.isnan(b):
        if math.isnan(a) and math.isnan(b):
            return a_place < b_place
        return math.isnan(b)
    return a < b or (a == b and a_place < b_place)


@cuda.jit(device=True)
def _rank(x: Any, at: Any, step: Any, count: Any, sign: Any, k: Any) -> Any:
    """How many elements of a row come before element ``k``: different for each."""
    key, rank = sign * x[at + k * step], 0
    for j in range(count):
        if _precedes(sign * x[at + j * step], key, j, k):
            rank += 1
    return rank


@cuda.jit
def _argsort(x: Any, s: Any, ne: Any, sign: Any, count: Any, dst: Any, d: Any) -> None:
    """The first ``count`` numbers in the order of the elements' ranks."""
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        rank = _rank(x, at, s[0], ne[0], sign, k)
        if rank < count:
            dst[out + rank * d[0]] = k


@cuda.jit
def _get_rows(
    table: Any, halves: Any, floats: Any, nb: Any, t_ne: Any, kind: Any, ids: Any, i: Any,
    dst: Any, d: Any, ne: Any, fault: Any,
) -> None:  # fmt: skip
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    row = np.int64(ids[row_start(i1, i2, i3, i[0], i[1], i[2])])
    inside = row >= 0 and row < t_ne[1]
    if not inside:
        fault[0] = 1
        row = np.int64(0)
    at = row_start(row, i2 % t_ne[2], i3 % t_ne[3], nb[1], nb[2], nb[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = np.float32(math.nan)
        if inside:
            value = element_of(table, halves, floats, at, nb[0], k, kind)
        dst[out + k * d[0]] = value


@cuda.jit
def _set_rows(
    rows: Any, s: Any, ne: Any, ids: Any, i: Any, i_ne: Any, dst: Any, d: Any, d_ne1: Any,
    kind: Any, fault: Any,
) -> None:  # fmt: skip
    """A block per plane; each thread writes its columns row after row, so that later ones win."""
    i2, i3, _ = row_place(cuda.blockIdx.x, ne[2], ne[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        for i1 in range(ne[1]):
            row = np.int64(ids[row_start(i1, i2 % i_ne[1], i3 % i_ne[2], i[0], i[1], i[2])])
            if row < 0 or row >= d_ne1:
                fault[0] = 1
                continue
            value = rows[row_start(i1, i2, i3, s[1], s[2], s[3]) + k * s[0]]
            out = row_start(row, i2, i3, d[1], d[2], d[3]) + k * d[0]
            if kind == HALF:
                dst[out] = half_of_float(value)
            else:
                dst[out] = value


def rms_norm(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``x / sqrt(mean(x²) + eps)`` along dimension 0, f32."""
    x = sources[0]
    if not dst.empty:
        eps = float(node.param("eps", 0.0))
        launch.rows(_rms_norm, x.ne, x.flat, x.steps, x.ne, eps, dst.flat, dst.steps)


def soft_max(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``softmax(x · scale + mask)`` along dimension 0, f32.

    Source 1, if given: the mask (f32 or f16), repeated over planes; source 2: a sink per plane.
    ``UnsupportedOp`` for a ``max_bias``.
    """
    if node.param("max_bias", 0.0):
        raise UnsupportedOp(f"soft_max {node.dst}: max_bias (ALiBi) has no kernel")
    if dst.empty:
        return
    x = sources[0]
    mask: Any = x.flat
    kind, m_ne, steps, sinks, sink_step = NO_MASK, (1, 1, 1, 1), (0, 0, 0, 0), x.flat, 0
    if len(sources) > 1:
        kind = HALF if sources[1].dtype == "f16" else FLOAT
        mask = whole(sources[1], np.uint16 if kind == HALF else np.float32)
        m_ne, steps = sources[1].ne, sources[1].steps
    if len(sources) > 2:
        sinks, sink_step = sources[2].flat, sources[2].steps[0]
    scale = float(node.param("scale", 1.0))
    launch.rows(
        _soft_max, x.ne, x.flat, x.steps, x.ne, scale, mask, steps, m_ne, kind, sinks, sink_step,
        dst.flat, dst.steps,
    )  # fmt: skip


def sum_rows(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """The sum of each row, f32."""
    x = sources[0]
    if not dst.empty:
        launch.rows(_sum_rows, x.ne, x.flat, x.steps, x.ne, dst.flat, dst.steps)


def argsort(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """Numbers (i32) that sort each row of f32, ascending, or descending by ``order``.

    Equal values keep their order; NaNs come last.
    """
    order = node.param("order", "asc")
    if order not in ("asc", "desc", 0, 1):
        raise UnsupportedOp(f"argsort {node.dst}: order is 'asc' or 'desc', not {order!r}")
    _ranked(dst, sources[0], np.float32(-1 if order in ("desc", 1) else 1), launch)


def top_k(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """Numbers (i32) of the largest of each row of f32, largest first."""
    _ranked(dst, sources[0], np.float32(-1), launch)


def _ranked(dst: Operand, x: Operand, sign: Any, launch: Launch) -> None:
    if not dst.empty:
        launch.rows(_argsort, x.ne, x.flat, x.steps, x.ne, sign, dst.ne[0], dst.flat, dst.steps)


def get_rows(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[:, i, j, k] = table[:, ids[i, j, k], j, k]`` as f32; the table of any kind in
    ``dequantise.KINDS``.  A row number outside the table gives NaNs and sets the launch's fault.
    """
    table, ids = sources
    if not dst.empty:
        views = (table.data, whole(table, np.uint16), whole(table, np.float32))
        launch.rows(
            _get_rows, dst.ne, *views, table.layout.nb, table.ne, KINDS[table.dtype],
            ids.flat, ids.steps, dst.flat, dst.steps, dst.ne, launch.fault,
        )  # fmt: skip


def set_rows(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[:, ids[i, j, k], j, k] = rows[:, i, j, k]``; dst f32 or f16, rows f32; the rest stays.

    Of two rows with one number the later stays.  A number outside writes nothing and sets the
    launch's fault.
    """
    rows, ids = sources[:2]
    if not rows.empty:
        kind = HALF if dst.dtype == "f16" else FLOAT
        elements = whole(dst, np.uint16 if kind == HALF else np.float32)
        planes = (rows.ne[0], 1, rows.ne[2], rows.ne[3])
        launch.rows(
            _set_rows, planes, rows.flat, rows.steps, rows.ne, ids.flat, ids.steps, ids.ne,
            elements, dst.steps, dst.ne[1], kind, launch.fault,
        )  # fmt: skip
