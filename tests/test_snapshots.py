"""The text of ten counterexamples, as ``splitproof check`` prints them.

``python tests/test_snapshots.py`` writes the files again; read the difference before you keep it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.text import render, report_items
from splitproof.verify.check import check
from splitproof.verify.rules.table import RULES

HERE = Path(__file__).parent
CODES = (
    "PF001", "PF003", "PF004", "BK002", "BK003", "CE001", "OR001", "OR002", "OR003", "AL001",
)  # fmt: skip


def printed(code: str) -> str:
    schedule = lower(load(HERE / "rules" / code / "violating.json"))
    items = report_items(check(schedule), schedule, source=f"{code}.json", rules=RULES)
    return render(list(items))


@pytest.mark.parametrize("code", CODES)
def test_text(code: str) -> None:
    kept = (HERE / "snapshots" / f"{code}.txt").read_text(encoding="utf-8")
    assert printed(code) == kept
    assert f"1. {code} {RULES[code].slug}" in kept and "missing" in kept


if __name__ == "__main__":
    for name in CODES:
        (HERE / "snapshots" / f"{name}.txt").write_text(printed(name), encoding="utf-8")
