"""Whether any values of the symbols satisfy a condition: exact, over bounded integers.

A guard is a conjunction of linear comparisons, some with a modulus.  Few values are tried one
by one.  Otherwise the residues that the moduli ask about are tried one by one, which leaves
linear inequalities over integers; these are decided by Fourier-Motzkin elimination (no
rational solution, no integer one) within a bisection of the box that the symbols span.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .symbol import Comparison, Condition, Expr, Ranges

Box = dict[str, tuple[int, int]]

#: So many values are tried one by one.
_FEW = 512
#: Limits of effort: residues, boxes of one search, inequalities of one elimination.
_RESIDUES = 32768
_BOXES = 4000
_ROWS = 400


@dataclass(frozen=True, slots=True)
class _Row:
    """``sum(coefficient * symbol) + constant >= 0``."""

    terms: tuple[tuple[str, int], ...]
    constant: int


def satisfiable(condition: Condition, ranges: Ranges) -> bool | None:
    """Whether some values in the ranges satisfy the condition; ``None``: effort ran out.

    ``ranges`` holds every symbol of the condition, both ends included.
    """
    box = {name: ranges[name] for name in sorted(condition.symbols)}
    if math.prod(high - low + 1 for low, high in box.values()) <= _FEW:
        return any(condition.holds(values) for values in _points(box))
    undecided = False
    for rows, smaller in _systems(condition, box):
        if rows is None:
            return None
        answer = _feasible(rows, smaller)
        if answer:
            return True
        undecided = undecided or answer is None
    return None if undecided else False


def _points(box: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*(range(low, high + 1) for low, high in box.values())):
        yield dict(zip(box, values, strict=True))


def _systems(condition: Condition, box: Box) -> Iterator[tuple[list[_Row] | None, Box]]:
    """The condition as a disjunction of linear systems, each with the box of its symbols."""
    moduli = [part.modulus for part in condition.parts if part.modulus is not None]
    period = math.lcm(*moduli) if moduli else 1
    periodic = sorted({s for p in condition.parts if p.modulus is not None for s in p.left.symbols})
    if period ** len(periodic) > _RESIDUES:
        yield None, box
        return
    # What residues alone decide is looked at first: it leaves few systems.
    fixed = [p for p in condition.parts if p.modulus is not None and not p.right.symbols]
    for residues in itertools.product(range(period), repeat=len(periodic)):
        whole = dict(zip(periodic, residues, strict=True))
        if not all(part.holds(whole) for part in fixed):
            continue
        smaller = dict(box)
        for name, rest in whole.items():
            low, high = box[name]
            smaller[name] = -((rest - low) // period), (high - rest) // period
        if any(low > high for low, high in smaller.values()):
            continue
        parts = [_at_residue(part, whole, period) for part in condition.parts]
        for rows in _alternatives(parts):
            yield rows, smaller


def _at_residue(part: Comparison, residues: Mapping[str, int], period: int) -> Comparison:
    """The comparison with ``symbol = period * quotient + residue`` put in."""
    left = part.left
    if part.modulus is not None:
        left = Expr.of(left.value(residues) % part.modulus)
    return Comparison(
        _scaled(left, residues, period), part.op, _scaled(part.right, residues, period)
    )


def _scaled(expr: Expr, residues: Mapping[str, int], period: int) -> Expr:
    total = Expr()
    for monomial, coefficient in expr.terms:
        if monomial and monomial[0] in residues:
            value = Expr.symbol(monomial[0]) * period + residues[monomial[0]]
            total = total + value * coefficient
        else:
            total = total + Expr(((monomial, coefficient),))
    return total


def _alternatives(parts: Iterable[Comparison]) -> Iterator[list[_Row]]:
    """Inequalities instead of comparisons; each ``!=`` is one of two."""
    choices: list[list[list[_Row]]] = []
    for part in parts:
        more, less = part.left - part.right, part.right - part.left
        choices.append({
            ">=": [[_row(more)]], ">": [[_row(more - 1)]],
            "<=": [[_row(less)]], "<": [[_row(less - 1)]],
            "==": [[_row(more), _row(less)]], "!=": [[_row(more - 1)], [_row(less - 1)]],
        }[part.op])  # fmt: skip
    for chosen in itertools.product(*choices):
        yield [row for rows in chosen for row in rows]


def _row(expr: Expr) -> _Row:
    terms = tuple((monomial[0], c) for monomial, c in expr.terms if monomial)
    constant = sum(c for monomial, c in expr.terms if not monomial)
    return _tight(terms, constant)


def _tight(terms: tuple[tuple[str, int], ...], constant: int) -> _Row:
    """Divide by the coefficients' common divisor; integers allow to round the constant down."""
    divisor = math.gcd(*(c for _, c in terms))
    if divisor > 1:
        return _Row(tuple((name, c // divisor) for name, c in terms), constant // divisor)
    return _Row(terms, constant)


def _feasible(rows: list[_Row], box: Box) -> bool | None:
    """Whether integers in the box satisfy all rows."""
    waiting = [box]
    for _ in range(_BOXES):
        if not waiting:
            return False
        smaller = _shrink(rows, waiting.pop())
        if smaller is None:
            continue
        if all(_least(row, smaller) >= 0 for row in rows):
            return True
        if _no_rational(rows, smaller):
            continue
        # A box of one point is decided above, so one symbol has two values at least.
        name = min(
            (n for n, (low, high) in smaller.items() if low < high),
            key=lambda n: smaller[n][1] - smaller[n][0],
        )
        low, high = smaller[name]
        middle = (low + high) // 2
        waiting.append({**smaller, name: (middle + 1, high)})
        waiting.append({**smaller, name: (low, middle)})
    return None


def _least(row: _Row, box: Box) -> int:
    return row.constant + sum(c * box[name][c < 0] for name, c in row.terms)


def _most(row: _Row, box: Box) -> int:
    return row.constant + sum(c * box[name][c > 0] for name, c in row.terms)


def _shrink(rows: list[_Row], box: Box, rounds: int = 8) -> Box | None:
    """A smaller box with the same solutions; ``None`` if a row has none in it."""
    box = dict(box)
    for _ in range(rounds):
        before = dict(box)
        for row in rows:
            most = _most(row, box)
            if most < 0:
                return None
            for name, c in row.terms:
                low, high = box[name]
                # c * symbol >= -(the most that the other terms give)
                others = most - c * (high if c > 0 else low)
                if c > 0:
                    low = max(low, -(others // c))
                else:
                    high = min(high, others // -c)
                if low > high:
                    return None
                most = others + c * (high if c > 0 else low)
                box[name] = low, high
        if box == before:
            break
    return box


def _no_rational(rows: list[_Row], box: Box) -> bool:
    """Whether elimination of one symbol after the other shows that there is no solution."""
    system = set(rows)
    for name, (low, high) in box.items():
        system |= {_Row(((name, 1),), -low), _Row(((name, -1),), high)}
    for name in box:
        positive = [r for r in system if dict(r.terms).get(name, 0) > 0]
        negative = [r for r in system if dict(r.terms).get(name, 0) < 0]
        system -= {*positive, *negative}
        for up in positive:
            for down in negative:
                system.add(_eliminated(up, down, name))
        if any(not row.terms and row.constant < 0 for row in system):
            return True
        if len(system) > _ROWS:
            return False
    return False


def _eliminated(up: _Row, down: _Row, name: str) -> _Row:
    """The sum of two rows, scaled so that the symbol drops out."""
    by_up, by_down = -dict(down.terms)[name], dict(up.terms)[name]
    total: dict[str, int] = {}
    for row, scale in ((up, by_up), (down, by_down)):
        for symbol, c in row.terms:
            total[symbol] = total.get(symbol, 0) + scale * c
    terms = tuple(sorted((n, c) for n, c in total.items() if c))
    return _tight(terms, by_up * up.constant + by_down * down.constant)
