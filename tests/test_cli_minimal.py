"""``check --syncs`` and ``check --contract`` as a person meets them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import splitproof
from cli_case import BAD, EXAMPLES, GOOD, Run, one_line, run
from splitproof import minimized
from splitproof.api import Shown
from splitproof.model.document import from_dict
from splitproof.model.minimal import Minimal, Need

__all__ = ["run"]  # a fixture

RULES = Path(__file__).parent / "rules"
WASTEFUL = str(RULES / "CO002" / "violating.json")


def test_each_wait_has_a_line(run: Run) -> None:
    code, out, err = run("check", "--syncs", WASTEFUL)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "2 wait for gpu0.compute redundant proved; left out" in words
    assert "4 wait for gpu0.compute needed OR001" in words
    assert "(shown by execution)" in words
    assert "waits: 1 of 2 waits can go together: proved again; a maximum" in words
    assert "CO002 redundant" not in out


def test_redundant_waits_fail_only_when_asked(run: Run) -> None:
    code, out, _ = run("check", "-q", "--syncs", "--strict-cost", WASTEFUL)
    assert code == 1
    assert "CO002 redundant-sync [cost]" in out
    assert run("check", "--strict-cost", WASTEFUL)[0] == 0
    ignored = ("check", "-q", "--syncs", "--strict-cost", "--ignore", "CO002=later", WASTEFUL)
    assert run(*ignored)[0] == 0


def test_the_reduced_document_is_written(run: Run) -> None:
    assert run("check", "-q", "--syncs", "-o", "less.json", WASTEFUL)[0] == 0
    less = splitproof.load("less.json")
    assert less.program is not None and len(less.program) == 5
    code, out, _ = run("check", "-q", "--syncs", "less.json")
    assert code == 0
    assert "none of 1 wait can go" in out


def test_json_has_each_wait_and_the_reduced_document(run: Run) -> None:
    code, out, _ = run("check", "--format", "json", "--syncs", "--contract", WASTEFUL)
    value = json.loads(out)
    assert (code, value["format"]) == (0, "splitproof-minimal/1")
    assert [w["need"] for w in value["syncs"]["waits"]] == ["redundant", "needed"]
    assert value["syncs"]["waits"][1]["failure"]["confirmed"] is True
    assert (value["syncs"]["removed"], value["syncs"]["set"]) == ([2], "maximum")
    assert splitproof.digest(from_dict(value["syncs"]["reduced"])) == value["syncs"]["digest"]
    (row,) = value["contracts"]["rows"]
    assert row["declared"] == "stream"
    assert {t["contract"] for t in row["tried"]} == {"stream", "sync", "staged", "unordered"}
    assert set(row["weakest"]) <= set(row["holds"])
    Path("report.json").write_text(json.dumps(value["report"]), encoding="utf-8")
    assert run("replay", "-q", "report.json")[0] == 0


def test_contracts_in_words(run: Run) -> None:
    code, out, _ = run("check", "--contract", GOOD)
    assert code == 0
    assert "gpu0: weakest copy contract: stream or sync or staged" in out
    assert "(shown by" in out


def test_what_is_violated_is_told_and_not_reduced(run: Run) -> None:
    code, out, err = run("check", "-q", "--syncs", "-o", "less.json", BAD)
    assert code == 1
    assert out.startswith("VIOLATED")
    assert "waits: not tried" in out
    assert "not written" in one_line(err)
    assert not Path("less.json").exists()


def test_several_files(run: Run) -> None:
    code, out, _ = run("check", "--format", "json", "--syncs", GOOD, BAD)
    assert code == 1
    assert [len(entry["syncs"]["waits"]) for entry in json.loads(out)] == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--syncs", "--rule", "OR001", GOOD), "the whole document"),
        (("--contract", "--symbol", "n_tokens=1", GOOD), "the whole document"),
        (("-o", "out.json", GOOD), "--syncs"),
        (("--contract", "-o", "out.json", GOOD), "--syncs"),
        (("--syncs", "-o", "out.json", GOOD, BAD), "one FILE"),
        (("--syncs", "-o", "absent/out.json", GOOD), "no directory"),
        (("--syncs", "--certificate", "c.json", GOOD), "--certificate"),
        (("--syncs", "--effort", "small", GOOD), "not together with --effort"),
        (("--contract", "--smt2", "questions", GOOD), "not together with --smt2"),
        (("--syncs", "-o", "-", GOOD), "a file was due"),
    ],
)
def test_what_does_not_go_together(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("check", *arguments)
    assert (code, out) == (2, "")
    assert said in one_line(err)


def test_time_that_runs_out_leaves_waits_open(run: Run) -> None:
    assert run("check", "-q", "--syncs", "--time-limit", "1e-9", GOOD)[0] == 3


def test_a_wait_that_stays_open_is_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is proved, and of one wait it is not known whether it is needed."""
    right = minimized.minimize_syncs

    def one_open(*given: Any, **options: Any) -> Minimal:
        found = right(*given, **options)
        trials = [replace(t, need=Need.UNDECIDED, reason="planted") for t in found.trials[:1]]
        return replace(found, trials=(*trials, *found.trials[1:]))

    assert run("check", "-q", "--syncs", WASTEFUL)[0] == 0
    monkeypatch.setattr(minimized, "minimize_syncs", one_open)
    assert run("check", "-q", "--syncs", WASTEFUL)[0] == 3
    assert run("check", "-q", "--syncs", "--strict-cost", WASTEFUL)[0] == 1


def test_a_counterexample_that_does_not_reproduce_is_a_contradiction(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimized, "execute_finding", lambda _, finding: Shown(finding, False))
    code, out, _ = run("check", "--syncs", GOOD)
    assert code == 4
    assert "NOT REPRODUCED" in " ".join(out.split())


def test_from_python() -> None:
    found = splitproof.minimize(EXAMPLES / "bk001-repaired.json")
    assert found.removed == (3, 5, 7)
    assert [row.device for row in splitproof.contracts(GOOD).rows] == ["gpu0"]


def test_a_finding_without_an_execution_is_confirmed_by_its_facts(run: Run) -> None:
    """CE006: ids without meaning cannot be executed, so ``replay`` evaluates the rule."""
    bad = str(RULES / "CE006" / "violating.json")
    Path("report.json").write_text(run("check", "--format", "json", bad)[1], encoding="utf-8")
    code, out, _ = run("replay", "-q", "report.json")
    assert code == 1
    assert out.startswith("CONFIRMED  CE006")
