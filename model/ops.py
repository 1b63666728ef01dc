"""The op table: one row per op, with its shape rule and its footprint.

Adding an op is adding a row here, a reference in ``exec/reference.py`` and its kernels.
Names are ggml's in lower case; unary and gated ops go by their own name (``silu``, ``swiglu``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .symbol import Expr
from .tensor import Tensor
from .word import Word

Shape = tuple[Expr, Expr, Expr, Expr]
ShapeRule = Callable[[Sequence[Tensor]], Shape]


class ShapeError(ValueError):
    """Operands that do not fit each other; the message says what was due."""


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
    the parameters decide it.  ``declared`` false: nobody said what it reads and writes, so that
    nothing about it can be proved.
    """

    name: str
    sources: tuple[int, int | None]
    shape: ShapeRule | None = None
    reads: tuple[Reads, ...] = (Reads.WHOLE,)
    updates: bool = False
    view: bool = False
    declared: bool = True

    def source_reads(self, index: int) -> Reads:
        return self.reads[min(index, len(self.reads) - 1)]


def _same(sources: Sequence[Tensor]) -> Shape:
    return sources[0].ne


def _broadcast(sources: Sequence[Tensor]) -> Shape:
    left, right = sources[0].ne, sources[1].ne
    for dim, (a, b) in enumerate(zip(left, right, strict=True)):
        fits = (
            a == b
            or b.constant == 1
            or (a.constant is not None and bool(b.constant) and a.constant % (b.constant or 1) == 0)
        )
        if not fits:
            raise ShapeError(
                f"dimension {dim} of source 1 ({b}) does not divide that of source 0 ({a})"
            )
    return left


def _mul_mat(sources: Sequence[Tensor]) -> Shape:
    w, x = sources[0].ne, sources[1].ne
    if w[0] != x[0]:
        raise ShapeError(f"rows of source 0 have {w[0]} elements, rows of source 1 have {x[0]}")
    for dim in (2, 3):
        a, b = w[dim].constant, x[dim].constant
        if a != 1 and (a is None or b is None or a == 0 or b % a) and w[dim] != x[dim]:
            raise ShapeError(f"dimension {dim} of source 0 ({w[dim]}) does not divide {x[dim]}")
    return w[1], x[1], x[2], x[3]


def _mul_mat_id(sources: Sequence[Tensor]) -> Shape:
    w, x, ids = (s.ne for s in sources[:3])
    if w[0] != x[0]:
        raise ShapeError(f"rows of source 0 have {w[0]} elements, rows of source 1 have {x[0]}")
    if x[2] != ids[1]:
        raise ShapeError(f"source 1 has {x[2]} tokens, the ids have {ids[1]}")
    if x[1].constant != 1 and x[1] != ids[0]:
        raise ShapeError(
            f"dimension 1 of source 1 is {x[1]}; 1 or {ids[0]} (ids per token) was due"
        )
    if not sources[2].type.integer:
        raise ShapeError(f"source 2 holds ids: an integer type was due, not {sources[2].dtype}")
    return w[1], ids[0], ids[1], Expr.of(1)


def _get_rows(sources: Sequence[Tensor]) -> Shape:
    table, ids = sources[0].ne, sources[1].ne
    if not sources[1].type.integer:
        raise ShapeError(
            f"source 1 holds row numbers: an integer type was due, not {sources[1].dtype}"
        )
    return table[0], ids[0], ids[1], ids[2]


def _transpose(sources: Sequence[Tensor]) -> Shape:
    ne = sources[0].ne
    return ne[1], ne[0], ne[2], ne[3]


def _sum_rows(sources: Sequence[Tensor]) -> Shape:
    ne = sources[0].ne
    return Expr.of(1), ne[1], ne[2], ne[3]


_ROWS: tuple[Op, ...] = (
    # views: nodes without a command
    Op("none", (0, 0), view=True),
    Op("view", (1, 1), view=True),
    Op("reshape", (1, 1), view=True),
    Op("permute", (1, 1), view=True),
    Op("transpose", (1, 1), _transpose, view=True),
    # matrix products
    Op("mul_mat", (2, 2), _mul_mat),
    Op("mul_mat_id", (3, 3), _mul_mat_id, reads=(Reads.EXPERTS, Reads.WHOLE)),
    # element-wise
    Op("add", (2, 2), _broadcast),
    Op("sub", (2, 2), _broadcast),
    Op("mul", (2, 2), _broadcast),
    Op("div", (2, 2), _broadcast),
    Op("add_id", (3, 3), _same, reads=(Reads.WHOLE,)),
    Op("silu", (1, 1), _same),
    Op("sigmoid", (1, 1), _same),
    Op("gelu", (1, 1), _same),
    Op("relu", (1, 1), _same),
    Op("scale", (1, 1), _same),
    Op("clamp", (1, 1), _same),
    Op("fill", (1, 1), _same),
    Op("swiglu", (1, 2)),
    Op("swiglu_oai", (1, 2)),
    Op("geglu", (1, 2)),
    # rows
    Op("rms_norm", (1, 1), _same),
    Op("soft_max", (1, 3), _same),
    Op("argsort", (1, 1), _same),
    Op("top_k", (1, 1)),
    Op("sum_rows", (1, 1), _sum_rows),
    Op("get_rows", (2, 2), _get_rows),
    Op("set_rows", (2, 3), updates=True),
    Op("rope", (2, 3), _same),
    Op("flash_attn_ext", (3, 5)),
    # moving bytes
    Op("cont", (1, 1)),
    Op("cpy", (1, 2)),
    Op("dup", (1, 1)),
    Op("concat", (2, 2)),
    Op("repeat", (1, 2)),
    # hazards and user kernels
    Op("custom", (0, None)),
)

OPS: dict[str, Op] = {row.name: row for row in _ROWS}


def add_op(row: Op) -> None:
    """A row of a user's own.  ``ValueError`` for a name that is taken."""
    if row.name in OPS:
        raise ValueError(f"there is an op {row.name} already; a name of its own was due")
    OPS[row.name] = row


def check_shapes(op: Op, dst: Tensor, sources: Sequence[Tensor]) -> None:
    """Hold a node against its row; ``ShapeError`` says what was found and what was due."""
    least, most = op.sources
    if len(sources) < least or (most is not None and len(sources) > most):
        due = f"{least}" if least == most else f"{least} to {most if most is not None else 'any'}"
        raise ShapeError(f"{op.name} has {due} source(s), not {len(sources)}")
    if op.shape is None or any(not t.shape for t in (dst, *sources)):
        return
    due_shape = op.shape(sources)
    if dst.ne != due_shape:
        raise ShapeError(
            f"the result has shape {_text(dst.ne)}; {op.name} gives {_text(due_shape)}"
        )


def _text(shape: Shape) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
