"""Operands of a test on a CUDA device (or the simulator's)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from numba import cuda
from operands import POISON, Placed
from splitproof.exec.cuda.launch import Launch
from splitproof.exec.operand import Operand
from splitproof.model.graph import Node


def upload(placed: Placed) -> tuple[Operand, Any]:
    """The operand on the device, and the device's copy of its whole buffer."""
    buffer, layout = cuda.to_device(placed.buffer), placed.operand.layout
    return replace(placed.operand, data=buffer[layout.offset : layout.end]), buffer


def run(module: str, op: str, dst: Placed, sources: Sequence[Placed], **params: object) -> Node:
    """Run a kernel; the result comes back into ``dst``, and nothing beside it may change."""
    node = Node(op, "y", tuple(f"s{i}" for i in range(len(sources))), tuple(params.items()))
    target, buffer = upload(dst)
    there = [upload(source) for source in sources]
    launch = Launch()
    kernel = getattr(import_module(f"splitproof.exec.cuda.{module}"), op)
    kernel(target, [operand for operand, _ in there], node, launch)
    launch.finish()
    dst.buffer[:] = buffer.copy_to_host()
    assert (dst.holes == POISON).all()
    for source, (_, copy) in zip(sources, there, strict=True):
        assert (source.buffer == copy.copy_to_host()).all()
    return node
