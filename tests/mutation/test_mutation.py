"""Mutants of proved schedules: the record of their fates, and a sample of it judged again.

``SPLITPROOF_MUTATION=all`` judges every mutant (some ten minutes).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import judge
import pytest
from corpus import corpus
from judge import Bench, Fate, ask_oracles
from matrix import PAGE, page, read_record, rows, word
from operators import OPERATORS, Mutant, mutants
from splitproof.model.document import from_dict
from splitproof.model.report import Verdict
from splitproof.verify.check import check

ALL = os.environ.get("SPLITPROOF_MUTATION") == "all"
#: One in so many mutants is judged again; of the large example one in so many.
STEP, LARGE_STEP = 31, 120
CORPUS = corpus()
RECORD = read_record()


@pytest.mark.parametrize("name", CORPUS)
def test_each_mutant_is_in_the_record(name: str) -> None:
    due = Counter(mutant.operator for mutant in mutants(CORPUS[name]))
    assert {operator: len(words) for operator, words in RECORD[name].items()} == due


def test_the_record_has_no_other_schedules_and_no_fault_of_the_checker() -> None:
    assert list(RECORD) == list(CORPUS)
    fates = Counter(row.fate for row in rows(RECORD))
    assert not fates[Fate.UNSOUND] and not fates[Fate.CONTRADICTED]
    assert fates[Fate.KILLED] > 2 * fates[Fate.EQUIVALENT] > 0


def test_each_operator_is_killed_somewhere() -> None:
    killed = {row.operator for row in rows(RECORD) if row.fate is Fate.KILLED}
    assert killed == set(OPERATORS)


def test_the_page_is_made_from_the_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RECORD)


def _sample() -> list[tuple[str, int, int]]:
    """``(schedule, first, step)``: numbers of the mutants to judge."""
    found = []
    for place, name in enumerate(CORPUS):
        step = 1 if ALL else LARGE_STEP if name == "examples/moe-layer" else STEP
        found.append((name, place * 7 % step, step))
    return found


@pytest.mark.parametrize(("name", "first", "step"), _sample())
def test_fates(name: str, first: int, step: int) -> None:
    bench, seen = Bench(), Counter[str]()
    for number, mutant in enumerate(mutants(CORPUS[name])):
        due = RECORD[name][mutant.operator][seen[mutant.operator]]
        seen[mutant.operator] += 1
        if number % step == first:
            found = bench.judge(mutant)
            assert word(found, mutant.change) == due, mutant.change


# -- the oracles see what they are there for ------------------------------------------------------


def _mutant(name: str, operator: str, number: int) -> dict[str, Any]:
    return [m.document for m in mutants(CORPUS[name], (operator,))][number]


def test_the_oracles_find_a_fault_that_the_checker_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that proves everything: both oracles tell."""
    broken = from_dict(_mutant("examples/pf001-repaired", "drop-sync", 0))
    report = check(broken)
    assert report.verdict is Verdict.VIOLATED
    blind = replace(report, verdict=Verdict.PROVED, findings=())
    monkeypatch.setattr(judge, "check", lambda *_: blind)
    mutant = Mutant("drop-sync", "", _mutant("examples/pf001-repaired", "drop-sync", 0))
    found = Bench().judge(mutant)
    assert found.fate is Fate.UNSOUND and found.detail.startswith("explore")
    monkeypatch.setattr(judge, "STATES", 0)
    found = ask_oracles(broken)
    assert found.fate is Fate.UNSOUND and found.detail.startswith("fuzz")


def test_random_runs_settle_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "STATES", 0)
    found = ask_oracles(from_dict(CORPUS["rules/OR001"]))
    assert found.fate is Fate.UNSETTLED
    assert "no difference in" in found.detail


def test_a_counterexample_that_does_not_reproduce_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = Mutant("drop-sync", "", _mutant("examples/pf001-repaired", "drop-sync", 0))
    assert Bench().judge(mutant).fate is Fate.KILLED
    monkeypatch.setattr(judge, "_refuted", lambda *_: "no difference")
    assert Bench().judge(mutant).fate is Fate.CONTRADICTED


def test_operators_leave_the_document_alone() -> None:
    name = "extra/pp-input-copy-repaired"
    before = corpus()[name]
    found = list(mutants(CORPUS[name]))
    assert CORPUS[name] == before
    assert all(mutant.document != before for mutant in found)
    assert {"shrink-ring", "mix-copy-index"} <= {mutant.operator for mutant in found}
