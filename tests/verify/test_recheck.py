"""A second solver: no disagreement on any rule case, and a wrong answer of the first is seen."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.codec import report_from_dict, report_to_dict
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.model.report import Gap, Ruling, Verdict
from splitproof.suppress import exit_code
from splitproof.verify.encode import Answer, Solver
from splitproof.verify.recheck import NoSecondSolver, Second, gather, recheck
from splitproof.verify.smtlib import Question, script
from splitproof.verify.term import (
    Int,
    PlainScope,
    Values,
    conj,
    disj,
    number,
    quotient,
    remainder,
    used,
    variable,
)

CASES = sorted((Path(__file__).parent.parent / "rules").glob("[A-Z]*/*.json"))
CASE = next(path for path in CASES if path.parent.name == "OR001" and path.stem == "violating")


@pytest.fixture(scope="module")
def second() -> Second:
    pytest.importorskip("cvc5", reason="the extra 'recheck' is not installed")
    return Second()


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_no_disagreement(path: Path, second: Second) -> None:
    schedule = lower(load(path))
    questions = gather(schedule)
    report = recheck(questions, second)
    assert not report.contradicted
    assert report.verdict == questions.report.verdict
    assert all(entry.outcome == "agrees" for entry in report.ledger)
    assert len(report.ledger) >= questions.report.solved
    known, _ = report_from_dict(report_to_dict(report, schedule))
    assert known.ledger == report.ledger


@pytest.mark.parametrize("planted", [False, None])
def test_a_planted_answer_is_seen(
    planted: bool | None, second: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Z3 is made to say of what has a model that it has none, or to give up on all it is asked."""
    right = Solver._ask

    def wrong(self: Solver, *asked: Any) -> Answer:
        answer = right(self, *asked)
        if planted is None:
            return Answer(None, reason="planted")
        # The regimes' questions stay right: without a regime nothing would be checked.
        return Answer(False) if answer.found and asked[2] else answer

    monkeypatch.setattr(Solver, "_ask", wrong)
    report = recheck(gather(lower(load(CASE))), second)
    assert report.ledger
    if planted is None:
        assert {entry.outcome for entry in report.ledger} == {"not rechecked"}
        assert not report.contradicted
        return
    assert report.contradicted and exit_code(report) == 4
    assert report.verdict is not Verdict.PROVED
    assert any("disagree" in gap.reason for gap in report.gaps)


def test_an_undecided_second_answer_is_no_agreement(
    second: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Ruling("cvc5", "0", "unknown", 0.0)
    monkeypatch.setattr(Second, "decide", lambda self, text: unknown)
    report = recheck(gather(lower(load(CASE))), second)
    assert {entry.outcome for entry in report.ledger} == {"not rechecked"}
    assert not report.contradicted and exit_code(report) == 1


def test_a_twin_that_finds_something_else_is_a_contradiction(second: Second) -> None:
    """Both solvers agree on every question, but folding changed what the check found."""
    questions = gather(lower(load(CASE)))
    assert not recheck(questions, second).contradicted
    for kind, verdict in (("violating", Verdict.VIOLATED), ("repaired", Verdict.UNKNOWN)):
        questions = gather(lower(load(CASE.with_stem(kind))))
        findings = () if kind == "violating" else gather(lower(load(CASE))).plain.findings
        other = replace(questions, plain=replace(questions.plain, findings=findings))
        report = recheck(other, second)
        assert report.contradicted and exit_code(report) == 4
        assert report.verdict is verdict
        assert any("without folding" in gap.reason for gap in report.gaps)
        gap = Gap(Verdict.UNKNOWN, "gave up", "$")
        weak = replace(other, plain=replace(other.plain, gaps=(gap,)))
        assert not recheck(weak, second).contradicted


def test_a_hard_question_ends_undecided() -> None:
    pytest.importorskip("cvc5", reason="the extra 'recheck' is not installed")
    names = ("x", "y", "z")
    ranges = "".join(f"(declare-const {n} Int)(assert (<= 2 {n} 1000000000))" for n in names)
    cubes = "(assert (= (+ (* x x x) (* y y y)) (* z z z)))(check-sat)"
    assert Second(1000).decide(f"(set-logic QF_UFNIA){ranges}{cubes}").answer == "unknown"


def test_without_cvc5_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    with pytest.raises(NoSecondSolver, match=r"pip install 'splitproof\[recheck\]'"):
        Second()


# -- the text of a question ---------------------------------------------------------------------

LOW, HIGH = -3, 5


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (variable("b"), number(-1)),
        (variable("b") * -2, number(3)),
        (quotient(variable("b") * 3 + 1, 4), variable("b")),
        (remainder(variable("b"), 4), number(-1)),
        (remainder(variable("b"), 4), number(3)),
    ],
)
def test_terms_mean_in_smtlib_what_they_mean_here(left: Int, right: Int) -> None:
    """cvc5 finds a model exactly if trying all values does."""
    pytest.importorskip("cvc5", reason="the extra 'recheck' is not installed")
    scope = PlainScope({}, {"b": (LOW, HIGH)})
    terms = [scope.le(left, right), scope.eq(left, right), scope.lt(right, left)]
    for term in [*terms, conj(terms[:2]), disj(terms[1:])]:
        due = any(Values({}, {"b": b}, {}).holds(term) for b in range(LOW, HIGH + 1))
        text = script(Question(term, (), (("b", LOW, HIGH),)))
        assert Second().decide(text).answer == ("sat" if due else "unsat"), text


def test_names_of_a_document_cannot_break_out() -> None:
    pytest.importorskip("cvc5", reason="the extra 'recheck' is not installed")
    evil = 'ids"\n(assert false)|[node1]'
    term = used(evil, number(1))
    text = script(Question(term, (("n", 1, 2),), ()), title="two\nlines")
    assert Second().decide(text).answer == "sat"
    assert [line for line in text.splitlines() if re.match(r"\(assert false", line)] == []


def test_folding_and_not_folding_are_told_apart() -> None:
    questions = gather(lower(load(CASE)))
    forms = [question.unfolded for question, _ in questions.asked]
    assert forms == sorted(forms) and True in forms
    assert len(questions.scripts()) == len(forms)
    assert all(text.startswith("; splitproof ") for _, text in questions.scripts())
