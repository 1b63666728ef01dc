"""Matrix products: weights in f32, f16, bf16, q8_0, q4_0, q4_K and q6_K, as ggml stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...model.graph import Node
from ..functions import UnsupportedOp
from ..operand import Operand
from .dequantise import KINDS
from .group import ordered
from .launch import Launch, whole
from .packing import PACKINGS
from .products import TILE, block_product, block_product_id, plain_product, plain_product_id
from .quantise import prepared
from .target import THREADS, WARPS
from .tiles import COLUMNS, ROWS, TILE_THREADS, tiled_product, tiled_product_id

#: A product is computed in tiles, by tensor cores, where a weight would otherwise be read more
#: often than this: above 8 columns, or above 2 pairs of token and expert for each expert.  An
#: estimate by the traffic alone, not measured: a tile reads each weight once, but multiplies
#: columns that nobody asked for too.
MOST_READS = 2
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


def _in_blocks(w: Operand, node: Node) -> bool:
    """Whether weights are taken as packed blocks; quantised ones must be."""
    packing = PACKINGS.get(w.dtype)
    if packing is None:
        return False
    whole_blocks = w.rows_packed and w.ne[0] % packing.weights == 0
    places = (w.layout.offset, *w.layout.nb[1:])
    if whole_blocks and not any(place % packing.aligned for place in places):
        return True
    if packing.halves:
        return False
    raise UnsupportedOp(
        f"{node.op} {node.dst}: {w.layout.name} ({w.dtype}) has strides {w.layout.nb} from byte "
        f"{w.layout.offset}; packed rows were due, at multiples of {packing.aligned} bytes"
    )


def _blocks(w: Operand) -> Any:
    return whole(w, np.uint32 if PACKINGS[w.dtype].unit == 4 else np.uint16)


def _elements(w: Operand) -> Any:
    return whole(w, np.float32 if w.dtype == "f32" else np.uint16)


def mul_mat(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[m, n] = Σ_k w[k, m] · x[k, n]``; planes of w repeat over those of x."""
    w, x = sources
    if dst.empty:
        return
    reads = _blocks_of(x.ne[1], TILE)
    grid = _grid(node, w.ne[1], reads, x.ne[2] * x.ne[3])
    if _in_blocks(w, node):
        if reads > MOST_READS:
            tiles = _blocks_of(w.ne[1], ROWS), _blocks_of(x.ne[1], COLUMNS), grid[2]
            tiled_product(w.dtype)[tiles, TILE_THREADS, launch.stream](
                _blocks(w), w.layout.nb, w.ne, *prepared(x, w.dtype, launch), x.ne,
                dst.flat, dst.steps,
            )  # fmt: skip
            return
        block_product(w.dtype)[grid, THREADS, launch.stream](
            _blocks(w), w.layout.nb, w.ne, *prepared(x, w.dtype, launch), x.ne, dst.flat, dst.steps
        )
        return
    plain_product(KINDS[w.dtype])[grid, THREADS, launch.stream](
        _elements(w), w.steps, w.ne, x.flat, x.steps, x.ne, dst.flat, dst.steps
    )


def mul_mat_id(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[:, j, t] = w[:, :, ids[j, t]]ᵀ · x[:, j % x.ne[1], t]``; a negative id gives zeros.

    An id past the experts gives NaNs and sets the launch's fault.
    """
    w, x, ids = sources
    if dst.empty:
        return
    pairs, chosen = ids.ne[0] * ids.ne[1], (ids.flat, ids.steps, ids.ne)
    result = (dst.flat, dst.steps, launch.fault)
    in_blocks = _in_blocks(w, node)
    if in_blocks and pairs > MOST_READS * w.ne[2]:
        order, count = ordered(ids, w.ne[2], launch)
        tiles = _blocks_of(w.ne[1], ROWS), count
        tiled_product_id(w.dtype)[tiles, TILE_THREADS, launch.stream](
            _blocks(w), w.layout.nb, w.ne, *prepared(x, w.dtype, launch), x.ne, *chosen, order,
            *result,
        )  # fmt: skip
        return
    grid = _grid(node, w.ne[1], pairs, 1)
    if in_blocks:
        block_product_id(w.dtype)[grid, THREADS, launch.stream](
            _blocks(w), w.layout.nb, w.ne, *prepared(x, w.dtype, launch), x.ne, *chosen, *result
        )
        return
    plain_product_id(KINDS[w.dtype])[grid, THREADS, launch.stream](
        _elements(w), w.steps, w.ne, x.flat, x.steps, x.ne, *chosen, *result
    )
