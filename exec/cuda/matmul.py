"""Matrix products: f32, f16, bf16, q8_0 and q4_0 weights, as ggml stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...model.graph import Node
from ..functions import UnsupportedOp
from ..operand import Operand
from .dequantise import KINDS
from .launch import Launch, whole
from .products import (
    BLOCK_HALVES,
    TILE,
    block_product,
    block_product_id,
    plain_product,
    plain_product_id,
)
from .quantise import quantised
from .target import THREADS, WARPS

#: Blocks of threads along the second and third dimension of a grid, at most.
GRID_LIMIT = 65535


def _blocks_of(count: int, size: int) -> int:
    return -(-count // size)


def _grid(node: Node, rows: int, second: int, third: int) -> tuple[int, int, int]:
    if second > GRID_LIMIT or third > GRID_LIMIT:
        raise UnsupportedOp(
            f"{node.op} {node.dst}: a grid of {second} by {third}; at most {GRID_LIMIT} each"
        )
    return _blocks_of(rows, WARPS), second, third


def _packed(w: Operand, node: Node) -> Any:
    """Quantised weights as half-words; their rows must be packed and start at even bytes."""
    if not w.rows_packed or w.layout.offset % 2 or any(step % 2 for step in w.layout.nb):
        raise UnsupportedOp(
            f"{node.op} {node.dst}: {w.layout.name} ({w.dtype}) has strides {w.layout.nb} from "
            f"byte {w.layout.offset}; packed rows at even bytes were due"
        )
    return whole(w, np.uint16)


def _elements(w: Operand) -> Any:
    return whole(w, np.float32 if w.dtype == "f32" else np.uint16)


def mul_mat(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[m, n] = Σ_k w[k, m] · x[k, n]``; planes of w repeat over those of x."""
    w, x = sources
    if dst.empty:
        return
    grid = _grid(node, w.ne[1], _blocks_of(x.ne[1], TILE), x.ne[2] * x.ne[3])
    kind = KINDS[w.dtype]
    if w.dtype in BLOCK_HALVES:
        kernel, halves = block_product(kind, BLOCK_HALVES[w.dtype]), _packed(w, node)
        kernel[grid, THREADS, launch.stream](
            halves, w.layout.nb, w.ne, *quantised(x, launch), x.ne, dst.flat, dst.steps
        )
        return
    plain_product(kind)[grid, THREADS, launch.stream](
        _elements(w), w.steps, w.ne, x.flat, x.steps, x.ne, dst.flat, dst.steps
    )


def mul_mat_id(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[:, j, t] = w[:, :, ids[j, t]]ᵀ · x[:, j % x.ne[1], t]``; a negative id gives zeros.

    An id past the experts gives NaNs and sets the launch's fault.
    """
    w, x, ids = sources
    if dst.empty:
        return
    grid = _grid(node, w.ne[1], ids.ne[0] * ids.ne[1], 1)
    kind, chosen = KINDS[w.dtype], (ids.flat, ids.steps, ids.ne)
    result = (dst.flat, dst.steps, launch.fault)
    if w.dtype in BLOCK_HALVES:
        kernel, halves = block_product_id(kind, BLOCK_HALVES[w.dtype]), _packed(w, node)
        kernel[grid, THREADS, launch.stream](
            halves, w.layout.nb, w.ne, *quantised(x, launch), x.ne, *chosen, *result
        )
        return
    plain_product_id(kind)[grid, THREADS, launch.stream](
        _elements(w), w.steps, w.ne, x.flat, x.steps, x.ne, *chosen, *result
    )
