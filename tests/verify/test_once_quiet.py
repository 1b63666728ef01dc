"""Schedules that a checker overlooks easily: each is wrong, and says so.

Most of them once were proved by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from splitproof.model.document import DocumentError, from_dict
from splitproof.model.report import Verdict
from splitproof.verify.check import check
from splitproof.verify.explore import explore

Document = dict[str, Any]


def _f32(*shape: int, **more: Any) -> Document:
    return {"dtype": "f32", "shape": list(shape), **more}


def _i32(*shape: int, **more: Any) -> Document:
    return {"dtype": "i32", "shape": list(shape), **more}


def _empty() -> Document:
    gpu = {
        "name": "gpu0", "memory": "v0", "reads": ["v0", "host"], "async": True, "copy": "stream",
        "queues": ["compute", "copy"],
    }  # fmt: skip
    return {
        "format": "splitproof/1", "memories": {"host": {"host": True}, "v0": {}},
        "devices": [gpu, {"name": "cpu", "memory": "host", "reads": ["host"]}],
        "buffers": {
            "w": {"memory": "host", "usage": "weights", "bytes": 256},
            "b": {"memory": "v0", "usage": "weights", "bytes": 256},
            "c": {"memory": "v0", "usage": "compute", "bytes": 256},
        },
        "tensors": {}, "nodes": [], "assignment": {}, "splits": [], "program": [], "repeat": 2,
    }  # fmt: skip


def _banked(kind: str, layers: int = 1, slots: int = 3, k: int = 1) -> Document:
    """Layers of three experts, ``k`` used by each, in one group of banks."""
    doc = _empty()
    doc["banks"] = {}
    tensors, nodes, program = doc["tensors"], doc["nodes"], doc["program"]
    tensors["x"] = _f32(2, 1, 1, input=True)
    program.append({"do": "set_input", "tensor": "x"})
    for layer in range(layers):
        ids, bank, table = f"ids{layer}", f"b{layer}", f"s{layer}"
        shape = (k, 1) if kind == "slot_ids" else (1, 3)
        tensors |= {
            ids: _i32(k, 1, input=True, values=[0, 3]),
            f"w{layer}": _f32(2, 1, 3, buffer="w", offset=24 * layer),
            bank: _f32(2, 1, slots, buffer="b", offset=0),
            table: _i32(*shape, buffer="c", offset=64 * layer),
            f"o{layer}": _f32(1, k, 1),
        }
        doc["banks"][bank] = {
            "caches": f"w{layer}", "layer": layer, "role": "up", "group": "g", "slots": slots,
            "ids": ids, kind: table,
        }  # fmt: skip
        program.insert(0, {"do": "set_input", "tensor": ids})
        program.append({
            "do": "fill_bank", "banks": [bank], "ids": ids, kind: table, "queue": "gpu0.compute",
            "split": 0,
        })  # fmt: skip
        chosen = table
        if kind == "slot_map":
            tensors[f"r{layer}"] = _i32(1, k, 1)
            chosen = f"v{layer}"
            tensors[chosen] = _i32(k, 1, view_of=f"r{layer}", offset=0)
            nodes.append({"op": "get_rows", "dst": f"r{layer}", "src": [table, ids]})
            nodes.append({"op": "reshape", "dst": chosen, "src": [f"r{layer}"]})
        nodes.append({"op": "mul_mat_id", "dst": f"o{layer}", "src": [bank, "x", chosen]})
    return _finished(doc, [f"o{layer}" for layer in range(layers)])


def _finished(doc: Document, results: list[str]) -> Document:
    """One split of all nodes on gpu0, the computes behind what they need, and an output."""
    shape = doc["tensors"][results[0]]["shape"]
    doc["tensors"]["y"] = {"dtype": "f32", "shape": shape, "output": True}
    doc["nodes"].append({"op": "custom", "dst": "y", "src": results})
    for node in doc["nodes"]:
        doc["assignment"][node["dst"]] = "gpu0"
    doc["splits"] = [{"device": "gpu0", "nodes": [0, len(doc["nodes"])], "inputs": []}]
    for node in doc["nodes"]:
        if node["op"] != "reshape":
            place = len(doc["program"])
            fills = [i for i, c in enumerate(doc["program"]) if c["do"] == "fill_bank"]
            layer = node["dst"][-1]
            if layer.isdigit() and int(layer) + 1 < len(fills):
                place = fills[int(layer) + 1]
            doc["program"].insert(place, {"do": "compute", "node": node["dst"], "split": 0})
    doc["program"].append({"do": "sync_queue", "queue": "gpu0.compute"})
    doc["program"].append({"do": "get_output", "tensor": "y"})
    return doc


def _at(doc: Document, **key: Any) -> int:
    """The place of the first command that has these keys."""
    program: list[Document] = doc["program"]
    return next(i for i, c in enumerate(program) if key.items() <= c.items())


def fill_of_the_last_pass() -> Document:
    doc = _banked("slot_ids")
    doc["program"][_at(doc, do="fill_bank")]["when"] = "pass == 0"
    return doc


def slots_looked_up_with_other_ids() -> Document:
    doc = _banked("slot_map")
    doc["tensors"]["other"] = _i32(1, 1, input=True, values=[0, 3])
    doc["nodes"][0]["src"][1] = "other"
    doc["program"].insert(0, {"do": "set_input", "tensor": "other"})
    return doc


def slots_looked_up_before_the_fill() -> Document:
    """With the ids of the pass before; in between the other layer took the slots."""
    doc = _banked("slot_map", layers=2, slots=2, k=2)
    program = doc["program"]
    fill = _at(doc, do="fill_bank")
    rows = program.pop(_at(doc, node="r0"))
    program[fill:fill] = [{**program[fill], "when": "pass == 0"}, rows]
    for command in program:
        if command.get("tensor") in ("ids0", "ids1"):
            command["when"] = "pass == 0"
    return doc


def bank_read_as_a_plain_tensor() -> Document:
    doc = _banked("slot_ids")
    doc["nodes"][0] = {"op": "custom", "dst": "o0", "src": ["x", "b0"]}
    del doc["program"][_at(doc, do="fill_bank")]
    return doc


def _copied(target: Document, source: str = "x", **node: Any) -> Document:
    doc = _empty()
    doc["tensors"] = {
        "x": _f32(4, input=True), "half": _f32(2, view_of="x", offset=0), "gpu0#x": target,
        "o": _f32(4),
    }  # fmt: skip
    doc["nodes"] = [{"op": "custom", "dst": "o", "src": ["x"], **node}]
    doc["program"] = [
        {"do": "set_input", "tensor": "x"},
        {"do": "copy", "src": source, "dst": "gpu0#x", "queue": "gpu0.copy", "split": 0},
    ]
    doc = _finished(doc, ["o"])
    doc["splits"][0]["inputs"] = ["x"]
    return doc


def declared_read_of_a_copy() -> Document:
    """The copy is not awaited; the original is there, but is not what is read."""
    return _copied(_f32(4), reads=["x"])


def half_a_source() -> Document:
    doc = _copied(_f32(2), source="half")
    doc["program"][_at(doc, do="copy")]["queue"] = "gpu0.compute"
    return doc


def padding_of_two_experts() -> Document:
    """The tail of the copy reaches the expert after the next, where another tensor lies."""
    doc = _empty()
    doc["tensors"] = {
        "x": _f32(2, 1, 1, input=True), "ids": _i32(1, 1, input=True, values=[0, 1]),
        "w0": _f32(2, 1, 4, buffer="w", offset=0),
        "gpu0#w0": _f32(2, 1, 4, buffer="c", offset=0), "o": _f32(1, 1, 1),
        "low": _f32(1, 1, 1, buffer="c", offset=16),
    }  # fmt: skip
    doc["nodes"] = [
        {"op": "custom", "dst": "low", "src": ["x"]},
        {"op": "mul_mat_id", "dst": "o", "src": ["w0", "x", "ids"]},
    ]
    doc["program"] = [{"do": "set_input", "tensor": name} for name in ("x", "ids")]
    doc = _finished(doc, ["low", "o"])
    doc["splits"][0]["inputs"] = ["w0"]
    doc["program"].insert(_at(doc, node="o"), {
        "do": "copy_experts", "src": "w0", "dst": "gpu0#w0", "ids": "ids", "padding": 12,
        "queue": "gpu0.compute", "split": 0,
    })  # fmt: skip
    return doc


WRONG: dict[Callable[[], Document], str] = {
    fill_of_the_last_pass: "BK002",
    slots_looked_up_with_other_ids: "BK002",
    slots_looked_up_before_the_fill: "BK003",
    bank_read_as_a_plain_tensor: "OR003",
    declared_read_of_a_copy: "OR001",
    padding_of_two_experts: "BK009",
}


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_a_wrong_schedule_is_not_proved(make: Callable[[], Document]) -> None:
    schedule = from_dict(make())
    report = check(schedule)
    assert report.verdict is Verdict.VIOLATED
    assert WRONG[make] in [f.rule for f in report.findings]
    full = (("g", ((1, 0, 2), (0, 0, 0))),) if schedule.graph.banks else ()
    tries = [explore(schedule, seed=seed, banks=start) for seed in range(6) for start in ((), full)]
    assert any(found.wrong for found in tries)


@pytest.mark.parametrize("kind", ["slot_ids", "slot_map"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_same_banks_filled_in_time_are_proved(kind: str, layers: int) -> None:
    schedule = from_dict(_banked(kind, layers=layers, slots=2, k=2))
    assert check(schedule).verdict is Verdict.PROVED
    assert not any(explore(schedule, seed=seed).wrong for seed in range(6))


def test_padding_that_stops_in_time_is_proved() -> None:
    doc = padding_of_two_experts()
    doc["program"][_at(doc, do="copy_experts")]["padding"] = 8
    assert check(from_dict(doc)).verdict is Verdict.PROVED


def test_a_source_of_another_size_is_refused() -> None:
    with pytest.raises(DocumentError, match="stands for"):
        from_dict(half_a_source())
