"""Operands of a test on a CUDA device (or the simulator's)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from numba import cuda
from operands import POISON, Placed, place
from splitproof.exec.cuda.launch import Launch
from splitproof.exec.functions import apply
from splitproof.exec.operand import Operand
from splitproof.exec.quant import Array
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

#: Types that the ``gguf`` package cannot make: where their blocks have a float16.
SCALES = {"q4_k": (0, 2), "q6_k": (208,)}


def weights(kind: str, ne: Sequence[int], form: str = "packed", seed: int = 1) -> Placed:
    """Normal numbers in that type; for the types of ``SCALES`` blocks of any bits."""
    rng = np.random.default_rng(seed)
    if kind not in SCALES:
        return place("w", kind, ne, rng.standard_normal(tuple(ne), dtype=np.float32), form)
    placed = place("w", kind, ne, form=form)
    size = dtype(kind).block_bytes
    raw = rng.integers(0, 256, (placed.operand.packed().size // size, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = rng.uniform(-1, 1, (len(raw), 1)).astype(np.float16)
        raw[:, at : at + 2] = scales.view(np.uint8)
    placed.operand.assign(raw.reshape(-1))
    return placed


def due_rounded(node: Node, dst: Placed, sources: Sequence[Placed]) -> Array:
    """The product of activations that are rounded as for these weights."""
    meant = [source.meant for source in sources]
    return apply(meant, node, dst.operand.ne, rounded=True)


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
