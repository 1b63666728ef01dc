"""Graphs that llama.cpp built and ggml's scheduler split, held against the raw recordings.

What is due is read from the JSON lines here, without the importer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.command import Compute, Copy
from splitproof.model.document import dumps, from_dict, to_dict
from splitproof.model.plan.lower import lower
from splitproof.model.read.ggml_dump import read_dump
from splitproof.model.schedule import Schedule

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
DATA = ROOT.parent / "shared" / "data"
RECORDED = sorted((DATA / "ggml-graphs").glob("*.jsonl.gz"))
RANDOM = [path for path in RECORDED if path.name.startswith("random")]
MODELS = [path for path in RECORDED if path not in RANDOM]
NANO = sorted((DATA / "nano" / "graphs").glob("*.jsonl.gz"))
SHIPPED = sorted(EXAMPLES.glob("*.jsonl.gz"))
REAL = [*SHIPPED, *MODELS, *NANO]

VIEW_OPS = {"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}

Graphs = list[tuple[dict[str, Any], Schedule, Schedule]]


def _each(files: list[Path]) -> pytest.MarkDecorator:
    # One import per file: tests are grouped by the file that they share.
    return pytest.mark.parametrize(
        "graphs", files, indirect=True, scope="module", ids=lambda path: path.name
    )


each_file = _each([*REAL, *RANDOM])
each_real_file = _each(REAL)


@pytest.fixture(scope="module")
def graphs(request: pytest.FixtureRequest) -> Graphs:
    """Raw graph, its import, and that lowered, of each line of a file."""
    raw = _lines(request.param)
    schedules = read_dump(request.param)
    assert len(raw) == len(schedules) > 0
    return [(r, s, lower(s)) for r, s in zip(raw, schedules, strict=True)]


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def bufts_of(raw: dict[str, Any], i: int) -> list[int]:
    """Where a tensor's bytes may be: its (base's) buffer, else its own or its base's backend."""
    tensor = raw["tensors"][i]
    base = tensor.get("view_of", i)
    buf = raw["tensors"][base].get("buf")
    if buf is not None:
        return [buf]
    backends = [raw["result"]["backend"][j] for j in (i, base)]
    return [raw["backends"][b]["buft"] for b in backends if b >= 0]


def readable(raw: dict[str, Any], i: int, backend: int) -> bool:
    bufts = bufts_of(raw, i)
    return bool(bufts) and all(raw["bufts"][b]["supported_by"][backend] == "1" for b in bufts)


def reads(raw: dict[str, Any], split: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """``(node, source)`` of what a split runs, as indices of tensors."""
    for node in raw["nodes"][split["start"] : split["end"]]:
        if raw["tensors"][node]["op"] not in VIEW_OPS:
            for source in raw["tensors"][node]["src"]:
                if source != node:
                    yield node, source


def test_all_recordings_are_here() -> None:
    if not DATA.is_dir():
        pytest.skip("the recorded graphs (../shared/data) are not beside this checkout")
    counts = [sum(len(_lines(path)) for path in files) for files in (MODELS, NANO, RANDOM)]
    assert counts == [264, 72, 400]


@each_file
def test_counts_names_and_devices(graphs: Graphs) -> None:
    for raw, schedule, _ in graphs:
        tensors, graph = raw["tensors"], schedule.graph
        names = [t.name for t in graph.tensors]
        assert len(set(names)) == len(names) == len(tensors)
        assert all(n.startswith(t["name"]) for n, t in zip(names, tensors, strict=True))
        assert [n.dst for n in graph.nodes] == [names[i] for i in raw["nodes"]]
        results = {n.dst for n in graph.nodes}
        assert {names[i] for i in raw["leafs"]} <= set(names) - results
        assert [d.name for d in graph.devices] == [b["name"] for b in raw["backends"]]
        assert {m.name: m.host for m in graph.memories} == {
            b["name"]: bool(b["host"]) for b in raw["bufts"]
        }
        devices = [b["name"] for b in raw["backends"]]
        assert dict(schedule.assignment) == {
            names[i]: devices[b] for i, b in enumerate(raw["result"]["backend"]) if b >= 0
        }
        assert [(s.device, s.start, s.end, list(s.inputs)) for s in schedule.splits or ()] == [
            (devices[s["backend"]], s["start"], s["end"], [names[i] for i in s["inputs"]])
            for s in raw["result"]["splits"]
        ]
        assert graph.devices[-1].asynchronous is False


@each_file
def test_tensors_and_bits(graphs: Graphs) -> None:
    for raw, schedule, _ in graphs:
        graph = schedule.graph
        names = [t.name for t in graph.tensors]
        for i, (tensor, row) in enumerate(zip(graph.tensors, raw["tensors"], strict=True)):
            assert tensor.dtype == row["type"].lower()
            assert (tensor.input, tensor.output) == (bool(row["flags"] & 1), bool(row["flags"] & 2))
            assert tensor.view_of == (names[row["view_of"]] if "view_of" in row else None)
            assert tensor.about or tensor.extent.value({}) == row["nbytes"]
            if tensor.shape:
                assert [size.value({}) for size in tensor.ne] == row["ne"]
            where = schedule.location(tensor.name)
            if "buf" in row:
                assert where.memory == raw["bufts"][row["buf"]]["name"]
                assert where.usage == {"w": "weights", "c": "compute", "any": "any"}[row["usage"]]
            node = graph.find_node(tensor.name)
            if node is not None:
                for bits, listed in (("supports", node.supported_by), ("offload", node.wanted_by)):
                    due = [b["name"] for b in raw["backends"] if b[bits][i] == "1"]
                    assert list(listed or ()) == due


@each_file
def test_placed_tensors_share_no_bytes(graphs: Graphs) -> None:
    for _, schedule, _ in graphs:
        ends = {b.name: 0 for b in schedule.graph.buffers}
        for tensor in schedule.graph.tensors:
            if tensor.buffer is not None and tensor.offset is not None:
                start = tensor.offset.value({})
                assert start >= ends[tensor.buffer] and start % 32 == 0
                ends[tensor.buffer] = start + tensor.extent.value({})
        assert all(ends[b.name] <= b.bytes for b in schedule.graph.buffers)


@each_real_file
def test_a_source_in_another_memory_is_copied_for_its_device(graphs: Graphs) -> None:
    """ggml lists an input once per device; later splits of the device share the copy."""
    for raw, _, _ in graphs:
        copied: set[tuple[int, int]] = set()
        for split in raw["result"]["splits"]:
            copied |= {(split["backend"], i) for i in split["inputs"]}
            for node, source in reads(raw, split):
                key = split["backend"], source
                assert readable(raw, source, split["backend"]) or key in copied, (node, source)


@each_real_file
def test_lowered_computes_read_what_their_device_can(graphs: Graphs) -> None:
    for raw, _, lowered in graphs:
        graph = lowered.graph
        names = [t.name for t in graph.tensors]
        filled: set[str] = set()
        computed = []
        for command in lowered.program or ():
            if isinstance(command, Copy):
                filled.add(command.dst)
            if isinstance(command, Compute):
                computed.append(command.node)
                device = graph.device(lowered.compute_device(command) or "")
                for i in range(len(graph.node(command.node).src)):
                    read = lowered.bound(command, i)
                    assert lowered.location(read).memory in device.reads
                    assert graph.find_tensor(read) is not None or read in filled
        assert computed == [
            names[i] for i in raw["nodes"] if raw["tensors"][i]["op"] not in VIEW_OPS
        ]


@each_real_file
def test_copies_are_those_of_the_recording(graphs: Graphs) -> None:
    for raw, schedule, lowered in graphs:
        names = [t.name for t in schedule.graph.tensors]
        copies = [c for c in lowered.program or () if isinstance(c, Copy)]
        for k, split in enumerate(raw["result"]["splits"]):
            host_weights = [
                i
                for i in split["inputs"]
                if raw["tensors"][i].get("usage") == "w"
                and raw["bufts"][raw["tensors"][i]["buf"]]["host"]
            ]
            others = [i for i in split["inputs"] if i not in host_weights]
            assert [c.src for c in copies if c.split == k] == [
                names[i] for i in others + host_weights
            ]


@each_real_file
def test_ids_of_expert_products_have_the_range_of_the_experts(graphs: Graphs) -> None:
    for _, schedule, _ in graphs:
        for node in schedule.graph.nodes:
            if node.op == "mul_mat_id":
                experts = schedule.graph.tensor(node.src[0]).ne[2].value({})
                assert schedule.graph.tensor(node.src[2]).values == (0, experts)
                assert schedule.graph.base(node.src[2]).values == (0, experts)


@each_real_file
def test_no_shape_of_a_real_graph_is_doubted(graphs: Graphs) -> None:
    for raw, schedule, _ in graphs:
        for tensor, row in zip(schedule.graph.tensors, raw["tensors"], strict=True):
            assert tensor.bytes is None and tensor.shape
            assert not (tensor.about and "nb" in row)
            assert not tensor.about or tensor.view_of is not None


@each_file
def test_documents_come_back(graphs: Graphs) -> None:
    for _, schedule, _ in graphs[:40]:
        assert from_dict(to_dict(schedule)) == schedule
    lowered = graphs[0][2]
    assert from_dict(to_dict(lowered)) == lowered


@pytest.mark.parametrize(("line", "name", "travel"), [(0, "prompt", 6), (1, "decode", 0)])
def test_shipped_documents_are_their_import(line: int, name: str, travel: int) -> None:
    schedule = read_dump(EXAMPLES / "llama-olmoe-nano.jsonl.gz")[line]
    file = EXAMPLES / f"llama-olmoe-{name}.json"
    assert file.read_text() == dumps(schedule)
    copied = [i for split in schedule.splits or () for i in split.inputs]
    assert sum("_exps.weight" in i for i in copied) == travel
