"""What each op means: one NumPy function per op.

Arrays stand in ggml's dimension order (``array.shape == ne``, innermost first).  A function
takes the operands, the node and the destination's ``ne``; it returns float32 (or integers)
of that shape.  Sums are taken in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..model.graph import Node
from .quant import Array, Bytes
from .rotation import rope
from .rounding import with_rounding
from .source import Operand as Operand
from .source import OutOfRange as OutOfRange
from .source import Shape
from .unsupported import UnsupportedOp as UnsupportedOp

Function = Callable[[Sequence[Operand], Node, Shape], Array]
Elementwise = Callable[..., Any]


# -- matrix products ------------------------------------------------------------------------


def _dot(w: Array, x: Array) -> Array:
    """``w[k, m]``, ``x[k, n]`` to ``[m, n]``: rows are vectors, as in ``ggml_mul_mat``."""
    return (w.astype(np.float64).T @ x.astype(np.float64)).astype(np.float32)


def mul_mat(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``dst[m, n] = Σ_k w[k, m] · x[k, n]``; planes of ``w`` repeat over those of ``x``."""
    w, x = src[0].array, src[1].array
    result = np.zeros(ne, np.float32)
    # Plane i of x takes plane i // (x planes / w planes) of w, as grouped attention heads do.
    share2, share3 = (x.shape[d] // max(w.shape[d], 1) or 1 for d in (2, 3))
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            result[:, :, i2, i3] = _dot(w[:, :, i2 // share2, i3 // share3], x[:, :, i2, i3])
    return result


def mul_mat_id(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``dst[:, j, t] = w[:, :, ids[j, t]]ᵀ · x[:, j % x.ne[1], t]``; a negative id gives zeros."""
    experts, x, ids = src[0], src[1].array, src[2].array
    result = np.zeros(ne, np.float32)
    for expert in np.unique(ids):
        if expert < 0:
            continue
        slot, token = np.nonzero(ids[:, :, 0, 0] == expert)
        rows = x[:, slot % x.shape[1], token, 0]
        result[:, slot, token, 0] = _dot(experts.plane(int(expert)), rows)
    return result


# -- element-wise ---------------------------------------------------------------------------


def _repeated(array: Array, ne: Sequence[int]) -> Array:
    """Broadcast by repetition: ``ne`` is a multiple of the shape in each dimension."""
    if array.shape == tuple(ne):
        return array
    times = [want // have if have else 0 for want, have in zip(ne, array.shape, strict=True)]
    return np.tile(array, times)


def _binary(operation: Elementwise) -> Function:
    def function(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
        left = src[0].array
        with np.errstate(all="ignore"):
            result: Array = operation(left, _repeated(src[1].array, left.shape))
        return result

    return function


def _unary(operation: Elementwise) -> Function:
    def function(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
        with np.errstate(all="ignore"):
            result: Array = operation(src[0].array.astype(np.float64)).astype(np.float32)
        return result

    return function


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _silu(x: Array) -> Any:
    return x / (1 + np.exp(-x))


def _gelu(x: Array) -> Any:
    """The tanh form, as in ``ggml_gelu``."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)))


def _relu(x: Array) -> Any:
    return np.where(x > 0, x, x * 0)  # keeps a NaN, so that poison shows


def scale(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``x · scale + bias``."""
    factor, bias = np.float32(node.param("scale", 1.0)), np.float32(node.param("bias", 0.0))
    return src[0].array * factor + bias


def clamp(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    low, high = (float(node.param(k, d)) for k, d in (("min", -np.inf), ("max", np.inf)))
    return np.clip(src[0].array, np.float32(low), np.float32(high))


def add_id(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``x[:, j, t] + bias[:, ids[j, t]]``."""
    x, bias, ids = src[0].array, src[1].array, src[2].array[:, :, 0, 0]
    _require_range(ids, bias.shape[1], node, "ids")
    return x + bias[:, ids, 0, 0][:, :, :, None]


def _halves(src: Sequence[Operand], node: Node) -> tuple[Array, Array]:
    """Gate and factor: two sources, or the two halves of the rows of one."""
    if len(src) == 2:
        return src[0].array, src[1].array
    half = src[0].ne[0] // 2
    gate, up = src[0].array[:half], src[0].array[half:]
    return (up, gate) if node.param("swapped", False) else (gate, up)


def _gated(activation: Elementwise) -> Function:
    """``activation(a) · b``: two sources, or the two halves of the rows of one."""

    def function(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
        gate, up = _halves(src, node)
        with np.errstate(all="ignore"):
            result: Array = (activation(gate.astype(np.float64)) * up).astype(np.float32)
        return result

    return function


def swiglu_oai(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``g · sigmoid(alpha · g) · (u + 1)``, g limited from above, u on both sides (gpt-oss)."""
    alpha, limit = float(node.param("alpha", 1.702)), float(node.param("limit", 7.0))
    gate, up = _halves(src, node)
    g = np.minimum(gate.astype(np.float64), limit)
    u = np.clip(up.astype(np.float64), -limit, limit)
    with np.errstate(all="ignore"):
        result: Array = (g / (1 + np.exp(-alpha * g)) * (u + 1)).astype(np.float32)
    return result


def fill(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``value`` everywhere."""
    return np.full(ne, np.float32(float(node.param("value", 0.0))), np.float32)


# -- rows -----------------------------------------------------------------------------------


def rms_norm(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``x / sqrt(mean(x²) + eps)`` along dimension 0."""
    x = src[0].array.astype(np.float64)
    mean = np.mean(x * x, axis=0, keepdims=True)
    result: Array = (x / np.sqrt(mean + float(node.param("eps", 0.0)))).astype(np.float32)
    return result


def soft_max(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``softmax(x · scale + mask)`` along dimension 0; a third source holds a sink per head."""
    if node.param("max_bias", 0.0):
        raise UnsupportedOp(f"soft_max {node.dst}: max_bias (ALiBi) has no reference")
    x = src[0].array.astype(np.float64) * float(node.param("scale", 1.0))
    if len(src) > 1:
        mask = src[1].array[:, : x.shape[1]]
        x = x + _repeated(mask, (x.shape[0], x.shape[1], *_times(x, mask)))
    top = x.max(axis=0, keepdims=True, initial=-np.inf)
    rest: Array | float = 0.0
    if len(src) > 2:
        sinks = src[2].array.reshape(1, 1, -1, 1)
        top = np.maximum(top, sinks)
        rest = np.exp(sinks - top)
    with np.errstate(all="ignore"):
        weight = np.exp(x - top)
        result: Array = (weight / (weight.sum(axis=0, keepdims=True) + rest)).astype(np.float32)
    return result


def _times(x: Array, mask: Array) -> tuple[int, int]:
    return max(x.shape[2], mask.shape[2]), max(x.shape[3], mask.shape[3])


def argsort(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """Indices that sort each row; ``order`` is ``"asc"`` (0, the default) or ``"desc"`` (1).

    Equal values keep their order (ggml leaves it open).
    """
    order = node.param("order", "asc")
    if order not in ("asc", "desc", 0, 1):
        raise UnsupportedOp(f"argsort {node.dst}: order is 'asc' or 'desc', not {order!r}")
    keys = -src[0].array if order in ("desc", 1) else src[0].array
    return np.argsort(keys, axis=0, kind="stable").astype(np.int32)


def top_k(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """Indices of the ``ne[0]`` largest of each row, largest first (ggml: in any order)."""
    order = np.argsort(-src[0].array, axis=0, kind="stable")
    return order[: ne[0]].astype(np.int32)


def sum_rows(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    total: Array = src[0].array.sum(axis=0, keepdims=True, dtype=np.float64)
    return total.astype(np.float32)


def get_rows(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """``dst[:, i, j, k] = table[:, ids[i, j, k], j, k]`` (planes of the table repeat)."""
    table, ids = src[0].array, src[1].array
    _require_range(ids, table.shape[1], node, src[1].name)
    result = np.empty(ne, table.dtype)
    for k in range(ne[3]):
        for j in range(ne[2]):
            plane = table[:, :, j % table.shape[2], k % table.shape[3]]
            result[:, :, j, k] = plane[:, ids[:, j, k, 0]]
    return result


def rows_set(src: Sequence[Operand], node: Node, ne: Shape) -> list[tuple[int, int, int, Array]]:
    """What ``set_rows`` writes: ``(row, plane, cube, values)`` in order, later ones win.

    ``dst[:, ids[i, j % …, k % …], j, k] = src[:, i, j, k]``.
    """
    rows, ids = src[0].array, src[1].array
    _require_range(ids, ne[1], node, src[1].name)
    return [
        (int(ids[i, j % ids.shape[1], k % ids.shape[2], 0]), j, k, rows[:, i, j, k])
        for k in range(rows.shape[3])
        for j in range(rows.shape[2])
        for i in range(rows.shape[1])
    ]


def _require_range(ids: Array, count: int, node: Node, name: str) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise OutOfRange(f"{node.op} {node.dst}: {name} holds {wrong}; 0 to {count - 1} was due")


# -- moving bytes ---------------------------------------------------------------------------


def moved(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """The same elements in logical order, in the shape of the destination."""
    return src[0].array.reshape(ne, order="F")


def concat(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """Source 1 after source 0 along dimension ``dim``."""
    return np.concatenate([src[0].array, src[1].array], axis=int(node.param("dim", 0)))


def repeat(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    return _repeated(src[0].array, ne)


# -- hazards --------------------------------------------------------------------------------

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF


def scrambled(words: Array) -> Array:
    """splitmix64's finaliser, element by element (wraps at 64 bits)."""
    z = words.astype(np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def digest_of(sources: Sequence[Bytes]) -> int:
    """A 64-bit number in which every byte of every source counts, with its place.

    ``h ← scramble(h + Σ_k (byte_k + 1) · scramble(k + 1))``, source by source, from 0.
    """
    state = 0
    for raw in sources:
        weight = scrambled(np.arange(1, len(raw) + 1, dtype=np.uint64))
        total = int(((raw.astype(np.uint64) + np.uint64(1)) * weight).sum(dtype=np.uint64))
        state = int(scrambled(np.array([(state + total) & _WORD], np.uint64))[0])
    return state


def name_bytes(name: str) -> Bytes:
    """A tensor's name as the first source of a ``custom`` op: two ops on equal sources differ."""
    return np.frombuffer(name.encode(), np.uint8)


def mixed(sources: Sequence[Bytes], ne: Shape, integer: bool, values: tuple[int, int]) -> Array:
    """What ``custom`` writes: element k is ``scramble(digest + (k + 1) · golden)``, as a float in
    ``[-1, 1)`` (its top 24 bits over 2²³, less 1) or as ``lo + word % (hi - lo)``."""
    count = int(np.prod(ne, dtype=np.int64))
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    words = scrambled(steps + np.uint64(digest_of(sources)))
    if integer:
        low, high = values
        flat: Array = (words % np.uint64(max(high - low, 1))).astype(np.int64) + low
    else:
        flat = (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return flat.reshape(ne[::-1]).T


#: ``set_rows`` and ``custom`` stand apart: they do not write one whole destination.
FUNCTIONS: dict[str, Function] = {
    "mul_mat": mul_mat, "mul_mat_id": mul_mat_id,
    "add": _binary(np.add), "sub": _binary(np.subtract),
    "mul": _binary(np.multiply), "div": _binary(np.divide), "add_id": add_id,
    "silu": _unary(_silu), "sigmoid": _unary(_sigmoid), "gelu": _unary(_gelu),
    "relu": _unary(_relu), "scale": scale, "clamp": clamp,
    "swiglu": _gated(_silu), "geglu": _gated(_gelu), "swiglu_oai": swiglu_oai, "fill": fill,
    "rope": rope, "top_k": top_k,
    "rms_norm": rms_norm, "soft_max": soft_max, "argsort": argsort, "sum_rows": sum_rows,
    "get_rows": get_rows, "cont": moved, "cpy": moved, "dup": moved, "concat": concat,
    "repeat": repeat,
}  # fmt: skip


#: The same, with activations rounded as ggml's CPU kernels round them.
ROUNDED_FUNCTIONS: dict[str, Function] = {
    **FUNCTIONS, "mul_mat": with_rounding(mul_mat), "mul_mat_id": with_rounding(mul_mat_id)
}  # fmt: skip


def apply(src: Sequence[Operand], node: Node, ne: Shape, rounded: bool = False) -> Array:
    """The value of a node that writes one whole destination.  ``UnsupportedOp`` for others.

    ``rounded``: activations are rounded first, as the type of the weight that they meet has it.
    """
    function = (ROUNDED_FUNCTIONS if rounded else FUNCTIONS).get(node.op)
    if function is None:
        raise UnsupportedOp(f"{node.op} ({node.dst}) has no reference")
    result: Any = function(src, node, ne)
    return result
