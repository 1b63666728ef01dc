"""What a replay showed, in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .api import Shown
from .model.describe import command_text
from .model.report import Report, Rule
from .model.schedule import Schedule
from .text import evidence_table, finding_line, labelled
from .timeline import timeline

if TYPE_CHECKING:
    from .exec.judge import WrongRead, WrongValue
    from .exec.replay import Replay

#: Rows of the table of wrong numbers.
MOST = 8


def shown_items(
    shown: Shown,
    schedule: Schedule,
    rule: Rule | None,
    *,
    quiet: bool = False,
    order: bool = True,
) -> Iterator[RenderableType]:
    """One finding: confirmed or not, the ``order`` that was executed, and the numbers."""
    line = Text(no_wrap=True)
    if shown.holds:
        line.append("CONFIRMED", style="bold red")
    elif shown.holds is None:
        line.append("NOT EXECUTED", style="bold yellow")
    else:
        line.append("NOT REPRODUCED", style="bold magenta")
    yield line + Text("  ") + finding_line(shown.finding, rule)
    if shown.problem:
        yield labelled("problem", shown.problem)
    if quiet:
        return
    if shown.executed is not None:
        example = shown.finding.counterexample
        assert example is not None
        if order:
            yield Text("")
            yield Padding(timeline(schedule, example), (0, 0, 0, 3))
        yield Text("")
        for read in _reads(shown.executed):
            yield labelled("reads", _read_text(read, schedule))
        yield Text("")
        yield Padding(_values(shown.executed, schedule), (0, 0, 0, 3))
    if shown.facts:
        yield Padding(evidence_table(shown.facts), (0, 0, 0, 3))


def _reads(executed: Replay) -> list[WrongRead]:
    from .exec.judge import WrongRead

    return [item for item in executed.wrong if isinstance(item, WrongRead)][:1]


def _wrong_values(executed: Replay) -> list[WrongValue]:
    from .exec.judge import WrongValue

    return [item for item in executed.wrong if isinstance(item, WrongValue)]


def _read_text(read: WrongRead, schedule: Schedule) -> str:
    program = schedule.program or ()
    where = f"{command_text(program[read.command])} of pass {read.iteration}"
    return (
        f"{where} gets {read.count:,} wrong bytes of {read.tensor} from byte {read.byte} on: "
        f"{read.got}; due was {read.due}"
    )


def _values(executed: Replay, schedule: Schedule) -> Table:
    """The first wrong number of each command and pass."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("pass", justify="right")
    table.add_column("command")
    table.add_column("element")
    table.add_column("expected", justify="right")
    table.add_column("got", justify="right")
    table.add_column("wrong elements", justify="right")
    program = schedule.program or ()
    wrong = _wrong_values(executed)
    for item in wrong[:MOST]:
        table.add_row(
            str(item.iteration), command_text(program[item.command]),
            f"{item.tensor}[{item.index}]", _number(item.expected),
            Text(_number(item.got), style="bold red"), f"{item.count:,}",
        )  # fmt: skip
    if len(wrong) > MOST:
        table.add_row("…", f"{len(wrong) - MOST} more", "", "", "", "")
    return table


def _number(value: float | int | str) -> str:
    """A value, or the word for one that is none (``poison``)."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: float | int | str) -> float | int | str:
    """The same for JSON, which has no word for NaN and infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def shown_to_dict(report: Report, results: list[Shown]) -> dict[str, Any]:
    """The replay of one report as a JSON value."""
    return {
        "format": "splitproof-replay/1",
        "digest": report.digest,
        "confirmed": all(shown.holds for shown in results),
        "findings": [_one(shown) for shown in results],
    }


def _one(shown: Shown) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "rule": shown.finding.rule,
        "kind": shown.finding.kind.value,
        "place": shown.finding.place,
        "confirmed": shown.holds,
    }
    if shown.problem:
        entry["problem"] = shown.problem
    if shown.facts:
        entry["facts"] = dict(shown.facts)
    if shown.executed is not None:
        entry["reads"] = [str(read) for read in _reads(shown.executed)]
        entry["values"] = [
            {
                "command": item.command, "pass": item.iteration, "tensor": item.tensor,
                "element": item.index, "wrong_elements": item.count,
                "expected": _plain(item.expected), "got": _plain(item.got),
            }
            for item in _wrong_values(shown.executed)
        ]  # fmt: skip
    return entry
