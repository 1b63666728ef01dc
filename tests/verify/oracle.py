"""What the checker says about a random schedule, held against every interleaving of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import product

import random_experts
import random_hazards
import random_schedules
from splitproof.exec.replay import replay
from splitproof.model.document import DocumentError, from_dict
from splitproof.model.report import Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check
from splitproof.verify.explore import Exploration, explore

GENERATORS = (random_schedules, random_hazards, random_experts)
#: contents of ids and of banks that are tried where a schedule has any
DRAWS = 4


def schedule_of(number: int) -> Schedule | None:
    """Random schedule number so-and-so; ``None`` if a mutation left no valid document."""
    made = GENERATORS[number % len(GENERATORS)]
    try:
        return from_dict(made.random_document(random.Random(number)))
    except DocumentError:
        return None


def disagreement(schedule: Schedule) -> tuple[str, str]:
    """How checker and oracle compare: ``(outcome, what differs)``, nothing where they agree.

    ``proved`` is held against all values of the symbols, a fault against its own numbers, where it
    must also show when it is executed.  Static findings and what is undecided claim nothing about
    interleavings.
    """
    report = check(schedule)
    faults = [f.counterexample for f in report.findings if f.counterexample is not None]
    if faults:
        return "fault", _refuted(schedule, report)
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


def _refuted(schedule: Schedule, report: Report) -> str:
    """Why no interleaving confirms the faults; nothing if one does."""
    wrong, shown = False, False
    for finding in report.findings:
        fault = finding.counterexample
        if fault is None:
            continue
        for seed in range(2 * DRAWS):  # ids that the counterexample leaves open
            found = explore(
                schedule, dict(fault.symbols), seed=seed, banks=fault.banks,
                integers=fault.integers if seed < DRAWS else (),
            )  # fmt: skip
            wrong = wrong or bool(found.wrong)
            if found.wrong:
                break
        shown = shown or bool(replay(schedule, fault).wrong)
    if not wrong:
        return f"{report.findings[0].message}, but no interleaving reads a wrong version"
    return "" if shown else f"{report.findings[0].message}, but no counterexample shows it"
