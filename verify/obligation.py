"""What must hold, per read and write: the local condition, as terms over one byte.

A read r of a byte gets its due version in every order **iff**

(i)   every other writer of the byte is ordered with r,
(ii)  some writer of the due version is before r, and
(iii) each other writer before r is followed by a writer of that version that is before r;

that is: no writer is unordered with r, some writer is before it, and each *latest* writer
before it (one that no later writer before r covers) wrote the due version.  ``Judge`` asks for a
byte where this fails, one question per writer, so that each fault names who caused it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model.schedule import Schedule
from ..model.symbol import Condition, Expr
from .access import MAY_READ, PAST, Read, Write, selects, starts_with_content
from .banks import Banks
from .cardinality import one_id_one_expert
from .encode import Solver
from .footprint import Footprints
from .region import Region, rearrange
from .sequential import (
    INITIAL,
    Event,
    Sequential,
)
from .slice import near
from .tail import UNCLEAR, Tails
from .term import Bool, Int, Scope, Values, conj, disj, neg, number, quotient, size, variable
from .unknown_places import UnknownPlaces

BYTE = "byte"
_BYTE = variable(BYTE)


@dataclass(frozen=True, slots=True)
class Target:
    """The version that a byte should have: an event, and the byte's logical address."""

    event: Event
    space: str
    address: Int


@dataclass(frozen=True, slots=True)
class Root:
    """Where a wrong version came from: the read that went wrong (perhaps that of a copy on the
    way) and the write that did it.

    ``relation``: ``unordered`` (they race), ``stale`` (the write is the latest, and not the
    due one), ``none`` (nothing was written), ``destroyed`` (bytes that a bank counts on); those of
    banks and of reads past an expert stand with ``Banks.broken`` and ``Tails.wrongs``.
    """

    read: Read
    write: Write | None
    relation: str
    address: int


@dataclass(frozen=True, slots=True)
class Fault:
    """One read that can see a wrong version, at the values that show it.

    ``path``: the copies that carried it, from the reader's to the root's, as part indexes.
    ``claim``: the term that has these values as a model.
    """

    read: Read
    root: Root
    target: Target | None
    values: Values
    path: tuple[int, ...]
    claim: Bool

    @property
    def due(self) -> Event | None:
        """The event whose version the reader should have seen."""
        return self.target.event if self.target is not None else None


@dataclass(frozen=True, slots=True)
class Undecided:
    """An obligation that was not decided, and why."""

    read: Read
    reason: str


class Judge:
    """Decides the obligations of one regime: one set of commands, one set of order facts."""

    def __init__(
        self,
        schedule: Schedule,
        sequential: Sequential,
        footprints: Footprints,
        solver: Solver,
        symbols: dict[str, tuple[int, int]],
        regime: Condition,
    ) -> None:
        self.schedule, self.sequential, self.footprints = schedule, sequential, footprints
        self.order, self.solver, self.symbols = footprints.order, solver, symbols
        self.banks = Banks(schedule, footprints)
        self.tails = Tails(self)
        self.unknown_places = UnknownPlaces(schedule, sequential, footprints)
        self.obligations = 0
        self._scope_of: dict[Expr, tuple[Scope, Scope]] = {}
        scope = solver.scope(symbols, {})
        self.regime = scope.condition(regime)
        facts = (
            self.regime[1:]
            if isinstance(self.regime, tuple) and self.regime[0] == "and"
            else ((self.regime,) if isinstance(self.regime, tuple) else ())
        )
        self.facts = frozenset(facts)

    # -- one read -----------------------------------------------------------------------------

    def judge(self, read: Read) -> Iterator[Fault | Undecided]:
        """Every way in which this read can see a wrong version."""
        if read.time is None:
            return
        if self.unknown_places.concern(read):
            self.obligations += 1
            if not self.unknown_places.ordered_like_sequence(read, read.time):
                whole = read.due.shape or read.due.view_of is not None
                known = "where a view lies in its base is" if whole else "more than its size is"
                yield Undecided(read, f"{known} not known")
            return
        scope, bare = self._scopes(read.region)
        byte = _BYTE
        if read.role == PAST:
            yield from self._judge_tails(read, byte, scope, bare)
            return
        address = read.region.origin + byte
        domain = conj([self.regime, *self._domain(read, byte, address, bare)])
        if domain is False:
            return
        for condition, target in self._targets(read, byte, scope):
            base = conj([domain, condition])
            for write, relation, wrong in self._wrongs(read, address, target, scope):
                self.obligations += 1
                yield from self._ask(read, write, relation, conj([base, wrong]), target, scope)
        for write, relation, wrong in self.banks.broken(read, scope):
            self.obligations += 1
            yield from self._ask(read, write, relation, conj([domain, wrong]), None, scope)

    def _judge_tails(
        self, read: Read, byte: Int, scope: Scope, bare: Scope
    ) -> Iterator[Fault | Undecided]:
        domain = conj([self.regime, self.tails.domain(read, byte, bare)])
        for write, relation, wrong in self.tails.wrongs(read, byte, bare):
            self.obligations += 1
            for outcome in self._ask(read, write, relation, conj([domain, wrong]), None, scope):
                if isinstance(outcome, Fault) and relation == UNCLEAR:
                    reason = "what its kernel reads past an expert may be written meanwhile"
                    yield Undecided(read, reason)
                else:
                    yield outcome

    def _scopes(self, region: Region) -> tuple[Scope, Scope]:
        """What is known of a byte of the region: that it lies within the extent, and (for the
        statement of just that) only what else is known."""
        extent = region.extent
        if extent not in self._scope_of:
            variables = {BYTE: (0, max(extent.bounds(self.symbols)[1] - 1, 0))}
            inside = {("le", _BYTE + 1 - size(extent))}
            self._scope_of[extent] = (
                self.solver.scope(self.symbols, variables, self.facts | inside),
                self.solver.scope(self.symbols, variables, self.facts),
            )
        return self._scope_of[extent]

    def _domain(self, read: Read, byte: Int, address: Int, bare: Scope) -> list[Bool]:
        parts = [read.region.contains(address, bare)]
        if read.experts is not None:
            parts.append(selects(read.experts, quotient(byte, read.experts.stride), bare))
        return parts

    def _targets(self, read: Read, byte: Int, scope: Scope) -> Iterator[tuple[Bool, Target | None]]:
        assert read.time is not None
        if read.bank is not None:
            if not self.banks.never_filled(read.bank):
                yield True, self._bank_target(read, byte)
            return
        logical = self.sequential.region(read.due.name)
        address = logical.origin + rearrange(byte, read.region.tensor, logical.tensor)
        for due in self.sequential.due(logical, address, read.time, scope):
            if due.condition is False:
                continue
            target = Target(due.event, logical.space, address) if due.event is not None else None
            yield due.condition, target

    def _bank_target(self, read: Read, byte: Int) -> Target | None:
        assert read.bank is not None
        if read.bank.fill is None:
            return None
        command, iteration = read.bank.fill
        bank = read.bank.bank
        kind = {"slots": "state", "ids": "slots", "map": "map"}[read.bank.what]
        name = {"slots": bank.name, "ids": bank.slot_ids, "map": bank.slot_map}[read.bank.what]
        assert name is not None
        event = Event(kind, command, iteration, bank.name if kind == "state" else "")
        region = self.sequential.region(name)
        address = region.origin + rearrange(byte, read.region.tensor, region.tensor)
        return Target(event, region.space, address)

    def _ask(
        self,
        read: Read,
        write: Write | None,
        relation: str,
        term: Bool,
        target: Target | None,
        scope: Scope,
    ) -> Iterator[Fault | Undecided]:
        if term is not False:
            term = conj([term, *one_id_one_expert(term, self.schedule, scope)])
        answer = self.solver.model(term, scope.symbols, scope.variables)
        if answer.found is None:
            yield Undecided(read, f"the solver gave up: {answer.reason}")
        elif answer.found:
            assert answer.values is not None
            values = answer.values
            start = values.value(read.region.origin)
            address = start + values.variables[BYTE]
            for root, path in self._roots(read, write, relation, address, target, values):
                yield Fault(read, root, target, values, path, term)

    # -- the local condition ------------------------------------------------------------------

    def _wrongs(
        self, read: Read, address: Int, target: Target | None, scope: Scope
    ) -> Iterator[tuple[Write | None, str, Bool]]:
        """``(write, relation, where)``: each write that can make the read wrong."""
        if target is None:  # the sequential run itself reads bytes that nobody wrote
            yield None, "none", read.role != MAY_READ
            return
        before: list[tuple[Write, Bool]] = []
        raced: list[Bool] = []  # bytes that are wrong already: each fault is told once
        for _, write, here, ended in near(
            self.order,
            read.part,
            self.footprints.lines(read),
            lambda write: self.covers(write, address, scope),
            everything=self.banks.guarded(read, target.event),
        ):
            if self.banks.alien(write, read, target.event):
                wrong = here
                yield write, "destroyed", wrong
            elif not ended:
                if self.banks.told_by_serving(write, target.event):
                    continue
                wrong = conj([here, self.banks.clash(write, target.event, scope)])
                yield write, "unordered", wrong
            else:
                before.append((write, here))
                continue
            raced.append(neg(wrong))
        for place, (write, here) in enumerate(before):
            latest = self.latest(write, here, before[place + 1 :])
            if latest is not False:
                good = self._writes(write, address, target, scope)
                yield write, "stale", conj([*raced, latest, neg(good)])
        if any(here is True for _, here in before):
            yield None, "none", False
            return
        empty = conj([*raced, *(neg(here) for _, here in before)])
        if starts_with_content(self.schedule, read.region.space) and target.event == INITIAL:
            empty = conj([empty, neg(self._is_at(address, read.region.space, target, scope))])
        yield None, "none", empty

    def latest(self, write: Write, here: Bool, found: list[tuple[Write, Bool]]) -> Bool:
        """Where the write is the latest of those found, as far as order says."""
        later = [covers for w, covers in found if self.order.before(write.part, w.part)]
        if any(covers is True for covers in later):
            return False
        return conj([here, *map(neg, later)])

    def _sees(self, read: Read, address: Int, target: Target, scope: Scope) -> Bool:
        """Whether the read of a copy gets the target's version at that byte in every order."""
        return conj(neg(wrong) for _, _, wrong in self._wrongs(read, address, target, scope))

    def _writes(self, write: Write, address: Int, target: Target, scope: Scope) -> Bool:
        """Whether the write gives that byte the target's version."""
        if write.source is not None:
            inside = address - write.region.origin
            source = write.source.region
            moved = rearrange(inside, write.region.tensor, source.tensor)
            return self._sees(write.source, source.origin + moved, target, scope)
        if write.event is None:
            return False
        if write.event.kind == "state" and target.event.kind == "state":
            if write.event == target.event:
                return True
            return neg(self.banks.clash(write, target.event, scope))
        if write.event != target.event:
            return False
        space, shift = self.sequential.logical(write.region.tensor.name)
        return space == target.space and scope.eq(address - shift, target.address)

    def covers(self, write: Write, address: Int, scope: Scope) -> Bool:
        """Whether the write touches that byte of its space."""
        here = write.region.contains(address, scope)
        if write.experts is None or here is False:
            return here
        inside = address - write.region.origin
        experts = write.experts
        expert = quotient(inside, experts.stride)
        moved = [selects(experts, expert, scope)]
        for back in range(1, -(-experts.padding // experts.stride) + 1):
            behind = inside - (expert - back + 1) * experts.stride  # bytes past an earlier expert
            moved.append(
                conj([
                    scope.le(number(back), expert),
                    selects(experts, expert - back, scope),
                    scope.lt(behind, number(experts.padding)),
                ])
            )  # fmt: skip
        return conj([here, disj(moved)])

    def _is_at(self, address: Int, space: str, target: Target, scope: Scope) -> Bool:
        return scope.eq(address, target.address) if space == target.space else False

    # -- which write it was -------------------------------------------------------------------

    def _roots(
        self,
        read: Read,
        write: Write | None,
        relation: str,
        address: int,
        target: Target | None,
        values: Values,
    ) -> list[tuple[Root, tuple[int, ...]]]:
        """Follow copies from a wrong read to the reads and writes that made it wrong."""
        if write is None or relation != "stale" or write.source is None or target is None:
            return [(Root(read, write, relation, address), ())]
        scope = Scope({n: (v, v) for n, v in values.symbols.items()}, {})
        fixed = Target(target.event, target.space, number(values.value(target.address)))
        start = values.value(write.region.origin)
        if not self._hands_on(write, number(address - start), fixed, values):
            return [(Root(read, write, relation, address), ())]  # a copy of something else
        source = write.source.region
        moved = rearrange(number(address - start), write.region.tensor, source.tensor)
        inner = values.value(source.origin + moved)
        found = []
        for cause, how, wrong in self._wrongs(write.source, number(inner), fixed, scope):
            if not values.holds(wrong):
                continue
            for root, path in self._roots(write.source, cause, how, inner, fixed, values):
                found.append((root, (write.part, *path)))
        return found or [(Root(read, write, relation, address), ())]

    def _hands_on(self, write: Write, inside: Int, target: Target, values: Values) -> bool:
        """Whether a copy is meant to bring that version to that byte of what it writes."""
        assert write.source is not None
        name = write.source.region.tensor.name
        copy = self.schedule.copy_of(name)
        meant = self.sequential.region(copy[1] if copy is not None else name)
        if meant.space != target.space:
            return self.footprints.carries(write, target.event)  # by way of a staging place
        moved = rearrange(inside, write.region.tensor, meant.tensor)
        return values.value(meant.origin + moved) == values.value(target.address)
