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
from .blocks import FORMS, Form
from .dots import PLAIN, plain
from .emit import PANEL, PATHS
from .jobs import ALONE, LINE, Job, Sharing
from .native import address, native_path
from .products import ARGUMENTS, RESULTS, TILE, quantised

_FORMS = {form.name: index for index, form in enumerate(FORMS)}
_ROUNDING = {
    "f32": activations.EXACT, "f16": activations.HALF, "bf16": activations.BRAIN
}  # fmt: skip
#: Units for each thread: what is left when the others have none takes a hundredth of the whole.
_PIECES = 32
#: Bytes of weights, and of activations, that stay in the cache of a core together.
_CACHED = 3 << 16


class _Room(threading.local):
    """Scratch memory of a thread: it grows to what its largest product needs, and stays."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[NDArray[Any], int]] = {}

    def get(self, name: str, count: int, kind: type[np.generic]) -> NDArray[Any]:
        return self.place(name, count, kind)[0]

    def place(self, name: str, count: int, kind: type[np.generic]) -> tuple[NDArray[Any], int]:
        """Also where it lies (to ask an array takes a microsecond)."""
        found = self._arrays.get(name)
        if found is None or len(found[0]) < count:
            made = np.zeros(count + count // 4, kind)
            found = self._arrays[name] = made, address(made)
        return found[0][:count], found[1]


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
    ids: Any, steps: Any, ids_ne: Any, x_rows: Any, stride: Any, experts: Any, d: Any,
    planes: Any, groups: Any, columns: Any, results: Any, free: Any,
) -> Any:  # fmt: skip
    """Counting sort of the (place, token) pairs by their expert: a group for each that is chosen.

    How many groups there are; pairs without an expert (a negative id) stand after the last.  If
    an id is not below the number of experts: -1 less the largest.
    """
    free[:] = 0
    most = -1
    for token in range(ids_ne[1]):
        for place in range(ids_ne[0]):
            e = ids[token * steps[1] + place * steps[0]]
            most = max(most, e)
            if e < experts:
                free[e if e >= 0 else experts] += 1
    if most >= experts:
        return -1 - most
    start = count = 0
    for e in range(experts + 1):
        here, free[e] = free[e], start
        groups[count] = start
        if e < experts and here:
            planes[count] = e * stride
            count += 1
        start += here
    for token in range(ids_ne[1]):
        for place in range(ids_ne[0]):
            e = ids[token * steps[1] + place * steps[0]]
            at = free[e if e >= 0 else experts]
            columns[at] = token * x_rows + place % x_rows
            results[at] = token * d[2] + place * d[1]
            free[e if e >= 0 else experts] += 1
    return count


@njit(cache=True, nogil=True)
def _describe(
    out: Any, w: Any, planes: Any, groups: Any, columns: Any, results: Any, dst: Any, d0: Any,
    step: Any, rows: Any, parts: Any, part: Any, depth: Any, packed: Any, x: Any, record: Any,
    block: Any, room: Any, room_bytes: Any,
) -> None:  # fmt: skip
    """``ARGUMENTS`` in their order."""
    i = np.int64
    numbers = (
        i(w.ctypes.data), i(planes.ctypes.data), i(groups.ctypes.data), i(columns.ctypes.data),
        len(columns), i(results.ctypes.data), i(dst.ctypes.data), len(dst), d0, step, rows, parts,
        part, depth, i(packed), x, record, block, i(room.ctypes.data), room_bytes,
    )  # fmt: skip
    for k in range(len(numbers)):
        out[k] = numbers[k]


@njit(cache=True, nogil=True)
def _zero_rows(results: Any, rows: Any, dst: Any, d0: Any) -> None:
    for k in range(len(results)):
        for row in range(rows):
            dst[results[k] + row * d0] = np.float32(0)


def _rooms(groups: int, columns: int) -> list[NDArray[Any]]:
    counts = {"planes": groups, "groups": groups + 1, "columns": columns, "results": columns}
    return [_ROOM.get(name, count, np.int64) for name, count in counts.items()]


def _multiply(
    w: Operand, x: Operand, dst: Operand, lists: Sequence[NDArray[Any]], count: int, team: Sharing
) -> None:
    """The rows of x of each of the first ``count`` groups times their matrix of w."""
    name, packed = file_type(w.layout.dtype)
    path = native_path()
    if name in PLAIN:
        depth, record, panel = w.ne[0], 4 * w.ne[0], 0
        x_at = _plain_activations(x, _ROUNDING[name])
        kernel = plain(PLAIN[name], path)
    else:
        form = FORMS[_FORMS[name]]
        wide = PATHS[path].wide(form.signed)
        depth = w.ne[0] // form.block
        record, panel = depth * form.record(wide), PANEL * form.bytes * depth
        x_at = _quantised_activations(x, form, wide, record)
        kernel = quantised(_FORMS[name], path)
    # Threads are apart by more than what a processor fetches at once.
    room_bytes = -(-(RESULTS + panel) // LINE) * LINE + LINE
    room = _ROOM.get("room", team.threads * room_bytes, np.uint8)
    rows, step = w.ne[1], w.layout.nb[1]
    part, parts = _parts(rows, step, count, team.threads)
    block = max(_CACHED // record // TILE * TILE, TILE)
    arguments, where = _ROOM.place("arguments", len(ARGUMENTS.names or ()), np.int64)
    _describe(
        arguments, w.data, *lists, dst.flat, dst.steps[0], step, rows, parts, part,
        depth, packed, x_at, record, block, room, room_bytes,
    )  # fmt: skip
    team.share(Job(kernel.address, where, count * parts))


def _parts(rows: int, step: int, matrices: int, threads: int) -> tuple[int, int]:
    """Rows of a part of a matrix, whole panels; and how many parts it has.  ``step``: bytes of a
    row; ``matrices``: how many are multiplied."""
    panels = -(-rows // PANEL)
    wanted = max(-(-rows * step // _CACHED), -(-_PIECES * threads // matrices), 1)
    part = -(-panels // min(wanted, panels))
    return part * PANEL, -(-panels // part)


def _plain_activations(x: Operand, rounding: int) -> int:
    values, where = _ROOM.place("values", x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3], np.float32)
    activations.plain(x.flat, x.steps, x.ne, rounding, values)
    return where


def _quantised_activations(x: Operand, form: Form, wide: bool, record: int) -> int:
    """Where they begin; ``record``: bytes of a row."""
    line = _ROOM.get("line", x.ne[0], np.float32)
    # As int32, so that they begin at a multiple of four.
    rows, where = _ROOM.place("rows", record * x.ne[1] * x.ne[2] * x.ne[3] // 4, np.int32)
    activations.quantiser(wide)(
        x.flat, x.steps, x.ne, form.block, form.group, form.offset, line,
        rows,
    )  # fmt: skip
    return where


def mul_mat(dst: Operand, sources: Sequence[Operand], node: Node, team: Sharing = ALONE) -> None:
    """``dst[r, t] = Σ_k w[k, r] x[k, t]``: w ``[k, r, …]`` plain or quantised, x f32."""
    w, x = sources[0].with_packed_rows(), sources[1]
    if dst.empty:
        return
    planes = x.ne[2] * x.ne[3]
    lists = _rooms(planes, x.ne[1] * planes)
    _group_planes(w.layout.nb, w.ne, x.ne, dst.steps, *lists)
    _multiply(w, x, dst, lists, planes, team)


def mul_mat_id(dst: Operand, sources: Sequence[Operand], node: Node, team: Sharing = ALONE) -> None:
    """``dst[r, u, t] = Σ_k w[k, r, ids[u, t]] x[k, u or 0, t]``; a negative id gives a zero row.

    w ``[k, r, experts]`` plain or quantised, x ``[k, 1 or used, t]`` f32, ids ``[used, t]`` i32.
    ``IndexError`` if an id is not below the number of experts.
    """
    w, x, ids = sources[0].with_packed_rows(), sources[1], sources[2]
    if dst.empty:
        return
    experts = w.ne[2]
    lists = _rooms(experts, ids.ne[0] * ids.ne[1])
    free = _ROOM.get("free", experts + 1, np.int64)
    count = _group_experts(
        ids.flat, ids.steps, ids.ne, x.ne[1], w.layout.nb[2], experts, dst.steps, *lists, free
    )
    if count < 0:
        highest = -1 - count
        raise IndexError(f"expert {highest} of {ids.layout.name}: {w.layout.name} has {experts}")
    if count:
        _multiply(w, x, dst, lists, count, team)
    without = lists[3][lists[1][count] :]
    if len(without):
        _zero_rows(without, w.ne[1], dst.flat, dst.steps[0])
