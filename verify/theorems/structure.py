"""Finite structures, and what a formula means in one: plain Python, no solver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from .logic import BOOL, INT, Symbol, Term, symbols_of


@dataclass(frozen=True, slots=True)
class Structure:
    """``universes``: the things of each sort; ``meaning``: each symbol as a Python function."""

    universes: Mapping[str, tuple[Any, ...]]
    meaning: Mapping[str, Callable[..., Any]]

    def holds(self, formula: Term) -> bool:
        """Whether a closed formula is true here.  ``KeyError`` for a symbol without meaning."""
        return bool(self.value(formula, {}))

    def value(self, term: Term, env: dict[str, Any]) -> Any:
        """The value of a term; ``env``: that of its free variables."""
        head, args = term.head, term.args
        if head == "apply":
            assert term.symbol is not None
            return self.meaning[term.symbol.name](*[self.value(arg, env) for arg in args])
        if head == "var":
            return env[term.name]
        if head == "and":
            return all(self.value(arg, env) for arg in args)
        if head == "or":
            return any(self.value(arg, env) for arg in args)
        if head == "not":
            return not self.value(args[0], env)
        if head == "=>":
            return not self.value(args[0], env) or self.value(args[1], env)
        if head == "=":
            return self.value(args[0], env) == self.value(args[1], env)
        if head in ("forall", "exists"):
            return self._quantified(term, env)
        if head == "int":
            return term.value
        if head == "+":
            return self.value(args[0], env) + self.value(args[1], env)
        assert head == "<=", head
        return self.value(args[0], env) <= self.value(args[1], env)

    def _quantified(self, term: Term, env: dict[str, Any]) -> bool:
        """Look for a choice of the bound variables that settles it: one that makes the body true
        for ∃, false for ∀."""
        settles = term.head == "exists"
        names = [variable.name for variable in term.bound]
        ranges = [self.universes[variable.sort.name] for variable in term.bound]
        inner = dict(env)
        for choice in product(*ranges):
            inner.update(zip(names, choice, strict=True))
            if bool(self.value(term.args[0], inner)) == settles:
                return settles
        return not settles


def table(
    universes: Mapping[str, tuple[Any, ...]], symbol: Symbol, value: Callable[..., Any]
) -> dict[tuple[Any, ...], Any]:
    """All values of a symbol.  Arguments range over universes, so none may be an integer."""
    if INT in symbol.domain or BOOL in symbol.domain:
        raise TypeError(f"{symbol.name} has no finite table: it takes integers or truth values")
    ranges = [universes[sort.name] for sort in symbol.domain]
    return {args: value(*args) for args in product(*ranges)}


def from_tables(
    universes: Mapping[str, tuple[Any, ...]],
    tables: Mapping[str, Mapping[tuple[Any, ...], Any]],
) -> Structure:
    """The structure whose symbols have these tables."""

    def look_up(values: Mapping[tuple[Any, ...], Any]) -> Callable[..., Any]:
        return lambda *args: values[args]

    return Structure(universes, {name: look_up(values) for name, values in tables.items()})


def facts(structure: Structure, terms: Iterable[Term]) -> tuple[str, ...]:
    """What holds in a structure, one line a symbol of the formulas: for people."""
    lines = []
    for symbol in symbols_of(terms):
        values = table(structure.universes, symbol, structure.meaning[symbol.name])
        if not symbol.domain:
            lines.append(f"{symbol.name} = {_word(values[()])}")
        elif symbol.result == BOOL:
            held = [_tuple(args) for args, value in values.items() if value]
            lines.append(f"{symbol.name}: {', '.join(held) or 'nothing'}")
        else:
            pairs = [f"{_tuple(args)} ↦ {_word(value)}" for args, value in values.items()]
            lines.append(f"{symbol.name}: {', '.join(pairs)}")
    return tuple(lines)


def _word(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _tuple(args: tuple[Any, ...]) -> str:
    return "(" + ", ".join(map(_word, args)) + ")"
