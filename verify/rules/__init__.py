"""The rules: one module a family, and the order in which they name a fault."""

from __future__ import annotations

from . import alloc, bank, expert, order, prefetch
from .case import Case, Test
from .table import RULES

__all__ = ["RULES", "classify"]

#: PF, BK, CE, PP, AL, OR: the first test that holds names the fault, the others stand under also
_TESTS: dict[str, Test] = {
    **prefetch.TESTS, **bank.TESTS, **expert.TESTS, **alloc.TESTS, **order.TESTS,
}  # fmt: skip


def classify(case: Case) -> tuple[str, ...]:
    """Codes of the rules that a fault breaks, the naming one first."""
    found = tuple(code for code, test in _TESTS.items() if test(case))
    return found or ("OR002",)
