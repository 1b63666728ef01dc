"""With no folding at all every obligation goes to Z3: the verdicts are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.model.report import Report
from splitproof.verify import obligation
from splitproof.verify.check import check
from splitproof.verify.rules import static
from splitproof.verify.term import Bool, Int, Scope

CASES = sorted((Path(__file__).parent.parent / "rules").glob("[A-Z]*/*.json"))


class PlainScope(Scope):
    """Builds comparisons as they stand."""

    def le(self, left: Int, right: Int) -> Bool:
        return ("le", left - right)

    def eq(self, left: Int, right: Int) -> Bool:
        return ("eq", left - right)


def shown(report: Report) -> tuple[str, list[tuple[str, str, tuple[str, ...]]]]:
    found = [(f.rule, f.place, f.also) for f in report.findings]
    return report.verdict, sorted(found)


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_same_verdict(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = lower(load(path))
    folded = check(schedule)
    monkeypatch.setattr(obligation, "Scope", PlainScope)
    monkeypatch.setattr(static, "Scope", PlainScope)
    plain = check(schedule)
    assert shown(plain) == shown(folded)
    assert plain.solved > folded.solved
