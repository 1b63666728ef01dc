"""What can become of a bank between two fills, held against runs of the policy itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from splitproof.exec.functions import UnsupportedOp
from splitproof.exec.replay import fuzz, replay
from splitproof.model.document import from_dict
from splitproof.model.report import Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check

RULES = Path(__file__).parent.parent / "rules"
Document = dict[str, Any]


def case(code: str, kind: str = "repaired") -> Document:
    return json.loads((RULES / code / f"{kind}.json").read_text())  # type: ignore[no-any-return]


def shown(schedule: Schedule) -> Report:
    """The verdict, each fault of it executed, and a proof tried in random orders."""
    report = check(schedule)
    for finding in report.findings:
        if finding.counterexample is not None:
            assert replay(schedule, finding.counterexample).reproduced, finding.message
    if report.verdict is Verdict.PROVED:
        assert fuzz(schedule, {n: high for n, _, high in schedule.graph.symbols}, runs=40)
    return report


def rewritten(slots: int) -> Document:
    """Two layers share slots; before each pass user code writes the first one's experts anew."""
    document = case("BK011", "violating")
    for bank in document["banks"].values():
        bank["slots"] = slots
    for ids in ("ids0", "ids1", "slots0", "slots1"):
        document["tensors"][ids]["shape"] = [1, 1]
    for result in ("y0", "y1"):
        document["tensors"][result]["shape"] = [2, 1, 1]
    document["program"].insert(
        0, {"do": "callback", "name": "tune", "reads": [], "writes": ["w0"], "split": 0}
    )
    return document


@pytest.mark.parametrize("slots", [1, 2])
def test_a_stale_copy_is_told_only_where_it_can_survive(slots: int) -> None:
    """With one slot the other layer evicts it in each pass; what the state at the start holds of
    the layer is another matter: the first pass finds that."""
    document = rewritten(slots)
    document["repeat"] = 2
    stale = [f for f in shown(from_dict(document)).findings if "stale" in f.message]
    assert [f.rule for f in stale] == ["BK002"]
    later = rewritten(slots)
    later["program"][0]["when"] = "pass == 1"
    found = [f for f in shown(from_dict(later)).findings if "stale" in f.message]
    assert bool(found) == (slots == 2)


@pytest.mark.parametrize("again", [False, True], ids=["one fill", "a fill that finds hits"])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_weight_that_is_written_after_its_fill_is_stale_in_the_slots(
    slots: int, again: bool
) -> None:
    """Also where another layer's fill came before: what it evicts is not what the fill brings."""
    document = rewritten(slots)
    document["repeat"] = 1
    first, second = document["nodes"]
    document["nodes"] = [second, first, first | {"dst": "y2"}]
    document["tensors"]["y2"] = document["tensors"]["y0"]
    document["assignment"]["y2"] = "gpu0"
    for split, nodes in zip(document["splits"], ([0, 2], [2, 3]), strict=True):
        split["nodes"] = nodes
    tune, x, ids0, ids1, copy, fill0, y0, fill1, y1, wait, *outputs = document["program"]
    document["program"] = [
        x, ids0, ids1, copy, fill1 | {"split": 0}, y1 | {"split": 0}, fill0, y0, wait,
        tune | {"split": 1}, *([fill0 | {"split": 1}] if again else []),
        y0 | {"node": "y2", "split": 1}, wait, *outputs, {"do": "get_output", "tensor": "y2"},
    ]  # fmt: skip
    report = shown(from_dict(document))
    assert ["stale" in f.message for f in report.findings if f.rule == "BK002"] == [True]
    document["program"].remove(tune | {"split": 1})
    assert "BK002" not in {f.rule for f in shown(from_dict(document)).findings}


def test_a_fill_without_an_expert_evicts_none() -> None:
    """With one slot, the other layer makes room only if its ids name an expert."""
    document = rewritten(1)
    document["repeat"] = 2
    document["program"][0]["when"] = "pass == 1"
    assert not any("stale" in f.message for f in check(from_dict(document)).findings)
    document["tensors"]["ids1"]["values"] = [-1, 4]
    document["nodes"][1]["params"] = {"negative_ids": True}
    schedule = from_dict(document)
    (stale,) = [f for f in check(schedule).findings if "stale" in f.message]
    assert stale.counterexample is not None
    assert replay(schedule, stale.counterexample).reproduced


def test_a_fill_that_only_finds_hits_may_leave_a_bank_out() -> None:
    """The other way round, claiming first and bringing later, is BK006."""
    document = case("BK006", "violating")
    program = document["program"]
    program[3], program[4] = program[4], program[3]
    assert shown(from_dict(document)).verdict is Verdict.PROVED


def test_ids_that_are_a_view_of_a_computed_tensor_are_the_counterexamples() -> None:
    document = case("BK004", "violating")
    document["tensors"]["logits"] = {"dtype": "f32", "shape": [8, "n_tokens"], "input": True}
    document["tensors"]["order"] = {"dtype": "i32", "shape": [8, "n_tokens"]}
    document["tensors"]["ids"] = {
        "dtype": "i32", "shape": [2, "n_tokens"], "strides": [4, 32], "view_of": "order",
        "offset": 0, "values": [0, 8],
    }  # fmt: skip
    document["nodes"] = [
        {"op": "argsort", "dst": "order", "src": ["logits"]},
        {"op": "view", "dst": "ids", "src": ["order"]},
        *document["nodes"],
    ]
    document["assignment"] |= {"order": "cpu", "ids": "cpu"}
    document["splits"] = [
        {"device": "cpu", "nodes": [0, 2], "inputs": []},
        {"device": "gpu0", "nodes": [2, 3], "inputs": []},
    ]
    document["program"] = [
        {"do": "set_input", "tensor": "x"}, {"do": "set_input", "tensor": "logits"},
        {"do": "compute", "node": "order", "split": 0},
        *({**command, "split": 1} if "split" in command else command
          for command in document["program"][2:]),
    ]  # fmt: skip
    report = shown(from_dict(document))
    assert [f.rule for f in report.findings] == ["BK004"]
    chosen = report.findings[0].counterexample
    assert chosen is not None and "ids" in {name for name, _, _ in chosen.integers}


def test_a_policy_that_is_not_modelled_is_unsupported() -> None:
    document = case("BK002")
    document["banks"]["bank"]["policy"] = "lru-bytes"
    schedule = from_dict(document)
    report = check(schedule)
    assert report.verdict is Verdict.UNSUPPORTED
    assert "lru-bytes" in report.gaps[0].reason
    with pytest.raises(UnsupportedOp, match="lru-bytes"):
        fuzz(schedule, {n: low for n, low, _ in schedule.graph.symbols}, runs=1)


@pytest.mark.parametrize(("slots", "proved"), [(3, True), (2, False)])
def test_a_negative_id_takes_no_slot(slots: int, proved: bool) -> None:
    document = case("BK008")
    document["tensors"]["ids"] |= {"shape": [4, "n_tokens"], "values": [-1, 3]}
    document["tensors"]["slots"]["shape"] = [4, "n_tokens"]
    document["tensors"]["y"]["shape"] = [2, 4, "n_tokens"]
    document["nodes"][1]["params"] = {"negative_ids": True}
    document["banks"]["bank"]["slots"] = slots
    report = shown(from_dict(document))
    assert (report.verdict is Verdict.PROVED) == proved, (report.findings, report.gaps)


def test_a_base_that_is_written_through_views_lies_where_its_writer_runs() -> None:
    document: Document = {
        "format": "splitproof/1", "symbols": {}, "memories": {"host": {"host": True}, "v": {}},
        "devices": [
            {"name": "gpu0", "memory": "v", "reads": ["v"], "async": True, "copy": "stream"},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "buffers": {},
        "tensors": {
            "x": {"dtype": "f32", "shape": [4], "input": True},
            "base": {"dtype": "f32", "shape": [8]},
            "low": {"dtype": "f32", "shape": [4], "view_of": "base", "offset": 0, "output": True},
        },
        "nodes": [{"op": "custom", "dst": "low", "src": ["x"]}],
        "assignment": {"low": "gpu0"},
        "splits": [{"device": "gpu0", "nodes": [0, 1], "inputs": ["x"]}],
        "program": [
            {"do": "set_input", "tensor": "x"},
            {"do": "copy", "src": "x", "dst": "gpu0#x", "queue": "gpu0.compute", "split": 0},
            {"do": "compute", "node": "low", "split": 0},
            {"do": "sync_queue", "queue": "gpu0.compute"},
            {"do": "get_output", "tensor": "low"},
        ],
        "repeat": 2,
    }  # fmt: skip
    schedule = from_dict(document)
    assert schedule.location("base").memory == "v"
    assert shown(schedule).verdict is Verdict.PROVED
