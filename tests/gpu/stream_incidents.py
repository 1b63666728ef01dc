"""The incidents that are about streams and events, made to happen, and their repairs.

A violated document runs by the timetable of its counterexample: a delay stands before each part, so
that it starts and ends where the order has it.  It must show its fault; without delays it may not.
A repaired document runs many times with random delays, and no part may find a wrong byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Protocol

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "incidents"), str(TESTS / "rules")]

from deeds import Plan, plan  # noqa: E402
from incident_cases import CASES, HERE  # noqa: E402
from rounds import Executor, Pace, one_round, timetable  # noqa: E402
from splitproof.model.document import load  # noqa: E402
from splitproof.model.plan.lower import lower  # noqa: E402
from splitproof.model.report import Finding, Kind  # noqa: E402
from splitproof.model.schedule import Schedule  # noqa: E402
from splitproof.verify.check import check  # noqa: E402

#: Classes of incidents whose cause is a wait that is missing.
CLASSES = {"HB-RAW", "HB-WAR", "HB-WAW", "EVT"}
#: A round whose host came later than this, in steps, to what the timetable asks for does not count.
LATE = 0.5
#: Such rounds are tried again, up to so many times in all for each that is asked for.
TRIES = 5


class Timed(Executor, Protocol):
    """An executor that says by how much its host came late."""

    late: float


Make = Callable[[Plan], Timed]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one document.

    ``asked``, ``done``: rounds that count; ``void``: rounds in which the host came late;
    ``faulty``: rounds of those that count in which a part found a wrong byte; ``free``: of a
    violated document, such rounds of as many without any delay; ``first``: the first part that
    did, of any round; ``due``: whether all is as it has to be.
    """

    document: str
    verdict: str
    rule: str
    asked: int
    done: int
    void: int
    faulty: int
    free: int
    first: str
    due: bool


def stream_documents() -> Iterator[tuple[str, str]]:
    """``(name, verdict)`` of each document of an incident of these classes."""
    for name, due in CASES.items():
        if CLASSES & set(due["classes"]):
            yield name, str(due["verdict"])


def finding_of(schedule: Schedule) -> Finding | None:
    """The first finding of a schedule that an order of steps shows."""
    shown = (f for f in check(schedule).findings if f.kind is Kind.VALUE and f.counterexample)
    return next(shown, None)


def run_document(
    name: str, make: Make, *, violated: int, repaired: int, until: float = float("inf")
) -> Row:
    """Rounds of one document.  ``until``: the time (of ``perf_counter``) at which to stop."""
    schedule, due = lower(load(HERE / f"{name}.json")), CASES[name]
    if due["verdict"] != "violated":
        return _repaired(name, schedule, make, repaired, until)
    finding = finding_of(schedule)
    if finding is None:
        raise ValueError(f"{name}: no order of steps shows what is wrong with it")
    return _violated(name, schedule, finding, make, violated, until)


def _violated(
    name: str, schedule: Schedule, finding: Finding, make: Make, rounds: int, until: float
) -> Row:
    shown = finding.counterexample
    assert shown is not None
    low = {symbol: least for symbol, least, _ in schedule.graph.symbols}
    made = plan(schedule, low | dict(shown.symbols), shown.integers, shown.banks)
    on, table = make(made), timetable(made, shown.order)
    # The free rounds come first: they also load what a first round has to load.
    free = sum(bool(one_round(made, on, Pace())) for _ in range(rounds))
    done = void = faulty = 0
    first: dict[int, int] = {}
    while done < rounds and done + void < TRIES * rounds and perf_counter() < until:
        wrong = one_round(made, on, Pace(table))
        if on.late > LATE:
            void += 1
            continue
        done, faulty = done + 1, faulty + bool(wrong)
        first = first or wrong
    due = 0 < faulty == done == rounds
    return Row(
        name, "violated", finding.rule, rounds, done, void, faulty, free, _text(made, first), due
    )


def _repaired(name: str, schedule: Schedule, make: Make, rounds: int, until: float) -> Row:
    """Half of the rounds with the least symbols, half with the greatest."""
    done = faulty = 0
    first = ""
    for end, share in ((1, rounds // 2), (2, rounds - rounds // 2)):
        made = plan(schedule, {symbol[0]: symbol[end] for symbol in schedule.graph.symbols})
        on, random = make(made), Random(end)
        for _ in range(share):
            if perf_counter() >= until:
                break
            wrong = one_round(made, on, Pace(random=random))
            done, faulty = done + 1, faulty + bool(wrong)
            first = first or _text(made, wrong)
    return Row(
        name, "proved", "", rounds, done, 0, faulty, 0, first, faulty == 0 and done == rounds
    )


def _text(made: Plan, wrong: dict[int, int]) -> str:
    """The first part that found wrong bytes, and how many."""
    if not wrong:
        return ""
    part = min(wrong)
    return f"{made.script.parts[part]} found {wrong[part]} wrong bytes"


def summary(rows: list[Row]) -> dict[str, Any]:
    """Counts for a report; ``right`` if each row is as it has to be."""
    violated = [row for row in rows if row.verdict == "violated"]
    repaired = [row for row in rows if row.verdict != "violated"]
    return {
        "violated": len(violated), "shown": sum(row.due for row in violated),
        "repaired": len(repaired), "survived": sum(row.due for row in repaired),
        "rounds": sum(row.done for row in repaired),
        "without_delays": sum(row.free > 0 for row in violated),
        "right": bool(rows) and all(row.due for row in rows),
    }  # fmt: skip
