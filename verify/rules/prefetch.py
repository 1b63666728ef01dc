"""PF: a prefetch reads what the ordinary copy would have read, and lands where nobody else is."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import Prefetch
from .case import Case, Test
from .placement import staged_off_device
from .static import Broken, StaticRule, Statics


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


# ∀ copies p, p′ of weights w ≠ w′ into one place, c the consumer of w:  c → p′  ∨  p′ → p
def pf006(case: Case) -> bool:
    return case.restages_weight and (case.relation == "unordered" or case.overwrote_due)


#: PF006 says of two weights what PF004 says of any bytes: it comes first.
TESTS: dict[str, Test] = {
    "PF001": pf001, "PF002": pf002, "PF003": pf003, "PF006": pf006, "PF004": pf004, "PF005": pf005,
}  # fmt: skip


# ∀ compute on d that reads staging place s:  memory(s) ∈ reads(d)
def pf007(s: Statics) -> Iterator[Broken]:
    for site, bound, memory in staged_off_device(s):
        yield Broken(
            "PF007",
            f"{site.node.dst!r} on {site.device.name} reads a weight staged as {bound!r} in "
            f"{memory}, which it cannot read",
            site.place,
            (("reads", ", ".join(site.device.reads)), ("memory", memory)),
            (),
            ("PL002",),
        )


STATIC: tuple[StaticRule, ...] = (pf007,)
