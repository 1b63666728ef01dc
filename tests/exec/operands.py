"""Operands for the tests of kernels: packed, or with holes, in a buffer of poison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from splitproof.exec.functions import Operand as Meant
from splitproof.exec.layout import Layout
from splitproof.exec.operand import Operand
from splitproof.exec.quant import Array, from_array, to_array
from splitproof.model.tensor import dtype

POISON = 0xFF


@dataclass(frozen=True)
class Placed:
    """An operand, and the whole buffer that it lies in."""

    operand: Operand
    buffer: np.ndarray

    @property
    def holes(self) -> np.ndarray:
        """The bytes of the buffer that do not belong to the operand."""
        mine = np.zeros(len(self.buffer), bool)
        mine[self.operand.layout.where] = True
        return self.buffer[~mine]

    @property
    def meant(self) -> Meant:
        layout = self.operand.layout
        return Meant(layout.name, layout.dtype, layout.ne, self.operand.packed().copy())

    @property
    def value(self) -> Array:
        layout = self.operand.layout
        return to_array(layout.dtype, self.operand.packed().copy(), layout.ne)


def place(
    name: str, kind: str, ne: Sequence[int], value: Array | None = None, form: str = "packed"
) -> Placed:
    """A tensor with that value (left as poison without one).

    ``form``: ``packed``; ``gaps``: rows, planes and cubes with bytes between them; ``transposed``:
    dimension 1 runs faster than dimension 0; ``permuted``: dimensions 1 and 2 are exchanged.
    """
    t = dtype(kind)
    full = [*ne, 1, 1, 1, 1][:4]
    counts = [full[0] // t.block, *full[1:]]
    order = {"transposed": [1, 0, 2, 3], "permuted": [0, 2, 1, 3]}.get(form, [0, 1, 2, 3])
    nb, step = [0] * 4, t.block_bytes
    for dimension in order:
        nb[dimension] = step
        step *= max(counts[dimension], 1)
        if form == "gaps":
            step += 4 * t.block_bytes
    layout = Layout(
        name, t, (full[0], full[1], full[2], full[3]), (nb[0], nb[1], nb[2], nb[3]), "test", 64
    )
    whole = np.full(layout.end + 64 + 64, POISON, np.uint8)
    start = -whole.ctypes.data % 64
    buffer = whole[start : start + layout.end + 64]
    operand = Operand(layout, buffer[layout.offset : layout.end])
    if value is not None:
        operand.assign(from_array(t, value.reshape(layout.ne)))
    return Placed(operand, buffer)
