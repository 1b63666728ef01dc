"""Vector code for the inner loops of products, written as LLVM's own vectors.

Numba unrolls a loop over the 32 elements of a block before it is vectorised, so that it stays
scalar; here each loop is spelled out, for one of three instruction sets.  Weights come in lines:
4 neighbouring elements of each of 16 rows, so that an integer product needs no sum across lanes.
All sums of integers are exact: the three sets give the same integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from ..panels import PANEL as PANEL

PORTABLE, AVX2, VNNI = 0, 1, 2
#: The largest integer that an activation is rounded to.
MOST = 127

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
Value = Any


def vector(kind: Any, lanes: int) -> Any:
    return ir.VectorType(kind, lanes)


def constant(kind: Any, number: float) -> Value:
    """A number in every lane of a vector type."""
    return ir.Constant(kind, [number] * kind.count)


@dataclass(frozen=True)
class Line:
    """Weights of one line, and at most how large.

    ``odd``: every second element, where the others are in ``values``; both are then int16, and
    2 ** ``shift`` times as large as they should be.
    """

    values: Value
    most: int
    odd: Value = None
    shift: int = 0


@dataclass(frozen=True)
class Sum:
    """A running sum of products per row, all times ``factors`` (of the row; 1 if ``None``).

    ``total``: int32, the factors included; ``narrow``: int32 or int16 pairs to which they are
    still to be applied, 2 ** ``shift`` times too large, and the largest that an int16 can be.
    """

    factors: Value = None
    total: Value = None
    narrow: Value = None
    most: int = 0
    shift: int = 0


#: 4 neighbouring activations for every row: their bytes, or as int16 first those that are even.
Spread = tuple[Value, ...]


class Portable:
    """Arithmetic that every processor has.  ``rows``: those of one vector, of which ``groups``
    make a panel."""

    rows = 8
    #: What signed bytes are raised by to be unsigned.
    raised = 0

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.groups = range(PANEL // self.rows)
        self.bytes = vector(I8, 4 * self.rows)
        self.pairs = vector(I16, 2 * self.rows)
        self.ints = vector(I32, self.rows)
        self.floats = vector(F32, self.rows)

    # -- memory -----------------------------------------------------------------------------

    def at(self, pointer: Value, offset: Value | int) -> Value:
        place = I64(offset) if isinstance(offset, int) else offset
        return self.builder.gep(pointer, [place])

    def load(self, pointer: Value, kind: Any) -> Value:
        value = self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()))
        value.align = 1
        return value

    def store(self, value: Value, pointer: Value) -> None:
        place = self.builder.bitcast(pointer, value.type.as_pointer())
        self.builder.store(value, place).align = 1

    def spread(self, value: Value, kind: Any) -> Value:
        """A scalar in all lanes of a vector type."""
        empty = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(empty, value, I32(0))
        return self.builder.shuffle_vector(first, empty, constant(vector(I32, kind.count), 0))

    def call(self, name: str, result: Any, *arguments: Value) -> Value:
        kind = ir.FunctionType(result, [a.type for a in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)

    def hidden(self, number: int) -> Value:
        """A number that the compiler does not know: a loop so often stays a loop."""
        kind = ir.FunctionType(I64, [I64])
        return self.builder.asm(kind, "", "=r,0", [I64(number)], side_effect=False)

    @contextmanager
    def repeat(self, number: int) -> Iterator[Value]:
        """A loop that stays one, at least once through: were there a way around it, the compiler
        would compute what follows it in every turn.  Gives the turn."""
        b, before = self.builder, self.builder.block
        count = self.hidden(number)
        turn = b.append_basic_block("turn")
        b.branch(turn)
        b.position_at_end(turn)
        index = b.phi(I64)
        index.add_incoming(I64(0), before)
        yield index
        following = b.add(index, I64(1))
        index.add_incoming(following, b.block)
        done = b.append_basic_block("done")
        b.cbranch(b.icmp_signed("<", following, count), turn, done)
        b.position_at_end(done)

    def prefetch(self, pointer: Value) -> None:
        self.call("llvm.prefetch.p0", ir.VoidType(), pointer, I32(0), I32(3), I32(1))

    # -- floats -----------------------------------------------------------------------------

    def halves(self, pointer: Value) -> Value:
        """float16 of each row, as float32; exact."""
        return self.widen(self.load(pointer, vector(I16, self.rows)))

    def widen(self, bits: Value) -> Value:
        b = self.builder
        ints, floats = vector(I32, bits.type.count), vector(F32, bits.type.count)
        wide = b.zext(bits, ints)
        magnitude = b.shl(b.and_(wide, constant(ints, 0x7FFF)), constant(ints, 13))
        exponent = constant(ints, 0x7C00)
        special = b.icmp_unsigned("==", b.and_(wide, exponent), exponent)  # infinity or NaN
        number = b.fmul(b.bitcast(magnitude, floats), constant(floats, 2.0**112))
        beyond = b.or_(magnitude, constant(ints, 0x7F800000))
        sign = b.shl(b.and_(wide, constant(ints, 0x8000)), constant(ints, 16))
        found = b.select(special, beyond, b.bitcast(number, ints))
        return b.bitcast(b.or_(found, sign), floats)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.builder.fadd(self.builder.fmul(a, b), c)

    # -- integers ---------------------------------------------------------------------------

    @classmethod
    def wide(cls, signed: bool) -> bool:
        """Whether activations are kept as int16, for weights that are signed or not."""
        return True

    def narrow(self, wide: bool) -> Any:
        """The type of a sum that has no factors yet."""
        return self.ints

    def activations(self, quants: Value, element: int, wide: bool) -> Spread:
        """4 of a row, from one on.  Wide: the int16 of 0 and 2, then those of 1 and 3."""
        size, kind = (2, self.pairs) if wide else (1, self.bytes)
        words = [self.load(self.at(quants, size * element + 4 * k), I32) for k in range(size)]
        return tuple(self.builder.bitcast(self.spread(word, self.ints), kind) for word in words)

    def _split(self, values: Value, signed: bool) -> tuple[Value, Value]:
        """Even and odd bytes as int16."""
        b, eight = self.builder, constant(self.pairs, 8)
        pairs = b.bitcast(values, self.pairs)
        if not signed:
            return b.and_(pairs, constant(self.pairs, 255)), b.lshr(pairs, eight)
        return b.ashr(b.shl(pairs, eight), eight), b.ashr(pairs, eight)

    def signed_pairs(self, values: Value) -> tuple[Value, Value]:
        """Bytes 0 and 2 of each 4, then 1 and 3, as int16."""
        return self._split(values, signed=True)

    def unsigned_pairs(self, values: Value) -> tuple[Value, Value]:
        return self._split(values, signed=False)

    def dots(self, left: Value, right: Value) -> Value:
        """Products of int16, neighbours added: a pattern that LLVM knows as one instruction."""
        b, count = self.builder, left.type.count
        wide = vector(I32, count)
        product = b.mul(b.sext(left, wide), b.sext(right, wide))
        halves = []
        for first in (0, 1):
            picked = ir.Constant(vector(I32, count // 2), list(range(first, count, 2)))
            halves.append(b.shuffle_vector(product, ir.Constant(wide, ir.Undefined), picked))
        return b.add(*halves)

    def signed(self, values: Value) -> Line:
        """Bytes in ``[-128, 127]``, 256 times as large: the sums of a block still fit."""
        b, pairs = self.builder, self.builder.bitcast(values, self.pairs)
        even, odd = b.shl(pairs, constant(self.pairs, 8)), b.and_(pairs, constant(self.pairs, -256))
        return Line(even, 128, odd, 8)

    def unsigned(self, values: Value, most: int) -> Line:
        even, odd = self._split(values, signed=False)
        return Line(even, most, odd)

    def products(self, line: Line, activations: Spread, before: Value) -> Value:
        """4 products per row, added to what was before, if anything."""
        even, odd = activations
        before = self.plus(before, self.dots(line.values, even))
        return self.plus(before, self.dots(line.odd, odd))

    def plus(self, before: Value, more: Value) -> Value:
        return more if before is None else self.builder.add(before, more)

    def factors(self, numbers: Value) -> Value:
        """int32 that fit into int16, in the form that a sum takes."""
        return numbers

    def byte_factors(self, words: Value, index: int) -> Value:
        """The same of an unsigned byte of each word."""
        b = self.builder
        return b.and_(b.lshr(words, constant(self.ints, 8 * index)), constant(self.ints, 255))

    def add(self, total: Sum, line: Line, activations: Spread) -> Sum:
        more = self.products(line, activations, total.narrow)
        return replace(total, narrow=more, shift=line.shift)

    def value(self, total: Sum) -> Value:
        """The sum as int32."""
        if total.narrow is None:
            return total.total
        more = total.narrow
        if total.shift:
            more = self.builder.ashr(more, constant(self.ints, total.shift))
        if total.factors is not None:
            more = self.builder.mul(more, total.factors)
        return self.plus(total.total, more)

    def look_up(self, table: Sequence[int], places: Value) -> Value:
        """``table[place]`` for bytes below 16; its values lie in ``[0, 127]``."""
        b, found = self.builder, constant(self.bytes, table[0])
        for index in range(1, 16):
            here = b.icmp_unsigned("==", places, constant(self.bytes, index))
            found = b.select(here, constant(self.bytes, table[index]), found)
        return found


class Avx2(Portable):
    """AVX2, FMA and F16C.

    Products of unsigned bytes stay in int16 as long as their sums must fit.  For signed ones that
    would be a single product, so they are taken as int16 from the start.
    """

    def widen(self, bits: Value) -> Value:
        count = bits.type.count
        half = self.builder.bitcast(bits, vector(F16, count))
        return self.builder.fpext(half, vector(F32, count))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.call(f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)

    @classmethod
    def wide(cls, signed: bool) -> bool:
        return signed

    def narrow(self, wide: bool) -> Any:
        return self.ints if wide else self.pairs

    def dots(self, left: Value, right: Value) -> Value:
        return self.call("llvm.x86.avx2.pmadd.wd", self.ints, left, right)

    def unsigned(self, values: Value, most: int) -> Line:
        return Line(values, most)

    def factors(self, numbers: Value) -> Value:
        b = self.builder
        low = b.and_(numbers, constant(self.ints, 0xFFFF))
        return b.bitcast(b.or_(low, b.shl(numbers, constant(self.ints, 16))), self.pairs)

    def byte_factors(self, words: Value, index: int) -> Value:
        # Number 128 gives a zero.
        picked = [place for first in range(0, 16, 4) for place in (first + index, 128) * 2]
        places = ir.Constant(self.bytes, picked * (self.bytes.count // 16))
        values = self.builder.bitcast(words, self.bytes)
        found = self.call("llvm.x86.avx2.pshuf.b", self.bytes, values, places)
        return self.builder.bitcast(found, self.pairs)

    def add(self, total: Sum, line: Line, activations: Spread) -> Sum:
        if line.odd is not None:
            return super().add(total, line, activations)
        name = "llvm.x86.avx2.pmadd.ub.sw"
        more = self.call(name, self.pairs, line.values, activations[0])
        most = 2 * MOST * line.most
        if total.most + most < 2**15:
            return replace(total, narrow=self.plus(total.narrow, more), most=total.most + most)
        return replace(total, total=self.value(total), narrow=more, most=most)

    def value(self, total: Sum) -> Value:
        if total.narrow is None or total.narrow.type == self.ints:
            return super().value(total)
        factors = constant(self.pairs, 1) if total.factors is None else total.factors
        return self.plus(total.total, self.dots(total.narrow, factors))

    def look_up(self, table: Sequence[int], places: Value) -> Value:
        values = ir.Constant(self.bytes, list(table) * (self.bytes.count // 16))
        return self.call("llvm.x86.avx2.pshuf.b", self.bytes, values, places)


class Vnni(Avx2):
    """AVX-512 with VNNI: 64 products of a byte that is unsigned and one that is signed."""

    rows = 16
    raised = 128

    @classmethod
    def wide(cls, signed: bool) -> bool:
        return False

    def signed(self, values: Value) -> Line:
        return Line(self.builder.xor(values, constant(self.bytes, -128)), 255)

    def products(self, line: Line, activations: Spread, before: Value) -> Value:
        start = constant(self.ints, 0) if before is None else before
        # Bytes are given as int32, as LLVM had it before version 22 and still reads it.
        words = [self.builder.bitcast(v, self.ints) for v in (line.values, *activations)]
        return self.call("llvm.x86.avx512.vpdpbusd.512", self.ints, start, *words)

    narrow, dots = Portable.narrow, Portable.dots
    factors, byte_factors = Portable.factors, Portable.byte_factors
    add, value = Portable.add, Portable.value

    def look_up(self, table: Sequence[int], places: Value) -> Value:
        values = ir.Constant(self.bytes, list(table) * 4)
        return self.call("llvm.x86.avx512.pshuf.b.512", self.bytes, values, places)


PATHS: dict[int, type[Portable]] = {PORTABLE: Portable, AVX2: Avx2, VNNI: Vnni}
