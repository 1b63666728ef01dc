"""Small documents for the tests of execution, built as dictionaries."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2].parent / "shared"

Document = dict[str, Any]


def shared(*parts: str) -> Path:
    """A recorded file, or a skip where the recordings are not beside the checkout."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the recorded data is absent: ../shared/{'/'.join(parts)}")
    return path


GPU: Document = {
    "name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True, "copy": "stream",
    "events": True, "queues": ["compute", "copy"],
}  # fmt: skip
CPU: Document = {"name": "cpu", "memory": "host", "reads": ["host"], "async": False}


def document(**parts: Any) -> Document:
    """A document with two memories, a GPU and a CPU; ``parts`` replace or add keys."""
    base: Document = {
        "format": "splitproof/1",
        "symbols": {},
        "memories": {"host": {"host": True}, "vram0": {}},
        "devices": [GPU, CPU],
        "buffers": {
            "w_host": {"memory": "host", "usage": "weights", "bytes": 65536},
            "any_host": {"memory": "host", "usage": "any", "bytes": 65536},
            "c_host": {"memory": "host", "usage": "compute", "bytes": 65536},
            "w_gpu": {"memory": "vram0", "usage": "weights", "bytes": 65536},
            "c_gpu": {"memory": "vram0", "usage": "compute", "bytes": 65536},
        },
        "tensors": {},
        "nodes": [],
        "repeat": 2,
    }
    return copy.deepcopy({**base, **parts})


def tensor(shape: list[Any], buffer: str = "", offset: int = 0, **more: Any) -> Document:
    placed = {"buffer": buffer, "offset": offset} if buffer else {}
    return {"dtype": "f32", "shape": shape, **placed, **more}


def on_cpu(nodes: list[Document], tensors: Document, **more: Any) -> Document:
    """A document that sets its inputs, runs every node on the CPU, and gets its outputs."""
    inputs = [name for name, t in tensors.items() if t.get("input")]
    outputs = [name for name, t in tensors.items() if t.get("output")]
    program = [{"do": "set_input", "tensor": name} for name in inputs]
    program += [{"do": "compute", "node": node["dst"], "split": 0} for node in nodes]
    program += [{"do": "get_output", "tensor": name} for name in outputs]
    return document(
        tensors=tensors, nodes=nodes, assignment={node["dst"]: "cpu" for node in nodes},
        splits=[{"device": "cpu", "nodes": [0, len(nodes)], "inputs": []}],
        **{"program": program, **more},
    )  # fmt: skip


def prefetch_under_callback(repaired: bool) -> Document:
    """A weight is prefetched while a callback of the running split may still write it; repaired,
    its own split copies it."""
    fetch = [
        {"do": "prefetch", "src": "w", "dst": "gpu0#w", "queue": "gpu0.copy", "split": 0,
         "for_split": 1},
        {"do": "record", "event": "fetched", "queue": "gpu0.copy"},
    ]  # fmt: skip
    await_fetch = [{"do": "wait", "event": "fetched", "queue": "gpu0.compute", "split": 1}]
    if repaired:
        fetch = []
        await_fetch = [
            {"do": "copy", "src": "w", "dst": "gpu0#w", "queue": "gpu0.compute", "split": 1}
        ]
    return document(
        symbols={"n_tokens": [1, 32]},
        tensors={
            "x": tensor([64, "n_tokens"], "c_host", 0, input=True),
            "h": tensor([64, "n_tokens"], "c_host", 8192),
            "w": tensor([64, 32], "w_host", 0, dtype="q8_0"),
            "gpu0#w": tensor([64, 32], "c_gpu", 0, dtype="q8_0"),
            "gpu0#h": tensor([64, "n_tokens"], "c_gpu", 2304),
            "y": tensor([32, "n_tokens"], "c_gpu", 10496, output=True),
        },
        nodes=[
            {"op": "rms_norm", "dst": "h", "src": ["x"], "params": {"eps": 1e-6}},
            {"op": "mul_mat", "dst": "y", "src": ["w", "h"]},
        ],
        assignment={"h": "cpu", "y": "gpu0"},
        splits=[
            {"device": "cpu", "nodes": [0, 1], "inputs": []},
            {"device": "gpu0", "nodes": [1, 2], "inputs": ["w", "h"]},
        ],
        program=[
            {"do": "set_input", "tensor": "x"},
            *fetch,
            {"do": "callback", "name": "moe_cache", "reads": [], "writes": ["w"], "split": 0},
            {"do": "compute", "node": "h", "split": 0},
            {"do": "copy", "src": "h", "dst": "gpu0#h", "queue": "gpu0.compute", "split": 1},
            *await_fetch,
            {"do": "compute", "node": "y", "split": 1},
            {"do": "sync_queue", "queue": "gpu0.compute"},
            {"do": "get_output", "tensor": "y"},
        ],
    )


def bank(on_device: bool, *, uses_map: bool = False) -> Document:
    """A cached ``mul_mat_id``: on the bank's device, or on the CPU, to which the bank travels."""
    device = "gpu0" if on_device else "cpu"
    slots = "picked" if uses_map else "slot_ids"
    inputs = ["x", slots] if on_device else ["up_bank"]
    tensors = {
        "x": tensor([64, 1, "n_tokens"], "c_host", 0, input=True),
        "ids": tensor([2, "n_tokens"], "c_host", 512, dtype="i32", input=True, values=[0, 8]),
        "up_exps": tensor([64, 32, 8], "w_host", 0, dtype="q8_0"),
        "up_bank": tensor([64, 32, 5], "w_gpu", 0, dtype="q8_0"),
        "y": tensor([32, 2, "n_tokens"], "c_gpu" if on_device else "c_host", 12288, output=True),
    }
    nodes = [{"op": "mul_mat_id", "dst": "y", "src": ["up_bank", "x", slots]}]
    fill = {"do": "fill_bank", "banks": ["up_bank"], "ids": "ids", "queue": "gpu0.compute",
            "split": 0}  # fmt: skip
    how: Document
    if uses_map:
        how = {"slot_map": "slot_map"}
        tensors["slot_map"] = tensor([1, 8], "w_host", 20480, dtype="i32", values=[-1, 4])
        tensors["flat"] = tensor(["2*n_tokens"], view_of="ids", offset=0, dtype="i32")
        tensors["found"] = tensor([1, "2*n_tokens"], "c_host", 1024, dtype="i32")
        tensors["picked"] = tensor([2, "n_tokens"], view_of="found", offset=0, dtype="i32")
        nodes.insert(0, {"op": "get_rows", "dst": "found", "src": ["slot_map", "flat"]})
    else:
        how = {"slot_ids": "slot_ids"}
        tensors["slot_ids"] = tensor([2, "n_tokens"], "c_host", 1024, dtype="i32", values=[0, 4])
    last = len(nodes) - 1
    splits = [{"device": device, "nodes": [last, last + 1], "inputs": inputs}]
    if uses_map:
        splits.insert(0, {"device": "cpu", "nodes": [0, 1], "inputs": []})
    looked_up = [{"do": "compute", "node": "found", "split": 0}] if uses_map else []
    return document(
        symbols={"n_tokens": [1, 2]},
        tensors=tensors,
        banks={
            "up_bank": {"caches": "up_exps", "layer": 0, "role": "up", "group": "g0", "slots": 4,
                        "policy": "lru-slots", "ids": "ids", "when": "2*n_tokens <= 4", **how}
        },
        nodes=nodes,
        assignment={"y": device, **({"found": "cpu"} if uses_map else {})},
        splits=splits,
        program=[
            {"do": "set_input", "tensor": "x"},
            {"do": "set_input", "tensor": "ids"},
            {**fill, **how},
            {"do": "sync_queue", "queue": "gpu0.compute"},
            *looked_up,
            *(
                {"do": "copy", "src": name, "dst": f"{device}#{name}", "queue": "gpu0.compute",
                 "split": last}
                for name in inputs
            ),
            *([] if on_device else [{"do": "sync_queue", "queue": "gpu0.compute"}]),
            {"do": "compute", "node": "y", "split": last},
            {"do": "sync_queue", "queue": "gpu0.compute"},
            {"do": "get_output", "tensor": "y"},
        ],
    )  # fmt: skip
