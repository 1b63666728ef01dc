"""Activations as the products take them, rounded as ggml rounds them for each type of weight.

A quantised row is blocks of integers, each with its float32 scale and sums of the integers behind
it.  A row for plain weights is float32, of which only a float16 or bfloat16 is left if the weights
are of that type.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .emit import F32, I8, I16, I32, Portable, constant, vector
from .native import stamp

BLOCK = 32
#: How float32 activations are rounded for plain weights.
EXACT, HALF, BRAIN = 0, 1, 2


@intrinsic
def _largest(typing: Any, text: Any, values: Any) -> Any:
    """Bits of the largest absolute value of 32 float32 at an address."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p, ints = Portable(builder), vector(I32, BLOCK)
        bits = p.load(builder.inttoptr(args[1], I8.as_pointer()), ints)
        absolute = builder.and_(bits, constant(ints, 0x7FFFFFFF))
        return p.call(f"llvm.vector.reduce.umax.v{BLOCK}i32", I32, absolute)

    return types.uint32(text, types.int64), generate


@intrinsic(prefer_literal=True)
def _integers(typing: Any, wide: Any, values: Any, factor: Any, quants: Any) -> Any:
    """32 float32 times a factor, rounded half to even; the sum of 16 and 16.

    Written as int8, or (``wide``, known when it is compiled) as int16, of each 4 first those with
    even numbers.
    """

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p, floats = Portable(builder), vector(F32, BLOCK)
        source, target = (builder.inttoptr(args[k], I8.as_pointer()) for k in (1, 3))
        scaled = builder.fmul(p.load(source, floats), p.spread(args[2], floats))
        rounded = p.call(f"llvm.rint.v{BLOCK}f32", floats, scaled)
        integers = builder.fptosi(rounded, vector(I32, BLOCK))
        most = constant(integers.type, 127)
        integers = p.call(f"llvm.smin.v{BLOCK}i32", integers.type, integers, most)
        if wide.literal_value:
            order = [first + k for first in range(0, BLOCK, 4) for k in (0, 2, 1, 3)]
            sorted_ = builder.shuffle_vector(
                integers, integers, ir.Constant(vector(I32, BLOCK), order)
            )
            p.store(builder.trunc(sorted_, vector(I16, BLOCK)), target)
        else:
            p.store(builder.trunc(integers, vector(I8, BLOCK)), target)
        sums = []
        for first in (0, BLOCK // 2):
            places = ir.Constant(vector(I32, 16), list(range(first, first + 16)))
            half = builder.shuffle_vector(integers, integers, places)
            sums.append(p.call("llvm.vector.reduce.add.v16i32", I32, half))
        return context.make_tuple(builder, sig.return_type, sums)

    pair = types.UniTuple(types.int32, 2)
    return pair(wide, types.int64, types.float32, types.int64), generate


@njit(cache=True, nogil=True)
def _round_to_half(value: Any) -> Any:
    """A float32 rounded to the nearest float16 (ties to even)."""
    bits = np.float32(value).view(np.uint32)
    sign = np.uint32(bits & np.uint32(0x80000000))
    bits = np.uint32(bits ^ sign)
    size = bits.view(np.float32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = np.uint32(np.uint32(bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000))
    if bits >= np.uint32(0x477FF000):  # too large for float16; a NaN stays one
        rounded = np.float32(size + np.float32(np.inf)).view(np.uint32)
    if bits < np.uint32(0x38800000):  # below 2⁻¹⁴ float16 has steps of 2⁻²⁴, as float32 at 1/2
        rounded = np.float32(np.float32(size + np.float32(0.5)) - np.float32(0.5)).view(np.uint32)
    return np.uint32(rounded | sign).view(np.float32)


@njit(cache=True, nogil=True)
def _round_to_brain(value: Any) -> Any:
    """A float32 rounded to the nearest bfloat16 (ties to even); a NaN stays one."""
    bits = np.float32(value).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = np.uint32(np.uint32(bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000))
    if value != value:
        rounded = np.uint32((bits | np.uint32(0x400000)) & np.uint32(0xFFFF0000))
    return np.uint32(rounded).view(np.float32)


@njit(cache=True, nogil=True)
def _gathered(x: Any, steps: Any, ne: Any, row: Any, out: Any) -> None:
    """Row ``row`` (counted over all planes) as packed float32."""
    i1, i2, i3 = row % ne[1], row // ne[1] % ne[2], row // (ne[1] * ne[2])
    at = i1 * steps[1] + i2 * steps[2] + i3 * steps[3]
    if steps[0] == 1:
        for k in range(ne[0]):
            out[k] = x[at + k]
    else:
        for k in range(ne[0]):
            out[k] = x[at + k * steps[0]]


@njit(cache=True, nogil=True)
def _factor(largest: Any, values: Any, block: Any) -> Any:
    """What values are multiplied with, and the scale that undoes it."""
    if block == BLOCK:
        factor = np.float32(np.float32(127) / largest)
        scale = _round_to_half(np.float32(largest / np.float32(127)))
    else:
        k = 0
        while abs(values[k]) != largest:
            k += 1
        factor = np.float32(np.float32(-127) / values[k])
        scale = np.float32(np.float32(1) / factor)
    if np.isinf(factor):  # the values are too small for a scale
        factor = scale = np.float32(0)
    return factor, scale


@njit(cache=True, nogil=True)
def _sorted(number: Any) -> Any:
    """Where it stands if of each 4 those with even numbers come first."""
    return number // 4 * 4 + (number % 4 // 2) + (number % 2) * 2


@njit(cache=True, nogil=True)
def plain(x: Any, steps: Any, ne: Any, rounding: Any, out: Any) -> None:
    """Every row of x as float32, rounded to float16 or bfloat16 if asked for."""
    n = ne[0]
    for row in range(ne[1] * ne[2] * ne[3]):
        mine = out[row * n : (row + 1) * n]
        _gathered(x, steps, ne, row, mine)
        if rounding == HALF:
            for k in range(n):
                mine[k] = _round_to_half(mine[k])
        elif rounding == BRAIN:
            for k in range(n):
                mine[k] = _round_to_brain(mine[k])


@cache
def quantiser(wide: bool) -> Any:
    """The kernel that writes integers as int8, or as int16."""
    text, size = stamp("emit", "../panels"), 2 if wide else 1

    @njit(cache=True, nogil=True)
    def quantise(
        x: Any, steps: Any, ne: Any, block: Any, group: Any, offset: Any, line: Any, out: Any,
    ) -> None:  # fmt: skip
        """Every row of x, in blocks of 32 (``quantize_row_q8_0`` in ggml) or 256 (``…_q8_K``).

        32: the scale is ``max |x| / 127`` rounded to float16, the integers are ``x · (127 / max)``;
        the sum is kept times ``offset``.  256: the largest becomes -127, the scale is not rounded,
        sums are int16, of each ``group`` (16 or 32), of 4 such first those with even numbers.
        Integers are rounded half to even.  The scale of a block with a NaN or an infinity is NaN.
        ``line``: room for a row; ``out``: for all, as int32.
        """
        floats, shorts = out.view(np.float32), out.view(np.int16)
        start, out_at = np.int64(line.ctypes.data), np.int64(out.ctypes.data)
        scale_at = block * size
        record = scale_at + 4 + (4 if offset else 2 * block // group)
        at = 0
        for row in range(ne[1] * ne[2] * ne[3]):
            _gathered(x, steps, ne, row, line)
            for first in range(0, ne[0], block):
                last = first + block
                most = np.uint32(0)
                for k in range(first, last, BLOCK):
                    most = max(most, _largest(text, start + 4 * k))
                factor, scale = np.float32(0), np.float32(0)
                if most >= np.uint32(0x7F800000):
                    scale = np.float32(np.nan)
                    for k in range(first, last):
                        line[k] = 0
                elif most:
                    largest = np.uint32(most).view(np.float32)
                    factor, scale = _factor(largest, line[first:last], block)
                floats[(at + scale_at) // 4] = scale
                sums = (at + scale_at + 4) // 2
                for k in range(0, block, BLOCK):
                    low, high = _integers(
                        wide, start + 4 * (first + k), factor, out_at + at + k * size
                    )
                    if offset:
                        out[sums // 2] = offset * (low + high)
                    elif group == BLOCK:
                        shorts[sums + _sorted(k // BLOCK)] = low + high
                    else:
                        shorts[sums + _sorted(k // 16)] = low
                        shorts[sums + _sorted(k // 16 + 1)] = high
                at += record

    return quantise
