"""The corpus of real incidents: where it lies, what each document is due, and its page.

``python tests/incidents/incident_cases.py`` writes the page anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "incidents.md"

_TABLES: dict[str, dict[str, list[str]]] = json.loads((HERE / "classes.json").read_text())
#: Class of an incident → the rules that name faults of that class.
CLASSES = _TABLES["classes"]
#: Rule → what the checker says in its place until it knows the rule (of a cost: nothing).
#: Taking a row out is what makes the tests ask for the rule itself.
TODAY = _TABLES["today"]

#: Incident → what happened, where it was reported, its classes, what each document is due.
INCIDENTS: dict[str, dict[str, Any]] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("*/expect.json"))
}
#: Incidents that no document can say, and why.
UNSAID: dict[str, dict[str, Any]] = json.loads((HERE / "unsaid.json").read_text())

#: Every document by its path below this folder, without suffix, with what is due.
CASES: dict[str, dict[str, Any]] = {
    f"{incident}/{name}": {"classes": told["classes"], **due}
    for incident, told in INCIDENTS.items()
    for name, due in told["documents"].items()
}


def document(name: str) -> dict[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text())  # type: ignore[no-any-return]


def twins() -> list[tuple[str, str, int]]:
    """``(violating, repaired, how many changes lie between)``."""
    return [
        (name, f"{name.partition('/')[0]}/{due['twin']}", due.get("changes", 1))
        for name, due in CASES.items()
        if "twin" in due
    ]


def page() -> str:
    """The page of the corpus."""
    counts = {kind: sum(_kind(due) == kind for due in CASES.values()) for kind in _KINDS}
    numbers = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    rows = [
        f"| {incident} | {told['happened']} | {_list(told['classes'])} | "
        f"{_list(_rules(told)) or '–'} | {_verdicts(incident, told)} | {_list(told['source'])} |"
        for incident, told in INCIDENTS.items()
    ]
    unsaid = [
        f"| {incident} | {told['happened']} | {_list(told['classes'])} | {told['reason']} | "
        f"{_list(told['source'])} |"
        for incident, told in UNSAID.items()
    ]
    notes = [f"* **{i}**: {told['note']}" for i, told in INCIDENTS.items() if "note" in told]
    today = [f"| {rule} | {_list(said) or 'nothing'} |" for rule, said in TODAY.items()]
    return "\n".join([
        "# Incidents",
        "",
        f"{len(INCIDENTS) + len(UNSAID)} faults and losses of speed that were reported of real "
        f"programs. {len(INCIDENTS)} of them are told by {len(CASES)} small documents ({numbers}) "
        "under `tests/incidents`: what went wrong, the same schedule repaired, and neighbours that "
        "must stay clean. The tests hold each document to its verdict, execute each counterexample "
        "and run what was proved in random orders.",
        "",
        "| incident | what happened | class | rule | documents | source |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "## What stands for what",
        "",
        *notes,
        "",
        "## What no document says",
        "",
        "| incident | what happened | class | why not | source |",
        "|---|---|---|---|---|",
        *unsaid,
        "",
        "## Rules that have another name today",
        "",
        "| rule | what the checker says in its place |",
        "|---|---|",
        *today,
        "",
    ])  # fmt: skip


_KINDS = ("violated", "proved", "proved at a cost")


def _kind(due: dict[str, Any]) -> str:
    return "proved at a cost" if "cost" in due else str(due["verdict"])


def _rules(told: dict[str, Any]) -> list[str]:
    named = [due.get("rule", due.get("cost")) for due in told["documents"].values()]
    return list(dict.fromkeys(rule for rule in named if rule is not None))


def _verdicts(incident: str, told: dict[str, Any]) -> str:
    return "<br>".join(
        f"[{name}](../tests/incidents/{incident}/{name}.json): {_kind(due)}"
        for name, due in told["documents"].items()
    )


def _list(words: list[str]) -> str:
    return ", ".join(words)


if __name__ == "__main__":
    PAGE.write_text(page())
