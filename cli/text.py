"""A report in words, for a terminal or a log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import IO

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .brief import brief_lines, finding_words, ledger_line, verdict_words
from .model.counterexample import Counterexample
from .model.report import Finding, Kind, Report, Rule
from .model.schedule import Schedule
from .timeline import timeline
from .words import count, listing, size_text

PLAIN_WIDTH = 100
#: Rows of the table of crossing bytes; the rest is summed up.
MOST_CROSSINGS = 16


def render(items: Sequence[RenderableType], stream: IO[str] | None = None) -> str:
    """The items as text: coloured and as wide as the terminal if ``stream`` is one, else plain
    and :data:`PLAIN_WIDTH` wide.  ``NO_COLOR`` is honoured."""
    terminal = stream is not None and stream.isatty()
    sink = StringIO()
    console = Console(
        file=sink,
        force_terminal=terminal,
        width=None if terminal else PLAIN_WIDTH,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for item in items:
        console.print(item, soft_wrap=isinstance(item, Text) and item.no_wrap is True)
    return "\n".join(line.rstrip() for line in sink.getvalue().split("\n"))


def report_items(
    report: Report,
    schedule: Schedule,
    *,
    source: str = "",
    rules: dict[str, Rule] | None = None,
    quiet: bool = False,
    strict_cost: bool = False,
) -> Iterator[RenderableType]:
    """The parts of a report, top to bottom.  ``quiet`` leaves only the line of the verdict and
    a line per finding.  ``rules`` gives slugs and hints."""
    known = rules or {}
    title = source or schedule.name
    if quiet:
        for line in brief_lines(report, title, known, strict_cost):
            yield Text.assemble(*line, no_wrap=True)
        return
    yield Text.assemble(*verdict_words(report, title, strict_cost), no_wrap=True)
    yield Text(f"  {counts_line(report)}", style="dim")
    told: set[str] = set()
    for number, finding in enumerate(report.findings, 1):
        again = finding.rule in told and finding.counterexample is None
        told.add(finding.rule)
        if again:
            # One row each keeps a long list of the same fault readable.
            yield from heading(number, finding, known.get(finding.rule))
        else:
            yield Text("")
            yield from finding_items(number, finding, schedule, known.get(finding.rule))
    if report.gaps:
        yield Text("")
    for gap in report.gaps:
        yield labelled(f"{gap.verdict}", f"{gap.reason} ({gap.place})", "yellow")
    if report.crossing:
        yield Text("")
        yield Padding(crossing_table(report, schedule), (0, 0, 0, 2))
    if report.ledger:
        yield Text("")
        yield Text(f"  rechecked: {ledger_line(report)}", style="bold")
        yield Padding(ledger_table(report), (0, 0, 0, 2))
    if report.theorems or report.assumptions:
        yield Text("")
    for theorem, number in report.theorems:
        yield labelled("theorem", f"{theorem}: {count(number, 'obligation')}", "dim")
    for assumption in report.assumptions:
        yield labelled("assumed", assumption, "dim")


def counts_line(report: Report) -> str:
    """What was looked at: commands, passes, obligations, how many went to the solver."""
    return (
        f"{count(report.commands, 'command')}, {count(report.passes, 'pass')}, "
        f"{count(report.obligations, 'obligation')} ({report.solved:,} by the solver), "
        f"{count(report.regimes, 'regime')}"
    )


def finding_line(finding: Finding, rule: Rule | None = None) -> Text:
    """Code, slug and message in one line."""
    return Text.assemble(*finding_words(finding, rule))


def finding_items(
    number: int, finding: Finding, schedule: Schedule, rule: Rule | None
) -> Iterator[RenderableType]:
    """One finding: what, where, when, how it runs, what is missing, what to change."""
    yield from heading(number, finding, rule)
    also = f", also {' '.join(finding.also)}" if finding.also else ""
    yield labelled("at", f"{finding.place}{also}")
    example = finding.counterexample
    if example is not None:
        for label, text in situation(example):
            yield labelled(label, text)
        if example.order:
            yield Text("")
            yield Padding(timeline(schedule, example), (0, 0, 0, 3))
            yield Text("")
        yield labelled("due", example.due)
        if example.missing:
            yield labelled("missing", missing_edge(example), "bold")
    if finding.evidence:
        yield Padding(evidence_table(finding.evidence), (0, 0, 0, 3))
    if rule is not None and rule.hint:
        yield labelled("hint", rule.hint, "green")


def heading(number: int, finding: Finding, rule: Rule | None) -> Iterator[RenderableType]:
    """Number, code, slug and message.  Alone, it is enough for a further finding of a rule that
    was explained already."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(width=max(2, len(str(number)) + 1), no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(f"{number}.", finding_line(finding, rule))
    yield table


def situation(example: Counterexample) -> Iterator[tuple[str, str]]:
    """The values under which it goes wrong: symbols, ids, content of banks."""
    if example.symbols:
        values = ", ".join(f"{name} = {value}" for name, value in example.symbols)
        yield "with", f"{values}; no other values show it" if example.unique else values
    for tensor, iteration, numbers in example.integers:
        yield "ids", f"{tensor} = {listing(numbers)} in pass {iteration}"
    for group, content in example.banks:
        slots = ", ".join(f"{s}: layer {layer} expert {e}" for s, layer, e in content)
        yield "bank", f"{group} starts with {slots or 'all slots empty'}"


def missing_edge(example: Counterexample) -> str:
    """The missing edge without numbers and queues of commands, which the time line shows."""
    parties = [party for party in (example.reader, example.writer) if party is not None]
    keep = r" of pass \1" if any(party.iteration for party in parties) else ""
    return re.sub(r" \[command \d+, pass (\d+), [^\]]*\]", keep, example.missing)


def evidence_table(facts: Sequence[tuple[str, str | int]]) -> Table:
    """Facts as two columns; long whole numbers with thousands apart."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    return table


def crossing_table(report: Report, schedule: Schedule) -> Table:
    """Bytes that cross memories, per split, at the upper bounds of the symbols."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("split", justify="right")
    table.add_column("device")
    table.add_column("from → to")
    table.add_column("bytes that cross", justify="right")
    splits = schedule.splits or ()
    kept = sorted(report.crossing, key=lambda row: (-row[3], row[:3]))[:MOST_CROSSINGS]
    for index, source, target, size in sorted(kept):
        device = splits[index].device if 0 <= index < len(splits) else ""
        table.add_row(str(index), device, f"{source} → {target}", size_text(size))
    rest = len(report.crossing) - len(kept)
    if rest:
        others = sum(row[3] for row in report.crossing) - sum(row[3] for row in kept)
        table.add_row("…", "", f"{rest} more", size_text(others))
    if len(report.crossing) > 1:
        total = sum(row[3] for row in report.crossing)
        table.add_row("", "", Text("in all", style="bold"), Text(size_text(total), style="bold"))
    return table


def ledger_table(report: Report) -> Table:
    """A line for each question: both solvers' versions, answers and times."""
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    for _ in range(5):
        table.add_column(no_wrap=True)
    for entry in report.ledger:
        rulings = [
            f"{r.solver} {r.version} {r.answer} {r.seconds:.3f} s"
            for r in (entry.first, entry.second)
        ]
        table.add_row(entry.name, entry.form, *rulings, entry.outcome)
    return table


def rule_items(rule: Rule) -> Iterator[RenderableType]:
    """What ``explain`` says about a rule."""
    yield Text(f"{rule.code} {rule.slug}", style="bold")
    yield Text("")
    yield Text(rule.summary)
    yield Text("")
    kinds = {
        Kind.VALUE: "value: a read can see a wrong or undefined byte; the counterexample runs",
        Kind.STATIC: "static: the document cannot be realised, or breaks a promise it makes",
        Kind.COST: "cost: right, but wasteful; fails a check only under --strict-cost",
    }
    yield labelled("kind", kinds[rule.kind])
    yield labelled("hint", rule.hint, "green")


def labelled(label: str, text: str, style: str = "") -> Padding:
    """An indented line whose continuation stays under its text."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(width=8, style=style or "dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(label, Text(text))
    return Padding(table, (0, 0, 0, 3))
