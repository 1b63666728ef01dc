"""The cases of the rules: where they lie, what is expected of them, how far twins are apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = ROOT / "docs" / "rules"

#: What each rule's violating document is due; its repaired twin is due ``proved`` and no finding.
EXPECT: dict[str, dict[str, Any]] = json.loads((HERE / "expect.json").read_text())
#: The same for the further documents, twins included.
EXTRA: dict[str, dict[str, Any]] = json.loads((HERE / "extra" / "expect.json").read_text())


def all_cases() -> dict[str, dict[str, Any]]:
    """Every document by its path below this folder, without suffix, with what is due."""
    cases: dict[str, dict[str, Any]] = {}
    for code, due in EXPECT.items():
        cases[f"{code}/violating"] = {"first": code, **due}
        cases[f"{code}/repaired"] = {"verdict": "proved"} | {k: due[k] for k in due if k == "syncs"}
    return cases | {f"extra/{name}": due for name, due in EXTRA.items()}


def document(name: str) -> dict[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text())  # type: ignore[no-any-return]


def twins() -> list[tuple[str, str, int]]:
    """``(violating, repaired, how many changes lie between)``."""
    found = [
        (f"{code}/violating", f"{code}/repaired", due.get("changes", 1))
        for code, due in EXPECT.items()
    ]
    for name, due in EXTRA.items():
        if "twin" in due:
            found.append((f"extra/{name}", f"extra/{due['twin']}", due.get("changes", 1)))
    return found


def changes(left: Any, right: Any) -> int:
    """How many changes lead from one JSON value to another.

    In objects each key that comes, goes or differs counts by itself.  In a list of objects (the
    program, the nodes) an element that is put in, taken out, moved or altered is one change.  Any
    other list is one value.
    """
    if left == right:
        return 0
    if isinstance(left, dict) and isinstance(right, dict):
        return sum(
            changes(left[key], right[key]) if key in left and key in right else 1
            for key in left.keys() | right.keys()
        )
    if _objects(left) and _objects(right):
        return _list_changes([_text(item) for item in left], [_text(item) for item in right])
    return 1


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _text(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


def _list_changes(left: Sequence[str], right: Sequence[str]) -> int:
    common = (Counter(left) & Counter(right)).total()
    moved = common - _longest_common(left, right)
    return moved + max(len(left), len(right)) - common


def _longest_common(left: Sequence[str], right: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for item in left:
        above = row
        row = [0]
        for j, other in enumerate(right):
            row.append(above[j] + 1 if item == other else max(above[j + 1], row[j]))
    return row[-1]


def program_lines(code: str) -> list[str]:
    """The program of a rule's violating document as it stands in the file, a command a line."""
    lines = (HERE / code / "violating.json").read_text().splitlines()
    start = lines.index('  "program": [')
    return [line.strip() for line in lines[start + 1 : lines.index("  ],", start)]]


def page_diff(code: str) -> list[str]:
    """The lines that differ between the twins, their names aside, and two around them."""
    texts = [
        [line for line in (HERE / code / f"{kind}.json").read_text().splitlines()
         if not line.startswith('  "name": ')]
        for kind in ("violating", "repaired")
    ]  # fmt: skip
    hunks = list(unified_diff(*texts, n=2, lineterm=""))[2:]
    return [line for line in hunks if not line.startswith("@@")]
