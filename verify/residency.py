"""Ids for which a fill uploads into the slots of a reader: the bank run as its policy runs it.

``Banks.clash`` counts experts: it never misses a fill that takes a reader's slot, but the sizes and
sets that the solver finds need not be ids that make the two meet.  Here these ids are tried, and
others after them.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.schedule import Schedule
from .banks import expert_count
from .footprint import Footprints
from .lookup import filled_banks
from .obligation import Fault

#: ids of a tensor in a pass, as counterexamples give them
Integers = tuple[tuple[str, int, tuple[int, ...]], ...]
#: what groups hold at the start, as counterexamples give it: ``(slot, layer, expert)``
Contents = tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]
Place = tuple[int, int]
#: ids that are tried, at most; and fills that are run for it
TRIES, FILLS = 500, 200_000


@dataclass(frozen=True, slots=True)
class _Fill:
    """``ids``: the tensor and the pass that choose; its ids are drawn from ``experts``."""

    place: Place
    layer: int
    ids: tuple[str, int]
    count: int
    experts: range


def meeting(
    schedule: Schedule, footprints: Footprints, fault: Fault, integers: Integers, banks: Contents
) -> tuple[Integers, Contents] | None:
    """Ids and contents that show a race of a reader of slots with another fill; ``None`` if none
    were found.  The given ones are returned where they do, or where nothing is to be looked for."""
    use, write = fault.root.read.bank, fault.root.write
    if use is None or use.what != "slots" or use.fill is None or use.bank.policy != "lru-slots":
        return integers, banks
    if write is None or write.event is None or write.event.kind != "state":
        return integers, banks
    if fault.root.relation not in ("unordered", "stale"):
        return integers, banks
    group = footprints.fills[use.bank.group]
    uploads = write.event.place
    if uploads not in group:
        return integers, banks
    last = max(group.index(uploads), group.index(use.fill))
    fills = [_fill(schedule, fault, place) for place in group[: last + 1]]
    name, slots = use.bank.group, use.bank.slots
    for attempt, (given, content) in enumerate(
        _tries(fills, slots, integers, dict(banks).get(name, ()))
    ):
        if _meet(fills, slots, given, content, use.fill, uploads):
            if attempt == 0:
                return integers, banks
            return _merged(integers, given), ((name, content),) if content else ()
    return None


def _fill(schedule: Schedule, fault: Fault, place: Place) -> _Fill:
    bank = filled_banks(schedule, place)[0]
    tensor = schedule.tensor(bank.ids)
    values = tensor.values or schedule.base(bank.ids).values or (0, 1)
    first = max(values[0], 0)
    experts = range(first, first + max(expert_count(schedule, bank), 1))
    count = tensor.elements.value(fault.values.symbols)
    return _Fill(place, bank.layer, (bank.ids, place[1]), count, experts)


def _tries(
    fills: Sequence[_Fill], slots: int, integers: Integers, content: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[Mapping[tuple[str, int], tuple[int, ...]], tuple[tuple[int, int, int], ...]]]:
    """Ids of each fill and contents of the slots: first the given ones, then drawn ones."""
    rng = random.Random(0)
    known = {(name, iteration): values for name, iteration, values in integers}
    rooms = {fill.ids: fill for fill in fills}
    residents = sorted({(fill.layer, expert) for fill in fills for expert in fill.experts})
    for attempt in range(min(TRIES, 1 + FILLS // len(fills))):
        drawn = {ids: tuple(rng.choices(f.experts, k=f.count)) for ids, f in rooms.items()}
        if attempt == 0:
            yield drawn | {ids: known[ids] for ids in rooms if ids in known}, tuple(content)
            continue
        full = rng.sample(residents, min(slots, len(residents))) if attempt % 2 else []
        yield drawn, tuple((slot, *owner) for slot, owner in enumerate(full))


def _meet(
    fills: Iterable[_Fill],
    slots: int,
    given: Mapping[tuple[str, int], tuple[int, ...]],
    content: Iterable[tuple[int, int, int]],
    serving: Place,
    uploads: Place,
) -> bool:
    """Whether one fill uploads into a slot that the readers of another one use."""
    group: OrderedDict[int, tuple[int, int] | None] = OrderedDict.fromkeys(range(slots))
    for slot, layer, expert in content:
        group[slot] = layer, expert
        group.move_to_end(slot)
    read: set[int] = set()
    loaded: set[int] = set()
    for fill in fills:
        wanted = {expert for expert in given[fill.ids] if expert >= 0}
        if len(wanted) > slots:
            return False
        new = _serve(group, fill.layer, list(dict.fromkeys(given[fill.ids])))
        if fill.place == uploads:
            loaded = new
        if fill.place == serving:
            owners = {(fill.layer, expert) for expert in wanted}
            read = {slot for slot, owner in group.items() if owner in owners}
    return bool(read & loaded)


def _serve(
    group: OrderedDict[int, tuple[int, int] | None], layer: int, ids: Iterable[int]
) -> set[int]:
    """Bring experts into slots, least recently used first; those that were loaded."""
    place = {owner: slot for slot, owner in group.items()}
    wanted = [expert for expert in ids if expert >= 0]
    for expert in wanted:
        if (layer, expert) in place:
            group.move_to_end(place[layer, expert])
    new = set()
    for expert in sorted(e for e in wanted if (layer, e) not in place):
        slot = next(iter(group))
        group[slot] = layer, expert
        group.move_to_end(slot)
        new.add(slot)
    return new


def _merged(integers: Integers, given: Mapping[tuple[str, int], tuple[int, ...]]) -> Integers:
    kept = tuple(one for one in integers if one[:2] not in given)
    return kept + tuple((name, iteration, values) for (name, iteration), values in given.items())
