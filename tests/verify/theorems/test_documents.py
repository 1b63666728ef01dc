"""The schedules that show a dropped hypothesis: found violated, replayed wrong; twins proved."""

from __future__ import annotations

from pathlib import Path

import pytest
import splitproof
from splitproof.model.report import Verdict
from splitproof.verify.theorems import MODULES, theorem

HERE = Path(__file__).parents[3] / "docs" / "theorems"
NAMES = sorted(
    {
        hypothesis.document
        for name in MODULES
        for step in theorem(name).steps
        for hypothesis in step.hypotheses
        if hypothesis.document is not None
    }
)
#: the rule that names the fault first
RULE = {
    "t1-two-ahead": "PF002",
    "t1-without-await": "PF005",
    "t1-without-callback-rule": "PF002",
    "t1-without-target-live": "PF004",
    "t1-without-earlier-awaited": "PF002",
    "t1-without-usage-guard": "PF001",
    "t1-without-views-resolved": "PF002",
    "t1-without-waits-moved": "PF003",
    "t1-without-written-guard": "PF002",
    "t2-without-support": "BK001",
    "t3-other-queue": "BK003",
    "t3-too-few-slots": "BK004",
    "t5-id-out-of-range": "CE006",
    "t4-device-to-device": "PP001",
    "t4-event-not-after-every-split": "PP001",
    "t5-other-ids": "CE002",
    "t6-peer-on-target-queue": "AL001",
    "t6-three-devices": "AL001",
    "t6-without-entry-wait": "AL001",
    "t6-without-target-wait": "AL001",
    "t7-without-i": "OR001",
    "t7-without-ii": "OR003",
    "t7-without-iii": "OR002",
}


def test_a_hypothesis_has_a_document_or_a_reason() -> None:
    for name in MODULES:
        for step in theorem(name).steps:
            for hypothesis in step.hypotheses:
                assert bool(hypothesis.document) != bool(hypothesis.unshown), hypothesis.name


def test_every_document_belongs_to_a_hypothesis() -> None:
    there = {path.stem for path in HERE.glob("*.json")}
    assert there == {name for base in NAMES for name in (base, f"{base}-repaired")}


@pytest.mark.parametrize("name", NAMES)
def test_without_the_hypothesis_it_goes_wrong(name: str) -> None:
    schedule = splitproof.load(HERE / f"{name}.json")
    report = splitproof.check(schedule)
    assert report.verdict is Verdict.VIOLATED
    if name in RULE:
        assert report.failures[0].rule == RULE[name]
    shown = splitproof.replay(report, schedule)
    assert shown and all(each.holds for each in shown)


@pytest.mark.parametrize("name", NAMES)
def test_with_it_it_is_proved(name: str) -> None:
    report = splitproof.check(HERE / f"{name}-repaired.json")
    assert report.verdict is Verdict.PROVED and report.failures == ()


def test_the_page_names_every_hypothesis_and_document() -> None:
    page = (HERE.parent / "theorems.md").read_text(encoding="utf-8")
    for name in MODULES:
        assert f"## {name} " in page
        for step in theorem(name).steps:
            missing = [h.name for h in step.hypotheses if h.name not in page]
            assert missing == [], f"{name}, {step.name}"
    assert [name for name in NAMES if f"theorems/{name}.json" not in page] == []
