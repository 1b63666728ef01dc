"""The rules: one module a family, and the order in which they name a fault."""

from __future__ import annotations

from collections.abc import Iterator

from . import alloc, bank, expert, order, placement, prefetch
from .case import Case, Test
from .static import Broken, StaticRule, Statics
from .table import RULES

__all__ = ["RULES", "Broken", "Statics", "broken_statics", "classify"]

#: PF, BK, CE, PP, AL, OR: the first test that holds names the fault, the others stand under also
_TESTS: dict[str, Test] = {
    **prefetch.TESTS,
    **bank.TESTS,
    **expert.TESTS,
    **alloc.TESTS,
    **order.TESTS,
}

_STATIC: tuple[StaticRule, ...] = (
    *prefetch.STATIC,
    *bank.STATIC,
    *expert.STATIC,
    *alloc.STATIC,
    *order.STATIC,
    *placement.STATIC,
)


def classify(case: Case) -> tuple[str, ...]:
    """Codes of the rules that a fault breaks, the naming one first."""
    found = tuple(code for code, test in _TESTS.items() if test(case))
    return found or ("OR002",)


def broken_statics(statics: Statics) -> Iterator[Broken]:
    """Every static rule that does not hold in a regime."""
    for rule in _STATIC:
        yield from rule(statics)
