"""``splitproof check --trace``: a recorded run against the schedule that was proved."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .exec.trace import RecordedRun, TraceError, read_trace
from .files import read_json, read_schedule
from .model.document import digest
from .model.schedule import Schedule
from .output import CliError, emit, emit_json
from .proving import prove
from .verify.recorded import Held, hold
from .words import count

#: Partings that are shown in words.
FIRST = 20


def check_trace(path: str, file: str, time_limit: float | None, form: str, quiet: bool) -> int:
    """Prove the schedule of ``file``, then hold the trace against it; the exit code.

    1 where they part.  What is not proved leaves with its report and exit code.
    """
    schedule = read_schedule(file)
    held = follow(path, file, schedule)
    prove(file, schedule, time_limit, form, quiet)
    if form == "json":
        emit_json(follow_to_dict(path, held))
    else:
        emit(follow_text(path, held))
    return 1 if any(one.partings for one in held) else 0


def follow(path: str, file: str, schedule: Schedule) -> list[Held]:
    """Each run of ``schedule`` that the trace at ``path`` has, held against its order.

    ``CliError`` (exit 2) for a file that is no trace, or has no run of this schedule.
    """
    try:
        runs = read_trace(read_json(path, "a trace of 'splitproof run --trace'"))
    except TraceError as error:
        raise CliError(f"{path}: {error}") from None
    due = digest(schedule)
    own = [run for run in runs if run.digest == due]
    if not own:
        found = ", ".join(dict.fromkeys(run.digest[:12] + "…" for run in runs)) or "none"
        raise CliError(f"{path}: no run of {file} ({due[:12]}…) in it; there are runs of: {found}")
    return [_held(path, schedule, run) for run in own]


def _held(path: str, schedule: Schedule, run: RecordedRun) -> Held:
    parts = ((p.command, p.iteration, p.part, p.start, p.end) for p in run.parts)
    try:
        return hold(schedule, run.symbols, parts)
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None


def follow_text(path: str, held: list[Held]) -> str:
    """A line for the whole, and one for each place where they part."""
    partings = [(number, p) for number, one in enumerate(held) for p in one.partings]
    what = (
        f"{count(len(held), 'run')}, {count(sum(h.parts for h in held), 'part')} of commands, "
        f"{count(sum(h.edges for h in held), 'edge')}"
    )
    if not partings:
        return f"FOLLOWED  {path}: {what}"
    lines = [f"PARTED  {path}: {count(len(partings), 'place')} in {what}"]
    lines += [f"  run {n}, $.program[{p.command}]: {p.message}" for n, p in partings[:FIRST]]
    if len(partings) > FIRST:
        lines.append(f"  … and {len(partings) - FIRST} more")
    return "\n".join(lines)


def follow_to_dict(path: str, held: list[Held]) -> dict[str, Any]:
    """The same as one JSON value."""
    return {
        "format": "splitproof-followed/1",
        "trace": path,
        "followed": not any(one.partings for one in held),
        "runs": [asdict(one) for one in held],
    }
