"""The op table: one row per op, with its shape rule and its footprint.

Adding an op is adding a row here, a reference in ``exec/reference.py`` and its kernels.
Names are ggml's in lower case; unary and gated ops go by their own name (``silu``, ``swiglu``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import op_shapes as shapes
from .op_shapes import Fit, Shape, ShapeError, ShapeRule
from .tensor import Tensor
from .word import Word

__all__ = ["OPS", "Op", "Reads", "ShapeError", "ShapeRule", "add_op", "check_shapes"]


class Reads(Word):
    """Which bytes of a source an op reads."""

    WHOLE = "whole"
    #: the experts in ``used(ids)``, ``ids`` being source 2
    EXPERTS = "experts"


@dataclass(frozen=True, slots=True)
class Op:
    """One row.  ``sources``: least and greatest number of sources (``None``: any number).

    ``reads``: footprint per source, the last one repeated.  ``updates``: the op writes only
    some bytes of its destination and so carries the old content of the others over.
    ``view``: a node without a command.  ``shape``: the destination's shape, or ``None`` where
    more than the sources decides it.  ``fit``: what else must hold of operands and parameters.
    ``declared`` false: nobody said what it reads and writes, so that
    nothing about it can be proved.
    """

    name: str
    sources: tuple[int, int | None]
    shape: ShapeRule | None = None
    reads: tuple[Reads, ...] = (Reads.WHOLE,)
    updates: bool = False
    view: bool = False
    declared: bool = True
    fit: Fit | None = None

    def source_reads(self, index: int) -> Reads:
        return self.reads[min(index, len(self.reads) - 1)]


_ROWS: tuple[Op, ...] = (
    # views: nodes without a command
    Op("none", (0, 0), view=True),
    Op("view", (1, 1), view=True),
    Op("reshape", (1, 1), view=True),
    Op("permute", (1, 1), view=True),
    Op("transpose", (1, 1), shapes.transpose, view=True),
    # matrix products
    Op("mul_mat", (2, 2), shapes.mul_mat),
    Op("mul_mat_id", (3, 3), shapes.mul_mat_id, reads=(Reads.EXPERTS, Reads.WHOLE)),
    # element-wise
    Op("add", (2, 2), shapes.broadcast),
    Op("sub", (2, 2), shapes.broadcast),
    Op("mul", (2, 2), shapes.broadcast),
    Op("div", (2, 2), shapes.broadcast),
    Op("add_id", (3, 3), shapes.same, reads=(Reads.WHOLE,), fit=shapes.fit_add_id),
    Op("silu", (1, 1), shapes.same),
    Op("sigmoid", (1, 1), shapes.same),
    Op("gelu", (1, 1), shapes.same),
    Op("relu", (1, 1), shapes.same),
    Op("scale", (1, 1), shapes.same),
    Op("clamp", (1, 1), shapes.same),
    Op("fill", (1, 1), shapes.same),
    Op("swiglu", (1, 2), fit=shapes.fit_gated),
    Op("swiglu_oai", (1, 2), fit=shapes.fit_gated),
    Op("geglu", (1, 2), fit=shapes.fit_gated),
    # rows
    Op("rms_norm", (1, 1), shapes.same),
    Op("soft_max", (1, 3), shapes.same, fit=shapes.fit_soft_max),
    Op("argsort", (1, 1), shapes.same, fit=shapes.fit_numbers),
    Op("top_k", (1, 1), fit=shapes.fit_top_k),
    Op("sum_rows", (1, 1), shapes.sum_rows),
    Op("get_rows", (2, 2), shapes.get_rows),
    Op("set_rows", (2, 3), updates=True, fit=shapes.fit_set_rows),
    Op("rope", (2, 3), shapes.same, fit=shapes.fit_rope),
    Op("flash_attn_ext", (3, 5)),
    # moving bytes
    Op("cont", (1, 1), fit=shapes.fit_elements),
    Op("cpy", (1, 2), fit=shapes.fit_elements),
    Op("dup", (1, 1), fit=shapes.fit_elements),
    Op("concat", (2, 2), fit=shapes.fit_concat),
    Op("repeat", (1, 2), fit=shapes.fit_repeat),
    # hazards and user kernels
    Op("custom", (0, None)),
)

OPS: dict[str, Op] = {row.name: row for row in _ROWS}


def add_op(row: Op) -> None:
    """A row of a user's own.  ``ValueError`` for a name that is taken."""
    if row.name in OPS:
        raise ValueError(f"there is an op {row.name} already; a name of its own was due")
    OPS[row.name] = row


def check_shapes(op: Op, dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """Hold a node against its row; ``ShapeError`` says what was found and what was due."""
    least, most = op.sources
    if len(sources) < least or (most is not None and len(sources) > most):
        due = f"{least}" if least == most else f"{least} to {most if most is not None else 'any'}"
        raise ShapeError(f"{op.name} has {due} source(s), not {len(sources)}")
    if any(not t.shape for t in (dst, *sources)):
        return
    if op.shape is not None:
        _require_shape(op, dst.ne, op.shape(sources))
    if op.fit is not None:
        op.fit(dst, sources, params)


def _require_shape(op: Op, found: Shape, due: Shape) -> None:
    if found != due:
        raise ShapeError(
            f"the result has shape {shapes.text(found)}; {op.name} gives {shapes.text(due)}"
        )
