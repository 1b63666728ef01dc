"""Fewest waits and weakest copy contracts of a proved schedule.

A wait that is left out only takes order away, so a schedule that is wrong without some waits is
wrong without more of them.  The largest set that can be left out is found by its complement: the
smallest set of waits that meets every *conflict* (a set of waits that cannot go together).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ..model.command import Copy, CopyExperts, FillBank, Record, SyncEvent, SyncQueue, Wait
from ..model.describe import command_text
from ..model.device import HOST, Contract, Device
from ..model.minimal import (
    ContractRow,
    Contracts,
    ContractTrial,
    Minimal,
    Need,
    SyncTrial,
    weakest,
)
from ..model.report import Finding, Report, Verdict
from ..model.schedule import Schedule
from .check import Options, check
from .encode import Solver
from .order import copy_memories
from .rules import RULES

#: Checks that the search for a maximum may make before it settles for a maximal set.
SEARCH_LIMIT = 256
#: Combinations of weakest contracts that are tried together.
COMBINATIONS = 64

Places = frozenset[int]


class _Checks:
    """Checks of nearly equal schedules, with one solver and one clock for all."""

    def __init__(self, options: Options) -> None:
        self.options = replace(options, solver=options.solver or Solver(options.effort))
        self.started, self.count = time.monotonic(), 0

    def check(self, schedule: Schedule) -> Report:
        self.count += 1
        options = self.options
        if options.seconds is not None:
            left = options.seconds - (time.monotonic() - self.started)
            options = replace(options, seconds=max(left, 0.0))
        return check(schedule, options)


def _whole(options: Options | None) -> Options:
    options = options or Options()
    if options.only or options.symbols:
        raise ValueError("waits and contracts are judged for a whole document, not for a part")
    return options


# -- waits ------------------------------------------------------------------------------------


def minimize_syncs(
    schedule: Schedule, options: Options | None = None, *, limit: int = SEARCH_LIMIT
) -> Minimal:
    """Try a program without each of its waits, and without as many together as can go.

    ``options.seconds`` is for all checks together; ``limit``: checks of the search for a maximum.
    Raises as ``check`` does, and ``ValueError`` for options that look at a part only.
    """
    checks = _Checks(_whole(options))
    report = checks.check(schedule)
    if report.verdict is not Verdict.PROVED:
        return Minimal(report, checks=checks.count)
    trials = tuple(_trial(schedule, place, checks) for place in syncs(schedule))
    search = _Search(schedule, checks, [t.command for t in trials if t.need is Need.REDUNDANT])
    removed = search.largest(limit)
    maximum = search.maximum and all(t.need is not Need.UNDECIDED for t in trials)
    gone, reduced, proof = _without_records(schedule, removed, checks)
    costs = tuple(_redundant(trial, removed) for trial in trials if trial.need is Need.REDUNDANT)
    return Minimal(
        replace(report, findings=(*report.findings, *costs)), trials, tuple(sorted(removed)),
        gone, maximum, search.maximal, reduced, proof, checks.count,
    )  # fmt: skip


def syncs(schedule: Schedule) -> list[int]:
    """Places of the commands that only wait."""
    waits = (Wait, SyncEvent, SyncQueue)
    return [i for i, c in enumerate(schedule.program or ()) if isinstance(c, waits)]


def without(schedule: Schedule, places: Collection[int]) -> Schedule:
    """The schedule without the commands at these places of its program."""
    assert schedule.program is not None
    kept = tuple(c for i, c in enumerate(schedule.program) if i not in places)
    return replace(schedule, program=kept)


def _trial(schedule: Schedule, place: int, checks: _Checks) -> SyncTrial:
    assert schedule.program is not None
    text, shorter = command_text(schedule.program[place]), without(schedule, {place})
    report = checks.check(shorter)
    if report.verdict is Verdict.PROVED:
        return SyncTrial(place, text, Need.REDUNDANT, shorter)
    if report.verdict is Verdict.VIOLATED:
        return SyncTrial(place, text, Need.NEEDED, shorter, _clearest(report))
    return SyncTrial(place, text, Need.UNDECIDED, shorter, reason=report.gaps[0].reason)


def _clearest(report: Report) -> Finding:
    """The first finding that can be executed, else the first."""
    shown = [f for f in report.failures if f.counterexample is not None]
    return (shown or list(report.failures))[0]


def _redundant(trial: SyncTrial, removed: Places) -> Finding:
    together = "left out" if trial.command in removed else "kept: it stands in for one left out"
    return Finding(
        "CO002", RULES["CO002"].kind,
        f"{trial.text} adds no order that matters: the schedule is proved without it",
        f"$.program[{trial.command}]",
        evidence=(("in the reduced schedule", together),),
    )  # fmt: skip


def _without_records(
    schedule: Schedule, removed: Places, checks: _Checks
) -> tuple[tuple[int, ...], Schedule, Report]:
    """Leave out the records of events that lost their last waiter, and prove what is left.

    A record still holds later work of its queue back behind unordered copies, so each goes only
    if the schedule is proved without it.
    """
    program = schedule.program or ()
    waits = [(i, c) for i, c in enumerate(program) if isinstance(c, Wait | SyncEvent)]
    users = {c.event for i, c in waits if i not in removed}
    lost = {c.event for i, c in waits if i in removed} - users
    idle = [i for i, c in enumerate(program) if isinstance(c, Record) and c.event in lost]
    gone: list[int] = []
    for batch in (idle, *([place] for place in idle)):
        if not set(batch) - set(gone):
            continue
        if checks.check(without(schedule, {*removed, *gone, *batch})).verdict is Verdict.PROVED:
            gone = sorted({*gone, *batch})
    reduced = without(schedule, {*removed, *gone})
    return tuple(gone), reduced, checks.check(reduced)


@dataclass(slots=True)
class _Search:
    """The largest subset of ``candidates`` without which the schedule is still proved."""

    schedule: Schedule
    checks: _Checks
    candidates: Sequence[int]
    maximum: bool = False
    maximal: bool = False
    undecided: bool = False
    proved: list[Places] = field(default_factory=list)
    refuted: list[Places] = field(default_factory=list)

    def largest(self, limit: int) -> Places:
        end = self.checks.count + limit
        conflicts: list[Places] = []
        everything = frozenset(self.candidates)
        while self.checks.count < end:
            removed = everything - smallest_hitting(conflicts, self.candidates)
            if self._holds(removed):
                self.maximum, self.maximal = not self.undecided, not self.undecided
                return removed
            conflicts.append(self._conflict(removed))
        return self._greedy()

    def _greedy(self) -> Places:
        """In program order, each that can still go."""
        removed: Places = frozenset()
        for place in self.candidates:
            if self._holds(removed | {place}):
                removed |= {place}
        self.maximal = not self.undecided
        return removed

    def _conflict(self, refuted: Places) -> Places:
        """A subset that cannot go together either, and of which every part can."""
        for place in sorted(refuted):
            if not self._holds(refuted - {place}):
                refuted -= {place}
        return refuted

    def _holds(self, removed: Places) -> bool:
        if any(removed <= known for known in self.proved):
            return True
        if any(known <= removed for known in self.refuted):
            return False
        verdict = self.checks.check(without(self.schedule, removed)).verdict
        self.undecided |= verdict not in (Verdict.PROVED, Verdict.VIOLATED)
        holds = verdict is Verdict.PROVED
        (self.proved if holds else self.refuted).append(removed)
        return holds


def smallest_hitting(conflicts: Sequence[Places], order: Sequence[int]) -> Places:
    """A smallest set that meets each conflict; the choice among several follows ``order``."""
    met = [place for place in order if any(place in c for c in conflicts)]
    for size in range(len(met) + 1):
        found = _hitting(list(conflicts), size, met)
        if found is not None:
            return found
    raise ValueError("an empty conflict cannot be met")


def _hitting(conflicts: list[Places], size: int, order: Sequence[int]) -> Places | None:
    if not conflicts:
        return frozenset()
    if size == 0:
        return None
    first = min(conflicts, key=len)
    for place in (p for p in order if p in first):
        rest = _hitting([c for c in conflicts if place not in c], size - 1, order)
        if rest is not None:
            return rest | {place}
    return None


# -- contracts ----------------------------------------------------------------------------------


def weakest_contracts(schedule: Schedule, options: Options | None = None) -> Contracts:
    """Try every contract in the place of each declared one that a copy of the program uses.

    Raises as ``minimize_syncs`` does.
    """
    checks = _Checks(_whole(options))
    report = checks.check(schedule)
    if report.verdict is not Verdict.PROVED:
        return Contracts(report, checks=checks.count)
    rows = tuple(_row(schedule, device, rule, checks) for device, rule in _used(schedule))
    return Contracts(report, rows, _together(schedule, rows, checks), checks.count)


def _used(schedule: Schedule) -> list[tuple[Device, int]]:
    """``(device, index of a copy rule)`` for each rule that some command's copy falls under."""
    used: set[tuple[str, int]] = set()
    for command in schedule.program or ():
        if not isinstance(command, Copy | CopyExperts | FillBank):
            continue
        if schedule.queue_of(command) == HOST:
            continue
        device = schedule.graph.device(schedule.queue_device(command.queue))
        memories = copy_memories(schedule, command)
        for index, rule in enumerate(device.copy):
            if rule.source in (None, memories[0]) and rule.target in (None, memories[1]):
                used.add((device.name, index))
                break
    return [
        (d, i) for d in schedule.graph.devices for i in range(len(d.copy)) if (d.name, i) in used
    ]


def _row(schedule: Schedule, device: Device, index: int, checks: _Checks) -> ContractRow:
    rule = device.copy[index]
    trials = []
    for contract in Contract:
        changed = under(schedule, {(device.name, index): contract})
        report = checks.check(changed)
        finding = _clearest(report) if report.failures else None
        trials.append(ContractTrial(contract, report.verdict, changed, finding))
    holds = tuple(t.contract for t in trials if t.verdict is Verdict.PROVED)
    return ContractRow(
        device.name, index, rule.source, rule.target, rule.contract, tuple(trials), weakest(holds)
    )


def under(schedule: Schedule, contracts: dict[tuple[str, int], Contract]) -> Schedule:
    """The schedule with other contracts at ``(device, index of its copy rule)``."""
    devices = tuple(
        replace(
            device,
            copy=tuple(
                replace(rule, contract=contracts.get((device.name, index), rule.contract))
                for index, rule in enumerate(device.copy)
            ),
        )
        for device in schedule.graph.devices
    )
    return replace(schedule, graph=replace(schedule.graph, devices=devices))


def _together(
    schedule: Schedule, rows: tuple[ContractRow, ...], checks: _Checks
) -> tuple[tuple[Contract, ...], ...] | None:
    if len(rows) == 1:
        return tuple((contract,) for contract in rows[0].weakest)
    count = 1
    for row in rows:
        count *= len(row.weakest)
    if count > COMBINATIONS:
        return None
    return tuple(
        chosen
        for chosen in product(*(row.weakest for row in rows))
        if checks.check(_with(schedule, rows, chosen)).verdict is Verdict.PROVED
    )


def _with(schedule: Schedule, rows: Sequence[ContractRow], chosen: Sequence[Contract]) -> Schedule:
    places = [(row.device, row.rule) for row in rows]
    return under(schedule, dict(zip(places, chosen, strict=True)))
