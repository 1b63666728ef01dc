"""Findings as workflow commands, which a code host shows as annotations of the file.

Format: ``::error file=…,line=…,col=…,title=…::message``, with the escapes that GitHub's
``actions/toolkit`` uses: ``%``, CR and LF in a message, and ``:`` and ``,`` too in a property.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .checked import Checked
from .model.report import Finding, Gap, Kind, Report, Rule
from .places import Locator

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = _DATA | {":": "%3A", ",": "%2C"}


def workflow_commands(
    checked: Checked, rules: Mapping[str, Rule], *, strict_cost: bool = False
) -> Iterator[str]:
    """A line for each finding and gap of a file, or for the error that kept it from a check."""
    if checked.report is None or checked.schedule is None:
        yield command("error", checked.error, file=checked.source, title="splitproof")
        return
    places = Locator(checked.text, checked.schedule)
    for finding in checked.report.findings:
        line, column = places.path(finding.place)
        rule = rules.get(finding.rule)
        yield command(
            level(finding, strict_cost), _message(finding, rule),
            file=checked.source, line=line, col=column,
            title=f"{finding.rule} {rule.slug}" if rule is not None else finding.rule,
        )  # fmt: skip
    for gap in checked.report.gaps:
        yield _gap(gap, checked.source, places)
    yield _summary(checked.report, checked.title)


def level(finding: Finding, strict_cost: bool) -> str:
    """``error`` for what counts; a cost is a notice, or a warning if costs fail the check."""
    if finding.suppressed is not None:
        return "notice"
    if finding.kind is Kind.COST:
        return "warning" if strict_cost else "notice"
    return "error"


def _message(finding: Finding, rule: Rule | None) -> str:
    lines = [finding.message]
    example = finding.counterexample
    if example is not None:
        if example.symbols:
            lines.append("with " + ", ".join(f"{name} = {v}" for name, v in example.symbols))
        lines.append(f"due: {example.due}")
        if example.missing:
            lines.append(f"missing: {example.missing}")
    if finding.suppressed is not None:
        lines.append(f"suppressed: {finding.suppressed}")
    elif rule is not None:
        lines.append(f"hint: {rule.hint}")
    return "\n".join(lines)


def _gap(gap: Gap, source: str, places: Locator) -> str:
    line, column = places.path(gap.place)
    return command(
        "warning", f"{gap.reason} ({gap.place})",
        file=source, line=line, col=column, title=f"splitproof: {gap.verdict.value}",
    )  # fmt: skip


def _summary(report: Report, source: str) -> str:
    """A line for the log; no reader takes it for a command, whatever the file is called."""
    return f"{report.verdict.value.upper()}  {' '.join(source.split())}"


def command(name: str, message: str, **properties: str | int) -> str:
    """One workflow command."""
    pairs = ",".join(f"{key}={_escaped(str(v), _PROPERTY)}" for key, v in properties.items())
    return f"::{name} {pairs}::{_escaped(message, _DATA)}"


def _escaped(text: str, table: Mapping[str, str]) -> str:
    return "".join(table.get(letter, letter) for letter in text)
