"""Each rule's violating schedule and its repaired twin, and the further ones, from file to verdict.

What the checker says is held against machinery that shares nothing with it: counterexamples are
executed, static findings are shown again by plain code, and what was proved is run under random
legal orders.
"""

from __future__ import annotations

from typing import Any

import pytest
from rule_cases import HERE, all_cases
from splitproof.api import execute_finding
from splitproof.exec.reference import OutOfRange, run_reference
from splitproof.exec.replay import fuzz, replay
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.model.report import Kind, Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check
from splitproof.verify.minimize import minimize_syncs

CASES = all_cases()
#: Random legal orders that each proved schedule is run under.
ORDERS = 1000


@pytest.fixture(scope="module")
def judged() -> dict[str, tuple[Schedule, Report]]:
    """Verdicts that were found already: several tests look at each."""
    return {}


def _judge(name: str, known: dict[str, tuple[Schedule, Report]]) -> tuple[Schedule, Report]:
    if name not in known:
        schedule = lower(load(HERE / f"{name}.json"))
        # Redundant waits are looked for only when asked.
        syncs = CASES[name].get("syncs", False)
        known[name] = schedule, minimize_syncs(schedule).report if syncs else check(schedule)
    return known[name]


def _codes(report: Report) -> list[str]:
    """The rules that are named, each finding's own before those under ``also``."""
    return [code for f in report.findings for code in (f.rule, *f.also)]


def _with(**due: Any) -> list[str]:
    return [n for n, d in CASES.items() if all(d.get(k) == v for k, v in due.items())]


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str, judged: dict[str, tuple[Schedule, Report]]) -> None:
    due = CASES[name]
    _, report = _judge(name, judged)
    codes = _codes(report)
    assert report.verdict == due["verdict"], (report.findings, report.gaps)
    if "first" in due:
        assert report.findings[0].rule == due["first"], codes
        assert report.findings[0].kind == due["kind"]
    if "any" in due:
        assert set(due["any"]) & set(codes), codes
    assert set(due.get("also", ())) <= set(codes)
    assert not set(due.get("absent", ())) & set(codes)
    if set(due) <= {"verdict", "syncs"} and due["verdict"] == "proved":
        assert codes == []


@pytest.mark.parametrize("name", _with(verdict="violated"))
def test_each_value_finding_is_reproduced(
    name: str, judged: dict[str, tuple[Schedule, Report]]
) -> None:
    schedule, report = _judge(name, judged)
    for finding in report.findings:
        if finding.rule == "CE006":
            _has_no_meaning(schedule)
            assert execute_finding(schedule, finding).holds
        elif finding.kind is Kind.VALUE:
            assert finding.counterexample is not None, finding
            shown = replay(schedule, finding.counterexample)
            assert shown.reproduced, f"{finding.rule} {finding.message}: {shown.summary}"


def _has_no_meaning(schedule: Schedule) -> None:
    """An id that names no expert: the sequential run itself cannot be done."""
    high = {symbol: most for symbol, _, most in schedule.graph.symbols}
    with pytest.raises(OutOfRange):
        run_reference(schedule, high)


@pytest.mark.parametrize("name", _with(verdict="violated"))
def test_each_static_finding_has_evidence(
    name: str, judged: dict[str, tuple[Schedule, Report]]
) -> None:
    schedule, report = _judge(name, judged)
    found = [f for f in report.findings if f.kind is Kind.STATIC]
    assert found or CASES[name].get("kind") != "static"
    for finding in found:
        shown = execute_finding(schedule, finding)
        assert shown.holds, (finding, shown.facts)


@pytest.mark.parametrize("name", _with(kind="cost"))
def test_each_cost_is_counted_again(name: str, judged: dict[str, tuple[Schedule, Report]]) -> None:
    schedule, report = _judge(name, judged)
    # That a wait is redundant (CO002) is a proof of the schedule without it.
    for finding in report.findings:
        assert finding.rule == "CO002" or execute_finding(schedule, finding).holds, finding


@pytest.mark.parametrize("name", _with(verdict="proved"))
def test_proved_schedules_survive_random_orders(
    name: str, judged: dict[str, tuple[Schedule, Report]]
) -> None:
    schedule, report = _judge(name, judged)
    assert report.verdict is Verdict.PROVED
    ends = [{n: low for n, low, _ in schedule.graph.symbols}]
    ends.append({n: high for n, _, high in schedule.graph.symbols})
    for seed, symbols in enumerate(ends):
        tried = fuzz(schedule, symbols, runs=ORDERS // 2, seed=seed)
        assert tried.replay is None, tried.replay.summary
        assert tried.runs == ORDERS // 2


@pytest.mark.parametrize("name", _with(verdict="violated", kind="value"))
def test_refuted_schedules_go_wrong_under_some_random_order(name: str) -> None:
    """The twin of the test above: without it, a machine that finds nothing would pass."""
    schedule = lower(load(HERE / f"{name}.json"))
    if CASES[name].get("first") == "CE006":
        _has_no_meaning(schedule)
        return
    high = {symbol: most for symbol, _, most in schedule.graph.symbols}
    assert fuzz(schedule, high, runs=ORDERS).replay is not None
