"""Matrix products, f32, q8_0 and q4_0 weights, for one thread (other threads may run: no GIL).

A q8_0 row is blocks of 34 bytes: a float16 scale and 32 int8; a block of q4_0 has 16 bytes after
its scale: element j is the low half of byte j less 8, element 16 + j the high half.  As in ggml,
the activations are quantised to q8_0 first, so that the inner loop multiplies integers.  The
cache of compiled code knows only this file: every helper that a kernel inlines stands in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ...model.graph import Node
from ..operand import Operand

BLOCK = 32
#: Bytes of a block by type; the number also tells the kernels the type.
Q8_0, Q4_0 = 34, 18
BLOCK_BYTES = {"q8_0": Q8_0, "q4_0": Q4_0}
#: How far ahead of the multiplication a weight is asked for.
PREFETCH_BYTES = 1024


@njit(cache=True, nogil=True)
def _widen(bits: Any) -> Any:
    """The float32 of a float16, given as its 16 bits, in plain arithmetic; exact."""
    magnitude = np.uint32((np.uint32(bits) & np.uint32(0x7FFF)) << np.uint32(13))
    value = np.float32(magnitude.view(np.float32) * np.float32(2.0**112))
    if np.uint32(bits) & np.uint32(0x7C00) == np.uint32(0x7C00):  # an infinity or a NaN
        value = np.uint32(magnitude | np.uint32(0x7F800000)).view(np.float32)
    return -value if np.uint32(bits) & np.uint32(0x8000) else value


def _native_half(context: Any) -> bool:
    """Whether the machine widens float16 itself (else LLVM calls a function that is not there)."""
    triple, _, features = context.codegen().magic_tuple()
    return not triple.startswith(("x86_64", "i686")) or "+f16c" in features


# What follows writes LLVM's own vectors of 8 or 16 lanes: the loop that Numba makes of 32 products
# is unrolled before it is vectorised, and stays scalar.  LLVM picks the machine's instructions.

_I8, _I16, _I32, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()
_SUMS = ir.VectorType(_F32, 8)


def _load(builder: Any, pointer: Any, kind: Any) -> Any:
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = 1
    return value


def _lanes(builder: Any, vector: Any, picked: range) -> Any:
    places = ir.Constant(ir.VectorType(_I32, len(picked)), list(picked))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), places)


def _spread(builder: Any, value: Any) -> Any:
    """A scalar in all of 8 lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, 8), ir.Undefined)
    first = builder.insert_element(undefined, value, _I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, 8), [0] * 8))


def _pairs(builder: Any, weights: Any, activations: Any) -> Any:
    """16 products, neighbours added: LLVM knows one instruction for exactly this pattern."""
    wide = ir.VectorType(_I32, 16)
    product = builder.mul(builder.sext(weights, wide), builder.sext(activations, wide))
    even, odd = (_lanes(builder, product, range(first, 16, 2)) for first in (0, 1))
    return builder.add(even, odd)


def _block_scale(context: Any, builder: Any, block: Any) -> Any:
    """The float16 at the head of a block, as float32 in 8 lanes."""
    bits = _load(builder, block, _I16)
    if _native_half(context):
        # Spread before it is widened: a scalar conversion would wait for the register that
        # holds the running sum.
        halves = builder.bitcast(_spread(builder, bits), ir.VectorType(ir.HalfType(), 8))
        return builder.fpext(halves, _SUMS)
    widen = types.float32(types.uint16)
    return _spread(builder, context.compile_internal(builder, _widen.py_func, widen, [bits]))


def _block_weights(builder: Any, block: Any, kind: int) -> tuple[Any, Any]:
    """Elements 0 to 15 and 16 to 31 of a block."""
    size, vector = ir.IntType(64), ir.VectorType(_I8, 16)
    low = _load(builder, builder.gep(block, [size(2)]), vector)
    if kind == Q8_0:
        return low, _load(builder, builder.gep(block, [size(2 + 16)]), vector)
    eight, four, mask = (ir.Constant(vector, [n] * 16) for n in (8, 4, 15))
    return (
        builder.sub(builder.and_(low, mask), eight),
        builder.sub(builder.lshr(low, four), eight),
    )


def _block_dot(builder: Any, block: Any, activations: Any, kind: int) -> Any:
    """Products of 32 integers, added to 8 sums."""
    size, values = ir.IntType(64), ir.VectorType(_I16, 16)
    halves = [
        _pairs(builder, weights, _load(builder, builder.gep(activations, [size(at)]), values))
        for at, weights in zip((0, 16), _block_weights(builder, block, kind), strict=True)
    ]
    return builder.sitofp(builder.add(*halves), _SUMS)


def _prefetch(builder: Any, pointer: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])


def _row_product(kind: int) -> Any:
    """Signature and code of a row of one type times a row of activations."""
    u64 = types.uint64
    signature = types.float32(
        types.Array(types.uint8, 1, "C"), u64, types.Array(types.int16, 1, "C"), u64,
        types.Array(types.float32, 1, "C"), u64, u64,
    )  # fmt: skip

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        weights, activations, scales = (
            builder.gep(
                context.make_array(sig.args[k])(context, builder, args[k]).data, [args[k + 1]]
            )
            for k in (0, 2, 4)
        )
        total = cgutils.alloca_once_value(builder, ir.Constant(_SUMS, [0.0] * 8))
        with cgutils.for_range(builder, args[6]) as loop:
            index, size = loop.index, loop.index.type
            block = builder.gep(weights, [builder.mul(index, size(kind))])
            column = builder.gep(activations, [builder.mul(index, size(BLOCK))])
            _prefetch(builder, builder.gep(block, [size(PREFETCH_BYTES)]))
            scale = builder.fmul(
                _block_scale(context, builder, block),
                _spread(builder, builder.load(builder.gep(scales, [index]))),
            )
            term = builder.fmul(
                _block_dot(builder, block, column, kind), scale, flags=("contract",)
            )
            builder.store(builder.fadd(builder.load(total), term, flags=("contract",)), total)
        lanes = builder.load(total)
        for count in (4, 2, 1):
            low, high = (_lanes(builder, lanes, range(k, k + count)) for k in (0, count))
            lanes = builder.fadd(low, high)
        return builder.extract_element(lanes, _I32(0))

    return signature, generate


@intrinsic
def _row_q8_0(
    typing: Any, w: Any, at: Any, x: Any, x_at: Any, scale: Any, s_at: Any, n: Any
) -> Any:
    return _row_product(Q8_0)


@intrinsic
def _row_q4_0(
    typing: Any, w: Any, at: Any, x: Any, x_at: Any, scale: Any, s_at: Any, n: Any
) -> Any:
    return _row_product(Q4_0)


@njit(cache=True, nogil=True)
def _row_dot(kind: Any, w: Any, at: Any, x: Any, x_at: Any, scale: Any, s_at: Any, n: Any) -> Any:
    """Sum over ``n`` blocks of ``w_scale * x_scale * (integers of w · integers of x)``.

    ``w``: bytes, from ``at``; ``x``: int16, from ``x_at``; ``scale``: float32, from ``s_at``.
    Eight partial sums run beside each other and are added pairwise at the end.
    """
    if kind == Q8_0:
        return _row_q8_0(w, at, x, x_at, scale, s_at, n)
    return _row_q4_0(w, at, x, x_at, scale, s_at, n)


@njit(cache=True, nogil=True)
def _round_to_half(value: Any) -> Any:
    """A float32 that is not negative, rounded to the nearest float16 (ties to even)."""
    bits = np.float32(value).view(np.uint32)
    if bits < np.uint32(0x38800000):  # below 2⁻¹⁴ float16 has steps of 2⁻²⁴, as float32 at 1/2
        return np.float32(np.float32(value + np.float32(0.5)) - np.float32(0.5))
    if bits >= np.uint32(0x477FF000):  # too large for float16; a NaN stays one
        return np.float32(value + np.float32(np.inf))
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = np.uint32(bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)
    return np.uint32(rounded).view(np.float32)


@njit(cache=True, nogil=True)
def _quantise(x: Any, steps: Any, ne: Any, quants: Any, scales: Any) -> None:
    """Rows of ``x`` as integers in ``[-127, 127]`` and a scale per 32 of them.

    The scale is ``max |x| / 127`` rounded to float16; the integers are rounded half to even with
    the unrounded scale (the vector form of ``quantize_row_q8_0`` in ggml).
    """
    blocks = ne[0] // BLOCK
    row = 0
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                start = i3 * steps[3] + i2 * steps[2] + i1 * steps[1]
                for b in range(blocks):
                    at = start + b * BLOCK * steps[0]
                    most, unknown = np.float32(0), np.float32(0)
                    for k in range(BLOCK):
                        value = x[at + k * steps[0]]
                        most = max(most, abs(value))
                        unknown += value * np.float32(0)  # a NaN if there is one, or an infinity
                    step = _round_to_half(np.float32(most / np.float32(127)))
                    scales[row * blocks + b] = step + unknown
                    inverse = np.float32(0)
                    if most > 0 and unknown == 0:
                        inverse = np.float32(127) / most
                    for k in range(BLOCK):
                        rounded = np.int16(0)
                        if inverse > 0:
                            rounded = np.int16(np.rint(x[at + k * steps[0]] * inverse))
                        quants[(row * blocks + b) * BLOCK + k] = rounded
                row += 1


@njit(cache=True, nogil=True)
def _mul_mat_blocks(
    kind: Any, w: Any, w_nb: Any, w_ne: Any, quants: Any, scales: Any, x_ne: Any, dst: Any, d: Any
) -> None:
    blocks = w_ne[0] // BLOCK
    for i3 in range(x_ne[3]):
        for i2 in range(x_ne[2]):
            plane = i3 // (x_ne[3] // w_ne[3]) * w_nb[3] + i2 // (x_ne[2] // w_ne[2]) * w_nb[2]
            first = (i3 * x_ne[2] + i2) * x_ne[1]
            out = i3 * d[3] + i2 * d[2]
            # Rows outside: a weight comes from memory once and serves every token.
            for row in range(w_ne[1]):
                at = np.uint64(plane + row * w_nb[1])
                for token in range(x_ne[1]):
                    block = (first + token) * blocks
                    dst[out + token * d[1] + row * d[0]] = _row_dot(
                        kind, w, at, quants, np.uint64(block * BLOCK), scales, np.uint64(block),
                        np.uint64(blocks),
                    )  # fmt: skip


@njit(cache=True, nogil=True)
def _by_expert(
    ids: Any, ids_steps: Any, ids_ne: Any, experts: Any, x_place: Any, x_token: Any, d: Any
) -> Any:
    """Counting sort of the (place, token) pairs by their expert.

    Those of expert e stand at ``start[e] … start[e + 1]``, those without one (a negative id)
    from ``start[experts]`` on.  Per pair: where its activations start, and its result.
    """
    start = np.zeros(experts + 2, np.int64)
    for token in range(ids_ne[1]):
        for place in range(ids_ne[0]):
            e = ids[token * ids_steps[1] + place * ids_steps[0]]
            start[(e if e >= 0 else experts) + 1] += 1
    for e in range(experts + 1):
        start[e + 1] += start[e]
    columns = np.empty(ids_ne[0] * ids_ne[1], np.int64)
    results = np.empty(ids_ne[0] * ids_ne[1], np.int64)
    free = start.copy()
    for token in range(ids_ne[1]):
        for place in range(ids_ne[0]):
            e = ids[token * ids_steps[1] + place * ids_steps[0]]
            bucket = e if e >= 0 else experts
            columns[free[bucket]] = token * x_token + place * x_place
            results[free[bucket]] = token * d[2] + place * d[1]
            free[bucket] += 1
    return start, columns, results


@njit(cache=True, nogil=True)
def _zero_rows(results: Any, rows: Any, dst: Any, d: Any) -> None:
    for k in range(len(results)):
        for row in range(rows):
            dst[results[k] + row * d[0]] = np.float32(0)


@njit(cache=True, nogil=True)
def _mul_mat_id_blocks(
    kind: Any, w: Any, w_nb: Any, w_ne: Any, quants: Any, scales: Any, x_ne: Any,
    ids: Any, ids_steps: Any, ids_ne: Any, dst: Any, d: Any,
) -> None:  # fmt: skip
    blocks, experts = w_ne[0] // BLOCK, w_ne[2]
    start, columns, results = _by_expert(
        ids, ids_steps, ids_ne, experts, blocks if x_ne[1] > 1 else 0, x_ne[1] * blocks, d
    )
    _zero_rows(results[start[experts] :], w_ne[1], dst, d)
    for e in range(experts):
        if start[e] == start[e + 1]:
            continue
        for row in range(w_ne[1]):
            at = np.uint64(e * w_nb[2] + row * w_nb[1])
            for k in range(start[e], start[e + 1]):
                dst[results[k] + row * d[0]] = _row_dot(
                    kind, w, at, quants, np.uint64(columns[k] * BLOCK), scales,
                    np.uint64(columns[k]), np.uint64(blocks),
                )  # fmt: skip


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(a: Any, b: Any) -> Any:
    total = np.float32(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(cache=True, nogil=True)
def _mul_mat_f32(
    w: Any, w_steps: Any, w_ne: Any, x: Any, x_steps: Any, x_ne: Any, dst: Any, d: Any
) -> None:
    n = w_ne[0]
    for i3 in range(x_ne[3]):
        for i2 in range(x_ne[2]):
            plane = (
                i3 // (x_ne[3] // w_ne[3]) * w_steps[3] + i2 // (x_ne[2] // w_ne[2]) * w_steps[2]
            )
            first = i3 * x_steps[3] + i2 * x_steps[2]
            out = i3 * d[3] + i2 * d[2]
            for row in range(w_ne[1]):
                at = plane + row * w_steps[1]
                for token in range(x_ne[1]):
                    column = first + token * x_steps[1]
                    dst[out + token * d[1] + row * d[0]] = _dot(
                        w[at : at + n], x[column : column + n]
                    )


@njit(cache=True, nogil=True)
def _mul_mat_id_f32(
    w: Any, w_steps: Any, w_ne: Any, x: Any, x_steps: Any, x_ne: Any,
    ids: Any, ids_steps: Any, ids_ne: Any, dst: Any, d: Any,
) -> None:  # fmt: skip
    n, experts = w_ne[0], w_ne[2]
    start, columns, results = _by_expert(
        ids, ids_steps, ids_ne, experts, x_steps[1] if x_ne[1] > 1 else 0, x_steps[2], d
    )
    _zero_rows(results[start[experts] :], w_ne[1], dst, d)
    for e in range(experts):
        if start[e] == start[e + 1]:
            continue
        for row in range(w_ne[1]):
            at = e * w_steps[2] + row * w_steps[1]
            for k in range(start[e], start[e + 1]):
                column = columns[k]
                dst[results[k] + row * d[0]] = _dot(w[at : at + n], x[column : column + n])


def _quantised(x: Operand) -> tuple[Any, Any]:
    elements = x.layout.nbytes // 4
    quants = np.empty(elements, np.int16)
    scales = np.empty(elements // BLOCK, np.float32)
    _quantise(x.flat, x.steps, x.ne, quants, scales)
    return quants, scales


def mul_mat(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[r, t] = Σ_k w[k, r] x[k, t]``: w ``[k, r, …]`` f32, q8_0, q4_0; x ``[k, t, …]`` f32."""
    w, x = sources[0].with_packed_rows(), sources[1]
    if dst.empty:
        return
    if w.dtype in BLOCK_BYTES:
        quants, scales = _quantised(x)
        kind = BLOCK_BYTES[w.dtype]
        _mul_mat_blocks(kind, w.data, w.layout.nb, w.ne, quants, scales, x.ne, dst.flat, dst.steps)
    else:
        x = x.with_packed_rows()
        _mul_mat_f32(w.flat, w.steps, w.ne, x.flat, x.steps, x.ne, dst.flat, dst.steps)


def mul_mat_id(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[r, u, t] = Σ_k w[k, r, ids[u, t]] x[k, u or 0, t]``; a negative id gives a zero row.

    w ``[k, r, experts]`` f32, q8_0 or q4_0, x ``[k, 1 or used, t]`` f32, ids ``[used, t]`` i32.
    ``IndexError`` if an id is not below the number of experts.
    """
    w, x, ids = sources[0].with_packed_rows(), sources[1], sources[2]
    if dst.empty:
        return
    highest = int(ids.array.max())
    if highest >= w.ne[2]:
        raise IndexError(f"expert {highest} of {ids.layout.name}: {w.layout.name} has {w.ne[2]}")
    if w.dtype in BLOCK_BYTES:
        quants, scales = _quantised(x)
        _mul_mat_id_blocks(
            BLOCK_BYTES[w.dtype], w.data, w.layout.nb, w.ne, quants, scales, x.ne,
            ids.flat, ids.steps, ids.ne, dst.flat, dst.steps,
        )  # fmt: skip
    else:
        x = x.with_packed_rows()
        _mul_mat_id_f32(
            w.flat, w.steps, w.ne, x.flat, x.steps, x.ne,
            ids.flat, ids.steps, ids.ne, dst.flat, dst.steps,
        )  # fmt: skip
