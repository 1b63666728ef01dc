"""What the checker says about a random schedule, held against every interleaving of it.

Read by read: each finding's read sees a wrong version in an interleaving, and each wrong read
that the search meets is one that a finding tells.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import random_experts
import random_hazards
import random_schedules
from splitproof.exec.replay import replay
from splitproof.model.command import Compute, FillBank
from splitproof.model.counterexample import Counterexample
from splitproof.model.document import DocumentError, from_dict
from splitproof.model.report import Affected, Finding, Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import Options, check
from splitproof.verify.encode import Solver
from splitproof.verify.explore import Exploration, WrongRead, explore, follow

GENERATORS = (random_schedules, random_hazards, random_experts)
#: contents of ids and of banks that are tried where a schedule has any
DRAWS = 4
#: states that are visited of a schedule that is known to be wrong, in search of more wrong reads
MORE_STATES = 1_500


def schedule_of(number: int) -> Schedule | None:
    """Random schedule number so-and-so; ``None`` if a mutation left no valid document."""
    made = GENERATORS[number % len(GENERATORS)]
    try:
        return from_dict(made.random_document(random.Random(number)))
    except DocumentError:
        return None


def disagreement(schedule: Schedule, solver: Solver | None = None) -> tuple[str, str]:
    """How checker and oracle compare: ``(outcome, what differs)``, nothing where they agree.

    ``proved`` is held against all values of the symbols, a fault against its own numbers, where it
    must also show when it is executed; the theorems change neither.  Static findings and what is
    undecided claim nothing about interleavings.  ``solver``: shared by the checks of several
    schedules, to be faster.
    """
    report = check(schedule, Options(solver=solver))
    alone = check(schedule, Options(solver=solver, theorems=False))
    if (report.verdict, report.findings) != (alone.verdict, alone.findings):
        return report.verdict.value, "the theorems change what is found"
    faults = [f for f in report.findings if f.counterexample is not None]
    if faults:
        return "fault", _Refuted(schedule, report, faults).difference()
    if report.verdict is not Verdict.PROVED:
        return report.verdict.value, ""
    for symbols, found in _explorations(schedule):
        if found.wrong:
            first = found.wrong[0]
            read = f"command {first.command} of pass {first.iteration} reads {first.tensor}"
            return "proved", f"proved, but at {symbols} {read}: {first.why}"
        if not found.complete:
            return "bound", ""
    return "proved", ""


def _explorations(schedule: Schedule) -> Iterator[tuple[Mapping[str, int], Exploration]]:
    rng, graph = random.Random(0), schedule.graph
    drawn = DRAWS if any(tensor.values is not None for tensor in graph.tensors) else 1
    names = [name for name, _, _ in graph.symbols]
    for values in product(*(range(low, high + 1) for _, low, high in graph.symbols)):
        symbols = dict(zip(names, values, strict=True))
        for seed in range(drawn):
            start = random_experts.random_start(schedule, rng) if seed else ()
            yield symbols, explore(schedule, symbols, seed=seed, banks=start)


def _reads(wrong: tuple[WrongRead, ...]) -> set[Affected]:
    return {Affected(w.command, w.iteration, w.tensor) for w in wrong}


@dataclass
class _Refuted:
    """Findings of one schedule against the oracle."""

    schedule: Schedule
    report: Report
    faults: list[Finding]
    told: set[Affected] = field(init=False)

    def __post_init__(self) -> None:
        self.told = {
            read for fault in self.faults for affected in fault.affected
            for read in self._shown_by(affected)
        }  # fmt: skip

    def _shown_by(self, read: Affected) -> set[Affected]:
        """The reads that show a wrong one: itself; for what a fill uploads, which is held to
        nothing, those of the slots."""
        assert self.schedule.program is not None
        fill = self.schedule.program[read.command]
        if not isinstance(fill, FillBank) or read.tensor == fill.ids:
            return {read}
        return {
            Affected(index, iteration, bank)
            for index, command in enumerate(self.schedule.program)
            if isinstance(command, Compute)
            for bank in fill.banks if bank in self.schedule.graph.node(command.node).src
            for iteration in range(read.iteration, self.schedule.repeat)
        }  # fmt: skip

    def _chosen(self, wrong: Affected | WrongRead) -> set[Affected]:
        """For a read of slots, the read that chose them, and the other way round: where the slots
        are chosen wrong, they are read wrong."""
        assert self.schedule.program is not None
        command, graph = self.schedule.program[wrong.command], self.schedule.graph
        if not isinstance(command, Compute) or len(graph.node(command.node).src) < 3:
            return set()
        slots, ids = (self.schedule.bound(command, index) for index in (0, 2))
        if graph.find_bank(slots) is None or wrong.tensor not in (slots, ids):
            return set()
        return {Affected(wrong.command, wrong.iteration, name) for name in (slots, ids)}

    def difference(self) -> str:
        shown = False
        for fault in self.faults:
            assert fault.counterexample is not None
            if not self._confirmed(fault.affected[0], fault.counterexample):
                return f"{fault.message}, but no interleaving has {fault.affected[0]} read wrong"
            shown = shown or bool(replay(self.schedule, fault.counterexample).wrong)
        if not shown:
            return f"{self.faults[0].message}, but no counterexample shows it"
        return self._untold() if not self.report.gaps else ""

    def _confirmed(self, read: Affected, shown: Counterexample) -> bool:
        """By the counterexample's own interleaving; else by another one at its numbers."""
        symbols, wanted = dict(shown.symbols), self._shown_by(read) | self._chosen(read)
        for seed in range(2 * DRAWS):  # ids that the counterexample leaves open
            given = shown.integers if seed < DRAWS else ()
            wrong = follow(
                self.schedule, shown.order, symbols,
                seed=seed, banks=shown.banks, integers=given,
            )  # fmt: skip
            if wanted & _reads(wrong):
                return True
        found = explore(
            self.schedule, symbols, banks=shown.banks, integers=shown.integers, all_reads=True
        )
        return bool(wanted & _reads(found.wrong))

    def _untold(self) -> str:
        """A wrong read that no finding tells.  A fill with too few slots is an error of the run
        itself: BK004 or BK007 tells it once, and what comes of it is not held to anything."""
        shown = self.faults[0].counterexample
        assert shown is not None
        found = explore(
            self.schedule, dict(shown.symbols), banks=shown.banks, integers=shown.integers,
            all_reads=True, bound=MORE_STATES,
        )  # fmt: skip
        full = [w for w in found.wrong if w.why == "more experts than slots"]
        if full:
            overflows = ("BK004", "BK007")  # the latter where the ids of one token do not fit
            shown_by = [f.counterexample for f in self.faults if f.rule in overflows]
            named = {c.writer.command for c in shown_by if c is not None and c.writer is not None}
            untold = [w for w in full if w.command not in named]
        else:
            untold = [w for w in found.wrong if not (_reads((w,)) | self._chosen(w)) & self.told]
        if not untold:
            return ""
        first = untold[0]
        return (
            f"no finding tells that command {first.command} of pass {first.iteration} reads "
            f"{first.tensor} wrong: {first.why}"
        )
