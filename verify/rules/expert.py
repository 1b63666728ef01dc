"""CE: a selective copy brings the experts that its reader will use."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import Compute, CopyExperts
from ..access import PAST
from .case import Case, Test
from .static import Broken, StaticRule, Statics


# ∀ matmul m reading W through copies C:  used(ids(m)) ⊆ ∪ used(ids(c)), c ∈ C
def ce001(case: Case) -> bool:
    if case.fault.read.role == "ids":
        return _other_tensor(case)
    return _missed(case) and bool(case.selective_copies())


def _missed(case: Case) -> bool:
    """Whether the root reads an expert that no selective copy brought."""
    if case.root_read.experts is None or case.root_read.role == PAST:
        return False
    return case.relation == "none" or (
        case.relation == "stale" and not isinstance(case.writer, CopyExperts)
    )


def _other_tensor(case: Case) -> bool:
    """Whether the host read chooses by another ids tensor than the matmul's."""
    command = case.command(case.fault.read.part)
    if not isinstance(command, CopyExperts) or command.ids is None:
        return False
    return _ids_base(case, command.ids) != case.base(case.fault.read.due.name)


def _ids_base(case: Case, ids: str) -> str:
    copy = case.schedule.copy_of(ids)
    return case.base(copy[1] if copy is not None else ids)


# ∀ copy c that takes over the set of copy b, read by matmul m:  version(ids(b)) = version(ids(m))
def ce003(case: Case) -> bool:
    copy = case.feeding_copy
    return _missed(case) and copy is not None and copy.used_from is not None


# ∀ host read h of ids for matmul m:  version(h) = version that m reads
def ce002(case: Case) -> bool:
    return case.fault.read.role == "ids"


# ∀ byte b up to over_read past expert e of a copied tensor, e used:  defined(b)
def ce004(case: Case) -> bool:
    return case.root_read.role == PAST and not case.past_the_end


# ∀ matmul m, copy c that m reads:  ids(c) are those of m, not of another matmul
def ce005(case: Case) -> bool:
    if case.fault.read.role == "ids":
        command = case.command(case.fault.read.part)
        copy = command if isinstance(command, CopyExperts) and _other_tensor(case) else None
    else:
        copy = case.feeding_copy if _missed(case) else None
    return copy is not None and copy.ids is not None and _of_another_matmul(case, copy.ids)


def _of_another_matmul(case: Case, ids: str) -> bool:
    """Whether some ``mul_mat_id`` selects by these ids, and the reader by others."""
    base, reader = _ids_base(case, ids), case.command(case.fault.read.part)
    for node in case.schedule.graph.nodes:
        if node.op != "mul_mat_id" or case.base(node.src[2]) != base:
            continue
        if isinstance(reader, Compute):
            mine = case.schedule.graph.node(reader.node)
            return mine.op == "mul_mat_id" and case.base(mine.src[2]) != base
        return True
    return False


#: The first that holds names a fault: why an expert was left out comes before that it was.
TESTS: dict[str, Test] = {
    "CE003": ce003, "CE005": ce005, "CE004": ce004, "CE001": ce001, "CE002": ce002,
}  # fmt: skip


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
