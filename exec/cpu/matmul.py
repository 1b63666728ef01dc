"""Matrix products: operands to the kernels' arguments, with activations rounded as in ggml.

A product of a quantised weight takes its activations as q8_0 (blocks of 32) or q8_K (of 256), so
that the inner loop multiplies integers; float16 and bfloat16 weights take activations that were
rounded to their own type.  Any number of threads may run these at once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...model.graph import Node
from ..operand import Operand
from ..panels import file_type
from . import activations
from .blocks import FORMS
from .dots import PLAIN, plain
from .emit import PANEL
from .native import address, native_path
from .products import TILE, quantised

_FORMS = {form.name: index for index, form in enumerate(FORMS)}
_ROUNDING = {
    "f32": activations.EXACT, "f16": activations.HALF, "bf16": activations.BRAIN
}  # fmt: skip


class _Room(threading.local):
    """Scratch memory of a thread: it grows to what its largest product needs, and stays."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def get(self, name: str, count: int, kind: type[np.generic]) -> NDArray[Any]:
        found = self._arrays.get(name)
        if found is None or len(found) < count:
            found = self._arrays[name] = np.zeros(count + count // 4, kind)
        return found[:count]


_ROOM = _Room()


@njit(cache=True, nogil=True)
def _group_planes(
    w_nb: Any, w_ne: Any, x_ne: Any, d: Any, planes: Any, groups: Any, columns: Any, results: Any
) -> None:
    """A group for each plane of x: its matrix, its rows of x, and where their results begin."""
    share2, share3 = x_ne[2] // w_ne[2], x_ne[3] // w_ne[3]
    group = column = 0
    for i3 in range(x_ne[3]):
        for i2 in range(x_ne[2]):
            planes[group] = i3 // share3 * w_nb[3] + i2 // share2 * w_nb[2]
            groups[group] = column
            group += 1
            for i1 in range(x_ne[1]):
                columns[column] = column
                results[column] = i3 * d[3] + i2 * d[2] + i1 * d[1]
                column += 1
    groups[group] = column


@njit(cache=True, nogil=True)
def _group_experts(
    ids: Any, steps: Any, ids_ne: Any, x_rows: Any, stride: Any, d: Any,
    planes: Any, groups: Any, columns: Any, results: Any, free: Any,
) -> None:  # fmt: skip
    """Counting sort of the (place, token) pairs by their expert: a group for each expert.

    Those without one (a negative id) stand after the last group.
    """
    experts = len(groups) - 1
    free[:] = 0
    for token in range(ids_ne[1]):
        for place in range(ids_ne[0]):
            e = ids[token * steps[1] + place * steps[0]]
            free[e if e >= 0 else experts] += 1
    start = 0
    for e in range(experts + 1):
        groups[e] = start
        start += free[e]
        free[e] = groups[e]
        if e < experts:
            planes[e] = e * stride
    for token in range(ids_ne[1]):
        for place in range(ids_ne[0]):
            e = ids[token * steps[1] + place * steps[0]]
            at = free[e if e >= 0 else experts]
            columns[at] = token * x_rows + place % x_rows
            results[at] = token * d[2] + place * d[1]
            free[e if e >= 0 else experts] += 1


@njit(cache=True, nogil=True)
def _zero_rows(results: Any, rows: Any, dst: Any, d0: Any) -> None:
    for k in range(len(results)):
        for row in range(rows):
            dst[results[k] + row * d0] = np.float32(0)


def _rooms(groups: int, columns: int) -> list[NDArray[Any]]:
    counts = {"planes": groups, "groups": groups + 1, "columns": columns, "results": columns}
    return [_ROOM.get(name, count, np.int64) for name, count in counts.items()]


def _multiply(w: Operand, x: Operand, dst: Operand, lists: Sequence[NDArray[Any]]) -> None:
    """Each group's rows of x times its matrix of w."""
    planes, groups, columns, results = lists
    out = _ROOM.get("out", TILE * PANEL, np.float32)
    step, rows, n = w.layout.nb[1], w.ne[1], w.ne[0]
    count = x.ne[1] * x.ne[2] * x.ne[3]
    name, packed = file_type(w.layout.dtype)
    start, target = np.uint64(address(w.data)), np.uint64(address(out))
    if name in PLAIN:
        values = _ROOM.get("values", n * count, np.float32)
        activations.plain(x.flat, x.steps, x.ne, _ROUNDING[name], values)
        plain(PLAIN[name], native_path())(
            start, planes, step, rows, n, groups, columns, results, np.uint64(address(values)),
            dst.flat, dst.steps[0], out, target,
        )  # fmt: skip
        return
    form = FORMS[_FORMS[name]]
    blocks = n // form.block
    line = _ROOM.get("line", n, np.float32)
    quants = _ROOM.get("quants", n * count, np.int8)
    scales = _ROOM.get("scales", blocks * count, np.float32)
    sums = _ROOM.get("sums", n // form.group * count, np.int32)
    panel = _ROOM.get("panel", PANEL * form.bytes * blocks, np.uint8)
    quants_at = np.uint64(address(quants))
    activations.quantise(
        x.flat, x.steps, x.ne, form.block, line, np.uint64(address(line)), quants_at, scales, sums
    )
    quantised(_FORMS[name], native_path())(
        start, planes, step, rows, blocks, packed, form.shape, groups, columns, results, quants_at,
        np.uint64(address(scales)), np.uint64(address(sums)), dst.flat, dst.steps[0],
        np.uint64(address(panel)), out, target,
    )  # fmt: skip


def mul_mat(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[r, t] = Σ_k w[k, r] x[k, t]``: w ``[k, r, …]`` plain or quantised, x f32."""
    w, x = sources[0].with_packed_rows(), sources[1]
    if dst.empty:
        return
    lists = _rooms(x.ne[2] * x.ne[3], x.ne[1] * x.ne[2] * x.ne[3])
    _group_planes(w.layout.nb, w.ne, x.ne, dst.steps, *lists)
    _multiply(w, x, dst, lists)


def mul_mat_id(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[r, u, t] = Σ_k w[k, r, ids[u, t]] x[k, u or 0, t]``; a negative id gives a zero row.

    w ``[k, r, experts]`` plain or quantised, x ``[k, 1 or used, t]`` f32, ids ``[used, t]`` i32.
    ``IndexError`` if an id is not below the number of experts.
    """
    w, x, ids = sources[0].with_packed_rows(), sources[1], sources[2]
    if dst.empty:
        return
    highest = int(ids.array.max())
    if highest >= w.ne[2]:
        raise IndexError(f"expert {highest} of {ids.layout.name}: {w.layout.name} has {w.ne[2]}")
    lists = _rooms(w.ne[2], ids.ne[0] * ids.ne[1])
    free = _ROOM.get("free", w.ne[2] + 1, np.int64)
    _group_experts(ids.flat, ids.steps, ids.ne, x.ne[1], w.layout.nb[2], dst.steps, *lists, free)
    _multiply(w, x, dst, lists)
    without = lists[3][lists[1][-1] :]
    if len(without):
        _zero_rows(without, w.ne[1], dst.flat, dst.steps[0])
