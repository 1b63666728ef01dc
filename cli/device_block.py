"""The blocks of a document that say what the devices of this machine are, and what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from .exec.cpu import table as cpu
from .exec.cuda import table as cuda
from .exec.cuda.driver import Copies, CudaDevice
from .model.ops import OPS

HOST = "host"


def patterns(table: Sequence[cpu.Row]) -> list[dict[str, str]]:
    """What a table of kernels computes, as ``ops`` of a device; views need no kernel.

    A source that an op may lack is not asked about: a pattern could not say that it may.
    """
    found = [{"op": op.name} for op in OPS.values() if op.view]
    anything = {row.op for row in table if row.types == ("*",)}
    for row in table:
        if row.op in anything:
            found.append({"op": row.op})
        else:
            found += _typed(row)
    return [one for number, one in enumerate(found) if one not in found[:number]]


def _typed(row: cpu.Row) -> Iterator[dict[str, str]]:
    least, _ = OPS[row.op].sources
    names = ["dst", *(f"src{number}" for number in range(least))]
    kinds = [row.types[min(place, len(row.types) - 1)].split("|") for place in range(len(names))]
    for chosen in product(*kinds):
        asked = {n: kind for n, kind in zip(names, chosen, strict=True) if kind != "*"}
        yield {"op": row.op, **asked}


def block(found: Sequence[CudaDevice], measured: Mapping[int, Copies]) -> dict[str, Any]:
    """``memories`` and ``devices`` of a document: the CUDA devices first, the CPU last."""
    memories: dict[str, Any] = {HOST: {HOST: True}}
    devices = []
    for device in found:
        memory, copies = f"vram{device.number}", measured[device.number]
        memories[memory] = {} if device.memory is None else {"bytes": device.memory}
        devices.append({
            "name": f"cuda{device.number}", "memory": memory, "reads": [memory], "async": True,
            "queues": ["compute", "copy"],
            "copy": [
                {"from": HOST, "to": memory, "is": str(copies.contract("upload"))},
                {"from": memory, "to": HOST, "is": str(copies.contract("download"))},
                {"from": memory, "to": memory, "is": "stream"},
            ],
            "ops": patterns(cuda.TABLE),
        })  # fmt: skip
    devices.append({
        "name": "cpu", "memory": HOST, "reads": [HOST], "events": False,
        "ops": patterns(cpu.TABLE),
    })  # fmt: skip
    return {"memories": memories, "devices": devices}
