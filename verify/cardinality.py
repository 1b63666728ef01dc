"""How many experts so many ids can name: a used set is a free set to the solver, and no larger than
the tensor that names it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ..model.schedule import Schedule
from .term import Bool, Int, Scope, conj, disj, neg, number, size, used


def one_id_one_expert(term: Bool, schedule: Schedule, scope: Scope) -> Iterator[Bool]:
    """For each two experts that a term asks of one set: at sizes at which its ids are one number,
    they are the same expert."""
    asked: dict[str, dict[Int, None]] = {}
    _collect(term, asked)
    for name, experts in asked.items():
        ids, listed, _ = name.partition("[")
        if not listed or len(experts) < 2:
            continue
        several = scope.lt(number(1), size(schedule.tensor(ids).elements))
        if several is True:
            continue
        for a, b in combinations(experts, 2):
            both = conj([used(name, a), used(name, b)])
            yield disj([several, neg(both), scope.eq(a, b)])


def _collect(term: Bool, asked: dict[str, dict[Int, None]]) -> None:
    if isinstance(term, bool) or term[0] in ("le", "eq"):
        return
    if term[0] == "used":
        asked.setdefault(term[1], {})[term[2]] = None
        return
    for part in term[1:]:
        _collect(part, asked)
