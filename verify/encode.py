"""Obligation → Z3, as a table: one line per construct, and what is not in it raises.

Effort is bounded by Z3's ``rlimit``, which does not depend on the clock; seeds are fixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import z3

from .term import Bool, Int, Scope, Values

#: Z3 resource units for one obligation: about a second on a current core.
DEFAULT_EFFORT = 4_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """``holds`` of a question "is there a counterexample": ``True`` (with ``values``),
    ``False``, or ``None`` when the solver gave up (``reason``)."""

    found: bool | None
    values: Values | None = None
    reason: str = ""


@dataclass(slots=True)
class Encoder:
    """Translates terms; keeps one Z3 constant per name."""

    context: z3.Context
    names: dict[tuple[str, ...], Any] = field(default_factory=dict)
    sets: dict[str, Any] = field(default_factory=dict)
    #: arguments at which a used set was asked, so that a model can be read back
    asked: dict[str, list[Any]] = field(default_factory=dict)

    def constant(self, *key: str) -> Any:
        if key not in self.names:
            self.names[key] = z3.Int("!".join(key), self.context)
        return self.names[key]

    def integer(self, term: Int) -> Any:
        total = z3.IntVal(term.constant, self.context)
        for atom, coefficient in term.terms:
            total = total + coefficient * _INT[atom[0]](self, atom)
        return total

    def truth(self, term: Bool) -> Any:
        if isinstance(term, bool):
            return z3.BoolVal(term, self.context)
        return _BOOL[term[0]](self, term)

    def used(self, name: str, expert: Any) -> Any:
        if name not in self.sets:
            sort = z3.IntSort(self.context)
            self.sets[name] = z3.Function(f"used!{name}", sort, z3.BoolSort(self.context))
        self.asked.setdefault(name, []).append(expert)
        return self.sets[name](expert)

    def product(self, names: tuple[str, ...]) -> Any:
        total = self.constant("sym", names[0])
        for name in names[1:]:
            total = total * self.constant("sym", name)
        return total


_INT: dict[str, Callable[[Encoder, Any], Any]] = {
    "sym": lambda e, a: e.constant("sym", a[1]),
    "var": lambda e, a: e.constant("var", a[1]),
    "product": lambda e, a: e.product(a[1:]),
    "div": lambda e, a: e.integer(a[1]) / a[2],  # Z3's integer division rounds down for a[2] > 0
}
_BOOL: dict[str, Callable[[Encoder, Any], Any]] = {
    "le": lambda e, t: e.integer(t[1]) <= 0,
    "eq": lambda e, t: e.integer(t[1]) == 0,
    "not": lambda e, t: z3.Not(e.truth(t[1])),
    "and": lambda e, t: z3.And([e.truth(part) for part in t[1:]]),
    "used": lambda e, t: e.used(t[1], e.integer(t[2])),
}


class Asked(NamedTuple):
    """What went to Z3: a term, and the ranges ``(name, low, high)`` of what is free in it."""

    term: Bool
    symbols: tuple[tuple[str, int, int], ...]
    variables: tuple[tuple[str, int, int], ...]


#: Told of each question that went to Z3, its answer and how long it took.
Observer = Callable[[Asked, Answer, float], None]


@dataclass(slots=True)
class Solver:
    """Asks Z3 whether a term has a model; questions that are equal up to the names of used sets
    are asked once.  (A used set is free, so its name says nothing; all else that the answer hangs
    on is in the key: the term, with addresses relative to the read, and the ranges.)

    ``effort``: rlimit per question.  ``questions``: how many went to Z3.  ``scope``: how terms
    for it are built, folded by plain arithmetic or as they stand.
    """

    effort: int = DEFAULT_EFFORT
    questions: int = 0
    scope: type[Scope] = Scope
    observer: Observer | None = None
    cache: dict[Bool, tuple[Answer, tuple[str, ...]]] = field(default_factory=dict)
    context: z3.Context | None = None

    def its_context(self) -> z3.Context:
        """Made for the first question: it costs as much as a small check."""
        if self.context is None:
            self.context = z3.Context()
        return self.context

    def model(
        self,
        term: Bool,
        symbols: Mapping[str, tuple[int, int]],
        variables: Mapping[str, tuple[int, int]] | None = None,
    ) -> Answer:
        """Values of symbols and variables (within their ranges) that make the term true."""
        if term is False:
            return Answer(False)
        variables = variables or {}
        names: dict[str, str] = {}
        form = renamed(term, names)
        key = (form, tuple(symbols.items()), tuple(variables.items()))
        if key not in self.cache:
            started = time.monotonic()
            answer = self._ask(term, symbols, variables)
            self.cache[key] = answer, tuple(names)
            if self.observer is not None:
                asked = Asked(term, _listed(symbols), _listed(variables))
                self.observer(asked, answer, time.monotonic() - started)
        answer, known = self.cache[key]
        return _with_sets(answer, dict(zip(known, names, strict=True)))

    def _ask(
        self,
        term: Bool,
        symbols: Mapping[str, tuple[int, int]],
        variables: Mapping[str, tuple[int, int]],
    ) -> Answer:
        self.questions += 1
        context = self.its_context()
        encoder = Encoder(context)
        solver = z3.Solver(ctx=context)
        solver.set("random_seed", 0)
        for kind, ranges in (("sym", symbols), ("var", variables)):
            for name, (low, high) in ranges.items():
                value = encoder.constant(kind, name)
                solver.add(low <= value, value <= high)
        solver.add(encoder.truth(term))
        solver.set("rlimit", self.effort)
        result = _check(solver)
        if result == z3.unsat:
            return Answer(False)
        if result == z3.unknown:
            return Answer(None, reason=solver.reason_unknown())
        return Answer(True, _read(solver, encoder, symbols, variables))


def renamed(term: Bool, names: dict[str, str]) -> Bool:
    """The term with its used sets numbered as they occur; ``names``: name → number."""
    if isinstance(term, bool) or term[0] in ("le", "eq"):
        return term
    if term[0] == "used":
        return ("used", names.setdefault(term[1], str(len(names))), term[2])
    return (term[0], *(renamed(part, names) for part in term[1:]))


def _with_sets(answer: Answer, names: Mapping[str, str]) -> Answer:
    """The answer with its used sets under other names."""
    values = answer.values
    if values is None or all(old == new for old, new in names.items()):
        return answer
    sets = {names[name]: members for name, members in values.sets.items()}
    return replace(answer, values=replace(values, sets=sets))


def _check(solver: z3.Solver) -> Any:
    """Z3 takes Ctrl-C for itself while it solves, and stops; hand it on."""
    result = solver.check()
    if result == z3.unknown and solver.reason_unknown() == "interrupted from keyboard":
        raise KeyboardInterrupt
    return result


def _listed(ranges: Mapping[str, tuple[int, int]]) -> tuple[tuple[str, int, int], ...]:
    return tuple((name, low, high) for name, (low, high) in ranges.items())


def z3_version() -> str:
    """The version of the Z3 that answers."""
    return str(z3.get_version_string())


def _read(
    solver: z3.Solver,
    encoder: Encoder,
    symbols: Mapping[str, tuple[int, int]],
    variables: Mapping[str, tuple[int, int]],
) -> Values:
    """The model as numbers, each made as small as a bisection can make it."""
    model = solver.model()
    for kind, ranges in (("sym", symbols), ("var", variables)):
        for name, (low, _) in ranges.items():
            model = _shrink(solver, model, encoder.constant(kind, name), low)

    def at(expression: Any) -> int:
        return int(model.eval(expression, model_completion=True).as_long())

    sets = {}
    for name, asked in encoder.asked.items():
        predicate = encoder.sets[name]
        members = (at(e) for e in asked if z3.is_true(model.eval(predicate(e), True)))
        sets[name] = frozenset(members)
    return Values(
        {name: at(encoder.constant("sym", name)) for name in symbols},
        {name: at(encoder.constant("var", name)) for name in variables},
        sets,
    )


def _shrink(solver: z3.Solver, model: Any, value: Any, low: int) -> Any:
    """Fix ``value`` to the smallest number that bisection finds; the model that has it."""
    high = int(model.eval(value, model_completion=True).as_long())
    while low < high:
        middle = (low + high) // 2
        solver.push()
        solver.add(value <= middle)
        if _check(solver) == z3.sat:
            model = solver.model()
            high = int(model.eval(value, model_completion=True).as_long())
        else:  # none there, or too hard to tell: a larger number is good enough
            low = middle + 1
        solver.pop()
    solver.add(value == high)
    return model
