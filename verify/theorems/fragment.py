"""Whether a question lies in a fragment that the solvers decide.

The fragment is effectively propositional logic over several sorts: no function leads from a sort
back to itself, neither a declared one nor one that stands for an ∃ under a ∀.  Then only finitely
many terms exist, and a satisfiable question has a finite model.  Integers may occur in linear
terms, but no quantifier may range over them and no function may take them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from .logic import BOOL, INT, Sort, Term, symbols_of

Edges = Mapping[tuple[str, str], str]


class OutsideFragment(ValueError):
    """A question that need not have an answer."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """``name``: of the fragment; ``edges``: which sorts lead to which, and through what."""

    name: str
    edges: tuple[tuple[str, str, str], ...]


def fragment(assertions: Iterable[Term]) -> Fragment:
    """The fragment of a conjunction of closed formulas; ``OutsideFragment`` if there is none."""
    assertions = tuple(assertions)
    edges: dict[tuple[str, str], str] = {}
    integers = False
    for symbol in symbols_of(assertions):
        integers = integers or INT in (symbol.result, *symbol.domain)
        if INT in symbol.domain or BOOL in symbol.domain:
            raise OutsideFragment(f"{symbol.name} takes integers or truth values")
        if symbol.result not in (BOOL, INT):
            for sort in symbol.domain:
                edges.setdefault((sort.name, symbol.result.name), f"function {symbol.name}")
    quantifiers = False
    for assertion in assertions:
        quantifiers = _quantifiers(assertion, True, (), edges) or quantifiers
    cycle = _cycle(edges)
    if cycle:
        way = " → ".join(cycle)
        through = ", ".join(edges[pair] for pair in pairwise(cycle))
        raise OutsideFragment(f"the sorts lead in a circle: {way} (through {through})")
    name = "linear integer arithmetic" if integers and not edges and not quantifiers else "EPR"
    if integers and name == "EPR":
        name = "EPR with linear integer arithmetic"
    return Fragment(name, tuple((a, b, why) for (a, b), why in edges.items()))


def _quantifiers(
    term: Term, positive: bool, universal: tuple[Sort, ...], edges: dict[tuple[str, str], str]
) -> bool:
    """Add an edge for each ∃ under a ∀ (as the polarity has it); whether any quantifier occurs."""
    if term.head in ("forall", "exists"):
        sorts = tuple(variable.sort for variable in term.bound)
        if INT in sorts:
            raise OutsideFragment(f"a quantifier ranges over the integers: {term}")
        if (term.head == "forall") == positive:
            universal += sorts
        else:
            names = " ".join(variable.name for variable in term.bound)
            for outer in universal:
                for sort in sorts:
                    edges.setdefault((outer.name, sort.name), f"∃{names} under ∀")
        _quantifiers(term.args[0], positive, universal, edges)
        return True
    if term.head == "not":
        return _quantifiers(term.args[0], not positive, universal, edges)
    if term.head == "=>":
        left = _quantifiers(term.args[0], not positive, universal, edges)
        return _quantifiers(term.args[1], positive, universal, edges) or left
    found = False
    for arg in term.args:
        found = _quantifiers(arg, positive, universal, edges) or found
        if term.head == "=" and arg.sort == BOOL:
            # Both polarities occur in "both or neither".
            found = _quantifiers(arg, not positive, universal, edges) or found
    return found


def _cycle(edges: Edges) -> list[str]:
    """Sorts along a circle, the first one again at the end; empty if there is none."""
    after: dict[str, list[str]] = {}
    for start, end in edges:
        after.setdefault(start, []).append(end)
    finished: set[str] = set()

    def walk(sort: str, path: list[str]) -> list[str]:
        if sort in path:
            return [*path[path.index(sort) :], sort]
        if sort in finished:
            return []
        for following in after.get(sort, []):
            found = walk(following, [*path, sort])
            if found:
                return found
        finished.add(sort)
        return []

    for sort in list(after):
        found = walk(sort, [])
        if found:
            return found
    return []
