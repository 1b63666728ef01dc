"""A report in a line or two: styled words that need no layout, hence nothing of rich."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .model.report import Finding, Kind, Report, Rule, Verdict
from .words import count

#: A line as (text, style) pairs; the style is rich's.
Words = list[tuple[str, str]]

_VERDICT_STYLE = {
    Verdict.PROVED: "bold green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.UNSUPPORTED: "bold yellow",
}


def brief_lines(
    report: Report, source: str, rules: Mapping[str, Rule], strict_cost: bool = False
) -> Iterator[Words]:
    """The verdict, a line for each finding, and one for what was decided again."""
    yield verdict_words(report, source, strict_cost)
    for finding in report.findings:
        yield finding_words(finding, rules.get(finding.rule))
    if report.ledger:
        yield [(f"rechecked: {ledger_line(report)}", "")]


def plain(line: Words) -> str:
    return "".join(text for text, _ in line)


def verdict_words(report: Report, source: str, strict_cost: bool = False) -> Words:
    """``VIOLATED  pf001.json: 1 violation, 1 cost note``."""
    counted = len(report.failures)
    costs = sum(f.kind is Kind.COST and f.suppressed is None for f in report.findings)
    hidden = sum(f.suppressed is not None for f in report.findings)
    parts = []
    if counted:
        parts.append(count(counted, "violation"))
    if costs:
        parts.append(count(costs, "cost finding" if strict_cost else "cost note"))
    if hidden:
        parts.append(f"{hidden} suppressed")
    if report.gaps:
        parts.append(f"{len(report.gaps)} undecided")
    words = [(report.verdict.value.upper(), _VERDICT_STYLE[report.verdict]), (f"  {source}", "")]
    if parts:
        words.append((f": {', '.join(parts)}", ""))
    return words


def finding_words(finding: Finding, rule: Rule | None = None) -> Words:
    """Code, slug and message."""
    words = [(finding.rule, "yellow" if finding.kind is Kind.COST else "bold red")]
    if rule is not None:
        words.append((f" {rule.slug}", "bold"))
    if finding.kind is not Kind.VALUE:
        words.append((f" [{finding.kind.value}]", "dim"))
    words.append((f": {finding.message}", ""))
    if finding.suppressed is not None:
        words.append((f" (suppressed: {finding.suppressed})", "dim"))
    return words


def ledger_line(report: Report) -> str:
    """How many questions a second solver decided again, and how that ended."""
    outcomes = [entry.outcome for entry in report.ledger]
    parts = [
        f"{outcomes.count(outcome)} {words}"
        for outcome, words in (
            ("agrees", "agree"), ("disagrees", "DISAGREE"), ("not rechecked", "not rechecked"),
        )
        if outcome in outcomes
    ]  # fmt: skip
    unfolded = sum(entry.form == "unfolded" for entry in report.ledger)
    return f"{count(len(outcomes), 'question')} ({unfolded} unfolded): {', '.join(parts)}"
