"""``splitproof replay``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from ..api import Shown, replay
from ..files import read_reports
from ..model.report import Report
from ..model.schedule import Schedule
from ..options import RuleCode, format_option, option, quiet_option, seed_option
from ..output import emit, emit_json, progress
from ..replayed import shown_items, shown_to_dict
from ..suppress import exit_code, worst
from ..text import render


@click.command("replay")
@click.argument("report")
@option("--rule", "only", type=RuleCode(), multiple=True, help="Only findings under this rule.")
@seed_option
@format_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context, report: str, only: tuple[str, ...], seed: int, form: str, quiet: bool
) -> None:
    """Execute the counterexamples of REPORT and show the numbers that come of them.

    REPORT is what check --format json printed, for one file or several; - is standard input.
    A finding of kind value is carried out in its own order on memory that is poisoned where
    nobody wrote; one of kind static is evaluated again on concrete values.  None of this
    shares code with the checker.

    Exits as check did if all is confirmed (1 for real violations, 0 or 3 if there are none),
    4 if a finding is not: then the checker contradicts itself, and 3 if one cannot be executed
    for want of an op's reference.
    """
    codes: list[int] = []
    entries: list[Any] = []
    pieces: list[RenderableType] = []
    for known, schedule in read_reports(report):
        with progress(f"replaying {schedule.name or report}", quiet):
            results = replay(known, schedule, seed=seed, rules=only)
        codes.append(_exit_code(known, results))
        entries.append(shown_to_dict(known, results))
        pieces += _items(known, schedule, results, quiet)
    if form == "json":
        emit_json(entries[0] if len(entries) == 1 else entries)
    else:
        emit(render(pieces, sys.stdout))
    ctx.exit(worst(codes))


def _exit_code(report: Report, results: list[Shown]) -> int:
    held = {shown.holds for shown in results}
    if False in held:
        return 4
    return 3 if None in held else exit_code(report)


def _items(
    report: Report, schedule: Schedule, results: list[Shown], quiet: bool
) -> Iterator[RenderableType]:
    from ..verify.rules.table import RULES

    if not results:
        yield Text(f"NOTHING TO REPLAY  {schedule.name}: {report.verdict.value}", no_wrap=True)
    for number, shown in enumerate(results):
        if number and not quiet:
            yield Text("")
        yield from shown_items(shown, schedule, RULES.get(shown.finding.rule), quiet=quiet)
