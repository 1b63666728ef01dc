"""What ran when, as Chrome trace events: a row for each queue, arrows for events.

The times are for people.  What holds a trace against a proof are the sequence numbers: one
counter for all threads, taken when a part starts and when it ends.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from ..model import document
from ..model.device import HOST
from ..model.schedule import Schedule
from .arena import Arena
from .watch import Stretch, Watcher

FORMAT = "splitproof-trace/1"


class TraceError(ValueError):
    """A file that is no trace of this program; says what was found and what was due."""


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """One part of a command, with its numbers in the order of all starts and ends."""

    command: int
    iteration: int
    part: str
    start: int
    end: int


@dataclass(slots=True)
class RecordedRun:
    """One run of a program: ``digest`` of its document, and what was executed."""

    digest: str
    symbols: dict[str, int]
    parts: list[RecordedPart] = field(default_factory=list)


class Trace(Watcher):
    """Collects events while programs run."""

    def __init__(self) -> None:
        self._number = itertools.count()  # next() on it is one step for every thread
        self._began = perf_counter_ns()
        self._events: list[dict[str, Any]] = []
        self._runs: list[dict[str, Any]] = []
        self._rows: dict[str, int] = {}
        self._digests: dict[int, tuple[Schedule, str]] = {}
        self._open: dict[Stretch, tuple[int, float]] = {}
        self._blocked: dict[Stretch, float] = {}
        self._recorded: dict[Stretch, float] = {}
        self._lock = threading.Lock()

    # -- what the runtime tells -----------------------------------------------------------------

    def begin_run(self, arena: Arena, schedule: Schedule, symbols: Mapping[str, int]) -> None:
        if id(schedule) not in self._digests:  # with the schedule, so that its id stays taken
            self._digests[id(schedule)] = schedule, document.digest(schedule)
        digest = self._digests[id(schedule)][1]
        self._runs.append({"digest": digest, "name": schedule.name, "symbols": dict(symbols)})

    def block(self, stretch: Stretch) -> None:
        self._blocked[stretch] = self._now()

    def start(self, stretch: Stretch, token: object, flights: str = "", flown: int = 0) -> None:
        began = self._blocked.pop(stretch, None)
        self._open[stretch] = next(self._number), self._now() if began is None else began

    def end(self, stretch: Stretch) -> None:
        number, began = self._open.pop(stretch)
        ended, last = self._now(), next(self._number)
        row = self._row(stretch)
        self._recorded[stretch] = ended
        self._events.append({
            "name": stretch.text if stretch.part == "main" else f"{stretch.text} ({stretch.part})",
            "ph": "X", "ts": began, "dur": max(ended - began, 0.001), "pid": 1, "tid": row,
            "args": {
                "run": len(self._runs) - 1, "command": stretch.index, "pass": stretch.pass_,
                "part": stretch.part, "start": number, "end": last,
            },
        })  # fmt: skip

    def saw(self, waiter: Stretch, record: Stretch) -> None:
        arrow = {"name": "event", "cat": "event", "pid": 1, "id": next(self._number)}
        ended = self._recorded.get(record, self._now())
        self._events.append({**arrow, "ph": "s", "ts": ended, "tid": self._row(record)})
        self._events.append(
            {**arrow, "ph": "f", "bp": "e", "ts": self._now(), "tid": self._row(waiter)}
        )

    def banks(self, occupied: Mapping[str, int]) -> None:
        for group, count in occupied.items():
            self._events.append({
                "name": f"slots of {group}", "ph": "C", "ts": self._now(), "pid": 1,
                "args": {"full": count},
            })  # fmt: skip

    def end_run(self) -> None:
        self._recorded.clear()

    def _now(self) -> float:
        """Microseconds."""
        return (perf_counter_ns() - self._began) / 1000

    def _row(self, stretch: Stretch) -> int:
        name = stretch.queue + (" (in flight)" if stretch.loose else "")
        with self._lock:
            return self._rows.setdefault(name, len(self._rows))

    # -- the file -------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As one JSON value."""
        names = [
            {"name": kind, "ph": "M", "pid": 1, "tid": row, "args": {key: value}}
            for name, row in self._rows.items()
            for kind, key, value in (
                ("thread_name", "name", name),
                ("thread_sort_index", "sort_index", row if name != HOST else -1),
            )
        ]
        return {
            "displayTimeUnit": "ms",
            "otherData": {"format": FORMAT, "runs": self._runs},
            "traceEvents": names + self._events,
        }


def read_trace(value: Any) -> list[RecordedRun]:
    """The runs of a trace.  ``TraceError`` for another file, and for numbers that fit nothing."""
    try:
        other = value["otherData"]
        if other["format"] != FORMAT:
            raise TraceError(f"format {other['format']!r}: {FORMAT!r} was due")
        runs = [RecordedRun(str(r["digest"]), _symbols(r["symbols"])) for r in other["runs"]]
        for place, event in enumerate(value["traceEvents"]):
            if event["ph"] == "X":
                _take(runs, event["args"], f"traceEvents[{place}]")
    except TraceError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise TraceError(
            f"no trace of 'splitproof run --trace' ({type(error).__name__}: {error})"
        ) from None
    return runs


def _symbols(value: Mapping[str, Any]) -> dict[str, int]:
    return {name: _whole(number, f"symbol {name}") for name, number in value.items()}


def _take(runs: list[RecordedRun], args: Mapping[str, Any], place: str) -> None:
    keys = ("run", "command", "pass", "start", "end")
    run, command, pass_, start, end = (_whole(args[key], f"{place}, {key}") for key in keys)
    if run >= len(runs):
        raise TraceError(f"{place}: run {run}; there are {len(runs)}")
    if end <= start:
        raise TraceError(f"{place}: it ends (number {end}) before it starts ({start})")
    runs[run].parts.append(RecordedPart(command, pass_, str(args["part"]), start, end))


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TraceError(f"{what}: {value!r}; a count was due")
    return value
