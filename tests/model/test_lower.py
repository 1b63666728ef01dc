"""The plain lowering, command by command."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.command import (
    Callback,
    Compute,
    Copy,
    FillBank,
    GetOutput,
    SetInput,
    SyncQueue,
)
from splitproof.model.device import Usage
from splitproof.model.document import from_dict, load
from splitproof.model.plan.lower import LowerError, lower
from splitproof.model.symbol import Condition

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def f32(*shape: int | str, **keys: Any) -> dict[str, Any]:
    return {"dtype": "f32", "shape": list(shape), **keys}


def i32(*shape: int | str, **keys: Any) -> dict[str, Any]:
    return {"dtype": "i32", "shape": list(shape), **keys}


def gpu(name: str, memory: str) -> dict[str, Any]:
    return {"name": name, "memory": memory, "reads": [memory], "async": True, "copy": "stream"}


CPU = {"name": "cpu", "memory": "ram", "reads": ["ram"], "async": False}
MEMORIES = {"ram": {"host": True}, "v0": {}, "v1": {}}


def three_splits() -> dict[str, Any]:
    """gpu0, cpu, gpu0 again: a copy that is shared, host weights, a callback, a guard, a view."""
    return {
        "format": "splitproof/1",
        "memories": MEMORIES,
        "devices": [gpu("gpu0", "v0"), CPU],
        "buffers": {"weights": {"memory": "ram", "usage": "weights", "bytes": 4096}},
        "tensors": {
            "x": f32(8, 2, input=True),
            "w": f32(8, 4, buffer="weights", offset=0),
            "w2": f32(8, 4, buffer="weights", offset=1024),
            "a": f32(8, 2),
            "a_view": f32(16, view_of="a", offset=0),
            "b": f32(16, output=True),
            "late": f32(8, 2, input=True),
            "c": f32(4, 2),
            "d": f32(8, 2),
            "e": f32(4, 2, output=True),
        },
        "nodes": [
            {"op": "rms_norm", "dst": "a", "src": ["x"]},
            {"op": "reshape", "dst": "a_view", "src": ["a"]},
            {"op": "silu", "dst": "b", "src": ["a_view"]},
            {"op": "mul_mat", "dst": "c", "src": ["w", "a"]},
            {"op": "add", "dst": "d", "src": ["x", "late"], "when": "pass == 0"},
            {"op": "mul_mat", "dst": "e", "src": ["w2", "a"]},
        ],
        "assignment": {"a": "gpu0", "b": "cpu", "c": "gpu0", "d": "gpu0", "e": "gpu0"},
        "splits": [
            {"device": "gpu0", "nodes": [0, 2], "inputs": ["x"]},
            {
                "device": "cpu",
                "nodes": [2, 3],
                "inputs": ["a_view"],
                "callbacks": [{"name": "watch", "reads": ["b"], "writes": []}],
            },
            {"device": "gpu0", "nodes": [3, 6], "inputs": ["w", "late", "w2"]},
        ],
    }


def test_bank_case_gives_exactly_these_commands() -> None:
    program = lower(load(EXAMPLES / "bk001-repaired.json")).program
    assert program == (
        SetInput(tensor="x"),
        SetInput(tensor="ids"),
        FillBank(
            banks=("up_bank",), ids="ids", slot_ids="slot_ids", queue="gpu0.compute",
            when=Condition.of("2*n_tokens <= 4"), split=0,
        ),
        SyncQueue(queue="gpu0.compute", split=0),
        Copy(src="x", dst="gpu0#x", queue="gpu0.compute", split=0),
        SyncQueue(queue="gpu0.compute", split=0),
        Copy(src="slot_ids", dst="gpu0#slot_ids", queue="gpu0.compute", split=0),
        SyncQueue(queue="gpu0.compute", split=0),
        Compute(node="y", split=0),
        SyncQueue(queue="gpu0.compute", split=0),
        GetOutput(tensor="y"),
    )  # fmt: skip


def test_three_splits_give_exactly_these_commands() -> None:
    sync = SyncQueue(queue="gpu0.compute", split=2)
    assert lower(from_dict(three_splits())).program == (
        SetInput(tensor="x"),
        SetInput(tensor="late"),
        Copy(src="x", dst="gpu0#x", queue="gpu0.compute", split=0),
        SyncQueue(queue="gpu0.compute", split=0),
        Compute(node="a", split=0),
        SyncQueue(queue="gpu0.compute", split=0),
        Callback(name="watch", reads=("b",), writes=(), split=1),
        # The cpu has no queue: the copy goes on that of the device that owns the source.
        Copy(src="a_view", dst="cpu#a_view", queue="gpu0.compute", split=1),
        SyncQueue(queue="gpu0.compute", split=1),
        Compute(node="b", split=1),
        # Host weights come last, in their order.
        Copy(src="late", dst="gpu0#late", queue="gpu0.compute", split=2),
        sync,
        Copy(src="w", dst="gpu0#w", queue="gpu0.compute", split=2),
        sync,
        Copy(src="w2", dst="gpu0#w2", queue="gpu0.compute", split=2),
        sync,
        Compute(node="c", split=2),
        # x is not listed again: the copy of split 0 is shared.
        Compute(node="d", split=2, bind=(("x", "gpu0#x"),)),
        Compute(node="e", split=2),
        sync,
        GetOutput(tensor="b"),
        GetOutput(tensor="e"),
    )


def test_weights_that_are_no_host_weights_keep_their_place() -> None:
    document = three_splits()
    document["buffers"]["weights"]["usage"] = "any"
    copied = [c.src for c in lower(from_dict(document)).program or () if isinstance(c, Copy)]
    assert copied == ["x", "a_view", "w", "late", "w2"]


def test_a_copy_between_host_memories_is_a_host_command() -> None:
    document = three_splits()
    document["memories"] = {**MEMORIES, "pinned": {"host": True}}
    document["buffers"]["inputs"] = {"memory": "pinned", "usage": "compute", "bytes": 64}
    document["tensors"]["late"].update(buffer="inputs", offset=0)
    document["nodes"][2] = {"op": "add", "dst": "b", "src": ["a_view", "late16"]}
    document["tensors"]["late16"] = f32(16, view_of="late", offset=0)
    document["splits"][1]["inputs"] = ["a_view", "late16"]
    program = lower(from_dict(document)).program or ()
    at = program.index(Copy(src="late16", dst="cpu#late16", queue="host", split=1))
    assert program[at + 1] == Compute(node="b", split=1)


def bank_layers() -> dict[str, Any]:
    """Two layers of a group; the map of layer 0 is read a split before its banks."""
    document: dict[str, Any] = {
        "format": "splitproof/1",
        "memories": MEMORIES,
        "devices": [gpu("gpu1", "v1"), gpu("gpu0", "v0"), CPU],
        "buffers": {
            "weights": {"memory": "ram", "usage": "weights", "bytes": 65536},
            "bank": {"memory": "v0", "usage": "weights", "bytes": 65536},
        },
        "tensors": {"x": f32(8, 1, 2, input=True)},
        "nodes": [],
        "banks": {},
        "assignment": {},
        "splits": [],
    }
    tensors, nodes = document["tensors"], document["nodes"]
    for layer in range(2):
        tensors[f"ids{layer}"] = i32(2, 2, input=True, values=[0, 6])
        tensors[f"map{layer}"] = i32(1, 6, buffer="weights", offset=32768 + 64 * layer)
        tensors[f"rows{layer}"] = i32(1, 2, 2)
        tensors[f"slots{layer}"] = i32(2, 2, view_of=f"rows{layer}", offset=0)
        nodes.append(
            {"op": "get_rows", "dst": f"rows{layer}", "src": [f"map{layer}", f"ids{layer}"]}
        )
        nodes.append({"op": "reshape", "dst": f"slots{layer}", "src": [f"rows{layer}"]})
        for r, role in enumerate(("up", "gate")):
            tensors[f"{role}{layer}"] = f32(
                8, 8, 6, buffer="weights", offset=4096 * (2 * layer + r)
            )
            tensors[f"{role}{layer}_bank"] = f32(8, 8, 5, buffer="bank", offset=4096 * r)
            tensors[f"{role}{layer}_y"] = f32(8, 2, 2)
            nodes.append(
                {
                    "op": "mul_mat_id",
                    "dst": f"{role}{layer}_y",
                    "src": [f"{role}{layer}_bank", "x", f"slots{layer}"],
                }
            )
            document["banks"][f"{role}{layer}_bank"] = {
                "caches": f"{role}{layer}", "layer": layer, "role": role, "group": "g",
                "slots": 4, "ids": f"ids{layer}", "slot_map": f"map{layer}",
            }  # fmt: skip
    for i, node in enumerate(nodes):
        device = "cpu" if node["op"] == "get_rows" else "gpu0"
        document["assignment"][node["dst"]] = device
        if node["op"] != "reshape":
            end = i + 2 if node["op"] == "get_rows" else i + 1
            inputs = [] if device == "cpu" else node["src"][1:]
            document["splits"].append({"device": device, "nodes": [i, end], "inputs": inputs})
    return document


def test_banks_of_a_layer_are_filled_once_and_before_their_map_is_read() -> None:
    program = lower(from_dict(bank_layers())).program or ()
    fills = [c for c in program if isinstance(c, FillBank)]
    assert fills == [
        FillBank(
            banks=(f"up{layer}_bank", f"gate{layer}_bank"), ids=f"ids{layer}",
            slot_map=f"map{layer}", queue="gpu0.compute", split=3 * layer,
        )
        for layer in range(2)
    ]  # fmt: skip
    for layer, fill in enumerate(fills):
        at = program.index(fill)
        assert program[at + 1] == SyncQueue(queue="gpu0.compute", split=3 * layer)
        assert program[at + 2] == Compute(node=f"rows{layer}", split=3 * layer)


def test_banks_with_guards_of_their_own_are_filled_apart() -> None:
    document = bank_layers()
    document["symbols"] = {"n": [1, 4]}
    document["banks"]["gate0_bank"]["when"] = "n <= 2"
    program = lower(from_dict(document)).program or ()
    fills = [(c.banks, str(c.when)) for c in program if isinstance(c, FillBank)]
    assert fills[:2] == [(("up0_bank",), "true"), (("gate0_bank",), "n <= 2")]


def test_a_bank_that_is_also_an_input_is_filled_before_it_is_copied() -> None:
    document = bank_layers()
    document["devices"][0]["reads"] = ["v1"]
    first = next(s for s in document["splits"] if s["nodes"] == [2, 3])
    first["device"] = "gpu1"
    first["inputs"] = ["up0_bank", "x", "slots0"]
    document["assignment"]["up0_y"] = "gpu1"
    program = lower(from_dict(document)).program or ()
    fill = next(i for i, c in enumerate(program) if isinstance(c, FillBank))
    bank_copy = Copy(src="up0_bank", dst="gpu1#up0_bank", queue="gpu1.compute", split=1)
    assert fill < program.index(bank_copy)


def test_a_bank_in_a_memory_of_no_device_is_an_error() -> None:
    document = bank_layers()
    document["memories"] = {**MEMORIES, "attic": {}}
    document["buffers"]["bank"]["memory"] = "attic"
    with pytest.raises(LowerError, match=r"'up0_bank' lies in memory 'attic'"):
        lower(from_dict(document))


def test_with_several_copies_the_first_is_used() -> None:
    document = three_splits()
    document["n_copies"] = 2
    schedule = lower(from_dict(document))
    program = schedule.program or ()
    assert [c.dst for c in program if isinstance(c, Copy)][:2] == ["gpu0#x#0", "cpu#a_view#0"]
    computes = {c.node: c for c in program if isinstance(c, Compute)}
    assert schedule.bound(computes["a"], 0) == "gpu0#x#0"
    assert schedule.bound(computes["d"], 0) == "gpu0#x#0"
    assert schedule.bound(computes["d"], 1) == "gpu0#late#0"


def test_levels() -> None:
    document = three_splits()
    program = lower(from_dict(document))
    assert program.level == "program"
    assert lower(program) is program
    del document["splits"], document["assignment"]
    with pytest.raises(LowerError, match="has no splits"):
        lower(from_dict(document))


def test_same_program_again_and_input_unchanged() -> None:
    document = three_splits()
    schedule = from_dict(document)
    before = copy.deepcopy(schedule)
    assert lower(schedule) == lower(schedule) == lower(from_dict(three_splits()))
    assert schedule == before
    assert schedule.program is None


def test_host_weight_needs_both_host_memory_and_weights() -> None:
    """The same lists with the weights in a device's memory: they are copied where listed."""
    document = three_splits()
    document["buffers"]["weights"]["memory"] = "v1"
    schedule = from_dict(document)
    assert schedule.location("w").usage is Usage.WEIGHTS
    copied = [c.src for c in lower(schedule).program or () if isinstance(c, Copy)]
    assert copied[2:] == ["w", "late", "w2"]
