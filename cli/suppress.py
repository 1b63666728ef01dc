"""Findings that are known: named on the command line, or in an earlier report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .model.report import Finding, Kind, Report, Verdict

#: A finding is known by its rule and its message: both survive an edit elsewhere in the file.
Known = frozenset[tuple[str, str]]


def known_findings(reports: Iterable[Report]) -> Known:
    """What a baseline holds: the findings of earlier reports."""
    return frozenset((f.rule, f.message) for report in reports for f in report.findings)


def suppress(
    report: Report, ignored: Mapping[str, str], known: Known = frozenset(), baseline: str = ""
) -> Report:
    """The report with a reason on each finding that does not count.

    The verdict stays what it is: a fault that is tolerated is not proved away.
    """

    def mark(finding: Finding) -> Finding:
        if finding.suppressed is not None:
            return finding
        if finding.rule in ignored:
            return replace(finding, suppressed=ignored[finding.rule])
        if (finding.rule, finding.message) in known:
            return replace(finding, suppressed=f"known from {baseline}")
        return finding

    return replace(report, findings=tuple(mark(finding) for finding in report.findings))


def exit_code(report: Report, strict_cost: bool = False) -> int:
    """4 if a second solver contradicts, 1 if a finding counts, 3 if something is undecided,
    else 0."""
    if report.contradicted:
        return 4
    costs = strict_cost and any(
        f.kind is Kind.COST and f.suppressed is None for f in report.findings
    )
    if report.failures or costs:
        return 1
    if report.gaps or report.verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED):
        return 3
    # A verdict of "violated" without a finding that counts: all of them are tolerated.
    return 0


def worst(codes: Iterable[int]) -> int:
    """The exit code of several files: the first that occurs of 4, 2, 1, 3, 0."""
    found = set(codes)
    return next(code for code in (4, 2, 1, 3, 0) if code in found or code == 0)
