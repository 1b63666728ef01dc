"""Shape rules of the ops, and what else must hold of their operands and parameters.

Kernels trust these: they do not look again whether an index lies inside its operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .symbol import Expr
from .tensor import Tensor

Shape = tuple[Expr, Expr, Expr, Expr]
ShapeRule = Callable[[Sequence[Tensor]], Shape]
#: Of destination, sources and parameters; raises ``ShapeError``.
Fit = Callable[[Tensor, Sequence[Tensor], Mapping[str, Any]], None]


class ShapeError(ValueError):
    """Operands that do not fit each other; the message says what was due."""


def text(shape: Sequence[Expr]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"


# -- the shape of the result --------------------------------------------------------------------


def same(sources: Sequence[Tensor]) -> Shape:
    return sources[0].ne


def broadcast(sources: Sequence[Tensor]) -> Shape:
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


def mul_mat(sources: Sequence[Tensor]) -> Shape:
    w, x = sources[0].ne, sources[1].ne
    if w[0] != x[0]:
        raise ShapeError(f"rows of source 0 have {w[0]} elements, rows of source 1 have {x[0]}")
    for dim in (2, 3):
        a, b = w[dim].constant, x[dim].constant
        if a != 1 and (a is None or b is None or a == 0 or b % a) and w[dim] != x[dim]:
            raise ShapeError(f"dimension {dim} of source 0 ({w[dim]}) does not divide {x[dim]}")
    return w[1], x[1], x[2], x[3]


def mul_mat_id(sources: Sequence[Tensor]) -> Shape:
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


def get_rows(sources: Sequence[Tensor]) -> Shape:
    table, ids = sources[0].ne, sources[1].ne
    if not sources[1].type.integer:
        raise ShapeError(
            f"source 1 holds row numbers: an integer type was due, not {sources[1].dtype}"
        )
    return table[0], ids[0], ids[1], ids[2]


def transpose(sources: Sequence[Tensor]) -> Shape:
    ne = sources[0].ne
    return ne[1], ne[0], ne[2], ne[3]


def sum_rows(sources: Sequence[Tensor]) -> Shape:
    ne = sources[0].ne
    return Expr.of(1), ne[1], ne[2], ne[3]


# -- what else must hold ------------------------------------------------------------------------


def fit_elements(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """As many elements come out as go in."""
    if dst.elements != sources[0].elements:
        raise ShapeError(
            f"the result has {dst.elements} elements, source 0 has {sources[0].elements}"
        )


def fit_gated(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """Gate and factor are two sources of the result's shape, or the halves of one's rows."""
    first = sources[0].ne
    if len(sources) == 1:
        _require("source 0", first, (dst.ne[0] * 2, *dst.ne[1:]))
        return
    _require("the result", dst.ne, first)
    _require("source 1", sources[1].ne, first)


def fit_soft_max(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """A mask has the rows' length, a row for each row, and planes that repeat (``ggml_soft_max``);
    there is a sink for each plane."""
    x = sources[0].ne
    if len(sources) > 1:
        mask = sources[1].ne
        if mask[0] != x[0] or _less(mask[1], x[1]):
            raise ShapeError(
                f"the mask (source 1) is {text(mask)}; rows of {x[0]}, and {x[1]} of them, were due"
            )
        for dim in (2, 3):
            _require_divides("the mask (source 1)", mask[dim], x[dim], dim)
    if len(sources) > 2 and sources[2].elements != x[2]:
        raise ShapeError(f"source 2 has {sources[2].elements} sinks; {x[2]} were due")


def fit_add_id(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """A bias as long as the rows, and an id for each row."""
    x, bias, ids = (source.ne for source in sources)
    _require_integer(sources[2], 2, "ids")
    if bias[0] != x[0]:
        raise ShapeError(f"rows of source 0 have {x[0]} elements, rows of source 1 have {bias[0]}")
    if ids[:2] != x[1:3]:
        raise ShapeError(f"the ids (source 2) are {text(ids[:2])}; {text(x[1:3])} were due")


def fit_numbers(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """The result holds numbers of elements."""
    if not dst.type.integer:
        raise ShapeError(f"the result holds numbers of elements: it is {dst.dtype}; i32 was due")


def fit_top_k(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """Numbers of elements, no more of them than a row has."""
    fit_numbers(dst, sources, params)
    x = sources[0].ne
    if _less(x[0], dst.ne[0]) or dst.ne[1:] != x[1:]:
        raise ShapeError(
            f"the result has shape {text(dst.ne)}; at most {x[0]} of each row of {text(x)} was due"
        )


def fit_set_rows(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """Rows as long as the destination's, and a row number for each (``ggml_set_rows``)."""
    rows, ids = sources[0].ne, sources[1].ne
    _require_integer(sources[1], 1, "row numbers")
    if rows[0] != dst.ne[0] or rows[2:] != dst.ne[2:]:
        raise ShapeError(f"source 0 is {text(rows)}; rows of {text(dst.ne)} were due")
    if ids[0] != rows[1]:
        raise ShapeError(f"source 0 has {rows[1]} rows, source 1 numbers {ids[0]}")
    for dim in (1, 2):
        _require_divides("source 1", ids[dim], rows[dim + 1], dim)


def fit_rope(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """A position for each token (four where the mode has sections), pairs inside the rows, and a
    divisor for each pair."""
    x, positions = sources[0].ne, sources[1].ne
    _require_integer(sources[1], 1, "positions")
    if positions[0] not in (x[2], x[2] * 4):
        raise ShapeError(f"source 1 has {positions[0]} positions for {x[2]} tokens")
    turned = params.get("n_dims")
    if turned is None:  # some recordings have no parameters
        return
    if isinstance(turned, bool) or not isinstance(turned, int) or turned < 2 or turned % 2:
        raise ShapeError(f"the parameter n_dims is {turned!r}; an even number from 2 on was due")
    if _less(x[0], Expr.of(turned)):
        raise ShapeError(f"the parameter n_dims is {turned}, and rows have {x[0]} elements")
    if len(sources) > 2 and _less(sources[2].ne[0], Expr.of(turned // 2)):
        raise ShapeError(f"source 2 has {sources[2].ne[0]} divisors for {turned // 2} pairs")


def fit_concat(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """Sizes add up along one dimension (``dim``, where it is given) and are equal in the others."""
    left, right = sources[0].ne, sources[1].ne
    along = params.get("dim")
    if along is not None and (isinstance(along, bool) or along not in range(4)):
        raise ShapeError(f"the parameter dim is {along!r}; 0 to 3 was due")
    for dim in range(4) if along is None else (along,):
        due = (*left[:dim], left[dim] + right[dim], *left[dim + 1 :])
        if dst.ne == due and right[:dim] + right[dim + 1 :] == left[:dim] + left[dim + 1 :]:
            return
    where = "along one dimension" if along is None else f"along dimension {along}"
    raise ShapeError(
        f"the result has shape {text(dst.ne)}; {text(left)} and {text(right)} put together "
        f"{where} was due"
    )


def fit_repeat(dst: Tensor, sources: Sequence[Tensor], params: Mapping[str, Any]) -> None:
    """Each size of the result is a multiple of the source's."""
    for dim in range(4):
        _require_divides("source 0", sources[0].ne[dim], dst.ne[dim], dim)


def _require(what: str, found: Shape, due: Shape) -> None:
    if found != due:
        raise ShapeError(f"{what} has shape {text(found)}; {text(due)} was due")


def _require_integer(tensor: Tensor, source: int, holds: str) -> None:
    if not tensor.type.integer:
        raise ShapeError(
            f"source {source} holds {holds}: an integer type was due, not {tensor.dtype}"
        )


def _require_divides(what: str, size: Expr, whole: Expr, dim: int) -> None:
    """Where both are numbers; of others equality and 1 are known to divide."""
    if size == whole or size.constant == 1:
        return
    if not size.constant or whole.constant is None or whole.constant % size.constant:
        raise ShapeError(f"dimension {dim} of {what} ({size}) does not divide {whole}")


def _less(left: Expr, right: Expr) -> bool:
    """Whether the first is known to be less."""
    difference = (left - right).constant
    return difference is not None and difference < 0
