"""Operands and parameters that a kernel could not follow are no document."""

from __future__ import annotations

from typing import Any

import pytest
from splitproof.model import document
from splitproof.model.document import DocumentError

Shapes = list[list[int | str]]


def parts(op: str, dst: list[int | str], srcs: Shapes, **more: Any) -> dict[str, Any]:
    """A node ``y``; ``ids``: which source holds integers, ``result``: the type of ``y``."""
    ids, result = more.pop("ids", None), more.pop("result", "f32")
    tensors: dict[str, Any] = {
        f"s{i}": {"dtype": "i32" if i == ids else "f32", "shape": shape, "input": True}
        for i, shape in enumerate(srcs)
    }
    node = {"op": op, "dst": "y", "src": list(tensors), "params": more}
    return {
        "format": "splitproof/1",
        "symbols": {"n": [1, 9]},
        "memories": {"host": {"host": True}},
        "devices": [{"name": "cpu", "memory": "host", "reads": ["host"]}],
        "tensors": {**tensors, "y": {"dtype": result, "shape": dst, "output": True}},
        "nodes": [node],
    }


FIT = [
    parts("cont", [4, "2*n"], [[8, "n"]]),
    parts("cpy", [8], [[2, 4]]),
    parts("swiglu", [4, "n"], [[8, "n"]]),
    parts("geglu", [4, "n"], [[4, "n"], [4, "n"]]),
    parts("soft_max", [8, "n", 4], [[8, "n", 4], [8, "n"], [4]]),
    parts("soft_max", [8, 3, 4], [[8, 3, 4], [8, 64, 2]]),
    parts("add_id", [8, 2, "n"], [[8, 2, "n"], [8, 5], [2, "n"]], ids=2),
    parts("argsort", [8, "n"], [[8, "n"]], result="i32"),
    parts("top_k", [2, "n"], [[8, "n"]], result="i32"),
    parts("set_rows", [4, 64, 2], [[4, "n", 2], ["n"]], ids=1),
    parts("rope", [8, 2, "n"], [[8, 2, "n"], ["n"], [4]], ids=1, n_dims=8),
    parts("rope", [8, 2, "n"], [[8, 2, "n"], ["4*n"]], ids=1, n_dims=6),
    parts("concat", [4, "n + 3"], [[4, "n"], [4, 3]], dim=1),
    parts("concat", [4, 3, 2], [[4, 3, 1], [4, 3, 1]]),
    parts("repeat", [8, "n"], [[4, "n"]]),
    parts("repeat", [8, "n"], [[4, 1]]),
]

UNFIT = [
    (parts("cont", [4096], [[4]]), "the result has 4096 elements, source 0 has 4"),
    (parts("dup", [4, "n"], [[4, 9]]), "the result has 4*n elements, source 0 has 36"),
    (parts("swiglu", [4, "n"], [[4, "n"]]), "[8, n, 1, 1] was due"),
    (parts("geglu", [4], [[4], [2]]), "source 1 has shape [2, 1, 1, 1]"),
    (parts("swiglu_oai", [8], [[4], [4]]), "the result has shape [8, 1, 1, 1]"),
    (parts("soft_max", [8, 4], [[8, 4], [3, 4]]), "rows of 8, and 4 of them, were due"),
    (parts("soft_max", [8, 4], [[8, 4], [8, 2]]), "rows of 8, and 4 of them, were due"),
    (parts("soft_max", [8, 4, 4], [[8, 4, 4], [8, 4, 3]]), "(3) does not divide 4"),
    (parts("soft_max", [8, 4, 4], [[8, 4, 4], [8, 4], [1]]), "source 2 has 1 sinks; 4 were"),
    (parts("add_id", [8, 2, 3], [[8, 2, 3], [4, 5], [2, 3]], ids=2), "rows of source 1 have 4"),
    (parts("add_id", [8, 2, 3], [[8, 2, 3], [8, 5], [1, 1]], ids=2), "[2, 3] were due"),
    (parts("add_id", [8, 2, 3], [[8, 2, 3], [8, 5], [2, 3]]), "source 2 holds ids"),
    (parts("argsort", [8], [[8]]), "it is f32; i32 was due"),
    (parts("top_k", [8], [[4]], result="i32"), "at most 4 of each row"),
    (parts("set_rows", [4, 4], [[8, 2], [2]], ids=1), "rows of [4, 4, 1, 1] were due"),
    (parts("set_rows", [4, 4], [[4, 4], [2]], ids=1), "has 4 rows, source 1 numbers 2"),
    (parts("set_rows", [4, 4, 3], [[4, 4, 3], [4, 2]], ids=1), "(2) does not divide 3"),
    (parts("set_rows", [4, 4], [[4, 2], [2]]), "source 1 holds row numbers"),
    (parts("rope", [8, 2, 3], [[8, 2, 3], [1]], ids=1, n_dims=8), "1 positions for 3 tokens"),
    (parts("rope", [8, 2, 3], [[8, 2, 3], [3]], n_dims=8), "source 1 holds positions"),
    (parts("rope", [8, 2, 3], [[8, 2, 3], [3]], ids=1, n_dims=10), "rows have 8 elements"),
    (parts("rope", [8, 2, 3], [[8, 2, 3], [3]], ids=1, n_dims=7), "n_dims is 7; an even"),
    (parts("rope", [8, 2, 3], [[8, 2, 3], [3]], ids=1, n_dims="8"), "n_dims is '8'; an even"),
    (parts("rope", [8, 2, 3], [[8, 2, 3], [3], [3]], ids=1, n_dims=8), "3 divisors for 4 pairs"),
    (parts("concat", [8], [[4], [4]], dim=4), "the parameter dim is 4; 0 to 3 was due"),
    (parts("concat", [8, 3], [[4, 2], [4, 3]], dim=0), "put together along dimension 0"),
    (parts("concat", [4, 8], [[4, 4], [4, 4]], dim=0), "put together along dimension 0"),
    (parts("concat", [9], [[4], [4]]), "put together along one dimension"),
    (parts("repeat", [7], [[4]]), "(4) does not divide 7"),
    (parts("repeat", [8, "n"], [[4, 2]]), "(2) does not divide n"),
]  # fmt: skip


@pytest.mark.parametrize(
    "value", FIT, ids=[f"{i}-{v['nodes'][0]['op']}" for i, v in enumerate(FIT)]
)
def test_what_fits_is_read(value: dict[str, Any]) -> None:
    assert document.from_dict(value).graph.nodes[0].dst == "y"


@pytest.mark.parametrize(
    ("value", "words"), UNFIT, ids=[f"{i}-{v['nodes'][0]['op']}" for i, (v, _) in enumerate(UNFIT)]
)
def test_what_does_not_fit_is_refused(value: dict[str, Any], words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        document.from_dict(value)
    assert caught.value.path == "$.nodes[0]" and words in caught.value.message
