"""Instructions of the GPU that Numba has no name for, as inline PTX."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda, types
from numba.extending import intrinsic

#: Threads of a warp.
LANES = 32
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
def float_of_brain(typing: Any, bits: Any) -> Any:
    """The float32 of a bfloat16, given as its 16 bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.shl(builder.zext(args[0], _I32), ir.Constant(_I32, 16))
        return builder.bitcast(word, _F32)

    return types.float32(types.uint16), generate


@intrinsic
def brain_of_float(typing: Any, value: Any) -> Any:
    """The 16 bits of a float32 rounded to bfloat16, ties to even."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _asm(builder, _I16, "cvt.rn.bf16.f32 $0, $1;", "=h,f", list(args))

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


@intrinsic
def quad(typing: Any, array: Any, at: Any) -> Any:
    """Four words of an array of uint32, in one load of 16 bytes: they must start at such."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = context.make_array(sig.args[0])(context, builder, args[0])
        start = builder.gep(words.data, [args[1]])
        vector = ir.VectorType(_I32, 4)
        loaded = builder.load(builder.bitcast(start, vector.as_pointer()), typ=vector, align=16)
        parts = [builder.extract_element(loaded, ir.Constant(_I32, k)) for k in range(4)]
        return context.make_tuple(builder, sig.return_type, parts)

    return types.UniTuple(types.uint32, 4)(array, types.int64), generate


def _mma(shape: str, result: Any, words: int, accumulated: bool) -> Any:
    """The generator of an ``mma.sync`` with four results and ``words`` of the two factors."""
    kind, letter = (_F32, "f") if result is types.float32 else (_I32, "r")
    registers = iter(range(100))

    def listed(count: int) -> str:
        return "{" + ", ".join(f"${next(registers)}" for _ in range(count)) + "}"

    row, column = (4, 2) if words == 6 else (2, 1)
    text = f"mma.sync.aligned.{shape} {listed(4)}, {listed(row)}, {listed(column)}, "
    text += (listed(4) if accumulated else "{0, 0, 0, 0}") + ";"
    constraints = [f"={letter}"] * 4 + ["r"] * words + [letter] * (4 * accumulated)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        operands = [*args[1 : 1 + words], *args[1 + words :]]
        form = ir.FunctionType(ir.LiteralStructType([kind] * 4), [a.type for a in operands])
        # All lanes of the warp take part: it must not be moved behind a branch.
        call = builder.asm(form, text, ",".join(constraints), operands, side_effect=True)
        call.attributes.add("convergent")
        parts = [builder.extract_value(call, k) for k in range(4)]
        return context.make_tuple(builder, sig.return_type, parts)

    arguments = [types.int64, *[types.uint32] * words, *[result] * (4 * accumulated)]
    return types.UniTuple(result, 4)(*arguments), generate


@intrinsic
def mma_bytes(
    typing: Any, thread: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any
) -> Any:
    """``[16, 32]`` times ``[32, 8]`` int8: see ``fragments.py`` for who has what."""
    return _mma("m16n8k32.row.col.s32.s8.s8.s32", types.int32, 6, False)


@intrinsic
def mma_few_bytes(typing: Any, thread: Any, a0: Any, a1: Any, b0: Any) -> Any:
    """``[16, 16]`` times ``[16, 8]`` int8."""
    return _mma("m16n8k16.row.col.s32.s8.s8.s32", types.int32, 3, False)


@intrinsic
def mma_halves(
    typing: Any, thread: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any,
    c0: Any, c1: Any, c2: Any, c3: Any,
) -> Any:  # fmt: skip
    """``[16, 16]`` times ``[16, 8]`` float16, added to ``c``."""
    return _mma("m16n8k16.row.col.f32.f16.f16.f32", types.float32, 6, True)


@intrinsic
def mma_brains(
    typing: Any, thread: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any,
    c0: Any, c1: Any, c2: Any, c3: Any,
) -> Any:  # fmt: skip
    """``[16, 16]`` times ``[16, 8]`` bfloat16, added to ``c``."""
    return _mma("m16n8k16.row.col.f32.bf16.bf16.f32", types.float32, 6, True)


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


@cuda.jit(device=True)
def lane_max(value: Any, scratch: Any, thread: Any) -> Any:
    """The greatest int64 of the lanes of a warp, in each of them."""
    for lanes in (16, 8, 4, 2, 1):
        other = cuda.shfl_xor_sync(FULL_WARP, value, lanes)
        if other > value:
            value = other
    return value
