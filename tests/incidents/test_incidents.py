"""Real incidents, from document to verdict, and the corpus itself.

As with the cases of the rules, what the checker says is held against machinery that shares nothing
with it: counterexamples are executed, static findings are shown again by plain code, and what was
proved is run under random legal orders.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from incident_cases import (
    CASES,
    CLASSES,
    HERE,
    INCIDENTS,
    PAGE,
    ROOT,
    TODAY,
    UNSAID,
    document,
    page,
    twins,
)
from rule_cases import changes
from splitproof.api import execute_finding
from splitproof.exec.evidence import examine
from splitproof.exec.reference import OutOfRange, run_reference
from splitproof.exec.replay import fuzz, replay
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.model.report import Kind, Report
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check

RECORDED = ROOT.parent / "shared" / "cases" / "incidents.json"
#: Random legal orders that each proved schedule is run under, at the least and greatest sizes.
ORDERS = 200
#: So many made-up contents are looked at for an id that names no expert.
SEEDS = 10
#: No more incidents than this may be left unsaid.
MOST_UNSAID = 10
#: A repair is small.
MOST_CHANGES = 8

VIOLATED = [name for name, due in CASES.items() if due["verdict"] == "violated"]
PROVED = [name for name, due in CASES.items() if due["verdict"] == "proved"]


@pytest.fixture(scope="module")
def judged() -> dict[str, tuple[Schedule, Report]]:
    """Verdicts that were found already: several tests look at each."""
    return {}


def _judge(name: str, known: dict[str, tuple[Schedule, Report]]) -> tuple[Schedule, Report]:
    if name not in known:
        schedule = lower(load(HERE / f"{name}.json"))
        known[name] = schedule, check(schedule)
    return known[name]


def _codes(report: Report) -> set[str]:
    return {code for finding in report.findings for code in (finding.rule, *finding.also)}


def _rules_of(due: dict[str, Any]) -> set[str]:
    return {rule for name in due["classes"] for rule in CLASSES[name]}


# -- verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VIOLATED)
def test_violation(name: str, judged: dict[str, tuple[Schedule, Report]]) -> None:
    due = CASES[name]
    _, report = _judge(name, judged)
    assert report.verdict == "violated", (report.findings, report.gaps)
    first = report.findings[0]
    assert first.kind == due["kind"]
    assert first.rule in _rules_of(due) | set(TODAY.get(due["rule"], ())), first
    assert due["rule"] in _codes(report) or due["rule"] in TODAY, report.findings


@pytest.mark.parametrize("name", PROVED)
def test_proof(name: str, judged: dict[str, tuple[Schedule, Report]]) -> None:
    due = CASES[name]
    schedule, report = _judge(name, judged)
    assert report.verdict == "proved", (report.findings, report.gaps)
    cost = {due["cost"]} if "cost" in due else set()
    found = _codes(report)
    assert found == cost or (not found and cost <= set(TODAY)), report.findings
    for finding in report.findings:
        assert execute_finding(schedule, finding).holds, finding


@pytest.mark.parametrize("name", VIOLATED)
def test_each_finding_is_shown_by_other_means(
    name: str, judged: dict[str, tuple[Schedule, Report]]
) -> None:
    schedule, report = _judge(name, judged)
    low = {symbol: least for symbol, least, _ in schedule.graph.symbols}
    for finding in report.findings:
        if finding.rule == "CE006":
            _names_no_expert(schedule)
        elif finding.kind is Kind.VALUE:
            assert finding.counterexample is not None, finding
            shown = replay(schedule, finding.counterexample)
            assert shown.reproduced, f"{finding.rule} {finding.message}: {shown.summary}"
        elif finding.kind is Kind.STATIC:
            at = {key: value for key, value in finding.evidence if key in low}
            again = examine(schedule, finding, low | {k: int(v) for k, v in at.items()})
            assert again.confirmed, (finding, again.facts)


def _names_no_expert(schedule: Schedule) -> None:
    """Some ids are negative, or so great that the sequential run itself cannot be done."""
    high = {symbol: most for symbol, _, most in schedule.graph.symbols}
    readers = [node.dst for node in schedule.graph.nodes if node.op == "mul_mat_id"]
    for seed in range(SEEDS):
        try:
            reference = run_reference(schedule, high, seed=seed)
        except OutOfRange:
            return
        ids = [reference.reads[node, 0][2].raw.view(np.int32) for node in readers]
        if min(array.min() for array in ids) < 0:
            return
    pytest.fail("every id named an expert")


@pytest.mark.parametrize("name", PROVED)
def test_proved_schedules_survive_random_orders(name: str) -> None:
    schedule = lower(load(HERE / f"{name}.json"))
    ends = [{n: low for n, low, _ in schedule.graph.symbols}]
    ends.append({n: high for n, _, high in schedule.graph.symbols})
    for seed, symbols in enumerate(ends):
        tried = fuzz(schedule, symbols, runs=ORDERS // 2, seed=seed)
        assert tried.replay is None, tried.replay.summary
        assert tried.runs == ORDERS // 2


# -- the corpus ------------------------------------------------------------------------------------


def test_each_document_is_expected_and_each_expectation_has_a_document() -> None:
    files = {str(path.relative_to(HERE).with_suffix("")) for path in HERE.glob("*/*.json")}
    assert files - {f"{incident}/expect" for incident in INCIDENTS} == set(CASES)
    assert not INCIDENTS.keys() & UNSAID.keys()
    assert len(UNSAID) <= MOST_UNSAID


def test_the_incidents_are_the_recorded_ones() -> None:
    if not RECORDED.exists():
        pytest.skip(f"the recorded incidents are not beside the checkout ({RECORDED.name})")
    told = INCIDENTS | UNSAID
    recorded = {entry["id"]: entry for entry in json.loads(RECORDED.read_text())}
    assert told.keys() == recorded.keys()
    for incident, entry in recorded.items():
        assert told[incident]["source"] == entry["source"], incident
        assert told[incident]["classes"] == entry["classes"], incident
        assert told[incident]["happened"] not in (entry["title"], entry["mechanism"]), incident


@pytest.mark.parametrize("incident", INCIDENTS)
def test_each_violation_has_a_repaired_twin(incident: str) -> None:
    documents = INCIDENTS[incident]["documents"]
    for due in documents.values():
        if due["verdict"] == "violated":
            assert documents[due["twin"]] == {"verdict": "proved"}


@pytest.mark.parametrize("name", CASES)
def test_rules_belong_to_the_classes(name: str) -> None:
    due = CASES[name]
    assert {due[key] for key in ("rule", "cost") if key in due} <= _rules_of(due)


@pytest.mark.parametrize(("violating", "repaired", "due"), twins())
def test_twins_are_close(violating: str, repaired: str, due: int) -> None:
    left, right = ({**document(name), "name": ""} for name in (violating, repaired))
    assert changes(left, right) == due
    assert 1 <= due <= MOST_CHANGES


def test_names_tell_documents_apart() -> None:
    names = [document(name)["name"] for name in CASES]
    assert sorted(set(names)) == sorted(names)


def test_the_page_is_the_corpus() -> None:
    assert PAGE.read_text() == page(), "write it anew: python tests/incidents/incident_cases.py"
