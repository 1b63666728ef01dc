"""AL: tensors that are live at once share no bytes."""

from __future__ import annotations

from .case import Case, Test


# ∀ tensors a ≠ b of compute memory live at once in the concurrent order:  bytes(a) ∩ bytes(b) = ∅
def al001(case: Case) -> bool:
    return case.foreign_write and case.relation in ("unordered", "stale")


TESTS: dict[str, Test] = {"AL001": al001}
