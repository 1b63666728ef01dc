"""Moving elements, by NumPy's strided assignment (it has loops of its own for each type)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...model.graph import Node
from ..functions import OutOfRange
from ..operand import Operand


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


def add_id(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``x[:, j, t] + bias[:, ids[j, t]]``, f32."""
    x, bias, ids = (source.array for source in sources)
    if ids.size and not 0 <= ids.min() <= ids.max() < bias.shape[2]:
        raise OutOfRange(
            f"add_id {node.dst}: ids {ids.min()} to {ids.max()}; 0 to {bias.shape[2] - 1} were due"
        )
    np.add(x, bias[0, 0][ids[0, 0]], out=dst.array)
