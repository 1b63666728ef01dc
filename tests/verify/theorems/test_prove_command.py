"""``splitproof prove``: what it prints and how it exits."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from splitproof.main import invoke
from splitproof.model.theorem import Outcome
from splitproof.verify import theorems


def test_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["prove", "T5", "fill", "--full"]) == 0
    out = capsys.readouterr().out
    assert "PROVED  T5 selective copy" in out and "PROVED  T3 fill" in out
    assert "without it (as a schedule: docs/theorems/t5-other-ids.json)" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["prove", "T5", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["format"] == "splitproof-theorems/1" and report["outcome"] == "proved"
    names = [h["name"] for step in report["theorems"][0]["steps"] for h in step["hypotheses"]]
    assert "same-ids" in names


def test_questions_as_files(tmp_path: Path) -> None:
    assert invoke(["prove", "-q", "T5", "--smt2", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out").glob("T5-*.smt2"))) == 20


def test_an_unknown_theorem(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["prove", "T12"]) == 2
    assert "there are T1, T2" in capsys.readouterr().err


def test_undecided_is_no_proof() -> None:
    assert invoke(["prove", "-q", "T6", "--effort", "10"]) == 3


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.REFUTED, 1), (Outcome.CONTRADICTED, 4), (Outcome.PROVED, 0)]
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, outcome: Outcome, code: int) -> None:
    report = replace(theorems.prove(["T5"]), outcome=outcome)
    monkeypatch.setattr(theorems, "prove", lambda *_, **__: report)
    assert invoke(["prove", "-q", "T5"]) == code


def test_a_recheck_without_cvc5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    assert invoke(["prove", "T5", "--recheck"]) == 2
    assert "splitproof[recheck]" in capsys.readouterr().err
