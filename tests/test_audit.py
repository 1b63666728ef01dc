"""What a verdict rests on: the lists, and the page that explains each entry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import splitproof
from cli_case import Run, run
from splitproof.verify.trust import AXIOMS, TRUSTED, UNSOUND

__all__ = ["run"]  # a fixture

DOCS = Path(__file__).parent.parent / "docs"


def test_the_page_explains_each_entry_in_its_section() -> None:
    page = (DOCS / "soundness.md").read_text(encoding="utf-8")
    _, trusted, assumed, proved, violated, undecided = page.split("\n## ")
    sections = {"proved": proved, "violated": violated, "undecided": undecided}
    for section, entries in ((trusted, TRUSTED), (assumed, AXIOMS)):
        for entry in entries:
            assert f"\n* **{entry.name}**" in section, entry.name
            assert entry.effect == ""
    for entry in UNSOUND:
        assert f"\n* **{entry.name}**" in sections[entry.effect], entry.name
    assert page.count("\n* **") == len(TRUSTED) + len(AXIOMS) + len(UNSOUND)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("false-callback", "proved"), ("one-pass", "proved"), ("two-passes", "violated"),
        ("rows-read-whole", "violated"), ("over-read", "unsupported"),
    ],
)  # fmt: skip
def test_verdicts(name: str, verdict: str) -> None:
    assert splitproof.check(DOCS / "soundness" / f"{name}.json").verdict == verdict
    assert f"docs/soundness/{name}.json" in (DOCS / "soundness.md").read_text(encoding="utf-8")


def test_one_and_two_passes_differ_in_nothing_else() -> None:
    one, two = (
        json.loads((DOCS / "soundness" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("one-pass", "two-passes")
    )
    assert one | {"repeat": 2} == two and one["repeat"] == 1


def test_the_command(run: Run) -> None:
    code, text, _ = run("audit")
    assert code == 0
    _, out, _ = run("audit", "--format", "json")
    value = json.loads(out)
    for entry in (*value["trusted"], *value["axioms"], *value["unsound"]):
        assert entry["name"] in text and entry["text"] in text
    assert value["versions"]["splitproof"] == splitproof.__version__
