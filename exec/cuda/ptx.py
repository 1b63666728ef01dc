"""Instructions of the GPU that Numba has no name for, as inline PTX."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda, types
from numba.extending import intrinsic

FULL_WARP = 0xFFFFFFFF
_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


def _asm(builder: Any, result: Any, code: str, constraints: str, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.asm(kind, code, constraints, arguments, side_effect=False)


@intrinsic
def float_of_half(typing: Any, bits: Any) -> Any:
    """The float32 of a float16, given as its 16 bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _asm(builder, _F32, "cvt.f32.f16 $0, $1;", "=f,h", list(args))

    return types.float32(types.uint16), generate


@intrinsic
def half_of_float(typing: Any, value: Any) -> Any:
    """The 16 bits of a float32 rounded to float16, ties to even."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _asm(builder, _I16, "cvt.rn.f16.f32 $0, $1;", "=h,f", list(args))

    return types.uint16(types.float32), generate


@intrinsic
def bits_of_float(typing: Any, value: Any) -> Any:
    """The 32 bits of a float32."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I32)

    return types.uint32(types.float32), generate


@intrinsic
def float_of_bits(typing: Any, bits: Any) -> Any:
    """The float32 of 32 bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F32)

    return types.float32(types.uint32), generate


@intrinsic
def dot4(typing: Any, a: Any, b: Any, total: Any) -> Any:
    """``total`` plus the four products of the signed bytes of two words."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _asm(builder, _I32, "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", list(args))

    return types.int32(types.int32, types.int32, types.int32), generate


@intrinsic
def rounded(typing: Any, value: Any) -> Any:
    """The nearest int32, halves to even."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _asm(builder, _I32, "cvt.rni.s32.f32 $0, $1;", "=r,f", list(args))

    return types.int32(types.float32), generate


@intrinsic
def word_of(typing: Any, low: Any, high: Any) -> Any:
    """A word of two half-words."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        low, high = (builder.zext(half, _I32) for half in args)
        return builder.or_(low, builder.shl(high, ir.Constant(_I32, 16)))

    return types.int32(types.uint16, types.uint16), generate


@cuda.jit(device=True)
def barrier() -> None:
    """Wait for all threads of the block."""
    cuda.syncthreads()


@cuda.jit(device=True)
def lane_sum(value: Any, scratch: Any, thread: Any) -> Any:
    """The sum over the lanes of a warp, in each of them; by shuffles, without the scratch."""
    value += cuda.shfl_xor_sync(FULL_WARP, value, 16)
    value += cuda.shfl_xor_sync(FULL_WARP, value, 8)
    value += cuda.shfl_xor_sync(FULL_WARP, value, 4)
    value += cuda.shfl_xor_sync(FULL_WARP, value, 2)
    value += cuda.shfl_xor_sync(FULL_WARP, value, 1)
    return value
