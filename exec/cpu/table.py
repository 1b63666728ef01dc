"""Which kernel runs an op: one row per op, by the types of its operands.

What no row takes runs on the NumPy reference, and only because a row says so: an op without
any row is an error.  Kernels are imported when they are first asked for, since Numba takes a
third of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from ...model.graph import Node
from ...model.ops import OPS
from ..operand import Operand
from ..panels import PANEL_TYPES, SUFFIX, file_type

#: It takes its destination, its sources and the node; a product also who shares its work.
Kernel = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Row:
    """``types``: those of the destination and of each source, alternatives joined by ``|``;
    ``*`` matches every type, the last pattern holds for all further sources.  ``module``: where
    the function named as the op stands; ``None`` is the reference."""

    op: str
    types: tuple[str, ...]
    module: str | None

    def takes(self, types: Sequence[str]) -> bool:
        patterns = self.types + self.types[-1:] * (len(types) - len(self.types))
        return all(
            pattern == "*" or kind in pattern.split("|")
            for kind, pattern in zip(types, patterns, strict=False)
        )


#: The operand whose type names a kernel in a report: the weight; the destination for set_rows.
_WEIGHT = {"set_rows": 0}

_WEIGHTS = "|".join(
    ["f32", "f16", "bf16", *sorted(PANEL_TYPES), *sorted(kind + SUFFIX for kind in PANEL_TYPES)]
)

_KERNELS = (
    Row("mul_mat", ("f32", _WEIGHTS, "f32"), "matmul"),
    Row("mul_mat_id", ("f32", _WEIGHTS, "f32", "i32"), "matmul"),
    Row("rms_norm", ("f32",), "rows"),
    Row("soft_max", ("f32", "f32", "f32|f16", "f32"), "rows"),
    Row("get_rows", ("f32", "f32|f16|q8_0|q4_0", "i32|i64"), "rows"),
    Row("get_rows", ("i32", "i32", "i32|i64"), "rows"),
    Row("get_rows", ("f32", "bf16|mxfp4|q4_k|q6_k", "i32|i64"), "moves"),
    Row("set_rows", ("f32|f16", "f32", "i32|i64", "*"), "rows"),
    Row("add", ("f32",), "pointwise"),
    Row("mul", ("f32",), "pointwise"),
    Row("silu", ("f32",), "pointwise"),
    *(Row(op, ("f32",), "pointwise") for op in ("sub", "div", "sigmoid", "scale", "clamp")),
    *(Row(op, ("f32",), "pointwise") for op in ("swiglu", "swiglu_oai")),
    Row("sum_rows", ("f32",), "rows"),
    Row("argsort", ("i32", "f32"), "rows"),
    Row("rope", ("f32", "f32", "i32", "f32"), "rotate"),
    Row("cont", ("f32",), "moves"),
    Row("concat", ("f32",), "moves"),
    Row("fill", ("f32",), "moves"),
    Row("add_id", ("f32", "f32", "f32", "i32"), "moves"),
    Row("custom", ("*",), "pointwise"),
)

_REFERENCE = (
    "mul_mat", "mul_mat_id", "rms_norm", "soft_max", "get_rows", "set_rows", "add", "mul", "silu",
    "sub", "div", "add_id", "sigmoid", "gelu", "relu", "scale", "clamp", "swiglu", "geglu",
    "argsort", "sum_rows", "cont", "cpy", "dup", "concat", "repeat", "swiglu_oai", "fill", "rope",
    "top_k",
)  # fmt: skip

TABLE: tuple[Row, ...] = _KERNELS + tuple(Row(op, ("*",), None) for op in _REFERENCE)


class NoKernelError(ValueError):
    """An op that neither a kernel nor the reference computes; the message names the node."""


@dataclass(frozen=True, slots=True)
class Choice:
    """``kernel`` is ``None`` where the reference computes the op.  ``dtype``: the weight's, as
    files call it."""

    op: str
    dtype: str
    kernel: Kernel | None


def choose(node: Node, operands: Sequence[Operand]) -> Choice:
    """The kernel of a node; ``operands``: its destination, then its sources.  ``NoKernelError``."""
    types = [operand.dtype for operand in operands]
    weight = weight_type(node, operands)
    for row in TABLE:
        if row.op == node.op and row.takes(types):
            kernel = None if row.module is None else _load(row.module, row.op)
            return Choice(node.op, weight, kernel)
    known = "no row in the kernel table" if node.op in OPS else "no such op"
    raise NoKernelError(f"{node.op} {node.dst}: {known}")


def weight_type(node: Node, operands: Sequence[Operand]) -> str:
    """The type that names a kernel in a report."""
    index = _WEIGHT.get(node.op, 1)
    return file_type(operands[index if index < len(operands) else 0].layout.dtype)[0]


def _load(module: str, name: str) -> Kernel:
    kernel: Kernel = getattr(import_module(f"{__package__}.{module}"), name)
    return kernel
