"""PF: a prefetch reads what the ordinary copy would have read, and lands where nobody else is."""

from __future__ import annotations

from ...model.command import Prefetch
from .case import Case, Test


# ∀ prefetch p, user write u meeting src(p), src(p) ∉ compute:  u → p  ∨  p → u
def pf001(case: Case) -> bool:
    return (
        case.prefetched
        and not case.computed_source
        and case.writer_is_user_code
        and case.relation == "unordered"
    )


# ∀ prefetch p of v, w the writer of v:  w → p
def pf002(case: Case) -> bool:
    return case.prefetched and bool(case.due_writes) and not case.due_before_root


# ∀ prefetch p with consumer c:  no write of src(p) between start(p) and c
def pf003(case: Case) -> bool:
    return case.prefetched and case.rewrites_before_use()


# ∀ prefetch p with consumer c:  no other user of the bytes of dst(p) between issue(p) and c
def pf004(case: Case) -> bool:
    if isinstance(case.writer, Prefetch):
        return case.foreign_write or case.brings_other
    return case.foreign_write and case.carried_by_prefetch


# ∀ prefetch p with consumer c:  p → c
def pf005(case: Case) -> bool:
    return (
        isinstance(case.writer, Prefetch)
        and case.relation == "unordered"
        and not case.foreign_write
        and not case.brings_other
    )


TESTS: dict[str, Test] = {
    "PF001": pf001, "PF002": pf002, "PF003": pf003, "PF004": pf004, "PF005": pf005,
}  # fmt: skip
