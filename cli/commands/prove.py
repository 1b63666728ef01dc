"""``splitproof prove``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ..model.theorem import Outcome, StepReport, TheoremReport, TheoremResult
from ..options import format_option, option, quiet_option
from ..output import CliError, emit, emit_json, progress
from ..text import render
from ..words import count

EXIT_CODES = {
    Outcome.PROVED: 0,
    Outcome.REFUTED: 1,
    Outcome.UNDECIDED: 3,
    Outcome.CONTRADICTED: 4,
}
_STYLE = {
    Outcome.PROVED: "bold green",
    Outcome.REFUTED: "bold red",
    Outcome.UNDECIDED: "bold yellow",
    Outcome.CONTRADICTED: "bold red",
}


@click.command("prove")
@click.argument("theorems", nargs=-1, metavar="[THEOREM…]")
@option("--recheck", is_flag=True, help="Ask cvc5 every question too.")
@option(
    "--smt2", type=click.Path(), metavar="DIR", help="Write every question as SMT-LIB into DIR."
)
@option(
    "--effort", type=click.IntRange(1), metavar="UNITS",
    help="Z3 resource units for one question; what needs more is undecided.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Show goals, hypotheses and countermodels too.")
@format_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    theorems: tuple[str, ...],
    recheck: bool,
    smt2: str | None,
    effort: int | None,
    full: bool,
    form: str,
    quiet: bool,
) -> None:
    """Prove the theorems behind the rules, for every schedule.

    THEOREM is a name or a title: T6, lifetimes; without any, all are proved. For each hypothesis
    the structure is found that satisfies all else and breaks the goal.

    Exits with 0 if all are proved, 1 if one is refuted, 3 if one is undecided, 4 if cvc5 and Z3
    disagree, a countermodel does not hold up, or hypotheses contradict each other or are idle.
    """
    from ..verify.theorems import DEFAULT_EFFORT, prove, theorem

    directory = _directory(smt2)
    try:
        names = tuple(theorem(name).name for name in theorems)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    with progress("proving", quiet) as step:
        try:
            report = prove(
                names,
                effort=effort or DEFAULT_EFFORT,
                recheck=recheck,
                smt2=directory,
                progress=(lambda done, total, _: step(done, total)) if step else None,
            )
        except ImportError as error:
            raise CliError(str(error)) from None
    if form == "json":
        emit_json(report_to_dict(report))
    else:
        emit(render(list(_items(report, quiet, full)), sys.stdout))
    ctx.exit(EXIT_CODES[report.outcome])


def _directory(path: str | None) -> Path | None:
    if path is None:
        return None
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"--smt2 {path}: {error.strerror or error}") from None
    return directory


def report_to_dict(report: TheoremReport) -> dict[str, Any]:
    """The report as one JSON value."""
    return {"format": "splitproof-theorems/1", **asdict(report)}


def _items(report: TheoremReport, quiet: bool, full: bool) -> Iterator[RenderableType]:
    for result in report.theorems:
        yield _headline(result)
        if quiet:
            continue
        yield Padding(Text(result.statement), (0, 0, 0, 4))
        for step in result.steps:
            yield from _step(step, full)
        if result.limits:
            yield Padding(Text(f"Not covered: {result.limits}", style="dim"), (0, 0, 0, 4))
        yield Text("")
    asked = sum(step.queries for result in report.theorems for step in result.steps)
    again = sum(step.rechecked for result in report.theorems for step in result.steps)
    line = Text(no_wrap=True)
    line.append(report.outcome.value.upper(), style=_STYLE[report.outcome])
    line.append(f"  {count(len(report.theorems), 'theorem')}, {count(asked, 'question')}")
    if again:
        line.append(f", {again} decided by cvc5 too")
    line.append(f", {report.seconds:.1f} s")
    yield line


def _headline(result: TheoremResult) -> Text:
    line = Text(no_wrap=True)
    line.append(result.outcome.value.upper(), style=_STYLE[result.outcome])
    line.append(f"  {result.name} {result.title}")
    line.append(f", {count(len(result.steps), 'step')}, {result.seconds:.1f} s", style="dim")
    return line


def _step(step: StepReport, full: bool) -> Iterator[RenderableType]:
    needed = [h for h in step.hypotheses if h.countermodel is not None and h.countermodel.confirmed]
    line = Text("  ")
    line.append(step.outcome.value, style=_STYLE[step.outcome])
    line.append(f"  {step.name}: {step.words}")
    yield line
    words = f"{len(needed)} of {count(len(step.hypotheses), 'hypothesis', 'hypotheses')} needed"
    yield Padding(Text(f"{step.fragment}; {words}", style="dim"), (0, 0, 0, 10))
    for query in step.disagreements:
        yield Padding(Text(f"Z3 and cvc5 disagree: {query}", style="bold red"), (0, 0, 0, 10))
    if step.scenario is False:
        yield Padding(Text("the hypotheses contradict each other", style="bold red"), (0, 0, 0, 10))
    if not full:
        return
    yield Padding(Text(f"goal: {step.logic}"), (0, 0, 0, 10))
    for h in step.hypotheses:
        yield Padding(Text(f"{h.name}: {h.words}\n{h.logic}"), (0, 0, 0, 10))
        if h.countermodel is not None:
            shown = f" (no schedule: {h.unshown})" if h.unshown else ""
            if h.document:
                shown = f" (as a schedule: docs/theorems/{h.document}.json)"
            facts = "\n".join(h.countermodel.facts)
            yield Padding(Text(f"without it{shown}:\n{facts}", style="dim"), (0, 0, 0, 14))
