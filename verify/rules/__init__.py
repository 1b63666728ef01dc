"""The rules: one module a family, and the order in which they name a fault."""

from __future__ import annotations

from collections.abc import Iterator

from ..footprint import Footprints
from . import (
    alloc,
    bank,
    cost,
    expert,
    order,
    overlap,
    passes,
    ping_pong,
    placement,
    prefetch,
    routing,
)
from .case import Case, Test
from .realised import Declared, effects, pl006
from .static import Broken, StaticRule, Statics
from .table import RULES

__all__ = [
    "RULES", "Broken", "Declared", "Statics", "broken_statics", "classify", "effects", "pl006",
    "wasteful",
]  # fmt: skip

#: PF, BK, CE, PP, AL, OR: the first test that holds names the fault, the others stand under also
_TESTS: dict[str, Test] = {
    **prefetch.TESTS,
    **bank.TESTS,
    **expert.TESTS,
    **passes.TESTS,
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


_COST: tuple[StaticRule, ...] = (
    cost.co001,
    ping_pong.co003,
    routing.co005,
    routing.co006,
)


def classify(case: Case) -> tuple[str, ...]:
    """Codes of the rules that a fault breaks, the naming one first."""
    found = tuple(code for code, test in _TESTS.items() if test(case))
    return found or ("OR002",)


def broken_statics(statics: Statics) -> Iterator[Broken]:
    """Every static rule that does not hold in a regime."""
    for rule in _STATIC:
        yield from rule(statics)


def wasteful(statics: Statics, footprints: Footprints | None) -> Iterator[Broken]:
    """Every cost rule that does not hold in a regime; without footprints, those that need none.
    (CO002 is looked for by ``minimize``, and PL006 needs all regimes.)"""
    for rule in _COST:
        yield from rule(statics)
    if footprints is not None:
        yield from overlap.co004(statics, footprints)
