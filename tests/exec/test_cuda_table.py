"""Which CUDA kernel an op finds."""

from __future__ import annotations

import numpy as np
import pytest
from operands import Placed, place
from splitproof.exec.cpu import table as cpu
from splitproof.exec.cuda.table import TABLE, choose
from splitproof.model.graph import Node
from splitproof.model.ops import OPS


def operands(*placed: Placed) -> list[object]:
    return [one.operand for one in placed]


def test_every_op_that_the_cpu_computes_has_a_kernel() -> None:
    ops = {row.op for row in cpu.TABLE} - {"custom"}
    assert {row.op for row in TABLE} == ops
    assert ops <= OPS.keys()


def test_every_row_has_its_kernel() -> None:
    for row in TABLE:
        kinds = [pattern.split("|")[0].replace("*", "f32") for pattern in row.types]
        given = [place(f"t{n}", kind, (4,), np.zeros(4)) for n, kind in enumerate(kinds)]
        given += [given[-1]] * (2 - len(given))
        node = Node(row.op, "y", ("s",), ())
        assert choose(node, operands(*given)).__module__.startswith("splitproof.exec.cuda.")


def test_a_type_without_a_kernel_is_named() -> None:
    y, x = place("y", "f32", (4,)), place("x", "f16", (4,), np.zeros(4))
    with pytest.raises(cpu.NoKernelError, match=r"silu y: no CUDA kernel for f32 f16 .* for f32$"):
        choose(Node("silu", "y", ("x",), ()), operands(y, x))


def test_an_op_without_a_kernel_is_named() -> None:
    y = place("y", "f32", (4,))
    with pytest.raises(cpu.NoKernelError, match=r"custom y: .* the op has none"):
        choose(Node("custom", "y", (), ()), operands(y))
