"""What a callback writes is not fetched before it was called."""

from __future__ import annotations

from typing import Any

import pytest
from splitproof.model.document import from_dict
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.prefetch import ahead
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check


def three_splits(writes: list[str] | None) -> Schedule:
    """The device, the CPU, and the device again with a weight and what the CPU was given; a
    callback before the last split."""
    names: dict[str, dict[str, Any]] = {
        "x": {"input": True}, "a": {}, "b": {}, "c": {"output": True},
        "w": {"buffer": "weights", "offset": 0},
    }  # fmt: skip
    call = {"name": "user", "reads": [], **({} if writes is None else {"writes": writes})}
    return from_dict({
        "format": "splitproof/1",
        "memories": {"host": {"host": True}, "v0": {}},
        "buffers": {"weights": {"memory": "host", "usage": "weights", "bytes": 64}},
        "devices": [
            {"name": "gpu0", "memory": "v0", "reads": ["v0"], "async": True, "copy": "stream",
             "queues": ["compute", "copy"]},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "tensors": {n: {"dtype": "f32", "shape": [4], **more} for n, more in names.items()},
        "nodes": [
            {"op": "custom", "dst": "a", "src": ["x"]},
            {"op": "custom", "dst": "b", "src": ["x"]},
            {"op": "custom", "dst": "c", "src": ["a", "b", "w", "x"]},
        ],
        "assignment": {"a": "gpu0", "b": "cpu", "c": "gpu0"},
        "splits": [
            {"device": "gpu0", "nodes": [0, 1], "inputs": ["x"]},
            {"device": "cpu", "nodes": [1, 2], "inputs": []},
            {"device": "gpu0", "nodes": [2, 3], "inputs": ["b", "w", "x"], "callbacks": [call]},
        ],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "writes", "moved"),
    [
        ("one-ahead", [], {"x"}),
        ("one-ahead", ["w"], {"x"}),
        ("one-ahead", ["x"], set()),
        ("one-ahead", ["usage:compute"], set()),
        ("one-ahead", None, set()),
        ("staging", [], {"w"}),
        ("staging", ["x"], {"w"}),
        ("staging", ["w"], set()),
        ("staging", ["usage:weights"], set()),
        ("staging", None, set()),
    ],
)
def test_what_is_fetched_early(policy: str, writes: list[str] | None, moved: set[str]) -> None:
    schedule = three_splits(writes)
    assert {name for _, _, name in ahead(schedule, policy, 1).moves} == moved
    program = lower_as(schedule, Lowering("overlapped", policy, 1)).schedule
    assert check(program).verdict is Verdict.PROVED
