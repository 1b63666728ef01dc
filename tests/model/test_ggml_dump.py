"""Reading recorded ggml graphs: what becomes of each key, and what a wrong one is called."""

from __future__ import annotations

import copy
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.device import Buffer, Contract, Memory, Usage
from splitproof.model.document import from_dict, to_dict
from splitproof.model.plan.lower import lower
from splitproof.model.read.ggml_dump import DumpError, read_dump, read_recorded
from splitproof.model.symbol import Expr


def row(name: str, op: str, ne: list[int], src: list[int | None], **keys: Any) -> dict[str, Any]:
    kind = keys.pop("type", "f32")
    size = {"f32": 4, "i32": 4, "f16": 2}.get(kind, 0)
    nbytes = keys.pop("nbytes", size * ne[0] * ne[1] * ne[2] * ne[3])
    flags = keys.pop("flags", 16)
    return {
        "name": name, "op": op, "desc": keys.pop("desc", op), "type": kind, "ne": ne,
        "nbytes": nbytes, "flags": flags, "src": src, **keys,
    }  # fmt: skip


def small() -> dict[str, Any]:
    """A router and an expert product: 6 experts, 2 of them per token, 3 tokens."""
    tensors = [
        row(
            "w", "NONE", [256, 8, 6, 1], [], type="q4_K", nbytes=144 * 48, flags=0, buf=1, usage="w"
        ),
        row("logits", "NONE", [6, 3, 1, 1], [], flags=1),
        row("x", "NONE", [256, 1, 3, 1], [], flags=1),
        row("kv", "NONE", [8, 64, 1, 1], [], type="f16", flags=0, buf=0, usage="any"),
        row("where", "NONE", [6, 1, 1, 1], [], type="i32", flags=1),
        row("topk", "ARGSORT", [6, 3, 1, 1], [1], type="i32"),
        row("topk", "VIEW", [2, 3, 1, 1], [5], type="i32", nbytes=56, view_of=5),
        row("y", "MUL_MAT_ID", [8, 2, 3, 1], [0, 2, 6]),
        row("y", "RESHAPE", [8, 6, 1, 1], [7], view_of=7),
        row("kv (view)", "SET_ROWS", [8, 64, 1, 1], [8, 4, 3], type="f16", view_of=3),
        row("gate", "UNARY", [8, 6, 1, 1], [8], desc="SILU"),
        row("out", "GLU", [4, 6, 1, 1], [10], desc="SWIGLU", flags=18, pin=1),
    ]
    return {
        "op_offload": 0,
        "n_copies": 1,
        "tensors": tensors,
        "nodes": [5, 6, 7, 8, 9, 10, 11],
        "leafs": [0, 1, 2, 3, 4],
        "backends": [
            {"name": "GPU.0", "buft": 0, "supports": "1" * 12, "offload": "000000010000"},
            {"name": "CPU", "buft": 1, "supports": "1" * 11 + "0", "offload": "0" * 12},
        ],
        "bufts": [
            {"name": "GPU", "host": 0, "supported_by": "10"},
            {"name": "RAM", "host": 1, "supported_by": "01"},
        ],
        "result": {
            "backend": [1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1],
            "cause": [""] * 12,
            "splits": [
                {"backend": 1, "start": 0, "end": 2, "inputs": []},
                {"backend": 0, "start": 2, "end": 6, "inputs": [2, 6, 0, 4]},
                {"backend": 1, "start": 6, "end": 7, "inputs": [10]},
            ],
        },
        "a key of somebody else": {"x": 1},
    }


def lines(*graphs: dict[str, Any]) -> list[str]:
    return [json.dumps(graph) for graph in graphs]


def test_the_whole_graph() -> None:
    (schedule,) = read_dump(lines(small()))
    graph = schedule.graph
    assert schedule.level == "split"
    assert graph.op_offload is False
    assert graph.memories == (Memory("GPU"), Memory("RAM", host=True))
    gpu, cpu = graph.devices
    assert (gpu.name, gpu.memory, gpu.reads, gpu.asynchronous) == ("GPU.0", "GPU", ("GPU",), True)
    assert gpu.contract("RAM", "GPU") is Contract.STREAM
    assert (cpu.name, cpu.memory, cpu.reads, cpu.asynchronous) == ("CPU", "RAM", ("RAM",), False)
    assert gpu.events and not cpu.events and gpu.waits_for is None
    assert graph.buffers == (
        Buffer("weights:RAM", "RAM", Usage.WEIGHTS, 144 * 48),
        Buffer("any:GPU", "GPU", Usage.ANY, 1024),
    )
    assert [n.op for n in graph.nodes] == [
        "argsort", "view", "mul_mat_id", "reshape", "set_rows", "silu", "swiglu",
    ]  # fmt: skip
    assert graph.node("y").src == ("w", "x", "topk@6")
    assert graph.node("y").wanted_by == ("GPU.0",)
    assert graph.node("out").supported_by == ("GPU.0",)
    assert graph.tensor("out").pin == "CPU"
    assert [t.name for t in graph.tensors if t.input] == ["logits", "x", "where"]
    assert [t.name for t in graph.tensors if t.output] == ["out"]
    assert graph.tensor("w").dtype == "q4_k"
    assert graph.tensor("w").shape == tuple(map(Expr.of, (256, 8, 6)))
    assert [(s.device, s.start, s.end, s.inputs) for s in schedule.splits or ()] == [
        ("CPU", 0, 2, ()),
        ("GPU.0", 2, 6, ("x", "topk@6", "w", "where")),
        ("CPU", 6, 7, ("gate",)),
    ]
    assert schedule.device_of("y@8") == "GPU.0" and schedule.device_of("w") == "CPU"
    assert from_dict(to_dict(schedule)) == schedule
    assert [c.do for c in lower(schedule).program or ()].count("compute") == 5


def test_views_are_exact_where_the_op_or_the_recording_says_so() -> None:
    graph = read_dump(lines(small()))[0].graph
    assert graph.tensor("topk@6").about and graph.tensor("topk@6").view_of == "topk"
    for name, base in (("y@8", "y"), ("kv (view)", "kv")):
        view = graph.tensor(name)
        assert (view.about, view.view_of, view.offset, view.packed) == (False, base, Expr(), True)

    document = small()
    document["tensors"][6] |= {"nb": [4, 24, 72, 72], "view_offs": 8, "nbytes": 56}
    view = read_dump(lines(document))[0].graph.tensor("topk@6")
    assert not view.about
    assert view.offset == Expr.of(8) and view.strides == (Expr.of(4), Expr.of(24))


def test_a_reshape_of_what_is_not_known_is_not_known() -> None:
    document = small()
    document["tensors"][8] |= {"src": [6], "view_of": 5, "ne": [6, 1, 1, 1], "nbytes": 24,
                               "type": "i32"}  # fmt: skip
    document["tensors"][9]["src"] = [7, 4, 3]
    document["tensors"][10]["src"] = [7]
    document["tensors"][10]["ne"] = [8, 2, 3, 1]
    assert read_dump(lines(document))[0].graph.tensor("y@8").about


def test_a_reshape_follows_its_source_only_where_that_is_dense_and_of_the_same_base() -> None:
    document = small()
    # y turned around densely: the same bytes, but not in the order of a reshape.
    turned = row("turned", "TRANSPOSE", [6, 8, 1, 1], [7], nb=[32, 4, 192, 192])
    document["tensors"][10] |= turned | {"view_of": 7, "view_offs": 0}
    document["tensors"][11] |= {"op": "RESHAPE", "ne": [48, 1, 1, 1], "nbytes": 192, "src": [10],
                                "view_of": 7}  # fmt: skip
    assert read_dump(lines(document))[0].graph.tensor("out").about
    del document["tensors"][10]["nb"], document["tensors"][10]["view_offs"]
    document["tensors"][10] |= {"op": "RESHAPE"}
    assert not read_dump(lines(document))[0].graph.tensor("out").about
    # A source of the same size in other bytes tells nothing, and is no source of this reshape.
    document["tensors"][10] |= {"op": "SCALE", "ne": [8, 6, 1, 1], "src": [8]}
    del document["tensors"][10]["view_of"]
    ((recorded, _),) = read_recorded(lines(document))
    assert recorded.graph.tensor("out").about
    with pytest.raises(DumpError, match='it is a view of "y", its source of "turned"'):
        read_dump(lines(document))


def test_ranges_of_ids() -> None:
    graph = read_dump(lines(small()))[0].graph
    assert {t.name: t.values for t in graph.tensors if t.values} == {
        "topk": (0, 6), "topk@6": (0, 6), "where": (0, 64),
    }  # fmt: skip
    # What is written over has no range any more, nor have its views.
    document = small()
    document["tensors"][9] |= {"src": [4, 4, 5], "view_of": 5, "type": "i32", "ne": [6, 3, 1, 1],
                               "nbytes": 72}  # fmt: skip
    tensors = read_dump(lines(document))[0].graph.tensors
    assert {t.name: t.values for t in tensors if t.values} == {"where": (0, 3)}


def test_empty_source_slots_and_casts() -> None:
    document = small()
    document["tensors"][11] |= {"op": "SOFT_MAX", "src": [10, None, 10], "ne": [8, 6, 1, 1],
                                "nbytes": 192}  # fmt: skip
    node = read_dump(lines(document))[0].graph.node("out")
    assert node.src == ("gate", "gate") and node.param("src_slot") == (0, 2)
    document["tensors"][11] |= {"src": [10, 10], "src_slot": [0, 2]}
    assert read_dump(lines(document))[0].graph.node("out") == node
    # ggml_cast names its own result as the second source.
    document["tensors"][11] |= {"op": "CPY", "src": [10, 11]}
    del document["tensors"][11]["src_slot"]
    node = read_dump(lines(document))[0].graph.node("out")
    assert node.src == ("gate",) and node.param("src_slot") is None


def test_a_result_of_another_shape_than_its_op_gives_is_known_by_its_size_only() -> None:
    document = small()
    document["tensors"][10] |= {"ne": [8, 5, 1, 1], "nbytes": 160}
    schedule = read_dump(lines(document))[0]
    tensor = schedule.graph.tensor("gate")
    assert (tensor.about, tensor.bytes, tensor.shape) == (True, 160, ())
    assert from_dict(to_dict(schedule)) == schedule


def test_names_stay_unique() -> None:
    document = small()
    document["tensors"][1]["name"] = "topk@6"
    document["tensors"][2]["name"] = ""
    schedule = read_dump(lines(document))[0]
    names = [t.name for t in schedule.graph.tensors]
    assert names[1:3] == ["topk@6", "@2"] and names[6] == "topk@6@6"
    assert len(set(names)) == len(names)


def test_sources_of_a_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(lines(small(), small())) + "\n\n"
    plain, packed = tmp_path / "dump.jsonl", tmp_path / "named-as-it-likes"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    first = read_dump(plain)
    assert [s.name for s in first] == ["dump.jsonl, graph 1", "dump.jsonl, graph 2"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    for other in (read_dump(str(packed)), read_dump("-"), read_dump(lines(small(), small()))):
        assert [s.graph for s in other] == [s.graph for s in first]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The small graph with one value replaced, or removed (``...``)."""
    document = copy.deepcopy(small())
    *parents, last = [int(k) if k.isdigit() else k for k in path.split(".")]
    at: Any = document
    for key in parents:
        at = at[key]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "key", "message"),
    [
        ("nodes", ..., "$", "missing required field `nodes`"),
        ("tensors.3.ne", ..., "$.tensors[3]", "missing required field `ne`"),
        ("tensors.3.usage", ..., "$.tensors[3]", "`usage` is missing"),
        ("tensors.3.usage", "v", "$.tensors[3].usage", "Invalid enum value 'v'"),
        ("tensors.3.flags", "1", "$.tensors[3].flags", "Expected `int`, got `str`"),
        ("tensors.3.ne", [8, -1], "$.tensors[3].ne[1]", ">= 0"),
        ("tensors.3.type", "q9_Z", "$.tensors[3].type", "unknown dtype"),
        ("tensors.3.nbytes", 7, "$.tensors[3].nbytes", "has 1024 bytes"),
        ("tensors.0.ne", [100, 8, 6, 1], "$.tensors[0].ne", "multiple of 256"),
        ("tensors.7.op", "MUL_MAT_IDS", "$.tensors[7].op", 'did you mean "mul_mat_id"?'),
        ("tensors.10.desc", "SILUU", "$.tensors[10].desc", 'did you mean "silu"?'),
        ("tensors.10.desc", ..., "$.tensors[10]", "`desc` is missing"),
        ("tensors.7.src.2", 12, "$.tensors[7].src[2]", "there is no tensor 12; there are 12"),
        ("tensors.7.src.1", 10, "$.nodes[2]", "'y' reads 'gate', which comes no earlier"),
        ("tensors.6.view_of", 12, "$.tensors[6].view_of", "there is no tensor 12"),
        ("tensors.6.view_of", 6, "$.tensors[6].view_of", "a view of itself"),
        ("tensors.3.buf", 2, "$.tensors[3].buf", "there is no buffer type 2"),
        ("tensors.11.pin", 2, "$.tensors[11].pin", "there is no backend 2"),
        ("nodes.1", 99, "$.nodes[1]", "there is no tensor 99"),
        ("nodes.1", 5, "$.nodes", "stands here twice"),
        ("leafs.1", 99, "$.leafs[1]", "there is no tensor 99"),
        ("backends.0.buft", 9, "$.backends[0].buft", "there is no buffer type 9"),
        ("backends.0.supports", "1", "$.backends[0].supports", "12 characters 0 or 1"),
        ("backends.1.offload", "2" * 12, "$.backends[1].offload", "12 characters 0 or 1"),
        ("bufts.0.supported_by", "1", "$.bufts[0].supported_by", "2 characters 0 or 1"),
        ("result.backend", [0], "$.result.backend", "1 entries; 12 were due"),
        ("result.backend.4", 2, "$.result.backend[4]", "there is no backend 2"),
        ("result.splits.1.backend", 2, "$.result.splits[1].backend", "there is no backend 2"),
        ("result.splits.2.end", 8, "$.result.splits[2]", "nodes 6 to 8 of a graph of 7 nodes"),
        ("result.splits.1.inputs.0", 50, "$.result.splits[1].inputs[0]", "no tensor 50"),
        ("n_copies", 2**63, "$.n_copies", "<= 9223372036854775807"),
        ("tensors.5.params", {"x": {"y": 1}}, "$.tensors[5].params[...]", "got `object`"),
        ("tensors.5.params", {"src_slot": [9]}, "$.tensors[5].params", "stands beside `src`"),
        ("tensors.7.src", [], "$", "wrong at $.nodes[2]: mul_mat_id has 3 source(s), not 0"),
        ("backends.0.name", "host", "$", 'wrong at $.devices[0].name: a device is not called "ho'),
    ],
)
def test_errors_name_line_and_key(path: str, value: Any, key: str, message: str) -> None:
    with pytest.raises(DumpError) as caught:
        read_dump(lines(small(), changed(path, value)))
    error = caught.value
    assert (error.source, error.line, error.path) == ("<lines>", 2, key)
    assert message in error.message
    assert "\n" not in str(error) and str(error).startswith(f"<lines>:2:1: {key}: ")


def test_a_view_beyond_its_base_and_too_few_strides() -> None:
    document = small()
    document["tensors"][6] |= {"nb": [4, 24, 72, 72], "view_offs": 20}
    with pytest.raises(DumpError, match="56 bytes from 20 in a base of 72"):
        read_dump(lines(document))
    document["tensors"][6] |= {"nb": [4], "view_offs": 0}
    with pytest.raises(DumpError, match="1 strides for 2 sizes"):
        read_dump(lines(document))
    document["tensors"][6] |= {"buf": 0, "usage": "c"}
    with pytest.raises(DumpError, match="a view is placed and its base is not"):
        read_dump(lines(document))


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"", "{name}:1:1: $: ", "no graph in it"),
        (b"\n \n", "{name}:1:1: $: ", "no graph in it"),
        (b"x" * 10_000_000, "{name}:1:1: $: ", "not JSON"),
        (b"\xff\xfe{}", "{name}:1:1: $: ", "not JSON"),
        (b"[1, 2]\n", "{name}:1:1: $: ", "Expected `object`, got `array`"),
        (b"[" * 100_000, "{name}:1:1: $: ", "not JSON|Expected `object`|too deeply"),
        (b"\x1f\x8bnonsense", "{name}: $: ", "gzip"),
    ],
    ids=["empty", "blank", "garbage", "not-text", "no-object", "deep", "no-gzip"],
)
def test_files_that_are_no_dump(tmp_path: Path, data: bytes, place: str, message: str) -> None:
    file = tmp_path / "dump.jsonl"
    file.write_bytes(data)
    with pytest.raises(DumpError, match=message) as caught:
        read_dump(file)
    assert str(caught.value).startswith(place.format(name=file))


def test_a_dump_that_is_cut_off(tmp_path: Path) -> None:
    text = "\n".join(lines(small(), small()))
    file = tmp_path / "cut.jsonl"
    file.write_text(text[: len(text) - 200])
    with pytest.raises(DumpError, match="not JSON") as caught:
        read_dump(file)
    assert caught.value.line == 2
    file.write_bytes(gzip.compress(text.encode())[:-40])
    with pytest.raises(DumpError, match="cut off or damaged"):
        read_dump(file)


def test_a_directory_and_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(DumpError, match="cannot be read") as caught:
            read_dump(path)
        assert caught.value.source == str(path)
