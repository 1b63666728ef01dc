"""BK: the slots of a bank hold what its slot ids say, while they are read."""

from __future__ import annotations

from .case import Case, Test


# ∀ reader r of slot s through fill F:  upload(content(s)) → r, and nobody else writes s
def bk002(case: Case) -> bool:
    return case.reads_bank and case.relation != "overflow" and not case.other_fill


# ∀ fills F ≠ G of one group, r served by F:  r → upload(G)  ∨  upload(G) → host(F)
#   ∨  |used(F) ∪ … ∪ used(G)| ≤ slots
def bk003(case: Case) -> bool:
    return case.reads_bank and case.other_fill and case.relation in ("unordered", "stale")


# when(bank) ⊢ |used(ids)| ≤ slots
def bk004(case: Case) -> bool:
    return case.relation == "overflow"


TESTS: dict[str, Test] = {"BK002": bk002, "BK003": bk003, "BK004": bk004}
