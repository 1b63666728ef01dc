"""How a block of each quantised type is multiplied: 16 rows times up to 4 rows of activations.

A panel holds 16 rows, block after block.  In each of its blocks come first the float16 of all
rows, then lines: word k (4 bytes) of all rows beside each other.  It takes as many bytes as the
rows did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .emit import F32, I8, I32, I64, PANEL, Line, Portable, Sum, Value, constant, vector

#: How far ahead of its multiplication a weight is asked for, in bytes.
PREFETCH = 2048
#: Bytes of a line.
LINE = 4 * PANEL
#: The values of MXFP4's 16 codes, twice as large (``kvalues_mxfp4`` in ggml), and 12 more.
FP4 = tuple(12 + v for v in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))


@dataclass(frozen=True)
class Column:
    """A row of activations, from one block on: its int8, the scale, the sums."""

    quants: Value
    scale: Value
    sums: Value


@dataclass(frozen=True)
class Block:
    """Some rows (those of one vector) of a panel's block: where their float16 and lines begin."""

    p: Portable
    floats: Value
    lines: Value

    def half(self, index: int) -> Value:
        """float16 ``index`` of each row, as float32."""
        return self.p.halves(self.p.at(self.floats, 2 * PANEL * index))

    def line(self, index: int) -> Value:
        """Word ``index`` of each row, as bytes."""
        return self.p.load(self.p.at(self.lines, LINE * index), self.p.bytes)

    def since(self, line: Value) -> Block:
        """The same, lines counted from a later one."""
        first = self.p.builder.mul(line, I64(LINE))
        return replace(self, lines=self.p.at(self.lines, first))

    def word(self, index: int) -> Value:
        return self.p.builder.bitcast(self.line(index), self.p.ints)

    def low(self, line: Value) -> Value:
        return self.p.builder.and_(line, constant(self.p.bytes, 15))

    def high(self, line: Value) -> Value:
        return self.p.builder.lshr(line, constant(self.p.bytes, 4))

    def activations(self, column: Column, element: int) -> Value:
        """4 neighbouring integers, for every row."""
        word = self.p.load(self.p.at(column.quants, element), I32)
        return self.p.builder.bitcast(self.p.spread(word, self.p.ints), self.p.bytes)

    def sum(self, column: Column, group: int, factor: int = 1) -> Value:
        """``factor`` times a sum of the activations, for every row."""
        number = self.p.load(self.p.at(column.sums, 4 * group), I32)
        return self.p.spread(self.p.builder.mul(number, I32(factor)), self.p.ints)

    def scale(self, column: Column) -> Value:
        return self.p.spread(self.p.load(column.scale, F32), self.p.floats)

    def add(self, totals: list[Sum], line: Line, columns: Sequence[Column], element: int) -> None:
        """A line's products, to the sum of each column."""
        for index, column in enumerate(columns):
            totals[index] = self.p.add(totals[index], line, self.activations(column, element))

    def scaled(self, totals: Sequence[Value], scale: Value, before: Sequence[Value],
               columns: Sequence[Column]) -> list[Value]:  # fmt: skip
        """``before + total · scale · scale of the activations`` for each column."""
        b, found = self.p.builder, []
        for total, old, column in zip(totals, before, columns, strict=True):
            factor = b.fmul(scale, self.scale(column))
            found.append(self.p.fma(b.sitofp(total, self.p.floats), factor, old))
        return found


Floats = list[Any]
Multiply = Callable[[Block, Sequence[Column], Floats], Floats]


def q8_0(block: Block, columns: Sequence[Column], before: Floats) -> Floats:
    p = block.p
    totals = [Sum()] * len(columns)
    for k in range(8):
        block.add(totals, p.signed(block.line(k)), columns, 4 * k)
    values = [p.value(total) for total in totals]
    if p.raised:
        values = [
            p.builder.sub(value, block.sum(column, 0, p.raised))
            for value, column in zip(values, columns, strict=True)
        ]
    return block.scaled(values, block.half(0), before, columns)


def q4_0(block: Block, columns: Sequence[Column], before: Floats) -> Floats:
    """Element k is the low half of byte k less 8, element 16 + k the high half."""
    p = block.p
    totals = [Sum(total=block.sum(column, 0, -8)) for column in columns]
    for k in range(4):
        line = block.line(k)
        block.add(totals, p.unsigned(block.low(line), 15), columns, 4 * k)
        block.add(totals, p.unsigned(block.high(line), 15), columns, 16 + 4 * k)
    return block.scaled([p.value(t) for t in totals], block.half(0), before, columns)


def _six_bits(block: Block) -> list[tuple[Value, Value]]:
    """The 8 (scale, minimum) of 6 bits that each row has in 12 bytes (``get_scale_min_k4``)."""
    b, ints = block.p.builder, block.p.ints
    scales, minima, rest = (block.word(k) for k in range(3))

    def bits(word: Value, first: int, mask: int) -> Value:
        return b.and_(b.lshr(word, constant(ints, first)), constant(ints, mask))

    pairs = [(bits(scales, 8 * j, 63), bits(minima, 8 * j, 63)) for j in range(4)]
    four = constant(ints, 4)
    for j in range(4):
        upper = [b.shl(bits(word, 8 * j + 6, 3), four) for word in (scales, minima)]
        pairs.append(
            (b.or_(bits(rest, 8 * j, 15), upper[0]), b.or_(bits(rest, 8 * j + 4, 15), upper[1]))
        )
    return pairs


def _rest(p: Portable, columns: Sequence[Column], first: Value, size: int) -> list[Column]:
    """The columns from a group of integers on; ``first``: its number, ``size``: integers in it."""
    b = p.builder
    start, sums = b.mul(first, I64(size)), b.mul(first, I64(4 * size // 16))
    return [Column(p.at(c.quants, start), c.scale, p.at(c.sums, sums)) for c in columns]


def q4_k(block: Block, columns: Sequence[Column], before: Floats) -> Floats:
    """8 groups of 32: ``d · scale · q - dmin · minimum``; two groups share their bytes."""
    p, b = block.p, block.p.builder
    table = b.bitcast(cgutils.alloca_once(b, ir.ArrayType(p.ints, 16)), I8.as_pointer())
    size = 4 * p.rows
    for index, numbers in enumerate(_six_bits(block)):
        for half, number in enumerate(numbers):
            p.store(number, p.at(table, size * (2 * index + half)))
    nothing = constant(p.ints, 0)
    places = [[cgutils.alloca_once_value(b, nothing) for _ in range(2)] for _ in columns]
    with cgutils.for_range(b, I64(4)) as loop:
        lines = block.since(b.mul(loop.index, I64(8)))
        rest = _rest(p, columns, loop.index, 64)
        numbers = p.at(table, b.mul(loop.index, I64(4 * size)))
        for half in (0, 1):
            scale, minimum = (p.load(p.at(numbers, size * (2 * half + k)), p.ints) for k in (0, 1))
            sums = [Sum(p.factors(scale), b.load(total)) for total, _ in places]
            for k in range(8):
                line = lines.line(3 + k)
                nibbles = block.high(line) if half else block.low(line)
                block.add(sums, p.unsigned(nibbles, 15), rest, 32 * half + 4 * k)
            for total, column, (place, offset) in zip(sums, rest, places, strict=True):
                b.store(p.value(total), place)
                activations = b.add(block.sum(column, 2 * half), block.sum(column, 2 * half + 1))
                b.store(b.add(b.load(offset), b.mul(minimum, activations)), offset)
    totals, offsets = ([b.load(place[k]) for place in places] for k in (0, 1))
    found = block.scaled(totals, block.half(0), before, columns)
    return block.scaled(offsets, b.fneg(block.half(1)), found, columns)


def q6_k(block: Block, columns: Sequence[Column], before: Floats) -> Floats:
    """16 groups of 16 with an int8 scale; 4 low bits in lines 0 to 31, 2 high in 32 to 47.

    Of each 128 elements, the low bits of element 64 h + 32 r + k are half h of byte 32 r + k,
    the high ones bits 4 h + 2 r of byte k.  The loop is over 16 of the k at a time.
    """
    p, b = block.p, block.p.builder
    nothing = constant(p.ints, 0)
    places = [cgutils.alloca_once_value(b, nothing) for _ in columns]
    with cgutils.for_range(b, I64(4)) as loop:
        part, quarter = b.lshr(loop.index, I64(1)), b.and_(loop.index, I64(1))
        lows = block.since(b.add(b.mul(part, I64(16)), b.mul(quarter, I64(4))))
        highs = block.since(b.add(b.mul(part, I64(8)), b.mul(quarter, I64(4))))
        scales = block.since(b.mul(part, I64(2)))
        rest = _rest(p, columns, b.add(b.mul(part, I64(8)), quarter), 16)
        totals = [b.load(place) for place in places]
        for h, r in ((0, 0), (0, 1), (1, 0), (1, 1)):
            up = b.sub(I32(24 - 16 * r), b.mul(b.trunc(quarter, I32), I32(8)))
            word = b.shl(scales.word(48 + h), p.spread(up, p.ints))
            scale = b.ashr(word, constant(p.ints, 24))
            sums = [Sum(p.factors(scale), total) for total in totals]
            for k in range(4):
                low = lows.line(8 * r + k)
                low = block.high(low) if h else block.low(low)
                shift = 4 * h + 2 * r - 4
                move = b.lshr if shift > 0 else b.shl
                high = move(highs.line(32 + k), constant(p.bytes, abs(shift)))
                value = b.or_(low, b.and_(high, constant(p.bytes, 48)))
                block.add(sums, p.unsigned(value, 63), rest, 64 * h + 32 * r + 4 * k)
            totals = [
                b.sub(p.value(total), b.mul(scale, block.sum(column, 4 * h + 2 * r, 32)))
                for total, column in zip(sums, rest, strict=True)
            ]
        for total, place in zip(totals, places, strict=True):
            b.store(total, place)
    return block.scaled([b.load(place) for place in places], block.half(0), before, columns)


@dataclass(frozen=True)
class Form:
    """A quantised type as the kernels see it.

    ``block``: elements; ``halves``: offsets of the float16 in a block of the file; ``words``:
    offset of the first word, and how many; ``group``: activations per sum.
    """

    name: str
    block: int
    halves: tuple[int, ...]
    words: tuple[int, int]
    group: int
    multiply: Multiply

    @property
    def bytes(self) -> int:
        return 2 * len(self.halves) + 4 * self.words[1]

    @property
    def shape(self) -> tuple[int, int, tuple[int, int], int, int]:
        """Bytes of a block, how many float16, where (at most two), first word, words."""
        first, second = (*self.halves, 0)[:2]
        return self.bytes, len(self.halves), (first, second), *self.words


FORMS = (
    Form("q8_0", 32, (0,), (2, 8), 32, q8_0),
    Form("q4_0", 32, (0,), (2, 4), 32, q4_0),
    Form("q4_k", 256, (0, 2), (4, 35), 16, q4_k),
    Form("q6_k", 256, (208,), (0, 52), 16, q6_k),
)


@dataclass(frozen=True)
class Activations:
    """Where the rows of activations begin: their int8, float32 scales, int32 sums."""

    quants: Value
    scales: Value
    sums: Value

    def column(self, p: Portable, form: Form, row: Value, blocks: Value, block: Value) -> Column:
        index = p.builder.add(p.builder.mul(row, blocks), block)

        def step(size: int) -> Value:
            return p.builder.mul(index, I64(size))

        return Column(
            p.at(self.quants, step(form.block)),
            p.at(self.scales, step(4)),
            p.at(self.sums, step(4 * (form.block // form.group))),
        )


def emit_tile(p: Portable, form: Form, panel: Value, blocks: Value, activations: Activations,
              rows: Sequence[Value], out: Value) -> None:  # fmt: skip
    """A panel of ``blocks`` blocks times some rows of activations; 16 float32 each to ``out``."""
    b = p.builder
    zero = constant(vector(F32, PANEL), 0.0)
    for index in range(len(rows)):
        p.store(zero, p.at(out, 4 * PANEL * index))
    with cgutils.for_range(b, blocks) as loop:
        start = p.at(panel, b.mul(loop.index, I64(PANEL * form.bytes)))
        for ahead in range(0, PANEL * form.bytes, LINE):
            p.prefetch(p.at(start, PREFETCH + ahead))
        columns = [activations.column(p, form, row, blocks, loop.index) for row in rows]
        with cgutils.for_range(b, I64(PANEL // p.rows)) as part:
            first = b.mul(part.index, I64(p.rows))
            floats = p.at(start, b.mul(first, I64(2)))
            lines = p.at(p.at(start, 2 * PANEL * len(form.halves)), b.mul(first, I64(4)))
            mine = p.at(out, b.mul(first, I64(4)))
            places = [p.at(mine, 4 * PANEL * index) for index in range(len(rows))]
            before = [p.load(place, p.floats) for place in places]
            found = form.multiply(Block(p, floats, lines), columns, before)
            for new, place in zip(found, places, strict=True):
                p.store(new, place)
