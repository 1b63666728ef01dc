"""CO005, CO006: bytes of experts moved, against how many experts a batch can use."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...model.command import CopyExperts, Prefetch
from ...model.symbol import Expr
from ..regime import Regime
from .static import Broken, Statics

#: CO005: a whole weight is too much where at most this share of its experts can be used
FEW = (1, 2)
#: CO006: a saving under this share of the weight is less than the host's wait for the ids costs
LEAST_SAVING = 0.05


@dataclass(frozen=True, slots=True)
class Routing:
    """A weight of ``experts`` experts, and the ids that choose ``per_token`` of them for each
    token; ``ids``: how many ids there are."""

    experts: int
    per_token: int
    ids: Expr
    tensor: str

    def share_unused(self, ids: int) -> float:
        """Expected share of the experts that no token chooses, if each token chooses its own
        evenly and apart from the others: (1 − k/E)^tokens."""
        return float((1 - self.per_token / self.experts) ** (ids / self.per_token))


def routing(s: Statics, weight: str) -> Routing | None:
    """Who chooses among the experts of a weight; ``None`` if nothing or nobody says so."""
    node = s.expert_reader(weight)
    if node is None or s.schedule.graph.find_bank(weight) is not None:
        return None
    experts = s.schedule.tensor(weight).ne[2].constant
    ids = s.schedule.tensor(node.src[2])
    per_token = ids.ne[0].constant
    if not ids.shape or experts is None or not per_token or per_token > experts:
        return None
    return Routing(experts, per_token, ids.elements, ids.name)


def sizes(s: Statics, count: Expr, fits: Callable[[int], bool]) -> tuple[str, int] | None:
    """Where in the regime a question about a count has the answer yes, in words, and the greatest
    count there.  The question is one of more or less: the answer changes once at most.  A count
    that is not linear in one symbol is asked at one value of the symbols."""
    sample = dict(s.regime.sample)
    names = sorted(count.symbols)
    if len(names) != 1 or not count.linear:
        found = count.value(sample)
        words = ", ".join(f"{name} = {sample[name]}" for name in names) or "all sizes"
        return (words, found) if fits(found) else None
    name = names[0]
    inside = _values(s.regime, name)

    def answer(value: int) -> bool:
        return fits(count.value({name: value}))

    if answer(inside[0]):
        inside = inside[: bisect_left(inside, True, key=lambda value: not answer(value))]
    else:
        inside = inside[bisect_left(inside, True, key=answer) :]
    if not inside:
        return None
    words = f"{name} {inside[0]}..{inside[-1]}" if len(inside) > 1 else f"{name} = {inside[0]}"
    return words, max(count.value({name: value}) for value in (inside[0], inside[-1]))


@lru_cache(maxsize=64)
def _values(regime: Regime, name: str) -> tuple[int, ...]:
    """The values of a symbol in a regime, the others as in its sample (which is among them)."""
    sample = dict(regime.sample)
    low, high = regime.ranges[name]
    whole = range(low, high + 1)
    if not regime.condition.parts:
        return tuple(whole)
    return tuple(v for v in whole if regime.condition.holds(sample | {name: v}))


# ∀ prefetch of a whole expert weight with E experts, ids of its reader:  |ids| > E/2
def co005(s: Statics) -> Iterator[Broken]:
    for index in dict.fromkeys(command for command, _ in s.order.by_command):
        command = (s.schedule.program or ())[index]
        if not isinstance(command, Prefetch):
            continue
        chosen = routing(s, command.src)
        if chosen is None:
            continue
        experts = chosen.experts
        found = sizes(s, chosen.ids, lambda ids, e=experts: ids * FEW[1] <= e * FEW[0])  # type: ignore[misc]
        if found is None:
            continue
        where, most = found
        whole = _bytes(s, command.src)
        yield Broken(
            "CO005",
            f"the prefetch of {command.src!r} brings {experts} experts where at most {most} are "
            f"used ({where})",
            f"$.program[{index}]",
            (
                ("bytes moved", whole), ("bytes of the used experts", whole // experts * most),
                ("experts", experts), ("used at most", most), ("sizes", where),
            ),
        )  # fmt: skip


# ∀ selective copy whose host read awaits a device:  (1 − k/E)^tokens ≥ LEAST_SAVING
def co006(s: Statics) -> Iterator[Broken]:
    for index in dict.fromkeys(command for command, _ in s.order.by_command):
        command = (s.schedule.program or ())[index]
        if not isinstance(command, CopyExperts) or command.ids is None:
            continue
        chosen = routing(s, command.src)
        if chosen is None or not _awaits_a_device(s, chosen.tensor):
            continue
        found = sizes(
            s,
            chosen.ids,
            lambda ids, c=chosen: c.share_unused(ids) < LEAST_SAVING,  # type: ignore[misc]
        )
        if found is None:
            continue
        where, most = found
        whole = _bytes(s, command.src)
        used = 1 - chosen.share_unused(most)
        yield Broken(
            "CO006",
            f"the selective copy of {command.src!r} brings nearly all of its {chosen.experts} "
            f"experts ({where}), and the host waits for their ids",
            f"$.program[{index}]",
            (
                ("experts", chosen.experts), ("experts per token", chosen.per_token),
                ("expected share used", f"{used:.1%}"),
                ("bytes", whole), ("expected bytes saved", round(whole * (1 - used))),
                ("sizes", where),
            ),
        )  # fmt: skip


def _awaits_a_device(s: Statics, ids: str) -> bool:
    """Whether the ids lie in a device's memory, from where the host has to fetch them."""
    memory = s.schedule.location(ids).memory
    return memory is not None and not s.schedule.graph.memory(memory).host


def _bytes(s: Statics, name: str) -> int:
    return s.schedule.tensor(name).data_bytes.bounds(s.regime.ranges)[1]
