"""What becomes of a mutant: the checker's word, and an oracle's where the checker proves it.

Two oracles, neither of which shares code with the checker.  ``explore`` looks at every
interleaving, at some sizes and for some router outcomes and bank contents.  Where it is too large
``fuzz`` runs random interleavings: that finds faults and never rules them out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any

from operators import Mutant
from splitproof.api import execute_finding
from splitproof.exec.functions import UnsupportedOp
from splitproof.exec.reference import OutOfRange
from splitproof.exec.replay import fuzz
from splitproof.model.document import DocumentError, from_dict
from splitproof.model.report import Finding, Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import Options, check
from splitproof.verify.encode import Solver
from splitproof.verify.explore import CannotExplore, explore

#: Values of all symbols together up to which every one is explored; else the ends only.
EVERY_VALUE = 4
STATES = 20_000
#: Bytes of all tensors above which one situation is explored (a state holds each cell).
LARGE = 20_000
RUNS = 300


class Fate(StrEnum):
    REFUSED = "refused"  # no document: a name dangles, a size is wrong
    KILLED = "killed"  # violated
    UNDECIDED = "undecided"  # the checker does not know
    EQUIVALENT = "equivalent"  # proved, and explore finds every interleaving right
    UNSETTLED = "unsettled"  # proved; only random interleavings could be run
    UNSOUND = "unsound"  # proved, and an oracle shows that it is wrong
    CONTRADICTED = "contradicted"  # violated, and the counterexample does not reproduce


@dataclass(frozen=True, slots=True)
class Judgement:
    """``rules``: codes that name a finding.  ``detail``: which oracle decided, or why none."""

    fate: Fate
    rules: tuple[str, ...] = ()
    detail: str = ""


@dataclass(slots=True)
class Bench:
    """Judges the mutants of one schedule, with one solver for all."""

    solver: Solver = field(default_factory=Solver)
    confirm: bool = True

    def judge(self, mutant: Mutant) -> Judgement:
        try:
            schedule = from_dict(mutant.document)
        except DocumentError as error:
            return Judgement(Fate.REFUSED, detail=error.message)
        report = check(schedule, Options(solver=self.solver))
        if report.verdict is Verdict.VIOLATED:
            return self._killed(schedule, report)
        if report.verdict is not Verdict.PROVED:
            return Judgement(Fate.UNDECIDED, detail=report.gaps[0].reason)
        return ask_oracles(schedule)

    def _killed(self, schedule: Schedule, report: Report) -> Judgement:
        rules = tuple(sorted({f.rule for f in report.failures}))
        if self.confirm:
            for finding in report.failures:
                problem = _refuted(schedule, finding)
                if problem:
                    return Judgement(Fate.CONTRADICTED, rules, f"{finding.rule}: {problem}")
        return Judgement(Fate.KILLED, rules)


def _refuted(schedule: Schedule, finding: Finding) -> str:
    """Why a finding is none: its counterexample goes right, or its facts are not so.  Empty if
    it is one, or an op cannot be executed here."""
    shown = execute_finding(schedule, finding)
    if shown.holds is False:
        return shown.problem or f"{finding.message} does not reproduce"
    return ""


def ask_oracles(schedule: Schedule) -> Judgement:
    """Whether what the checker proved is right."""
    looked, why = 0, ""
    for symbols, seed, banks in situations(schedule):
        try:
            found = explore(schedule, symbols, seed=seed, banks=banks, bound=STATES)
        except CannotExplore as error:
            why = str(error)
            break
        if found.wrong:
            wrong = found.wrong[0]
            where = f"command {wrong.command} of pass {wrong.iteration} reads {wrong.tensor}"
            return Judgement(Fate.UNSOUND, detail=f"explore: {where}: {wrong.why} ({symbols})")
        if not found.complete:
            why = f"more than {STATES} states"
            break
        looked += 1
    if not why:
        return Judgement(Fate.EQUIVALENT, detail=f"explore, {looked} situations")
    return _random_runs(schedule, why)


def _random_runs(schedule: Schedule, why: str) -> Judgement:
    for end in ends(schedule):
        try:
            tried = fuzz(schedule, end, runs=RUNS)
        except (UnsupportedOp, OutOfRange) as error:
            return Judgement(Fate.UNSETTLED, detail=f"{why}; not executed: {error}")
        if tried.replay is not None:
            return Judgement(Fate.UNSOUND, detail=f"fuzz: {tried.replay.summary} ({end})")
    runs = RUNS * len(ends(schedule))
    return Judgement(Fate.UNSETTLED, detail=f"{why}; no difference in {runs} random interleavings")


def ends(schedule: Schedule) -> list[dict[str, int]]:
    """The least and the greatest sizes."""
    low = {name: least for name, least, _ in schedule.graph.symbols}
    high = {name: most for name, _, most in schedule.graph.symbols}
    return [low] if low == high else [low, high]


def sizes(schedule: Schedule) -> list[dict[str, int]]:
    """Every value of the symbols if they are few, else the ends."""
    spans = [range(low, high + 1) for _, low, high in schedule.graph.symbols]
    count = 1
    for span in spans:
        count *= len(span)
    if count > EVERY_VALUE:
        return ends(schedule)
    names = [name for name, _, _ in schedule.graph.symbols]
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*spans)]


def situations(schedule: Schedule) -> Iterator[tuple[dict[str, int], int, Any]]:
    """Sizes, a seed for the ids, contents of the banks."""
    ranges = schedule.graph.ranges
    held = sum(t.data_bytes.bounds(ranges)[1] for t in schedule.graph.tensors)
    if held > LARGE:
        yield ends(schedule)[0], 0, ()
        return
    routed = any(t.values is not None and t.type.integer for t in schedule.graph.tensors)
    for symbols in sizes(schedule):
        for seed in range(3 if routed else 1):
            yield symbols, seed, bank_contents(schedule, seed)


def bank_contents(schedule: Schedule, seed: int) -> Any:
    """Empty banks for seed 0, else random contents."""
    rng, found = random.Random(seed), []
    groups = {bank.group: bank for bank in schedule.graph.banks}
    for group, first in groups.items() if seed else ():
        members = [bank for bank in schedule.graph.banks if bank.group == group]
        experts = sorted(
            {
                (bank.layer, expert)
                for bank in members
                for expert in range(schedule.tensor(bank.caches).shape[2].value({}))
            }
        )
        count = rng.randint(1, min(first.slots, len(experts)))
        slots = rng.sample(range(first.slots), count)
        chosen = rng.sample(experts, count)
        found.append((group, tuple((s, *e) for s, e in zip(slots, chosen, strict=True))))
    return tuple(found)
