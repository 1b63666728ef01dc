"""What a kernel reads past an expert: where the bytes lie, the verdict, and its execution."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from splitproof.exec.replay import fuzz, replay
from splitproof.model.document import from_dict
from splitproof.model.report import Report, Verdict
from splitproof.verify.check import check
from splitproof.verify.explore import explore

RULES = Path(__file__).parent.parent / "rules"
Document = dict[str, Any]
Change = Callable[[Document], object]


def case(code: str) -> Document:
    """The repaired twin of a rule: one that leaves the room that its kernels need."""
    return json.loads((RULES / code / "repaired.json").read_text())  # type: ignore[no-any-return]


def in_place() -> Document:
    """gpu0 reads experts where they lie, in a buffer of weights with 16 bytes after them."""
    return {
        "format": "splitproof/1", "symbols": {}, "memories": {"host": {"host": True}, "v": {}},
        "devices": [
            {"name": "gpu0", "memory": "v", "reads": ["v", "host"], "async": True,
             "copy": "stream", "queues": ["compute", "copy"],
             "over_read": {"mul_mat_id": {"f32": 16}}},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "buffers": {"w": {"memory": "v", "usage": "weights", "bytes": 208}},
        "tensors": {
            "x": {"dtype": "f32", "shape": [4, 1, 1], "input": True},
            "ids": {"dtype": "i32", "shape": [2, 1], "input": True, "values": [0, 4]},
            "w": {"dtype": "f32", "shape": [4, 2, 4], "buffer": "w", "offset": 0},
            "y": {"dtype": "f32", "shape": [2, 2, 1], "output": True},
        },
        "nodes": [{"op": "mul_mat_id", "dst": "y", "src": ["w", "x", "ids"]}],
        "assignment": {"y": "gpu0"},
        "splits": [{"device": "gpu0", "nodes": [0, 1], "inputs": []}],
        "program": [
            {"do": "set_input", "tensor": "x"}, {"do": "set_input", "tensor": "ids"},
            {"do": "compute", "node": "y", "split": 0},
            {"do": "sync_queue", "queue": "gpu0.compute"}, {"do": "get_output", "tensor": "y"},
        ],
        "repeat": 2,
    }  # fmt: skip


def judged(document: Document, change: Change = lambda _: None) -> Report:
    """The verdict, after each fault was executed and what was proved was run and explored."""
    change(document)
    schedule = from_dict(document)
    report = check(schedule)
    for finding in report.findings:
        assert finding.counterexample is not None
        assert replay(schedule, finding.counterexample).reproduced, finding.message
    if report.verdict is Verdict.PROVED:
        at = {name: high for name, _, high in schedule.graph.symbols}
        assert fuzz(schedule, at, runs=20).replay is None
        found = explore(schedule, at)
        assert found.complete and not found.wrong
    return report


def neighbour(dtype: str, offset: int, **more: Any) -> Change:
    """Another tensor in the buffer of the weight."""
    tensor = {"dtype": dtype, "shape": [4], "buffer": "w", "offset": offset, **more}
    return lambda d: d["tensors"].update(n=tensor)


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (lambda d: None, []),
        (lambda d: d["buffers"]["w"].update(bytes=140), ["BK009"]),
        (neighbour("i32", 128), ["BK009"]),
        (neighbour("f32", 128), []),
        (neighbour("i32", 144), []),
        (lambda d: d["devices"][0].update(over_read={"mul_mat_id": {"q8_0": 512}}), []),
    ],
    ids=["room", "buffer ends", "other type", "same type", "out of reach", "other weights"],
)
def test_what_lies_past_the_last_expert(change: Change, rules: list[str]) -> None:
    assert [f.rule for f in judged(in_place(), change).findings] == rules


def test_experts_that_are_not_the_last_have_a_next_one() -> None:
    """Where the range of the ids leaves the last expert out nothing lies past the used ones."""

    def change(document: Document) -> None:
        neighbour("i32", 128)(document)
        document["tensors"]["ids"]["values"] = [0, 3]

    assert judged(in_place(), change).verdict is Verdict.PROVED


def test_a_callback_that_rewrites_the_next_expert_meanwhile() -> None:
    def change(document: Document) -> None:
        document["tensors"]["last"] = {
            "dtype": "f32", "shape": [4, 2], "view_of": "w", "offset": 96,
        }  # fmt: skip
        document["tensors"]["ids"]["values"] = [0, 3]
        document["program"].insert(
            3, {"do": "callback", "name": "user", "reads": [], "writes": ["last"], "split": 0}
        )

    report = judged(in_place(), change)
    assert [f.rule for f in report.findings] == ["CE004"]
    assert "nothing orders them" in report.findings[0].counterexample.missing  # type: ignore[union-attr]


@pytest.mark.parametrize(("padding", "rules"), [(16, []), (12, ["CE004"]), (0, ["CE004"])])
def test_the_padding_of_a_copy_covers_what_is_read(padding: int, rules: list[str]) -> None:
    def change(document: Document) -> None:
        document["program"][4]["padding"] = padding

    assert [f.rule for f in judged(case("CE004"), change).findings] == rules


@pytest.mark.parametrize("offset", [128, 144])
def test_another_tensor_after_a_copy_in_a_compute_buffer(offset: int) -> None:
    """A result in reach of the kernel is nobody's number, even when it is no longer used."""

    def change(document: Document) -> None:
        document["buffers"]["c"] = {"memory": "vram0", "usage": "compute", "bytes": 256}
        document["tensors"]["gpu0#w"] = {
            "dtype": "f32", "shape": [4, 2, 4], "buffer": "c", "offset": 0,
        }  # fmt: skip
        document["tensors"]["gpu0#ids"] = {
            "dtype": "i32", "shape": [2, "n_tokens"], "buffer": "c", "offset": offset,
        }  # fmt: skip

    report = judged(case("CE004"), change)
    assert [f.rule for f in report.findings] == (["BK009"] if offset == 128 else [])


def test_a_result_where_its_own_kernel_reads_past_an_expert() -> None:
    def change(document: Document) -> None:
        document["tensors"]["y"] |= {"buffer": "w", "offset": 128}

    assert [f.rule for f in judged(in_place(), change).findings] == ["BK009"]


def bank(slots: int, stride: int, spare: int = 1) -> Change:
    def change(document: Document) -> None:
        document["banks"]["bank"]["slots"] = slots
        document["buffers"]["bank0"]["bytes"] = 512
        document["tensors"]["bank"] |= {
            "shape": [4, 2, slots + spare], "strides": [4, 16, stride], "offset": 0,
        }  # fmt: skip
        document["tensors"]["scale"]["offset"] = 448

    return change


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (bank(1, 32), []),
        (bank(2, 32), ["BK009"]),
        (bank(2, 44), ["BK009"]),
        (bank(2, 48), []),
        (bank(3, 48, spare=0), []),
    ],
    ids=["one slot and a spare", "a slot that may be empty", "too little room", "room", "no spare"],
)
def test_slots_that_leave_room_or_not(change: Change, rules: list[str]) -> None:
    assert [f.rule for f in judged(case("BK009"), change).findings] == rules


def test_an_assumption_is_told() -> None:
    assert any("past a tensor" in line for line in judged(case("CE004")).assumptions)
