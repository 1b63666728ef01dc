"""Small documents to run: a device beside the CPU, and a mixture of experts on it."""

from __future__ import annotations

from typing import Any

from splitproof.model import document
from splitproof.model.certificate import Certificate
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule

EXPERTS, SLOTS, USED, WIDTH, HIDDEN = 12, 5, 2, 64, 32
#: Bytes of one expert: rows of 34 bytes per 32 elements, for up, gate and down.
EXPERT_BYTES = {"up": WIDTH // 32 * 34 * HIDDEN, "gate": WIDTH // 32 * 34 * HIDDEN,
                "down": HIDDEN // 32 * 34 * WIDTH}  # fmt: skip

_MACHINE: dict[str, Any] = {
    "format": "splitproof/1",
    "symbols": {"n_tokens": [1, 2]},
    "memories": {"host": {"host": True}, "vram0": {}},
    "devices": [
        {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True, "copy": "stream",
         "queues": ["compute", "copy"]},
        {"name": "cpu", "memory": "host", "reads": ["host"], "async": False},
    ],
}  # fmt: skip


def proved(schedule: Schedule) -> Certificate:
    """A certificate as ``check`` gives it.  (What the checker says is tested elsewhere.)"""
    return Certificate(document.digest(schedule), Verdict.PROVED, (), (), schedule.repeat)


def _layer(layer: int, kind: str, slots: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Tensors and nodes of one layer, reading and writing ``x{layer}``, ``x{layer + 1}``."""
    n = str(layer)
    shapes = {"up": [WIDTH, HIDDEN], "gate": [WIDTH, HIDDEN], "down": [HIDDEN, WIDTH]}
    tensors: dict[str, Any] = {}
    nodes = []
    for role, shape in shapes.items():
        tensors[role + n] = {"dtype": kind, "shape": [*shape, EXPERTS], "buffer": "w_host"}
        tensors[f"{role}{n}_bank"] = {
            "dtype": kind,
            "shape": [*shape, SLOTS + 1],
            "buffer": "banks",
        }
    hidden = [HIDDEN, USED, "n_tokens"]
    for name in ("u", "g", "s", "m"):
        tensors[name + n] = {"dtype": "f32", "shape": hidden}
    tensors["y" + n] = {"dtype": "f32", "shape": [WIDTH, USED, "n_tokens"], "output": True}
    for role, name, source in (("up", "u", "x"), ("gate", "g", "x"), ("down", "y", "m" + n)):
        if name == "y":
            nodes.append({"op": "silu", "dst": "s" + n, "src": ["g" + n]})
            nodes.append({"op": "mul", "dst": "m" + n, "src": ["s" + n, "u" + n]})
        nodes.append(
            {"op": "mul_mat_id", "dst": name + n, "src": [f"{role}{n}_bank", source, slots + n]}
        )
    return tensors, nodes


def moe(*, layers: int = 1, by_map: bool = False, kind: str = "q8_0", repeat: int = 4) -> Schedule:
    """Layers of experts behind one group of banks, at the split level.

    The slots of an expert come as ``slot_ids``, or are looked up in a map on the CPU.
    """
    doc: dict[str, Any] = {**_MACHINE, "name": "experts behind a bank", "repeat": repeat}
    tensors: dict[str, Any] = {
        "x": {"dtype": "f32", "shape": [WIDTH, 1, "n_tokens"], "input": True},
    }
    nodes: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = []
    banks = {}
    for layer in range(layers):
        n = str(layer)
        ids = {"dtype": "i32", "shape": [USED, "n_tokens"]}
        tensors["ids" + n] = {**ids, "input": True, "values": [0, EXPERTS]}
        target: dict[str, Any]
        if by_map:
            tensors["map" + n] = {"dtype": "i32", "shape": [1, EXPERTS], "values": [-1, SLOTS]}
            tensors["look" + n] = {"dtype": "i32", "shape": [1, USED, "n_tokens"]}
            tensors["slots" + n] = {**ids, "view_of": "look" + n, "offset": 0}
            # A layer fills its banks where its map is read: not before the layer before it ran.
            start = len(nodes)
            nodes.append({"op": "get_rows", "dst": "look" + n, "src": ["map" + n, "ids" + n]})
            nodes.append({"op": "reshape", "dst": "slots" + n, "src": ["look" + n]})
            splits.append({"device": "cpu", "nodes": [start, len(nodes)], "inputs": []})
            target = {"slot_map": "map" + n}
        else:
            tensors["slots" + n] = {**ids, "values": [0, SLOTS]}
            target = {"slot_ids": "slots" + n}
        more, layer_nodes = _layer(layer, kind, "slots")
        tensors |= more
        start = len(nodes)
        nodes += layer_nodes
        inputs = ["x", "slots" + n]
        splits.append({"device": "gpu0", "nodes": [start, len(nodes)], "inputs": inputs})
        for role in ("up", "gate", "down"):
            banks[f"{role}{n}_bank"] = {
                "caches": role + n, "layer": layer, "role": role, "group": "g", "slots": SLOTS,
                "ids": "ids" + n, "when": f"{USED}*n_tokens <= {SLOTS}", **target,
            }  # fmt: skip
    _pack(tensors, banks)
    doc["buffers"] = {
        "w_host": {"memory": "host", "usage": "weights", "bytes": 1 << 20},
        "banks": {"memory": "vram0", "usage": "weights", "bytes": 1 << 18},
    }
    doc["tensors"], doc["nodes"], doc["banks"], doc["splits"] = tensors, nodes, banks, splits
    doc["assignment"] = {
        node["dst"]: "cpu" if node["op"] == "get_rows" else "gpu0"
        for node in nodes if node["op"] != "reshape"
    }  # fmt: skip
    return document.from_dict(doc)


def _pack(tensors: dict[str, Any], banks: dict[str, Any]) -> None:
    """Offsets: weights one after the other; the banks of one role in one place."""
    end, places = 0, dict.fromkeys(("up", "gate", "down"), 0)
    at = 0
    for role in places:
        places[role] = at
        at += EXPERT_BYTES[role] * 4 * (SLOTS + 1)
    for name, tensor in tensors.items():
        if tensor.get("buffer") == "w_host":
            tensor["offset"] = end
            end += EXPERT_BYTES[name.rstrip("0123456789")] * EXPERTS * 4
        elif tensor.get("buffer") == "banks":
            tensor["offset"] = places[banks[name]["role"]]


def selective(*, padding: int = 64, used_from: bool = True) -> Schedule:
    """Two expert tensors of which the used experts are copied, at the program level."""
    shape = [WIDTH, HIDDEN, EXPERTS]
    weight = {"dtype": "q8_0", "shape": shape, "buffer": "w_host"}
    size = EXPERT_BYTES["up"] * EXPERTS
    out = {"dtype": "f32", "shape": [HIDDEN, USED, "n_tokens"], "output": True}
    second = {"used_from": "gpu0#up"} if used_from else {"ids": "ids"}
    copy = {"do": "copy", "queue": "gpu0.compute", "split": 0}
    experts = {**copy, "do": "copy_experts", "padding": padding}
    return document.from_dict(
        {
            **_MACHINE,
            "buffers": {"w_host": {"memory": "host", "usage": "weights", "bytes": 2 * size}},
            "tensors": {
                "x": {"dtype": "f32", "shape": [WIDTH, 1, "n_tokens"], "input": True},
                "ids": {"dtype": "i32", "shape": [USED, "n_tokens"], "input": True,
                        "values": [0, EXPERTS]},
                "up": {**weight, "offset": 0}, "gate": {**weight, "offset": size},
                "u": out, "g": out,
            },
            "nodes": [
                {"op": "mul_mat_id", "dst": "u", "src": ["up", "x", "ids"]},
                {"op": "mul_mat_id", "dst": "g", "src": ["gate", "x", "ids"]},
            ],
            "assignment": {"u": "gpu0", "g": "gpu0"},
            "splits": [{"device": "gpu0", "nodes": [0, 2], "inputs": ["x", "ids", "up", "gate"]}],
            "program": [
                {"do": "set_input", "tensor": "x"}, {"do": "set_input", "tensor": "ids"},
                {**copy, "src": "x", "dst": "gpu0#x"}, {**copy, "src": "ids", "dst": "gpu0#ids"},
                {**experts, "src": "up", "dst": "gpu0#up", "ids": "ids"},
                {**experts, "src": "gate", "dst": "gpu0#gate", **second},
                {"do": "compute", "node": "u", "split": 0},
                {"do": "compute", "node": "g", "split": 0},
                {"do": "sync_queue", "queue": "gpu0.compute"},
                {"do": "get_output", "tensor": "u"}, {"do": "get_output", "tensor": "g"},
            ],
            "repeat": 2,
        }
    )  # fmt: skip


def with_callback(*, repeat: int = 2) -> Schedule:
    """A callback rewrites a weight before each pass's product, on the CPU alone."""
    return document.from_dict(
        {
            **_MACHINE,
            "buffers": {"w": {"memory": "host", "usage": "weights", "bytes": 4096}},
            "tensors": {
                "x": {"dtype": "f32", "shape": [8, "n_tokens"], "input": True},
                "w": {"dtype": "f32", "shape": [8, 4], "buffer": "w", "offset": 0},
                "y": {"dtype": "f32", "shape": [4, "n_tokens"], "output": True},
            },
            "nodes": [{"op": "mul_mat", "dst": "y", "src": ["w", "x"]}],
            "assignment": {"y": "cpu"},
            "splits": [{"device": "cpu", "nodes": [0, 1], "inputs": []}],
            "program": [
                {"do": "set_input", "tensor": "x"},
                {"do": "callback", "name": "adapt", "reads": ["w"], "writes": ["w"], "split": 0},
                {"do": "compute", "node": "y", "split": 0},
                {"do": "get_output", "tensor": "y"},
            ],
            "repeat": repeat,
        }
    )


def remembered(*, repeat: int = 4) -> Schedule:
    """A key cache in an ``any`` buffer, written by row, and a ``custom`` op with two results."""
    return document.from_dict(
        {
            **_MACHINE,
            "buffers": {"kv": {"memory": "host", "usage": "any", "bytes": 512}},
            "tensors": {
                "x": {"dtype": "f32", "shape": [8, "n_tokens"], "strides": [4, 48], "input": True},
                "row": {"dtype": "i64", "shape": ["n_tokens"], "input": True, "values": [0, 6]},
                "kv": {"dtype": "f32", "shape": [8, 6], "buffer": "kv", "offset": 64},
                "kv_new": {"view_of": "kv", "shape": [8, 6], "offset": 0},
                "y": {"dtype": "f32", "shape": [6, "n_tokens"], "output": True},
                "a": {"dtype": "f32", "shape": [3, "n_tokens"], "output": True},
                "b": {"dtype": "i32", "shape": [5], "values": [2, 9], "output": True},
            },
            "nodes": [
                {"op": "set_rows", "dst": "kv_new", "src": ["x", "row", "kv"]},
                {"op": "custom", "dst": "a", "src": ["x", "row"], "reads": ["x", "row", "kv_new"],
                 "writes": ["a", "b"]},
                {"op": "mul_mat", "dst": "y", "src": ["kv_new", "x"]},
            ],
            "assignment": {"kv_new": "cpu", "a": "cpu", "y": "cpu"},
            "splits": [{"device": "cpu", "nodes": [0, 3], "inputs": []}],
            "repeat": repeat,
        }
    )  # fmt: skip
