"""Sizes that hang on symbols, and conditions over them.

An :class:`Expr` is a polynomial with integer coefficients (``"8*n_tokens"``, or the
product of two of them that a tensor's byte count makes).  A :class:`Condition` is what
stands under ``when``: comparisons joined by ``and``.  Both are immutable and compare by value.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Monomial = tuple[str, ...]
Ranges = Mapping[str, tuple[int, int]]

#: The built-in symbol: the index of the pass that a command belongs to.
PASS = "pass"
#: A product of up to so many symbols is bounded by its values at the corners of their ranges.
_MOST_CORNERS = 4


class SymbolError(ValueError):
    """A text that is no linear expression, or no condition; the message says what was due."""


@dataclass(frozen=True, slots=True, repr=False)
class Expr:
    """A polynomial: ``((monomial, coefficient), …)``, sorted, without zero coefficients."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(value: int | str | Expr) -> Expr:
        """Read an integer, a linear expression in a string, or an ``Expr`` (returned as it is)."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, str):
            return _parse_expr(value)
        return _constant(int(value))

    @staticmethod
    def symbol(name: str) -> Expr:
        return Expr((((name,), 1),))

    @property
    def constant(self) -> int | None:
        """The value if no symbol occurs, else ``None``."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    @property
    def linear(self) -> bool:
        return all(len(monomial) <= 1 for monomial, _ in self.terms)

    def __add__(self, other: int | Expr) -> Expr:
        right = Expr.of(other)
        if not right.terms:
            return self
        total = dict(self.terms)
        for monomial, coefficient in right.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _from_dict(total)

    def __sub__(self, other: int | Expr) -> Expr:
        return self + Expr.of(other) * -1

    def __mul__(self, other: int | Expr) -> Expr:
        right = Expr.of(other)
        total: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in right.terms:
                monomial = tuple(sorted(m1 + m2))
                total[monomial] = total.get(monomial, 0) + c1 * c2
        return _from_dict(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def value(self, symbols: Mapping[str, int]) -> int:
        """The number that this is at the given values of the symbols."""
        total = 0
        for monomial, coefficient in self.terms:
            for name in monomial:
                coefficient *= symbols[name]
            total += coefficient
        return total

    def bounds(self, ranges: Ranges) -> tuple[int, int]:
        """Lower and upper bound over ranges of non-negative symbols.

        Exact where no symbol is multiplied by itself; else each term is at its own bounds.
        """
        if not self.linear:
            names = self.symbols
            if len(names) <= _MOST_CORNERS and self._multilinear:
                return self._corner_bounds(sorted(names), ranges)
        low = high = 0
        for monomial, coefficient in self.terms:
            least, most = coefficient, coefficient
            for name in monomial:
                lo, hi = ranges[name]
                least, most = least * lo, most * hi
            low += min(least, most)
            high += max(least, most)
        return low, high

    @property
    def _multilinear(self) -> bool:
        return all(len(set(monomial)) == len(monomial) for monomial, _ in self.terms)

    def _corner_bounds(self, names: list[str], ranges: Ranges) -> tuple[int, int]:
        # A function that is linear in each symbol alone takes its bounds at corners of the box.
        values = [
            self.value(dict(zip(names, corner, strict=True)))
            for corner in itertools.product(*(ranges[name] for name in names))
        ]
        return min(values), max(values)

    def substitute(self, values: Mapping[str, int]) -> Expr:
        """The same with some symbols replaced by numbers."""
        if not self.symbols & values.keys():
            return self
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            rest = []
            for name in monomial:
                if name in values:
                    coefficient *= values[name]
                else:
                    rest.append(name)
            key = tuple(rest)
            total[key] = total.get(key, 0) + coefficient
        return _from_dict(total)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, coefficient in sorted(self.terms, key=lambda t: (not t[0], t[0])):
            name = "*".join(monomial)
            body = name or str(abs(coefficient))
            if name and abs(coefficient) != 1:
                body = f"{abs(coefficient)}*{name}"
            sign = "-" if coefficient < 0 else "+"
            parts.append(f" {sign} {body}" if parts else f"{'-' if coefficient < 0 else ''}{body}")
        return "".join(parts)

    def __repr__(self) -> str:
        constant = self.constant
        return f"Expr.of({constant if constant is not None else str(self)!r})"


@lru_cache(maxsize=65536)
def _constant(value: int) -> Expr:
    return Expr((((), value),)) if value else Expr()


def _from_dict(total: Mapping[Monomial, int]) -> Expr:
    return Expr(tuple(sorted((m, c) for m, c in total.items() if c)))


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right``; with a modulus, ``left % modulus op right``."""

    left: Expr
    op: str
    right: Expr
    modulus: int | None = None

    def holds(self, symbols: Mapping[str, int]) -> bool:
        left = self.left.value(symbols)
        if self.modulus is not None:
            left %= self.modulus
        return _COMPARE[self.op](left, self.right.value(symbols))

    def substitute(self, values: Mapping[str, int]) -> Comparison:
        return Comparison(
            self.left.substitute(values), self.op, self.right.substitute(values), self.modulus
        )

    @property
    def symbols(self) -> frozenset[str]:
        return self.left.symbols | self.right.symbols

    def __str__(self) -> str:
        left = str(self.left)
        if self.modulus is not None:
            left = f"{left if len(self.left.terms) == 1 else f'({left})'} % {self.modulus}"
        return f"{left} {self.op} {self.right}"


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunction of comparisons; the empty one (``ALWAYS``) is true."""

    parts: tuple[Comparison, ...] = ()

    @staticmethod
    def of(text: str | Condition) -> Condition:
        """Read ``"2*n_tokens <= 4 and pass % 2 == 1"``."""
        return text if isinstance(text, Condition) else _parse_condition(text)

    def holds(self, symbols: Mapping[str, int]) -> bool:
        return all(part.holds(symbols) for part in self.parts)

    def substitute(self, values: Mapping[str, int]) -> Condition:
        """Replace symbols by numbers, and drop what has become plainly true."""
        parts = []
        for part in self.parts:
            fixed = part.substitute(values)
            if fixed.symbols or not fixed.holds({}):
                parts.append(fixed)
        return Condition(tuple(parts))

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(part.symbols for part in self.parts))

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.parts + tuple(p for p in other.parts if p not in self.parts))

    def __str__(self) -> str:
        return " and ".join(str(part) for part in self.parts) or "true"


ALWAYS = Condition()


# -- reading ----------------------------------------------------------------------------------

_WORD = re.compile(r"\s*(?:[0-9]+|[A-Za-z_][A-Za-z0-9_]*|<=|>=|==|!=|[-+*%()<>])")
#: Sizes and counts fit in 64 bits.
_MOST = 2**63 - 1
_DEEPEST = 50


def is_symbol_name(name: str) -> bool:
    """Whether a document may declare a symbol of that name."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None and name not in (PASS, "and")


@lru_cache(maxsize=4096)
def _parse_expr(text: str) -> Expr:
    return _Reader(text, "a linear expression such as '8*n_tokens'").whole_expr()


@lru_cache(maxsize=4096)
def _parse_condition(text: str) -> Condition:
    return _Reader(text, "a condition such as 'n_tokens <= 4 and pass % 2 == 1'").whole_condition()


class _Reader:
    """Recursive descent over the words of one text, with Python's precedence."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.words = self._split()
        self.at = 0
        self.depth = 0

    def _split(self) -> list[str]:
        words, at, end = [], 0, len(self.text.rstrip())
        while at < end:
            match = _WORD.match(self.text, at)
            if match is None:
                raise self._error(f"{self.text[at:].lstrip()[:1]!r} has no meaning there")
            words.append(match[0].strip())
            at = match.end()
        return words

    def _error(self, why: str) -> SymbolError:
        shown = self.text if len(self.text) <= 60 else self.text[:59] + "…"
        return SymbolError(f"{shown!r} is not {self.what}: {why}")

    def _peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def _take(self, *wanted: str) -> str:
        """The next word if it is one of those wanted, else nothing."""
        word = self._peek()
        if word not in wanted:
            return ""
        self.at += 1
        return word

    def _end(self) -> None:
        if self._peek():
            raise self._error(f"{self._peek()!r} was not due")

    def whole_expr(self) -> Expr:
        expr = self._side_fits(self._sum())
        self._end()
        return expr

    def whole_condition(self) -> Condition:
        parts = self._chain()
        while self._take("and"):
            parts += self._chain()
        self._end()
        return Condition(tuple(parts))

    def _chain(self) -> list[Comparison]:
        """``a < b <= c`` is two comparisons."""
        parts: list[Comparison] = []
        left, modulus = self._side()
        while op := self._take(*_COMPARE):
            right, right_modulus = self._side()
            self._side_fits(left), self._side_fits(right)
            if right_modulus is not None:
                raise self._error("'%' stands on the left of a comparison only")
            parts.append(Comparison(left, op, right, modulus))
            left, modulus = right, None
        if not parts:
            found = repr(self._peek()) if self._peek() else "the end"
            raise self._error(f"one of < <= > >= == != was due, not {found}")
        return parts

    def _side_fits(self, expr: Expr) -> Expr:
        if any(abs(coefficient) > _MOST for _, coefficient in expr.terms):
            raise self._error("a number has more than 63 bits")
        return expr

    def _side(self) -> tuple[Expr, int | None]:
        """A sum, or a product with its modulus."""
        first = self._product()
        if not self._take("%"):
            total = self._sum(first)
            if self._peek() == "%":
                raise self._error("the sum on the left of '%' needs parentheses")
            return total, None
        modulus = self._atom().constant
        if modulus is None or modulus <= 0:
            raise self._error("'%' needs a positive number on its right")
        return first, modulus

    def _sum(self, first: Expr | None = None) -> Expr:
        total = self._product() if first is None else first
        while sign := self._take("+", "-"):
            right = self._product()
            total = total + right if sign == "+" else total - right
        return total

    def _product(self) -> Expr:
        total = self._factor()
        while self._take("*"):
            total = total * self._factor()
            if not total.linear:
                raise self._error("two symbols are multiplied")
        return total

    def _factor(self) -> Expr:
        sign = 1
        while word := self._take("-", "+"):
            sign = -sign if word == "-" else sign
        return self._atom() * sign

    def _atom(self) -> Expr:
        word = self._peek()
        if self._take("("):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self._error("the parentheses are nested too deeply")
            inner = self._sum()
            if not self._take(")"):
                raise self._error("')' is missing")
            self.depth -= 1
            return inner
        if word.isdigit():
            if len(word) > 19 or int(word) > _MOST:
                raise self._error("a number has more than 63 bits")
            self.at += 1
            return Expr.of(int(word))
        if word == PASS or is_symbol_name(word):
            self.at += 1
            return Expr.symbol(word)
        raise self._error(f"a number or a symbol was due, not {repr(word) if word else 'the end'}")
