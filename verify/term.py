"""Terms of an obligation: integers, truth values, and the arithmetic that needs no solver.

An integer is a linear form over *atoms* (symbols, byte variables, products of symbols,
quotients and remainders by constants).  A truth value is ``True``, ``False`` or a tuple whose
first entry names the connective.  Everything is hashable and built by the constructors below,
which fold what plain arithmetic decides; ``encode.py`` gives the rest to Z3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..model.symbol import Comparison, Condition, Expr

Atom = tuple[Any, ...]
#: ``True``, ``False``, or ``(connective, …)``
Bool = Any


@dataclass(frozen=True, slots=True)
class Int:
    """``sum(coefficient * atom) + constant``; atoms sorted, no zero coefficients."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    def __add__(self, other: Int | int) -> Int:
        if isinstance(other, int):
            return Int(self.terms, self.constant + other)
        if not other.terms:
            return Int(self.terms, self.constant + other.constant)
        if not self.terms:
            return Int(other.terms, self.constant + other.constant)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + coefficient
        kept = sorted(((a, c) for a, c in total.items() if c), key=_place)
        return Int(tuple(kept), self.constant + other.constant)

    def __mul__(self, factor: int) -> Int:
        if factor == 0:
            return ZERO
        return Int(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def __sub__(self, other: Int | int) -> Int:
        if isinstance(other, int):
            return Int(self.terms, self.constant - other)
        if not other.terms:
            return Int(self.terms, self.constant - other.constant)
        if self.terms == other.terms:
            return Int((), self.constant - other.constant)
        return self + (other * -1)


def _place(term: tuple[Atom, int]) -> str:
    return _text(term[0])


_text = lru_cache(maxsize=4096)(repr)
ZERO = Int((), 0)


def number(value: int) -> Int:
    return Int((), value)


def variable(name: str) -> Int:
    """A bound variable of an obligation, such as the byte that is read."""
    return Int(((("var", name), 1),), 0)


@lru_cache(maxsize=65536)
def size(expr: Expr) -> Int:
    """A size of the document as a term."""
    total = ZERO
    for monomial, coefficient in expr.terms:
        if not monomial:
            total = total + coefficient
        elif len(monomial) == 1:
            total = total + Int(((("sym", monomial[0]), coefficient),), 0)
        else:
            total = total + Int(((("product", *monomial), coefficient),), 0)
    return total


def quotient(term: Int, divisor: int) -> Int:
    """``term // divisor`` for a positive constant divisor (rounds down)."""
    if divisor == 1:
        return term
    if not term.terms:
        return number(term.constant // divisor)
    if all(c % divisor == 0 for _, c in term.terms) and term.constant % divisor == 0:
        return Int(tuple((a, c // divisor) for a, c in term.terms), term.constant // divisor)
    return Int(((("div", term, divisor), 1),), 0)


def remainder(term: Int, divisor: int) -> Int:
    """``term % divisor`` for a positive constant divisor (never negative)."""
    return term - quotient(term, divisor) * divisor


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known while terms are built: bounds of atoms, and facts taken for true.

    ``bounds`` gives ``(low, high)`` of an atom; a fact is a term of the form ``("le", Int)``.
    """

    symbols: Mapping[str, tuple[int, int]]
    variables: Mapping[str, tuple[int, int]]
    facts: frozenset[Bool] = frozenset()
    #: truth values that were built before: what equal layers ask again
    known: dict[Any, Bool] = field(default_factory=dict, compare=False, repr=False)

    def bounds(self, term: Int) -> tuple[int, int]:
        low = high = term.constant
        for atom, coefficient in term.terms:
            least, most = self._atom(atom)
            if coefficient < 0:
                least, most = most, least
            low, high = low + coefficient * least, high + coefficient * most
        return low, high

    def _atom(self, atom: Atom) -> tuple[int, int]:
        kind = atom[0]
        if kind == "sym":
            return self.symbols[atom[1]]
        if kind == "var":
            return self.variables[atom[1]]
        if kind == "product":
            low = high = 1
            for name in atom[1:]:
                lo, hi = self.symbols[name]
                low, high = low * lo, high * hi
            return low, high
        least, most = self.bounds(atom[1])
        return least // atom[2], most // atom[2]

    # -- comparisons that fold -------------------------------------------------------------

    def le(self, left: Int, right: Int) -> Bool:
        """``left <= right``."""
        difference = left - right
        low, high = self.bounds(difference)
        if high <= 0:
            return True
        if low > 0:
            return False
        # A fact f <= 0 decides if difference - f <= 0, or 1 - difference - f <= 0, by bounds.
        opposite = number(1) - difference
        for fact in self.facts:
            if fact[0] != "le":
                continue
            if self.bounds(difference - fact[1])[1] <= 0:
                return True
            if self.bounds(opposite - fact[1])[1] <= 0:
                return False
        return ("le", difference)

    def lt(self, left: Int, right: Int) -> Bool:
        return self.le(left + 1, right)

    def eq(self, left: Int, right: Int) -> Bool:
        difference = left - right
        if not difference.terms:
            return difference.constant == 0
        low, high = self.bounds(difference)
        if low > 0 or high < 0:
            return False
        return ("eq", difference)

    def condition(self, condition: Condition) -> Bool:
        return conj(self.comparison(part) for part in condition.parts)

    def comparison(self, part: Comparison) -> Bool:
        left, right = size(part.left), size(part.right)
        if part.modulus is not None:
            left = remainder(left, part.modulus)
        table: dict[str, Callable[[], Bool]] = {
            "<": lambda: self.lt(left, right),
            "<=": lambda: self.le(left, right),
            ">": lambda: self.lt(right, left),
            ">=": lambda: self.le(right, left),
            "==": lambda: self.eq(left, right),
            "!=": lambda: neg(self.eq(left, right)),
        }
        return table[part.op]()


class PlainScope(Scope):
    """A scope that folds nothing: comparisons stay as they stand, for a solver to decide."""

    __slots__ = ()

    def le(self, left: Int, right: Int) -> Bool:
        return ("le", left - right)

    def eq(self, left: Int, right: Int) -> Bool:
        return ("eq", left - right)


def used(set_id: str, expert: Int) -> Bool:
    """Whether ``expert`` is in the used set of that name: free, the router decides."""
    return ("used", set_id, expert)


def conj(parts: Iterable[Bool]) -> Bool:
    kept: list[Bool] = []
    for part in parts:
        if part is False:
            return False
        if part is True:
            continue
        for item in part[1:] if part[0] == "and" else (part,):
            if item not in kept:
                kept.append(item)
    if not kept:
        return True
    if any(neg(item) in kept for item in kept if item[0] != "and"):
        return False
    return kept[0] if len(kept) == 1 else ("and", *kept)


def disj(parts: Iterable[Bool]) -> Bool:
    return neg(conj(neg(part) for part in parts))


def neg(term: Bool) -> Bool:
    if isinstance(term, bool):
        return not term
    return term[1] if term[0] == "not" else ("not", term)


# -- evaluation on numbers: what a model says, and what tests hold the folding against ------


@dataclass(frozen=True, slots=True)
class Values:
    """Numbers for the atoms, and the members of each used set."""

    symbols: Mapping[str, int]
    variables: Mapping[str, int]
    sets: Mapping[str, frozenset[int]]

    def value(self, term: Int) -> int:
        total = term.constant
        for atom, coefficient in term.terms:
            total += coefficient * self._atom(atom)
        return total

    def _atom(self, atom: Atom) -> int:
        kind = atom[0]
        if kind == "sym":
            return self.symbols[atom[1]]
        if kind == "var":
            return self.variables[atom[1]]
        if kind == "product":
            value = 1
            for name in atom[1:]:
                value *= self.symbols[name]
            return value
        return self.value(atom[1]) // int(atom[2])

    def holds(self, term: Bool) -> bool:
        if isinstance(term, bool):
            return term
        kind = term[0]
        if kind == "le":
            return self.value(term[1]) <= 0
        if kind == "eq":
            return self.value(term[1]) == 0
        if kind == "not":
            return not self.holds(term[1])
        if kind == "and":
            return all(self.holds(part) for part in term[1:])
        if kind == "used":
            return self.value(term[2]) in self.sets.get(term[1], frozenset())
        raise ValueError(f"no meaning for {kind!r}")
