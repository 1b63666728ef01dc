"""The shipped examples: their verdicts, and that no part of the proved layer is there in vain."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import splitproof

DOCS = Path(__file__).parent.parent / "docs"
LAYER: dict[str, Any] = json.loads((DOCS / "examples" / "moe-layer.json").read_text("utf-8"))


def findings(document: dict[str, Any]) -> dict[str, list[str]]:
    """Rule → messages."""
    found: dict[str, list[str]] = {}
    for finding in splitproof.check(document).findings:
        found.setdefault(finding.rule, []).append(finding.message)
    return found


def without(**keys: str) -> dict[str, Any]:
    """The layer without the one command that has these values; the last of several."""
    document = copy.deepcopy(LAYER)
    program = document["program"]
    at = [i for i, c in enumerate(program) if all(c.get(k) == v for k, v in keys.items())]
    del program[at[-1]]
    return document


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("moe-layer", None),
        ("pf001", "PF001"),
        ("pf001-repaired", None),
        ("bk001", "BK001"),
        ("bk001-repaired", None),
    ],
)
def test_verdicts(name: str, first: str | None) -> None:
    report = splitproof.check(DOCS / "examples" / f"{name}.json")
    assert report.verdict == ("violated" if first else "proved")
    assert [f.rule for f in report.findings][:1] == ([first] if first else [])


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ({"do": "fill_bank"}, "BK008"),
        ({"do": "wait", "event": "filled"}, "BK002"),
        ({"do": "wait", "event": "fetched"}, "PF005"),
        ({"do": "copy", "src": "weights"}, "OR003"),
        ({"do": "copy", "src": "moe"}, "OR003"),
        ({"do": "sync_queue"}, "OR001"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else value,
)
def test_each_command_of_the_layer_is_needed(command: dict[str, str], rule: str) -> None:
    assert rule in findings(without(**command))


def test_the_prefetch_of_the_layer_may_not_come_earlier() -> None:
    """It fills bytes that `up` has left: only after the host has waited for their readers."""
    document = copy.deepcopy(LAYER)
    program = document["program"]
    at = next(i for i, c in enumerate(program) if c["do"] == "prefetch")
    program[at - 1], program[at] = program[at], program[at - 1]
    assert "PF004" in findings(document)


def test_the_bank_of_the_layer_may_not_be_smaller() -> None:
    document = copy.deepcopy(LAYER)
    for bank in document["banks"].values():
        bank["slots"] = 7
    document["tensors"]["slot_ids"]["values"] = [0, 7]
    assert "BK004" in findings(document)


def test_the_layer_runs_as_the_reference_at_every_size() -> None:
    from splitproof.exec.compare import compare
    from splitproof.exec.reference import run_reference

    schedule = splitproof.load(DOCS / "examples" / "moe-layer.json")
    certificate = splitproof.certify(splitproof.check(schedule))
    for tokens in (1, 2, 3, 4):
        symbols = {"n_tokens": tokens}
        result = splitproof.run(schedule, certificate=certificate, symbols=symbols)
        compared = compare(result, run_reference(schedule, symbols))
        assert compared.agrees and not compared.undecided
        assert len(compared.differences) == 3
        counted = result.banks["up_bank"]
        assert counted.misses > 0 and result.fallbacks == 0
    assert counted.hits > 0 and counted.evictions > 0


def test_the_recorded_graphs_are_proved() -> None:
    graphs = splitproof.import_dump(DOCS / "examples" / "llama-olmoe.jsonl.gz")
    assert len(graphs) == 3
    report = splitproof.check(graphs[1])
    assert report.verdict == "proved"
    assert report.crossing


def test_the_picture_is_what_the_checker_finds() -> None:
    spec = importlib.util.spec_from_file_location("timeline_picture", DOCS / "timeline.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = (DOCS / "pf001.svg").read_text(encoding="utf-8")
    assert shown == module.picture(), "run: python docs/timeline.py"
