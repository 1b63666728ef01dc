"""Moving elements, by NumPy's strided assignment (it has loops of its own for each type)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...model.graph import Node
from ..functions import OutOfRange
from ..operand import Operand
from ..quant import to_array


def cont(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """The same elements in logical order, in the shape of the destination; one type."""
    if not dst.empty:
        dst.array[...] = sources[0].array.reshape(dst.array.shape)


def fill(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``value`` everywhere, f32."""
    dst.array[...] = float(node.param("value", 0.0))


def concat(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """Source 1 after source 0 along dimension ``dim``; one type."""
    axis = 3 - int(node.param("dim", 0))
    first = sources[0].array.shape[axis]
    left, right = np.split(dst.array, [first], axis)
    left[...], right[...] = sources[0].array, sources[1].array


def get_rows(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``dst[:, i, j, k] = table[:, ids[i, j, k], j, k]``; only the rows asked for are expanded."""
    table, ids = sources[0], sources[1].array
    count = table.ne[1]
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        name = sources[1].layout.name
        raise OutOfRange(f"get_rows {node.dst}: {name} holds {wrong}; 0 to {count - 1} was due")
    if dst.empty:
        return
    planes, cubes = table.raw.shape[1], table.raw.shape[0]
    for k in range(dst.ne[3]):
        for j in range(dst.ne[2]):
            rows = table.raw[k % cubes, j % planes][ids[0, k, j]]
            ne = (dst.ne[0], rows.shape[0], 1, 1)
            dst.array[k, j] = to_array(table.layout.dtype, rows.reshape(-1), ne).T[0, 0]


def add_id(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``x[:, j, t] + bias[:, ids[j, t]]``, f32."""
    x, bias, ids = (source.array for source in sources)
    if ids.size and not 0 <= ids.min() <= ids.max() < bias.shape[2]:
        raise OutOfRange(
            f"add_id {node.dst}: ids {ids.min()} to {ids.max()}; 0 to {bias.shape[2] - 1} were due"
        )
    np.add(x, bias[0, 0][ids[0, 0]], out=dst.array)
