"""With no folding at all every obligation goes to Z3: the verdicts are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.model.report import Report
from splitproof.verify.check import Options, check

CASES = sorted((Path(__file__).parent.parent / "rules").glob("[A-Z]*/*.json"))


def shown(report: Report) -> tuple[str, list[tuple[str, str, tuple[str, ...]]]]:
    found = [(f.rule, f.place, f.also) for f in report.findings]
    return report.verdict, sorted(found)


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_same_verdict(path: Path) -> None:
    schedule = lower(load(path))
    folded = check(schedule)
    plain = check(schedule, Options(fold=False, theorems=False))
    assert shown(plain) == shown(folded)
    assert plain.solved > folded.solved
