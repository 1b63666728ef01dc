"""Graphs that are built here against those that llama.cpp built for the same models."""

from __future__ import annotations

import re

import pytest
from nano import ARCHITECTURES, model_path, recorded
from splitproof.model.decoder.architectures import build
from splitproof.model.decoder.net import Batch
from splitproof.model.document import digest, from_dict, to_dict
from splitproof.model.graph import Graph, Node
from splitproof.model.read.ggml_dump import read_dump
from splitproof.model.read.gguf import read_gguf

#: The nano models have a context of 128, and llama.cpp makes a cache of 256 cells of it.
CELLS = 256
#: llama.cpp has two tensors of one name for the masks of layers with and without a window.
NAMES = {"attn_inp_kq_mask_swa": "attn_inp_kq_mask"}
#: Parameters that are recorded always, and stand in a graph only where they are not zero.
SILENT = {"max_bias", "offset", "swapped", "glu"}


def plain(name: str) -> str:
    name = re.sub(r"@\d+$", "", name)
    return NAMES.get(name, name)


def operands(graph: Graph, node: Node) -> list[int | str]:
    """Sources as positions of nodes, and leafs by name: what does not hang on names of nodes."""
    return [
        graph.position(name) if graph.find_node(name) is not None else plain(name)
        for name in node.src
    ]


def equal(left: object, right: object) -> bool:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == pytest.approx(right, rel=1e-6)  # recorded with 7 digits
    return left == right


@pytest.mark.parametrize("kind", ["prompt", "decode1"])
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_the_nodes_are_those_of_llama_cpp(model: str, kind: str) -> None:
    """Ops, types, shapes, strides, sources, parameters, views and ranges of ids; in that order."""
    dump = read_dump(recorded("graphs", f"{model}-A-f32.cpu.jsonl.gz"))
    due = next(s for s in dump if kind in s.name).graph
    tokens = 24 if kind == "prompt" else 1
    batch = Batch(tokens, tokens, CELLS, CELLS)
    mine = build(read_gguf(model_path(f"{model}-A-f32")), batch).schedule.graph
    assert [node.op for node in mine.nodes] == [node.op for node in due.nodes]
    for ours, theirs in zip(mine.nodes, due.nodes, strict=True):
        got, want = mine.tensor(ours.dst), due.tensor(theirs.dst)
        assert (got.dtype, got.shape, got.nb) == (want.dtype, want.shape, want.nb), ours
        assert (got.view_of is None, got.values) == (want.view_of is None, want.values), ours
        if got.view_of is not None and want.view_of is not None:
            assert got.offset == want.offset, ours
            assert plain(got.view_of) == plain(want.view_of) or "node_" in want.view_of
        assert operands(mine, ours) == operands(due, theirs), ours
        left, right = dict(ours.params), dict(theirs.params)
        for key in (left.keys() | right.keys()) - SILENT:
            assert equal(left.get(key), right.get(key)), (ours, key)
        # llama.cpp gives a number to what it does not name, and views of that have no base name.
        nameless = re.match(r"node_\d+| ?\((view|reshaped)\)", theirs.dst)
        assert nameless or plain(ours.dst) == plain(theirs.dst)


@pytest.mark.parametrize("model", ["deepseek2x", "gpt-oss"])
def test_a_graph_is_a_document(model: str) -> None:
    schedule = build(
        read_gguf(model_path(f"{model}-A-q4_0")), Batch(4, 1, CELLS, 2 * CELLS)
    ).schedule
    assert digest(from_dict(to_dict(schedule))) == digest(schedule)


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="outputs <= tokens <= cells <= capacity"):
        Batch(tokens=4, outputs=1, cells=3, capacity=256)
