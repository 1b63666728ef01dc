"""How a block of each quantised type is multiplied: 16 rows times up to 4 rows of activations.

A panel holds 16 rows, block after block.  In each of its blocks come first the scales of all rows
(float16, or the byte of an exponent), then lines: word k (4 bytes) of all rows beside each other.
It takes as many bytes as the rows did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .emit import F32, I8, I32, I64, PANEL, Line, Portable, Sum, Value, constant, vector

#: How far ahead of its multiplication a weight is asked for, in bytes.
PREFETCH = 2048
#: Vectors of sums that stay in registers beside those of a block; more are kept in memory.
KEPT = 4
#: Bytes of a line.
LINE = 4 * PANEL
#: The values of MXFP4's 16 codes, twice as large (``kvalues_mxfp4`` in ggml), and 12 more.
FP4 = tuple(12 + v for v in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))

#: One vector for each group of rows of a panel.
Rows = list[Any]
Terms = Callable[["Block"], Sequence[tuple[Sequence[Line], int]]]


@dataclass(frozen=True)
class Column:
    """A row of activations in one block: its integers; its scale, with the sums behind it."""

    quants: Value
    scale: Value


@dataclass(frozen=True)
class Block:
    """A panel's block: where its scales and its lines begin; whether activations are int16."""

    p: Portable
    scales: Value
    lines: Value
    wide: bool

    def half(self, index: int) -> Rows:
        """float16 ``index`` of each row, as float32."""
        start = self.p.at(self.scales, 2 * PANEL * index)
        return [self.p.halves(self.p.at(start, 2 * self.p.rows * g)) for g in self.p.groups]

    def exponents(self) -> Rows:
        """``2 ** (byte - 128)`` for the byte of each row (``GGML_E8M0_TO_FP32_HALF``); exact."""
        p, b, found = self.p, self.p.builder, []
        for g in p.groups:
            raw = p.load(p.at(self.scales, p.rows * g), vector(I8, p.rows))
            byte = b.zext(raw, p.ints)
            normal = b.shl(b.sub(byte, constant(p.ints, 1)), constant(p.ints, 23))
            tiny = b.shl(constant(p.ints, 1 << 21), byte)  # below float32's least exponent
            small = b.icmp_unsigned("<", byte, constant(p.ints, 2))
            found.append(b.bitcast(b.select(small, tiny, normal), p.floats))
        return found

    def line(self, index: int, ahead: bool = False) -> Rows:
        """Word ``index`` of each row, as bytes; the line ``PREFETCH`` bytes later is asked for."""
        start = self.p.at(self.lines, LINE * index)
        if ahead:
            self.p.prefetch(self.p.at(start, PREFETCH))
        return [self.p.load(self.p.at(start, 4 * self.p.rows * g), self.p.bytes)
                for g in self.p.groups]  # fmt: skip

    def since(self, line: Value) -> Block:
        """The same, lines counted from a later one."""
        first = self.p.builder.mul(line, I64(LINE))
        return replace(self, lines=self.p.at(self.lines, first))

    def words(self, index: int) -> Rows:
        return [self.p.builder.bitcast(line, self.p.ints) for line in self.line(index)]

    def low(self, lines: Rows) -> Rows:
        return [self.p.builder.and_(line, constant(self.p.bytes, 15)) for line in lines]

    def high(self, lines: Rows) -> Rows:
        return [self.p.builder.lshr(line, constant(self.p.bytes, 4)) for line in lines]

    def word(self, column: Column, index: int) -> Value:
        """Word ``index`` behind the scale, for every row."""
        word = self.p.load(self.p.at(column.scale, 4 + 4 * index), I32)
        return self.p.spread(word, self.p.ints)

    def sums(self, columns: Sequence[Column], offset: bool) -> list[list[Sum]]:
        """What a block begins with: nothing, or the offset that stands behind the scale."""
        if not offset:
            return [[Sum() for _ in self.p.groups] for _ in columns]
        return [[Sum(total=self.word(column, 0)) for _ in self.p.groups] for column in columns]

    def add(self, totals: list[list[Sum]], lines: Sequence[Line], columns: Sequence[Column],
            element: int) -> None:  # fmt: skip
        """The products of a line, to the sums of each column."""
        for column, sums in zip(columns, totals, strict=True):
            spread = self.p.activations(column.quants, element, self.wide)
            for g in self.p.groups:
                sums[g] = self.p.add(sums[g], lines[g], spread)

    def add_lines(self, totals: list[list[Sum]], count: int, columns: Sequence[Column],
                  terms: Terms) -> None:  # fmt: skip
        """The products of some lines.  ``terms``: those of line 0 of the block that it is given,
        with the first element that each meets; line k meets the elements 4 k later.

        Many sums are kept in a loop: were it unrolled, the compiler would go through the columns
        one after another, with most of the weights and sums laid aside in between.
        """
        if len(columns) * len(self.p.groups) <= KEPT:
            for k in range(count):
                self._add_terms(totals, I64(k), columns, terms)
            return
        b, kind = self.p.builder, self.p.narrow(self.wide)
        places = self.places(columns, kind)
        with self.p.repeat(count) as turn:
            sums = [[Sum(narrow=b.load(place)) for place in rows] for rows in places]
            self._add_terms(sums, turn, columns, terms)
            for rows, mine in zip(places, sums, strict=True):
                for place, total in zip(rows, mine, strict=True):
                    assert total.total is None and count * total.most < 2**15
                    b.store(total.narrow, place)
        for rows, mine, before in zip(places, sums, totals, strict=True):
            before[:] = [
                replace(old, narrow=b.load(place), most=count * new.most, shift=new.shift)
                for place, new, old in zip(rows, mine, before, strict=True)
            ]

    def _add_terms(
        self, totals: list[list[Sum]], k: Value, columns: Sequence[Column], terms: Terms
    ) -> None:
        later = self.rest(columns, self.p.builder.mul(k, I64(4)))
        for lines, element in terms(self.since(k)):
            self.add(totals, lines, later, element)

    def rest(self, columns: Sequence[Column], first: Value) -> list[Column]:
        """The columns from an element on."""
        start = self.p.builder.mul(first, I64(2)) if self.wide else first
        return [replace(column, quants=self.p.at(column.quants, start)) for column in columns]

    def places(self, columns: Sequence[Column], kind: Any) -> list[Rows]:
        """Room for a vector for each rows and column, 0 at first."""
        b = self.p.builder
        places = [[cgutils.alloca_once(b, kind) for _ in self.p.groups] for _ in columns]
        for place in (place for rows in places for place in rows):
            b.store(constant(kind, 0), place)
        return places

    def unsigned(self, lines: Rows, most: int) -> list[Line]:
        return [self.p.unsigned(line, most) for line in lines]

    def values(self, totals: Sequence[Sequence[Sum]]) -> list[Rows]:
        return [[self.p.value(total) for total in sums] for sums in totals]

    def scaled(self, totals: Sequence[Rows], scales: Rows, before: Sequence[Rows],
               columns: Sequence[Column]) -> list[Rows]:  # fmt: skip
        """``before + total · scale · scale of the activations`` for each column."""
        b, p, found = self.p.builder, self.p, []
        for total, old, column in zip(totals, before, columns, strict=True):
            scale = p.spread(p.load(column.scale, F32), p.floats)
            found.append([
                p.fma(b.sitofp(total[g], p.floats), b.fmul(scales[g], scale), old[g])
                for g in p.groups
            ])  # fmt: skip
        return found


Multiply = Callable[[Block, Sequence[Column], list[Rows]], list[Rows]]


def q8_0(block: Block, columns: Sequence[Column], before: list[Rows]) -> list[Rows]:
    p = block.p

    def terms(here: Block) -> Sequence[tuple[Sequence[Line], int]]:
        return [([p.signed(line) for line in here.line(0, ahead=True)], 0)]

    totals = block.sums(columns, offset=p.raised != 0)
    block.add_lines(totals, 8, columns, terms)
    return block.scaled(block.values(totals), block.half(0), before, columns)


def q4_0(block: Block, columns: Sequence[Column], before: list[Rows]) -> list[Rows]:
    """Element k is the low half of byte k less 8, element 16 + k the high half."""

    def terms(here: Block) -> Sequence[tuple[Sequence[Line], int]]:
        lines = here.line(0, ahead=True)
        low, high = here.low(lines), here.high(lines)
        return [(here.unsigned(low, 15), 0), (here.unsigned(high, 15), 16)]

    totals = block.sums(columns, offset=True)
    block.add_lines(totals, 4, columns, terms)
    return block.scaled(block.values(totals), block.half(0), before, columns)


def mxfp4(block: Block, columns: Sequence[Column], before: list[Rows]) -> list[Rows]:
    """As q4_0, but a half is a place in ``FP4``, and the scale a power of two."""
    p = block.p

    def terms(here: Block) -> Sequence[tuple[Sequence[Line], int]]:
        lines = here.line(0, ahead=True)
        return [
            (here.unsigned([p.look_up(FP4, places) for places in half], max(FP4)), element)
            for half, element in ((here.low(lines), 0), (here.high(lines), 16))
        ]

    totals = block.sums(columns, offset=True)
    for first in (0, 2):  # the sums of all four lines need not fit into int16
        later = block.rest(columns, I64(4 * first))
        block.since(I64(first)).add_lines(totals, 2, later, terms)
        totals = [[Sum(total=p.value(total)) for total in rows] for rows in totals]
    return block.scaled(block.values(totals), block.exponents(), before, columns)


def _six_bits(block: Block) -> tuple[Rows, Rows, Rows, Rows]:
    """The scales of groups 0 to 3 and 4 to 7, then the minima, that each row has in 12 bytes
    (``get_scale_min_k4``): four bytes in a word."""
    b, ints = block.p.builder, block.p.ints

    def masked(words: Value, shift: int, mask: int) -> Value:
        moved = b.lshr(words, constant(ints, shift)) if shift else words
        return b.and_(moved, constant(ints, mask * 0x01010101))

    found = []
    for scales, minima, rest in zip(*(block.words(k) for k in range(3)), strict=True):
        upper = masked(scales, 2, 48), masked(minima, 2, 48)
        found.append((
            masked(scales, 0, 63), b.or_(masked(rest, 0, 15), upper[0]),
            masked(minima, 0, 63), b.or_(masked(rest, 4, 15), upper[1]),
        ))  # fmt: skip
    first, second, third, fourth = (list(rows) for rows in zip(*found, strict=True))
    return first, second, third, fourth


def _offsets(block: Block, pairs: Sequence[Rows], columns: Sequence[Column]) -> list[Rows]:
    """int16 of each row times those behind the scale of each column, summed."""
    p, found = block.p, []
    for column in columns:
        sums: Rows = [None for _ in p.groups]
        for index, rows in enumerate(pairs):
            word = p.builder.bitcast(block.word(column, index), p.pairs)
            sums = [p.plus(sums[g], p.dots(rows[g], word)) for g in p.groups]
        found.append(sums)
    return found


def q4_k(block: Block, columns: Sequence[Column], before: list[Rows]) -> list[Rows]:
    """8 groups of 32: ``d · scale · q - dmin · minimum``; two groups share their bytes."""
    p, b = block.p, block.p.builder
    *scales, low, high = _six_bits(block)
    minima = [
        [p.unsigned_pairs(words)[which] for words in rows] for rows in (low, high)
        for which in (0, 1)
    ]  # fmt: skip
    offsets = _offsets(block, minima, columns)
    size = 4 * PANEL
    table = b.bitcast(cgutils.alloca_once(b, ir.ArrayType(I8, 8 * size)), I8.as_pointer())
    for index in range(8):
        for g in p.groups:
            factors = p.byte_factors(scales[index // 4][g], index % 4)
            p.store(factors, p.at(table, size * index + 4 * p.rows * g))
    places = block.places(columns, p.ints)
    with p.repeat(4) as turn:
        lines = block.since(b.mul(turn, I64(8)))
        rest = block.rest(columns, b.mul(turn, I64(64)))
        numbers = p.at(table, b.mul(turn, I64(2 * size)))
        for half in (0, 1):
            mine = [
                p.load(p.at(numbers, size * half + 4 * p.rows * g), factors.type) for g in p.groups
            ]
            totals = [[Sum(mine[g], b.load(rows[g])) for g in p.groups] for rows in places]
            lines.add_lines(totals, 8, rest, partial(_nibbles, half))
            _keep(block, block.values(totals), places)
    found = block.scaled(_kept(block, places), block.half(0), before, columns)
    least = [b.fneg(half) for half in block.half(1)]
    return block.scaled(offsets, least, found, columns)


def _nibbles(half: int, here: Block) -> Sequence[tuple[Sequence[Line], int]]:
    lines = here.line(3, ahead=not half)
    return [(here.unsigned((here.high if half else here.low)(lines), 15), 32 * half)]


def _keep(block: Block, values: Sequence[Rows], places: Sequence[Rows]) -> None:
    for rows, mine in zip(values, places, strict=True):
        for value, place in zip(rows, mine, strict=True):
            block.p.builder.store(value, place)


def _kept(block: Block, places: Sequence[Rows]) -> list[Rows]:
    return [[block.p.builder.load(place) for place in rows] for rows in places]


def q6_k(block: Block, columns: Sequence[Column], before: list[Rows]) -> list[Rows]:
    """16 groups of 16 with an int8 scale; 4 low bits in lines 0 to 31, 2 high in 32 to 47.

    Of each 128 elements, the low bits of element 64 h + 32 r + k are half h of byte 32 r + k,
    the high ones bits 4 h + 2 r of byte k.  The loop is over 16 of the k at a time.
    """
    p, b = block.p, block.p.builder
    pairs = [
        [p.signed_pairs(line)[which] for line in block.line(48 + k)]
        for k in range(4)
        for which in (0, 1)
    ]
    offsets = _offsets(block, pairs, columns)
    places = block.places(columns, p.ints)
    with p.repeat(4) as turn:
        part, quarter = b.lshr(turn, I64(1)), b.and_(turn, I64(1))
        lows = block.since(b.add(b.mul(part, I64(16)), b.mul(quarter, I64(4))))
        highs = block.since(b.add(b.mul(part, I64(8)), b.mul(quarter, I64(4))))
        scales = block.since(b.mul(part, I64(2)))
        rest = block.rest(columns, b.add(b.mul(part, I64(128)), b.mul(quarter, I64(16))))
        totals = _kept(block, places)
        for h, r in ((0, 0), (0, 1), (1, 0), (1, 1)):
            up = b.sub(I32(24 - 16 * r), b.mul(b.trunc(quarter, I32), I32(8)))
            words = [b.shl(word, p.spread(up, p.ints)) for word in scales.words(48 + h)]
            factors = [p.factors(b.ashr(word, constant(p.ints, 24))) for word in words]
            sums = [[Sum(factors[g], rows[g]) for g in p.groups] for rows in totals]
            for k in range(4):
                low = (block.high if h else block.low)(lows.line(8 * r + k, ahead=not h))
                shift = 4 * h + 2 * r - 4
                move, by = b.lshr if shift > 0 else b.shl, constant(p.bytes, abs(shift))
                high = highs.line(32 + k, ahead=not h + r)
                high = [b.and_(move(bits, by), constant(p.bytes, 48)) for bits in high]
                six = [b.or_(*both) for both in zip(low, high, strict=True)]
                block.add(sums, block.unsigned(six, 63), rest, 64 * h + 32 * r + 4 * k)
            totals = block.values(sums)
        _keep(block, totals, places)
    raised = [
        [b.sub(total, b.shl(offset, constant(p.ints, 5)))
         for total, offset in zip(rows, offset_rows, strict=True)]
        for rows, offset_rows in zip(_kept(block, places), offsets, strict=True)
    ]  # fmt: skip
    return block.scaled(raised, block.half(0), before, columns)


@dataclass(frozen=True)
class Form:
    """A quantised type as the kernels see it.

    ``block``: elements; ``scales``: offsets of the scales in a block of the file, ``width`` bytes
    each; ``words``: offset of the first word, and how many; ``signed``: whether its integers are;
    ``offset``: what a block of activations has behind its scale: its sum times this, or (0) int16
    sums of each ``group``; ``asked``: the last lines, which ``multiply`` asks for ahead of time.
    """

    name: str
    block: int
    scales: tuple[int, ...]
    words: tuple[int, int]
    group: int
    multiply: Multiply
    asked: int
    offset: int = 0
    signed: bool = False
    width: int = 2

    @property
    def bytes(self) -> int:
        return self.width * len(self.scales) + 4 * self.words[1]

    @property
    def shape(self) -> tuple[int, int, int, tuple[int, int], int, int]:
        """Bytes of a block and of a scale, how many, where (at most two), first word, words."""
        first, second = (*self.scales, 0)[:2]
        return self.bytes, self.width, len(self.scales), (first, second), *self.words

    def scale_at(self, wide: bool) -> int:
        """Where the scale stands in a block of activations: behind the integers."""
        return self.block * (2 if wide else 1)

    def record(self, wide: bool) -> int:
        """Bytes of a block of activations: integers, float32 scale, sums."""
        return self.scale_at(wide) + 4 + (4 if self.offset else 2 * self.block // self.group)


FORMS = (
    Form("q8_0", 32, (0,), (2, 8), 32, q8_0, 8, offset=-128, signed=True),
    Form("q4_0", 32, (0,), (2, 4), 32, q4_0, 4, offset=-8),
    Form("mxfp4", 32, (0,), (1, 4), 32, mxfp4, 4, offset=-12, width=1),
    Form("q4_k", 256, (0, 2), (4, 35), 32, q4_k, 32),
    Form("q6_k", 256, (208,), (0, 52), 16, q6_k, 48),
)


def emit_tile(p: Portable, form: Form, panel: Value, blocks: Value, columns: Sequence[Value],
              out: Value) -> None:  # fmt: skip
    """A panel of ``blocks`` blocks times some rows of activations; 16 float32 each to ``out``."""
    b, wide = p.builder, p.wide(form.signed)
    zero, parts = constant(p.floats, 0.0), len(columns) * len(p.groups)
    targets = [
        [p.at(out, 4 * PANEL * index + 4 * p.rows * g) for g in p.groups]
        for index in range(len(columns))
    ]
    places = targets
    if parts <= KEPT:
        places = [[cgutils.alloca_once(b, p.floats) for _ in p.groups] for _ in columns]
    for place in (place for rows in places for place in rows):
        p.store(zero, place)
    with cgutils.for_range(b, blocks) as loop:
        start = p.at(panel, b.mul(loop.index, I64(PANEL * form.bytes)))
        for ahead in range(0, PANEL * form.bytes - LINE * form.asked, LINE):
            p.prefetch(p.at(start, PREFETCH + ahead))
        at = b.mul(loop.index, I64(form.record(wide)))
        mine = [p.at(column, at) for column in columns]
        seen = [Column(quants, p.at(quants, form.scale_at(wide))) for quants in mine]
        block = Block(p, start, p.at(start, form.width * PANEL * len(form.scales)), wide)
        before = [[p.load(place, p.floats) for place in rows] for rows in places]
        for rows, found in zip(places, form.multiply(block, seen, before), strict=True):
            for place, new in zip(rows, found, strict=True):
                p.store(new, place)
    if places is not targets:
        for rows, mine in zip(places, targets, strict=True):
            for place, target in zip(rows, mine, strict=True):
                p.store(p.load(place, p.floats), target)
