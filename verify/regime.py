"""Regimes: the ranges of symbols within which the same commands exist in every pass.

Guards cut the space of symbols.  Each cell that Z3 finds non-empty is checked on its own, with
its condition as an assumption; within it sizes stay symbolic, and order facts are plain facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..model.schedule import Schedule
from ..model.symbol import PASS, Comparison, Condition
from .encode import Solver

#: more cells than this are left undecided
MAX_REGIMES = 512
#: at most so many values of the symbols are tried one by one
MAX_VALUES = 512

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


class TooManyRegimes(Exception):
    """The guards cut the symbols into more cells than are checked one by one."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Values of the symbols that satisfy ``condition``; which guards hold there is fixed.

    ``symbols``: ranges.  ``sample``: values inside.
    """

    condition: Condition
    symbols: tuple[tuple[str, int, int], ...]
    sample: tuple[tuple[str, int], ...]

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return {name: (low, high) for name, low, high in self.symbols}

    def holds(self, guard: Condition, iteration: int) -> bool:
        """Whether a guard holds in this regime: all of it, so one sample tells."""
        return guard.holds({**dict(self.sample), PASS: iteration})


def guards(schedule: Schedule) -> list[Condition]:
    """Every condition of the document with each pass put in, without repetition."""
    found: dict[Condition, None] = {}
    conditions = [c.when for c in schedule.program or ()]
    conditions += [n.when for n in schedule.graph.nodes] + [b.when for b in schedule.graph.banks]
    for condition in dict.fromkeys(conditions):
        for iteration in range(schedule.repeat):
            found[condition.substitute({PASS: iteration})] = None
    return list(found)


def _negated(part: Comparison) -> Comparison:
    return Comparison(part.left, _NEGATED[part.op], part.right, part.modulus)


def regimes(schedule: Schedule, solver: Solver) -> list[Regime]:
    """The non-empty cells; raises ``TooManyRegimes``."""
    symbols = schedule.graph.symbols
    ranges = {name: (low, high) for name, low, high in symbols}
    scope = solver.scope(ranges, {})
    cells = [Condition()]
    for atom in dict.fromkeys(part for guard in guards(schedule) for part in guard.parts):
        if not atom.symbols:
            continue
        cut = []
        for cell in cells:
            for literal in (atom, _negated(atom)):
                condition = Condition((*cell.parts, literal))
                if solver.model(scope.condition(condition), ranges).found is not False:
                    cut.append(condition)
        cells = cut
        if len(cells) > MAX_REGIMES:
            raise TooManyRegimes(f"the guards cut the symbols into more than {MAX_REGIMES} cells")
    found = []
    for cell in cells:
        answer = solver.model(scope.condition(cell), ranges)
        if answer.found is None or answer.values is None:
            raise TooManyRegimes(f"no value of the symbols was found for {cell}: {answer.reason}")
        sample = tuple((name, answer.values.symbols[name]) for name in ranges)
        found.append(Regime(cell, symbols, sample))
    return found


def at_values(regime: Regime) -> Iterator[Regime]:
    """The same regime at each single value of the symbols; raises ``TooManyRegimes``."""
    count = 1
    for _, low, high in regime.symbols:
        count *= high - low + 1
    if count > MAX_VALUES:
        raise TooManyRegimes(f"{count} values of the symbols are more than {MAX_VALUES}")
    names = [name for name, _, _ in regime.symbols]
    spans = [range(low, high + 1) for _, low, high in regime.symbols]
    for chosen in product(*spans):
        values = dict(zip(names, chosen, strict=True))
        if all(part.holds(values) for part in regime.condition.parts):
            fixed = tuple((name, value, value) for name, value in values.items())
            yield Regime(regime.condition, fixed, tuple(values.items()))
