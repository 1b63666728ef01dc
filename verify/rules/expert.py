"""CE: a selective copy brings the experts that its reader will use."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import CopyExperts
from .case import Case, Test
from .static import Broken, StaticRule, Statics


# ∀ matmul m reading W through copies C:  used(ids(m)) ⊆ ∪ used(ids(c)), c ∈ C
def ce001(case: Case) -> bool:
    if case.fault.read.role == "ids":
        return _other_tensor(case)
    missed = case.relation == "none" or (
        case.relation == "stale" and not isinstance(case.writer, CopyExperts)
    )
    return case.root_read.experts is not None and missed and bool(case.selective_copies())


def _other_tensor(case: Case) -> bool:
    """Whether the host read chooses by another ids tensor than the matmul's."""
    command = case.command(case.fault.read.part)
    if not isinstance(command, CopyExperts) or command.ids is None:
        return False
    copy = case.schedule.copy_of(command.ids)
    named = copy[1] if copy is not None else command.ids
    return case.base(named) != case.base(case.fault.read.due.name)


# ∀ host read h of ids for matmul m:  version(h) = version that m reads
def ce002(case: Case) -> bool:
    return case.fault.read.role == "ids"


TESTS: dict[str, Test] = {"CE001": ce001, "CE002": ce002}


# ∀ id:  0 ≤ id < n_expert;  through a bank: the ids that choose, the experts that it caches
# (a bank that is read by other ids than its slot ids is BK005)
def ce006(s: Statics) -> Iterator[Broken]:
    for position, node in enumerate(s.schedule.graph.nodes):
        if node.op != "mul_mat_id":
            continue
        bank = s.schedule.graph.find_bank(node.src[0])
        weights, ids = (bank.caches, bank.ids) if bank is not None else (node.src[0], node.src[2])
        span = s.schedule.tensor(ids).values or s.schedule.base(ids).values
        count = s.schedule.tensor(weights).ne[2].constant
        if span is None or count is None:
            continue
        negative = span[0] < 0 and not node.param("negative_ids", False)
        if not s.holds(span[1] <= count and not negative):
            yield Broken(
                "CE006",
                f"{node.dst!r} selects among {count} experts with ids from {span[0]} to "
                f"{span[1] - 1}",
                f"$.nodes[{position}]",
                (("experts", count), ("least id", span[0]), ("greatest id", span[1] - 1)),
            )


STATIC: tuple[StaticRule, ...] = (ce006,)
