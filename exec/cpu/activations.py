"""Activations as the products take them, rounded as ggml rounds them for each type of weight.

A quantised row is its int8, a float32 scale per block, and int32 sums of the integers.  A row for
plain weights is float32, of which only a float16 or bfloat16 is left if the weights are of that
type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .emit import F32, I8, I32, Portable, constant, vector
from .native import stamp

BLOCK, SUPER = 32, 256
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

    return types.uint32(text, types.uint64), generate


@intrinsic
def _integers(typing: Any, values: Any, factor: Any, quants: Any) -> Any:
    """32 float32 times a factor, rounded half to even, written as int8; the sum of 16 and 16."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        p, floats = Portable(builder), vector(F32, BLOCK)
        source, target = (builder.inttoptr(args[k], I8.as_pointer()) for k in (0, 2))
        scaled = builder.fmul(p.load(source, floats), p.spread(args[1], floats))
        rounded = p.call(f"llvm.rint.v{BLOCK}f32", floats, scaled)
        integers = builder.fptosi(rounded, vector(I32, BLOCK))
        most = constant(integers.type, 127)
        integers = p.call(f"llvm.smin.v{BLOCK}i32", integers.type, integers, most)
        p.store(builder.trunc(integers, vector(I8, BLOCK)), target)
        sums = []
        for first in (0, BLOCK // 2):
            places = ir.Constant(vector(I32, 16), list(range(first, first + 16)))
            half = builder.shuffle_vector(integers, integers, places)
            sums.append(p.call("llvm.vector.reduce.add.v16i32", I32, half))
        return context.make_tuple(builder, sig.return_type, sums)

    pair = types.UniTuple(types.int32, 2)
    return pair(types.uint64, types.float32, types.uint64), generate


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


def _quantiser(text: int) -> Any:
    """``text``: a number of the helpers' text, which the cache of compiled code goes by."""

    @njit(cache=True, nogil=True)
    def quantise(
        x: Any, steps: Any, ne: Any, block: Any, line: Any, start: Any, out: Any, scales: Any,
        sums: Any,
    ) -> None:  # fmt: skip
        """Every row of x, in blocks of 32 (``quantize_row_q8_0`` in ggml) or 256 (``…_q8_K``).

        32: the scale is ``max |x| / 127`` rounded to float16, the integers are ``x · (127 / max)``,
        summed by 32.  256: the largest becomes -127, the scale is not rounded, sums are of 16.
        Integers are rounded half to even.  The scale of a block with a NaN or an infinity is NaN.
        ``line``: room for a row, at address ``start``; ``out``: address of the integers.
        """
        u = np.uint64
        blocks = ne[0] // block
        for row in range(ne[1] * ne[2] * ne[3]):
            _gathered(x, steps, ne, row, line)
            for b in range(blocks):
                first, last = b * block, (b + 1) * block
                most = np.uint32(0)
                for k in range(first, last, BLOCK):
                    most = max(most, _largest(text, start + u(4 * k)))
                factor, scale = np.float32(0), np.float32(0)
                if most >= np.uint32(0x7F800000):
                    scale = np.float32(np.nan)
                    for k in range(first, last):
                        line[k] = 0
                elif most:
                    largest = np.uint32(most).view(np.float32)
                    factor, scale = _factor(largest, line[first:last], block)
                scales[row * blocks + b] = scale
                for k in range(first, last, BLOCK):
                    low, high = _integers(start + u(4 * k), factor, out + u(row * ne[0] + k))
                    group = (row * ne[0] + k) // BLOCK
                    if block == BLOCK:
                        sums[group] = low + high
                    else:
                        sums[2 * group], sums[2 * group + 1] = low, high

    return quantise


quantise = _quantiser(stamp("emit"))
