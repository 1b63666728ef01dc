"""Which CUDA kernel runs an op: rows as in ``exec/cpu/table.py``, by the types of the operands.

There is no reference to fall back on: what no row takes must run on another device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ...model.graph import Node
from ..cpu.table import NoKernelError, Row
from ..operand import Operand

if TYPE_CHECKING:
    from .launch import Launch

    Kernel = Callable[[Operand, Sequence[Operand], Node, Launch], None]

_WEIGHTS = "f32|f16|bf16|q8_0|q4_0|q4_k|q6_k"
_POINTWISE = ("add", "sub", "mul", "div", "silu", "sigmoid", "gelu", "relu", "scale", "clamp")
_GATES = ("swiglu", "geglu", "swiglu_oai")
#: types whose elements are moved as they are
_MOVED = ("f32", "f16", "i8", "i16", "i32", "i64")

TABLE: tuple[Row, ...] = (
    Row("mul_mat", ("f32", _WEIGHTS, "f32"), "matmul"),
    Row("mul_mat_id", ("f32", _WEIGHTS, "f32", "i32"), "matmul"),
    Row("rms_norm", ("f32",), "rows"),
    Row("soft_max", ("f32", "f32", "f32|f16", "f32"), "rows"),
    Row("sum_rows", ("f32",), "rows"),
    Row("argsort", ("i32", "f32"), "rows"),
    Row("top_k", ("i32", "f32"), "rows"),
    Row("get_rows", ("f32", _WEIGHTS, "i32"), "rows"),
    Row("get_rows", ("i32", "i32", "i32"), "slots"),
    Row("set_rows", ("f32|f16", "f32", "i32|i64", "*"), "rows"),
    *(Row(op, ("f32",), "pointwise") for op in (*_POINTWISE, *_GATES)),
    Row("rope", ("f32", "f32", "i32", "f32"), "rotate"),
    *(Row(op, (kind,), "moves") for op in ("cont", "cpy", "dup", "repeat", "concat")
      for kind in _MOVED),
    Row("fill", ("f32",), "moves"),
    Row("add_id", ("f32", "f32", "f32", "i32"), "moves"),
)  # fmt: skip


def choose(node: Node, operands: Sequence[Operand]) -> Kernel:
    """The kernel of a node; ``operands``: its destination, then its sources.  ``NoKernelError``."""
    types = [operand.dtype for operand in operands]
    rows = [row for row in TABLE if row.op == node.op]
    for row in rows:
        if row.takes(types) and row.module is not None:
            kernel: Kernel = getattr(import_module(f"{__package__}.{row.module}"), row.op)
            return kernel
    known = " or ".join(" ".join(row.types) for row in rows)
    raise NoKernelError(
        f"{node.op} {node.dst}: no CUDA kernel for {' '.join(types)} (destination, then sources); "
        + (f"there is one for {known}" if rows else "the op has none")
    )
