"""Moving elements: one block per row of the destination."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from ...model.graph import Node
from ..functions import UnsupportedOp
from ..operand import PLAIN, Operand
from .launch import Launch, whole
from .target import element_place, row_place, row_start

#: Elements are moved as unsigned integers of their size.
_WORDS: dict[int, type[np.generic]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@cuda.jit
def _reshape(x: Any, s: Any, x_ne: Any, dst: Any, d: Any, ne: Any) -> None:
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    first = cuda.blockIdx.x * ne[0]
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        j0, j1, j2, j3 = element_place(first + k, x_ne[0], x_ne[1], x_ne[2])
        dst[out + k * d[0]] = x[j0 * s[0] + row_start(j1, j2, j3, s[1], s[2], s[3])]


@cuda.jit
def _repeat(x: Any, s: Any, x_ne: Any, dst: Any, d: Any, ne: Any) -> None:
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1 % x_ne[1], i2 % x_ne[2], i3 % x_ne[3], s[1], s[2], s[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        dst[out + k * d[0]] = x[at + k % x_ne[0] * s[0]]


@cuda.jit
def _fill(value: Any, dst: Any, d: Any, ne: Any) -> None:
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        dst[out + k * d[0]] = value


@cuda.jit
def _add_id(
    x: Any, s: Any, bias: Any, b: Any, count: Any, ids: Any, i: Any, dst: Any, d: Any, ne: Any,
    fault: Any,
) -> None:  # fmt: skip
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    row = np.int64(ids[i1 * i[0] + i2 * i[1]])
    inside = row >= 0 and row < count
    if not inside:
        fault[0] = 1
        row = np.int64(0)
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = np.float32(math.nan)
        if inside:
            value = x[at + k * s[0]] + bias[k * b[0] + row * b[1]]
        dst[out + k * d[0]] = value


def _words(operand: Operand) -> Any:
    return whole(operand, _WORDS[np.dtype(PLAIN[operand.dtype]).itemsize])


def cont(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """The same elements in logical order, in the shape of the destination; one plain type."""
    x = sources[0]
    if dst.dtype != x.dtype or dst.dtype not in PLAIN:
        raise UnsupportedOp(f"{node.op} {node.dst}: no kernel from {x.dtype} to {dst.dtype}")
    if not dst.empty:
        launch.rows(_reshape, dst.ne, _words(x), x.steps, x.ne, _words(dst), dst.steps, dst.ne)


cpy = dup = cont


def repeat(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """The source, again and again in each dimension that it divides; one plain type."""
    x = sources[0]
    if not dst.empty:
        launch.rows(_repeat, dst.ne, _words(x), x.steps, x.ne, _words(dst), dst.steps, dst.ne)


def fill(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``value`` everywhere, f32."""
    if not dst.empty:
        value = np.float32(float(node.param("value", 0.0)))
        launch.rows(_fill, dst.ne, value, dst.flat, dst.steps, dst.ne)


def concat(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """Source 1 after source 0 along dimension ``dim``; one plain type."""
    dimension, at = int(node.param("dim", 0)), 0
    target = _words(dst)
    for x in sources:
        if not x.empty:
            part = target[at * dst.steps[dimension] :]
            launch.rows(_repeat, x.ne, _words(x), x.steps, x.ne, part, dst.steps, x.ne)
        at += x.ne[dimension]


def add_id(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``x[:, j, t] + bias[:, ids[j, t]]``, f32.  An id outside gives NaNs and sets the fault."""
    x, bias, ids = sources
    if not dst.empty:
        launch.rows(
            _add_id, dst.ne, x.flat, x.steps, bias.flat, bias.steps, bias.ne[1], ids.flat,
            ids.steps, dst.flat, dst.steps, dst.ne, launch.fault,
        )  # fmt: skip
