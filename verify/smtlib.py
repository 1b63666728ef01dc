"""A question as SMT-LIB 2, written from its terms and not by Z3: a second reading of ``encode``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model.fault import quote
from .term import Bool, Int


@dataclass(frozen=True, slots=True)
class Question:
    """Is there a model of ``term`` with symbols and variables within their ranges, ends
    included?  ``unfolded``: stated without any arithmetic done beforehand."""

    term: Bool
    symbols: tuple[tuple[str, int, int], ...]
    variables: tuple[tuple[str, int, int], ...]
    unfolded: bool = False


def script(question: Question, title: str = "") -> str:
    """The text that a solver reads.  ``sat`` means that the obligation fails."""
    writer = _Writer()
    for kind, ranges in (("sym", question.symbols), ("var", question.variables)):
        for name, low, high in ranges:
            constant = writer.constant(kind, name)
            writer.asserted.append(f"(<= {_number(low)} {constant} {_number(high)})")
    writer.asserted.append(writer.truth(question.term))
    logic = "QF_UFNIA" if writer.products else "QF_UFLIA"
    lines = [f"; {line}" for line in title.splitlines()]
    lines += [f"(set-logic {logic})", *writer.declared]
    lines += [f"(assert {part})" for part in writer.asserted]
    return "\n".join([*lines, "(check-sat)", ""])


@dataclass(slots=True)
class _Writer:
    """Translates terms.  Names of the document may hold anything, so they get plain ones here;
    a comment says which is which."""

    names: dict[tuple[str, str], str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    asserted: list[str] = field(default_factory=list)
    products: bool = False

    def constant(self, kind: str, name: str) -> str:
        return self._name(kind, name, "(declare-const {} Int)")

    def used(self, name: str) -> str:
        return self._name("used", name, "(declare-fun {} (Int) Bool)")

    def _name(self, kind: str, name: str, declaration: str) -> str:
        key = (kind, name)
        if key not in self.names:
            self.names[key] = f"{kind}_{len(self.names)}"
            short = quote(name, len(name))
            self.declared.append(f"{declaration.format(self.names[key])} ; {short}")
        return self.names[key]

    def product(self, names: tuple[str, ...]) -> str:
        self.products = True
        return f"(* {' '.join(self.constant('sym', name) for name in names)})"

    def integer(self, term: Int) -> str:
        parts = [_number(term.constant)] if term.constant or not term.terms else []
        for atom, factor in term.terms:
            value = _INT[atom[0]](self, atom)
            parts.append(value if factor == 1 else f"(* {_number(factor)} {value})")
        return parts[0] if len(parts) == 1 else f"(+ {' '.join(parts)})"

    def truth(self, term: Bool) -> str:
        if isinstance(term, bool):
            return "true" if term else "false"
        return _BOOL[term[0]](self, term)


def _number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


_INT: Mapping[str, Callable[[_Writer, Any], str]] = {
    "sym": lambda w, a: w.constant("sym", a[1]),
    "var": lambda w, a: w.constant("var", a[1]),
    "product": lambda w, a: w.product(a[1:]),
    "div": lambda w, a: f"(div {w.integer(a[1])} {_number(a[2])})",
}
_BOOL: Mapping[str, Callable[[_Writer, Any], str]] = {
    "le": lambda w, t: f"(<= {w.integer(t[1])} 0)",
    "eq": lambda w, t: f"(= {w.integer(t[1])} 0)",
    "not": lambda w, t: f"(not {w.truth(t[1])})",
    "and": lambda w, t: f"(and {' '.join(w.truth(part) for part in t[1:])})",
    "used": lambda w, t: f"({w.used(t[1])} {w.integer(t[2])})",
}
