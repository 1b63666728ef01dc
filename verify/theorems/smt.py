"""Questions as SMT-LIB, and Z3's answers as finite structures.

Both solvers read the same text, and it is the text that ``--smt2`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import z3

from .logic import BOOL, INT, Sort, Symbol, Term, sorts_of, symbols_of
from .structure import Structure, from_tables, table

#: Z3 resource units for one question
DEFAULT_EFFORT = 20_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """``satisfiable``: ``None`` if the solver gave up (``reason`` says why)."""

    satisfiable: bool | None
    structure: Structure | None = None
    reason: str = ""


# -- writing --------------------------------------------------------------------------------------


def smt_text(assertions: Iterable[Term], comment: str = "") -> str:
    """A whole SMT-LIB script: are these satisfiable together?"""
    assertions = tuple(assertions)
    lines = [f"; {line}" for line in comment.splitlines()]
    symbols = symbols_of(assertions)
    integers = any(INT in (s.result, *s.domain) for s in symbols)
    lines.append(f"(set-logic {'UFLIA' if integers else 'UF'})")
    lines += [f"(declare-sort {sort.name} 0)" for sort in sorts_of(assertions)]
    for symbol in symbols:
        domain = " ".join(sort.name for sort in symbol.domain)
        lines.append(f"(declare-fun {symbol.name} ({domain}) {symbol.result.name})")
    lines += [f"(assert {_smt(assertion)})" for assertion in assertions]
    return "\n".join([*lines, "(check-sat)", ""])


def _smt(term: Term) -> str:
    if term.head == "var":
        return term.name
    if term.head == "int":
        return str(term.value) if term.value >= 0 else f"(- {-term.value})"
    if term.head in ("forall", "exists"):
        bound = " ".join(f"({v.name} {v.sort.name})" for v in term.bound)
        return f"({term.head} ({bound}) {_smt(term.args[0])})"
    if term.head == "apply":
        assert term.symbol is not None
        head = term.symbol.name
    else:
        head = term.head
    if not term.args:
        return {"and": "true", "or": "false"}.get(head, head)
    return f"({head} {' '.join(_smt(arg) for arg in term.args)})"


# -- asking Z3 ------------------------------------------------------------------------------------


def decide(assertions: Iterable[Term], effort: int = DEFAULT_EFFORT) -> Answer:
    """Whether closed formulas are satisfiable together, and in which structure."""
    assertions = tuple(assertions)
    solver = z3.Solver(ctx=z3.Context())
    # Without the preset for the logic, and splitting by relevancy: several times faster here.
    solver.set("auto_config", False)
    solver.set("smt.case_split", 3)
    solver.set("rlimit", effort)
    solver.set("random_seed", 0)
    solver.from_string(smt_text(assertions))
    result = solver.check()
    if result == z3.unsat:
        return Answer(False)
    if result == z3.unknown:
        return Answer(None, reason=solver.reason_unknown())
    return Answer(True, _structure(solver, assertions))


def _structure(solver: z3.Solver, assertions: tuple[Term, ...]) -> Structure:
    model, context = solver.model(), solver.ctx
    sorts = {sort: z3.DeclareSort(sort.name, ctx=context) for sort in sorts_of(assertions)}
    things: dict[str, dict[str, z3.ExprRef]] = {}
    for sort, known in sorts.items():
        universe = model.get_universe(known) or [z3.FreshConst(known)]
        things[sort.name] = {f"{sort.name}{i}": thing for i, thing in enumerate(universe)}
    universes = {name: tuple(found) for name, found in things.items()}
    reader = _Reader(model, sorts, things)
    tables = {
        symbol.name: table(universes, symbol, reader.value_of(symbol))
        for symbol in symbols_of(assertions)
    }
    return from_tables(universes, tables)


@dataclass(frozen=True, slots=True)
class _Reader:
    model: z3.ModelRef
    sorts: dict[Sort, z3.SortRef]
    things: dict[str, dict[str, z3.ExprRef]]

    def value_of(self, symbol: Symbol) -> Callable[..., Any]:
        context = self.model.ctx
        simple = {BOOL: z3.BoolSort(context), INT: z3.IntSort(context)}
        sorts = [(simple | self.sorts)[sort] for sort in (*symbol.domain, symbol.result)]
        declared = z3.Function(symbol.name, *sorts)
        reference = self.model.ctx.ref()

        def value(*args: str) -> Any:
            given = [self.things[s.name][a] for s, a in zip(symbol.domain, args, strict=True)]
            # Applied below z3's own checks of arguments, which cost more than the look-up.
            terms = (z3.Ast * len(given))(*(thing.as_ast() for thing in given))
            applied = z3.Z3_mk_app(reference, declared.ast, len(given), terms)
            found = self.model.eval(z3.ExprRef(applied, context), model_completion=True)
            if symbol.result == BOOL:
                return z3.is_true(found)
            if symbol.result == INT:
                return found.as_long()
            names = self.things[symbol.result.name].items()
            return next((name for name, thing in names if thing.eq(found)), next(iter(names))[0])

        return value
