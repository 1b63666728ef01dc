"""Look-ups of integers, such as slots of experts: their bytes travel as those of floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...model.graph import Node
from ...model.tensor import dtype
from ..operand import Operand
from . import rows
from .launch import Launch


def get_rows(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``dst[:, i, j, k] = table[:, ids[i, j, k], j, k]``, i32.  A row number outside the table
    sets the launch's fault, and gives a number that is greater than any row's."""
    table, ids = sources
    rows.get_rows(_as_floats(dst), [_as_floats(table), ids], node, launch)


def _as_floats(operand: Operand) -> Operand:
    return Operand(replace(operand.layout, dtype=dtype("f32")), operand.data)
