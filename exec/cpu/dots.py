"""Products with plain weights (float32, float16, bfloat16): rows as they stand, along each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, types
from numba.core import cgutils
from numba.extending import intrinsic

from .emit import F32, I8, I16, I32, I64, PATHS, Portable, Value, constant, vector
from .jobs import KERNEL
from .native import pointer, stamp
from .products import ARGUMENTS

#: Types by number, and the bytes of an element.
PLAIN = {"f32": 0, "f16": 1, "bf16": 2}
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
#: Rows and columns that are multiplied at once.
ROWS, COLUMNS = 3, 4
#: Vectors of a row that one turn of the loop takes.
VECTORS = 4
#: How far ahead a weight is asked for where one row is multiplied, in bytes.
PREFETCH = 2048


def _weights(p: Portable, kind: int, pointer: Value, lanes: int) -> Value:
    """Elements of a row as float32; exact."""
    if kind == PLAIN["f32"]:
        return p.load(pointer, vector(F32, lanes))
    bits = p.load(pointer, vector(I16, lanes))
    if kind == PLAIN["f16"]:
        return p.widen(bits)
    wide = p.builder.zext(bits, vector(I32, lanes))
    ints = p.builder.shl(wide, constant(vector(I32, lanes), 16))
    return p.builder.bitcast(ints, vector(F32, lanes))


def _lane_sum(p: Portable, lanes: Value) -> Value:
    """All lanes, added pairwise."""
    count = lanes.type.count
    while count > 1:
        count //= 2
        halves = []
        for first in (0, count):
            places = ir.Constant(vector(I32, count), list(range(first, first + count)))
            halves.append(p.builder.shuffle_vector(lanes, lanes, places))
        lanes = p.builder.fadd(*halves)
    return lanes


def _dots(p: Portable, kind: int, rows: Sequence[Value], columns: Sequence[Value], n: Value,
          ahead: Value, out: Value, chains: int) -> None:  # fmt: skip
    """Each row times each column, n elements; to ``out``, the columns outside.

    ``ahead``: how far ahead weights are asked for; ``chains``: sums beside each other where one
    row meets one column, as an addition takes some cycles.
    """
    b, size = p.builder, (4, 2, 2)[kind]
    step = p.rows * VECTORS
    whole = b.mul(b.udiv(n, I64(step)), I64(step))
    zeros = {lanes: constant(vector(F32, lanes), 0.0) for lanes in (p.rows, 1)}

    def totals(lanes: int, depth: int) -> list[list[Value]]:
        return [
            [cgutils.alloca_once_value(b, zeros[lanes]) for _ in range(depth)]
            for _ in range(len(rows) * len(columns))
        ]

    def accumulate(places: list[list[Value]], at: Value, lanes: int, chain: int) -> None:
        place, byte = b.mul(at, I64(4)), b.mul(at, I64(size))
        left = [_weights(p, kind, p.at(row, byte), lanes) for row in rows]
        for c, column in enumerate(columns):
            right = p.load(p.at(column, place), vector(F32, lanes))
            for r, weight in enumerate(left):
                total = places[c * len(rows) + r][chain]
                b.store(p.fma(weight, right, b.load(total)), total)

    def ask(start: Value) -> None:
        later = b.add(b.mul(start, I64(size)), ahead)
        for row in rows:
            for line in range(0, step * size, 64):
                p.prefetch(p.at(p.at(row, later), line))

    wide, single = totals(p.rows, chains), totals(1, 1)
    with cgutils.for_range_slice(b, I64(0), whole, I64(step)) as (index, _):
        ask(index)
        for k in range(VECTORS):
            accumulate(wide, b.add(index, I64(k * p.rows)), p.rows, k % chains)
    with cgutils.for_range_slice(b, whole, n, I64(1)) as (index, _):
        accumulate(single, index, 1, 0)
    for index, (many, (one,)) in enumerate(zip(wide, single, strict=True)):
        total = b.load(many[0])
        for other in many[1:]:
            total = b.fadd(total, b.load(other))
        p.store(b.fadd(_lane_sum(p, total), b.load(one)), p.at(out, 4 * index))


def _code(kind: int, path: int, rows: int, columns: int, chains: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        n, ahead, out, *addresses = args[3:]
        pointers = [builder.inttoptr(value, I8.as_pointer()) for value in (out, *addresses)]
        p = PATHS[path](builder)
        _dots(p, kind, pointers[1 : 1 + rows], pointers[1 + rows :], n, ahead, pointers[0], chains)
        return context.get_dummy_value()

    return generate


@intrinsic(prefer_literal=True)
def _one(
    typing: Any, kind: Any, path: Any, text: Any, n: Any, ahead: Any, out: Any, row: Any,
    column: Any,
) -> Any:  # fmt: skip
    """``kind``, ``path`` and ``text`` are known when it is compiled; the others are addresses."""
    code = _code(kind.literal_value, path.literal_value, 1, 1, VECTORS)
    return types.void(kind, path, text, *[types.int64] * 5), code


@intrinsic(prefer_literal=True)
def _tile(
    typing: Any, kind: Any, path: Any, text: Any, n: Any, ahead: Any, out: Any,
    r0: Any, r1: Any, r2: Any, c0: Any, c1: Any, c2: Any, c3: Any,
) -> Any:  # fmt: skip
    code = _code(kind.literal_value, path.literal_value, ROWS, COLUMNS, 1)
    return types.void(kind, path, text, *[types.int64] * (3 + ROWS + COLUMNS)), code


@cache
def plain(kind: int, path: int) -> Any:
    """The kernel for one type (a number of ``PLAIN``) and one instruction set."""
    text = stamp("../panels", "emit", "jobs", "products", "dots")

    @cfunc(KERNEL, cache=True)
    def kernel(arguments: Any, unit: Any, thread: Any) -> None:
        a = carray(pointer(arguments), 1, ARGUMENTS)[0]
        g = unit // a.parts
        planes = carray(pointer(a.planes), g + 1, np.int64)
        groups = carray(pointer(a.groups), g + 2, np.int64)
        columns = carray(pointer(a.columns), a.count, np.int64)
        results = carray(pointer(a.results), a.count, np.int64)
        dst = carray(pointer(a.dst), a.elements, np.float32)
        room = a.room + thread * a.room_bytes
        out = carray(pointer(room), ROWS * COLUMNS, np.float32)
        x, record, d0 = a.x, a.record, a.d0
        start = unit % a.parts * a.part
        end = min(start + a.part, a.rows)
        w = a.w + planes[g]
        for head in range(groups[g], groups[g + 1], a.block):
            last = min(head + a.block, groups[g + 1])
            tiled = head + (last - head) // COLUMNS * COLUMNS
            for row in range(start, end, ROWS):
                # The last rows are computed again where there are no more.
                second, third = min(row + 1, end - 1), min(row + 2, end - 1)
                for c in range(head, tiled, COLUMNS):
                    _tile(
                        kind, path, text, a.depth, ROWS * a.step, room, w + row * a.step,
                        w + second * a.step, w + third * a.step, x + columns[c] * record,
                        x + columns[c + 1] * record, x + columns[c + 2] * record,
                        x + columns[c + 3] * record,
                    )  # fmt: skip
                    for k in range(COLUMNS):
                        at = results[c + k]
                        dst[at + row * d0] = out[ROWS * k]
                        dst[at + second * d0] = out[ROWS * k + 1]
                        dst[at + third * d0] = out[ROWS * k + 2]
                for c in range(tiled, last):
                    for r in range(row, third + 1):
                        left, right = w + r * a.step, x + columns[c] * record
                        _one(kind, path, text, a.depth, PREFETCH, room, left, right)
                        dst[results[c] + r * d0] = out[0]

    return kernel
