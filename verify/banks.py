"""What a bank promises its readers, and which writes can break the promise.

A fill leaves each used expert in a slot.  It moves only the misses, so a reader counts on bytes
that earlier fills wrote: nobody but fills of the same banks may write them, and a later fill may
take a slot of the reader's experts only if the experts of all fills up to it exceed the slots
(least recently used: fewer than that, and the victim is another slot).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..model.graph import Bank
from ..model.schedule import Schedule
from ..model.symbol import Expr
from .access import BankUse, Read, Write
from .footprint import Footprints
from .lookup import filled_banks
from .sequential import Event
from .term import Bool, Scope, conj, number, size

#: above this many layers between two fills the bounds of the symbols decide
_EXACT_LAYERS = 8


class Banks:
    """Questions about the fills of one regime."""

    def __init__(self, schedule: Schedule, footprints: Footprints) -> None:
        self.schedule, self.footprints = schedule, footprints
        self._loading: dict[str, dict[int, list[tuple[int, int]]]] = {}
        self._serving: set[tuple[int, int] | None] | None = None
        self._guarded: dict[tuple[object, ...], bool] = {}

    def alien(self, write: Write, read: Read, event: Event) -> bool:
        """Whether a write to the slots that hold ``event``'s state is no fill of these slots."""
        if event.kind != "state":
            return False
        bank = self._bank(event)
        if read.region.space != self.schedule.location(bank.name).space:
            return False  # a copy of the bank: whoever writes there is held to the state
        if write.event is None or write.event.kind != "state":
            return True
        other = self._bank(write.event)
        return (bank.group, bank.role) != (other.group, other.role)

    def guarded(self, read: Read, event: Event) -> bool:
        """Whether some write that may meet the read is no fill of the slots that hold ``event``'s
        state: then it counts however many fills come after it."""
        if event.kind != "state":
            return False
        place = read.region.space, read.region.span, self._bank(event).group, self._bank(event).role
        if place not in self._guarded:
            writers = self.footprints.writers(read)
            self._guarded[place] = any(self.alien(w, read, event) for w in writers)
        return self._guarded[place]

    def told_by_serving(self, write: Write, event: Event) -> bool:
        """Whether another fill ends before the serving one does: then a reader that races with
        it races with the serving fill too, and that is told."""
        if event.kind != "state" or write.event is None or write.event.kind != "state":
            return False
        return write.event != event and any(
            self.footprints.order.before(write.part, other.part)
            for other in self.footprints.by_event.get(event, ())
        )

    def never_filled(self, use: BankUse) -> bool:
        """Whether the fill that serves a reader finds all experts where another one, which left the
        bank out, put those of its layer: ``broken`` tells, and no version is due."""
        return use.what == "slots" and use.fill in self.footprints.idle

    def clash(self, write: Write, event: Event, scope: Scope) -> Bool:
        """Whether another fill's uploads can fall on slots that ``event``'s readers use."""
        if event.kind != "state" or write.event is None or write.event.kind != "state":
            return True
        if write.event == event:
            return True
        place, other = event.place, write.event.place
        same_layer = self._bank(event).layer == self._bank(write.event).layer
        if self._issued(other, place) and same_layer:
            return True  # a hit on what that fill has not brought yet
        first, last = (other, place) if self._issued(other, place) else (place, other)
        return self.exceeds(self._bank(event), first, last, scope)

    def _issued(self, a: tuple[int, int], b: tuple[int, int]) -> bool:
        """Whether fill a is issued before fill b."""
        return (a[1], a[0]) < (b[1], b[0])

    def exceeds(
        self, bank: Bank, first: tuple[int, int], last: tuple[int, int], scope: Scope
    ) -> Bool:
        """Whether the experts of a group's fills, from one to another, can exceed the slots."""
        if bank.policy != "lru-slots":
            return True
        counts: dict[int, tuple[Expr, int]] = {}
        for place in self.footprints.fills.get(bank.group, ()):
            loading = self.footprints.idle.get(place, place)
            if self._issued(place, first) or self._issued(last, place):
                continue
            if loading != place and not self._issued(loading, first):
                continue  # the same experts again
            for layer, (ids, experts) in self._selected(place).items():
                known = counts.get(layer, (Expr.of(0), experts))
                counts[layer] = (known[0] + ids, experts)
        if len(counts) > _EXACT_LAYERS:
            most = sum(
                min(ids.bounds(dict(scope.symbols))[1], experts) for ids, experts in counts.values()
            )
            return most > bank.slots
        # A sum of minima exceeds a number iff each choice of sides does.
        sides = [(size(ids), number(experts)) for ids, experts in counts.values()]
        totals = []
        for chosen in product(*sides):
            total = number(0)
            for term in chosen:
                total = total + term
            totals.append(scope.lt(number(bank.slots), total))
        return conj(totals)

    def broken(self, read: Read, scope: Scope) -> Iterator[tuple[Write, str, Bool]]:
        """Ways in which the slots can be wrong whatever the order: ``(write, relation, where)``.

        ``overflow``: more used experts than slots.  ``outdated``: the cached tensor was written
        again, and resident copies are of its old version.  ``skipped``: a fill of the layer
        that claims residency without filling this bank.  ``unserved``: the fill was for other
        ids than the reader's, such as those of an earlier pass.
        """
        if read.role == "upload":
            yield from self._idle_overflow(read, scope)
        use = read.bank
        if use is None or use.fill is None or read.time is None:
            return
        if use.what == "ids" and use.needs and self.footprints.filled.get(use.fill) != use.needs:
            yield self.footprints.by_event[Event("slots", *use.fill)][0], "unserved", True
        if use.what != "slots":
            return
        bank, footprints = use.bank, self.footprints
        (serving,) = footprints.by_event[Event("state", *use.fill, bank.name)]
        yield from self._overflow(bank, serving, scope)
        if self.experts(bank) > 1 and footprints.filled.get(use.fill) != use.needs:
            yield serving, "unserved", True
        for write in self.skipping(bank):
            if not footprints.order.before(read.part, write.part):
                yield write, "skipped", True
        cached = footprints.sequential.region(bank.caches)
        for event, _ in footprints.sequential.writers(cached, read.time):
            for write in footprints.by_event.get(event, ()):
                if self._survives(bank, write, use.fill):
                    yield write, "outdated", True

    def _overflow(self, bank: Bank, fill: Write, scope: Scope) -> Iterator[tuple[Write, str, Bool]]:
        if self.experts(bank) > bank.slots:
            ids = self.schedule.tensor(bank.ids).elements
            yield fill, "overflow", scope.lt(number(bank.slots), size(ids))

    def _idle_overflow(self, read: Read, scope: Scope) -> Iterator[tuple[Write, str, Bool]]:
        """Of a fill that serves no read of slots, and whose slots may be too few all the same."""
        footprints = self.footprints
        part = footprints.order.parts[read.part]
        place = part.command, part.iteration
        if self._serving is None:
            uses = (r.bank for r in footprints.reads if r.bank is not None)
            self._serving = {use.fill for use in uses if use.what == "slots"}
        if place in self._serving:
            return
        bank = filled_banks(self.schedule, place)[0]
        if bank.caches == read.region.tensor.name:
            (fill,) = footprints.by_event[Event("state", *place, bank.name)]
            yield from self._overflow(bank, fill, scope)

    def _survives(self, bank: Bank, write: Write, serving: tuple[int, int]) -> bool:
        """Whether a copy from before the write can still be in its slot at the serving fill, or is
        brought by that fill itself, since it is issued before the write.

        A fill of the layer may choose the same expert again, which makes it the latest used.  Each
        layer that is filled meanwhile brings one expert at least, so that the copy is gone once
        as many of them as there are slots came in a row.
        """
        if bank.policy != "lru-slots" or self._part(serving) < write.part:
            return True
        meanwhile = set[int]()
        for place in self.footprints.fills.get(bank.group, ()):
            if not self._issued(place, serving):
                break
            if bank.layer not in self._selected(place):
                meanwhile |= self.layers(place)
                continue
            old = self._part(place) < write.part
            if len(meanwhile) >= bank.slots and not old:
                return False
            meanwhile = set()  # brought again, or still there
        return len(meanwhile) < bank.slots

    def _part(self, fill: tuple[int, int]) -> int:
        """The first part of a fill."""
        return self.footprints.order.by_command[fill][0].index

    def skipping(self, bank: Bank) -> Iterator[Write]:
        """Writes of the fills of the bank's layer that leave the bank out and may load experts."""
        for place in self._loading_fills(bank):
            first, *others = filled_banks(self.schedule, place)
            if bank != first and bank not in others:
                yield from self.footprints.by_event[Event("state", *place, first.name)]

    def _loading_fills(self, bank: Bank) -> list[tuple[int, int]]:
        """The fills of a bank's layer that are not idle, in issue order."""
        if bank.group not in self._loading:
            of_layer = self._loading[bank.group] = {}
            for place in self.footprints.fills.get(bank.group, ()):
                if place not in self.footprints.idle:
                    layer = filled_banks(self.schedule, place)[0].layer
                    of_layer.setdefault(layer, []).append(place)
        return self._loading[bank.group].get(bank.layer, [])

    def layers(self, place: tuple[int, int]) -> set[int]:
        """The layers of which a fill surely has one expert at least: negative ids have none."""
        bank, symbols = filled_banks(self.schedule, place)[0], self.schedule.graph.ranges
        values = self.schedule.tensor(bank.ids).values or self.schedule.base(bank.ids).values
        if values is not None and values[0] < 0:
            return set()
        return {n for n, (ids, _) in self._selected(place).items() if ids.bounds(symbols)[0] > 0}

    def _selected(self, place: tuple[int, int]) -> dict[int, tuple[Expr, int]]:
        """Per layer: ids in a fill (repetition included), and how many experts there are."""
        bank = filled_banks(self.schedule, place)[0]
        return {bank.layer: (self.schedule.tensor(bank.ids).elements, self.experts(bank))}

    def experts(self, bank: Bank) -> int:
        return expert_count(self.schedule, bank)

    def _bank(self, event: Event) -> Bank:
        bank = self.schedule.graph.find_bank(event.name)
        assert bank is not None
        return bank


def expert_count(schedule: Schedule, bank: Bank) -> int:
    """How many different experts the ids of a bank can name."""
    count = schedule.tensor(bank.caches).ne[2].constant or 1
    values = schedule.base(bank.ids).values or schedule.tensor(bank.ids).values
    if values is None:
        return count
    return max(min(count, values[1]) - max(values[0], 0), 0)  # a negative id names none
