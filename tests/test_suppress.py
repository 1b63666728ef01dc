"""Exit codes, and what is known of a finding, on reports that are put together here."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from splitproof.model.report import Finding, Gap, Kind, Report, Verdict
from splitproof.suppress import exit_code, known_findings, suppress, worst

RACE = Finding("OR001", Kind.VALUE, "a race", "$")
WASTE = Finding("CO001", Kind.COST, "a waste", "$")
GAP = Gap(Verdict.UNKNOWN, "too hard", "$")


def report(verdict: Verdict, *findings: Finding, gaps: tuple[Gap, ...] = ()) -> Report:
    return replace(Report(verdict), findings=findings, gaps=gaps)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (report(Verdict.PROVED), 0),
        (report(Verdict.PROVED, WASTE), 0),
        (report(Verdict.UNKNOWN, gaps=(GAP,)), 3),
        (report(Verdict.UNSUPPORTED), 3),
        (report(Verdict.VIOLATED, RACE, gaps=(GAP,)), 1),
        (report(Verdict.VIOLATED, replace(RACE, suppressed="idle")), 0),
        # What is tolerated hides nothing else: something is still undecided.
        (report(Verdict.VIOLATED, replace(RACE, suppressed="idle"), gaps=(GAP,)), 3),
        (replace(report(Verdict.VIOLATED, RACE), contradicted=True), 4),
    ],
)
def test_exit_code(given: Report, code: int) -> None:
    assert exit_code(given) == code


def test_a_cost_counts_when_asked_and_not_suppressed() -> None:
    assert exit_code(report(Verdict.PROVED, WASTE), strict_cost=True) == 1
    tolerated = replace(WASTE, suppressed="small")
    assert exit_code(report(Verdict.PROVED, tolerated), strict_cost=True) == 0


def test_of_several_the_first_of_4_2_1_3_0() -> None:
    order = (4, 2, 1, 3, 0)
    for first, *rest in (order[i:] for i in range(len(order))):
        for codes in permutations((first, *rest)):
            assert worst(codes) == first
    assert worst([]) == 0


def test_a_baseline_knows_rule_and_message() -> None:
    known = known_findings([report(Verdict.VIOLATED, RACE)])
    moved, other = replace(RACE, place="$.program[3]"), replace(RACE, message="another race")
    renamed = replace(RACE, rule="OR002")
    found = suppress(report(Verdict.VIOLATED, moved, other, renamed), {}, known, "old.json")
    assert [f.suppressed for f in found.findings] == ["known from old.json", None, None]
    assert found.verdict is Verdict.VIOLATED


def test_a_reason_that_was_given_comes_before_the_baseline() -> None:
    known = known_findings([report(Verdict.VIOLATED, RACE)])
    found = suppress(report(Verdict.VIOLATED, RACE), {"OR001": "idle"}, known, "old.json")
    assert [f.suppressed for f in found.findings] == ["idle"]
    again = suppress(found, {"OR001": "later"}, known, "old.json")
    assert again == found
