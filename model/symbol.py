"""Sizes that hang on symbols, and conditions over them.

An :class:`Expr` is a polynomial with integer coefficients (``"8*n_tokens"``, or the
product of two of them that a tensor's byte count makes).  A :class:`Condition` is what
stands under ``when``: comparisons joined by ``and``.  Both are immutable and compare by value.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Monomial = tuple[str, ...]
Ranges = Mapping[str, tuple[int, int]]

#: The built-in symbol: the index of the pass that a command belongs to.
PASS = "pass"
#: ``pass`` is a keyword of Python's grammar, so it is renamed while a text is parsed.
_PASS_WORD = "_pass_"


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
        """Lower and upper bound over ranges of non-negative symbols (exact term by term)."""
        low = high = 0
        for monomial, coefficient in self.terms:
            least, most = coefficient, coefficient
            for name in monomial:
                lo, hi = ranges[name]
                least, most = least * lo, most * hi
            low += min(least, most)
            high += max(least, most)
        return low, high

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
        parts = []
        for monomial, coefficient in sorted(self.terms, key=lambda t: (not t[0], t[0])):
            name = "*".join(monomial)
            body = str(abs(coefficient)) if not name else name
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
_AST_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
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


def _parse(text: str, what: str) -> ast.expr:
    words = text.replace(PASS, _PASS_WORD) if PASS in text else text
    try:
        return ast.parse(words.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise SymbolError(f"{text!r} is not {what}") from None


@lru_cache(maxsize=4096)
def _parse_expr(text: str) -> Expr:
    expr = _expr(_parse(text, "a linear expression"), text)
    if not expr.linear:
        raise SymbolError(f"{text!r} is not linear in its symbols")
    return expr


@lru_cache(maxsize=4096)
def _parse_condition(text: str) -> Condition:
    node = _parse(text, "a condition such as 'n_tokens <= 4 and pass % 2 == 1'")
    clauses = node.values if isinstance(node, ast.BoolOp) else [node]
    if isinstance(node, ast.BoolOp) and not isinstance(node.op, ast.And):
        raise SymbolError(f"{text!r}: comparisons are joined by 'and' only")
    parts: list[Comparison] = []
    for clause in clauses:
        if not isinstance(clause, ast.Compare):
            raise SymbolError(f"{text!r}: a comparison such as 'n_tokens <= 4' was expected")
        sides = [clause.left, *clause.comparators]
        for left, op, right in zip(sides, clause.ops, sides[1:], strict=False):
            if type(op) not in _AST_COMPARE:
                raise SymbolError(f"{text!r}: only < <= > >= == != compare sizes")
            parts.append(_comparison(left, _AST_COMPARE[type(op)], right, text))
    return Condition(tuple(parts))


def _comparison(left: ast.expr, op: str, right: ast.expr, text: str) -> Comparison:
    modulus = None
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        modulus = _expr(left.right, text).constant
        if modulus is None or modulus <= 0:
            raise SymbolError(f"{text!r}: '%' needs a positive number on its right")
        left = left.left
    sides = _expr(left, text), _expr(right, text)
    if not all(side.linear for side in sides):
        raise SymbolError(f"{text!r} is not linear in its symbols")
    return Comparison(sides[0], op, sides[1], modulus)


def _expr(node: ast.expr, text: str) -> Expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Expr.of(node.value)
    if isinstance(node, ast.Name):
        return Expr.symbol(node.id.replace(_PASS_WORD, PASS))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _expr(node.operand, text) * -1
    if isinstance(node, ast.BinOp):
        left, right = _expr(node.left, text), _expr(node.right, text)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
    raise SymbolError(f"{text!r}: only integers, symbols, +, - and * stand in a size")
