"""A small many-sorted first-order logic, as plain data.

A formula is written once and used four ways: printed for people, evaluated by plain Python on a
finite structure (:mod:`.structure`), checked to lie in a decidable fragment (:mod:`.fragment`),
and written as SMT-LIB for the solvers (:mod:`.smt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sort:
    """A kind of things.  Each sort but ``Bool`` and ``Int`` is uninterpreted."""

    name: str

    def variables(self, names: str) -> tuple[Term, ...]:
        """Variables of this sort, one for each word."""
        return tuple(Term("var", self, name=name) for name in names.split())

    def constants(self, names: str) -> tuple[Term, ...]:
        """Constants of this sort, one for each word."""
        return tuple(Symbol(name, (), self)() for name in names.split())


BOOL = Sort("Bool")
INT = Sort("Int")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A relation (``result`` is ``Bool``), function or constant (no ``domain``)."""

    name: str
    domain: tuple[Sort, ...]
    result: Sort = BOOL

    def __call__(self, *args: Term) -> Term:
        found = tuple(arg.sort for arg in args)
        if found != self.domain:
            raise TypeError(
                f"{self.name} takes {_names(self.domain)}, it was given {_names(found)}"
            )
        return Term("apply", self.result, args, symbol=self)


def _names(sorts: Iterable[Sort]) -> str:
    return "(" + ", ".join(sort.name for sort in sorts) + ")"


@dataclass(frozen=True, slots=True)
class Term:
    """A term, or (of sort ``Bool``) a formula.

    ``head``: ``var``, ``apply``, ``int``, ``+``, ``=``, ``<=``, ``not``, ``and``, ``or``, ``=>``,
    ``forall`` or ``exists``.
    """

    head: str
    sort: Sort
    args: tuple[Term, ...] = ()
    name: str = ""
    symbol: Symbol | None = None
    value: int = 0
    bound: tuple[Term, ...] = ()

    def __and__(self, other: Term) -> Term:
        return conj(self, other)

    def __or__(self, other: Term) -> Term:
        return disj(self, other)

    def __invert__(self) -> Term:
        return self.args[0] if self.head == "not" else _formula("not", self)

    def __rshift__(self, other: Term) -> Term:
        return _formula("=>", self, other)

    def __add__(self, other: Term | int) -> Term:
        return Term("+", INT, (self, number(other)))

    def __le__(self, other: Term | int) -> Term:
        return Term("<=", BOOL, (self, number(other)))

    def __lt__(self, other: Term | int) -> Term:
        return (self + 1) <= other

    def __str__(self) -> str:
        return _text(self, 0)


def number(value: Term | int) -> Term:
    """An integer as a term."""
    return value if isinstance(value, Term) else Term("int", INT, value=value)


def _formula(head: str, *args: Term) -> Term:
    for arg in args:
        if arg.sort != BOOL:
            raise TypeError(f"{head} joins formulas; {arg} is a {arg.sort.name}")
    return Term(head, BOOL, args)


def conj(*parts: Term) -> Term:
    """All of them; of none: true."""
    return _flat("and", parts)


def disj(*parts: Term) -> Term:
    """One of them; of none: false."""
    return _flat("or", parts)


def _flat(head: str, parts: tuple[Term, ...]) -> Term:
    flat: list[Term] = []
    for part in parts:
        flat.extend(part.args if part.head == head else (part,))
    return flat[0] if len(flat) == 1 else _formula(head, *flat)


TRUE = Term("and", BOOL)


def equal(left: Term, right: Term) -> Term:
    """Equality of terms of one sort; of formulas: both or neither."""
    if left.sort != right.sort:
        raise TypeError(f"{left} is a {left.sort.name}, {right} a {right.sort.name}")
    return Term("=", BOOL, (left, right))


def distinct(left: Term, right: Term) -> Term:
    return ~equal(left, right)


def forall(*parts: Term) -> Term:
    """``forall(x, y, body)``: for all x and y, body."""
    return _quantified("forall", parts)


def exists(*parts: Term) -> Term:
    """``exists(x, y, body)``: for some x and y, body."""
    return _quantified("exists", parts)


def _quantified(head: str, parts: tuple[Term, ...]) -> Term:
    *bound, body = parts
    if any(v.head != "var" for v in bound) or body.sort != BOOL:
        raise TypeError(f"{head} takes variables and then a formula")
    return Term(head, BOOL, (body,), bound=tuple(bound))


def symbols_of(terms: Iterable[Term]) -> tuple[Symbol, ...]:
    """The symbols that occur, in the order of their first occurrence."""
    found: dict[Symbol, None] = {}

    def walk(term: Term) -> None:
        if term.symbol is not None:
            found.setdefault(term.symbol)
        for arg in term.args:
            walk(arg)

    for term in terms:
        walk(term)
    return tuple(found)


def sorts_of(terms: Iterable[Term]) -> tuple[Sort, ...]:
    """The uninterpreted sorts that occur, in the order of their first occurrence."""
    found: dict[Sort, None] = {}

    def walk(term: Term) -> None:
        for sort in (term.sort, *(v.sort for v in term.bound)):
            found.setdefault(sort)
        if term.symbol is not None:
            found.update(dict.fromkeys(term.symbol.domain))
        for arg in term.args:
            walk(arg)

    for term in terms:
        walk(term)
    return tuple(sort for sort in found if sort not in (BOOL, INT))


# -- printing -----------------------------------------------------------------------------------

_JOINED = {"and": (" ∧ ", 4), "or": (" ∨ ", 3), "=>": (" ⇒ ", 2), "+": (" + ", 6)}


def _text(term: Term, outer: int) -> str:
    """``outer``: how tightly the surroundings bind; looser text gets brackets."""
    if term.head in ("var", "int"):
        return term.name or str(term.value)
    if term.head == "apply":
        assert term.symbol is not None
        inside = ", ".join(_text(arg, 0) for arg in term.args)
        return f"{term.symbol.name}({inside})" if term.args else term.symbol.name
    if term.head in ("forall", "exists"):
        sign = "∀" if term.head == "forall" else "∃"
        text = f"{sign}{_bound(term.bound)}. {_text(term.args[0], 0)}"
        return f"({text})" if outer else text
    if term.head == "not":
        inner = term.args[0]
        if inner.head == "=":
            return _brackets(f"{_text(inner.args[0], 5)} ≠ {_text(inner.args[1], 5)}", 5, outer)
        return f"¬{_text(inner, 7)}"
    if term.head in ("=", "<="):
        formula = term.head == "=" and term.args[0].sort == BOOL
        sign, level = ("⇔", 1) if formula else ("=" if term.head == "=" else "≤", 5)
        return _brackets(f" {sign} ".join(_text(arg, level + 1) for arg in term.args), level, outer)
    sign, level = _JOINED[term.head]
    if not term.args:
        return "true" if term.head == "and" else "false"
    return _brackets(sign.join(_text(arg, level + 1) for arg in term.args), level, outer)


def _bound(bound: tuple[Term, ...]) -> str:
    groups: dict[str, list[str]] = {}
    for variable in bound:
        groups.setdefault(variable.sort.name, []).append(variable.name)
    return ", ".join(f"{' '.join(names)}: {sort}" for sort, names in groups.items())


def _brackets(text: str, level: int, outer: int) -> str:
    return f"({text})" if level < outer else text
