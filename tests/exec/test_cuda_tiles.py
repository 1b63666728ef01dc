"""Products by tensor cores, in tiles: against the NumPy reference, in Numba's simulator (or on a
GPU)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_operands import due_rounded, run, upload, weights
from numba import cuda
from operands import place
from splitproof.exec.cuda import matmul, target
from splitproof.exec.cuda.group import ordered
from splitproof.exec.cuda.launch import Launch
from splitproof.exec.cuda.packing import PACKINGS
from splitproof.exec.cuda.tiles import COLUMNS, ROWS, STEPS
from splitproof.exec.functions import OutOfRange
from splitproof.exec.quant import Array
from splitproof.model.graph import Node
from test_cuda_products import step
from test_kernels import close, normal

KINDS = list(PACKINGS)


# -- the instructions ---------------------------------------------------------------------------


@cuda.jit
def one_instruction(kind: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    """``d = a · b + c`` of fragments ``[registers, lanes]``."""
    t = cuda.threadIdx.x
    if kind == 0:
        found = target.mma_bytes(t, a[0, t], a[1, t], a[2, t], a[3, t], b[0, t], b[1, t])
    elif kind == 1:
        found = target.mma_few_bytes(t, a[0, t], a[1, t], b[0, t])
    elif kind == 2:
        found = target.mma_halves(
            t, a[0, t], a[1, t], a[2, t], a[3, t], b[0, t], b[1, t], c[0, t], c[1, t], c[2, t],
            c[3, t],
        )  # fmt: skip
    else:
        found = target.mma_brains(
            t, a[0, t], a[1, t], a[2, t], a[3, t], b[0, t], b[1, t], c[0, t], c[1, t], c[2, t],
            c[3, t],
        )  # fmt: skip
    d[0, t], d[1, t], d[2, t], d[3, t] = found


def elements(rows: bool, register: int, lane: int, per: int) -> list[tuple[int, int]]:
    """(line, place along k) of the ``per`` elements in a register, by the formulas of the PTX ISA.

    Of a (``rows``) the line is ``groupID`` for a0 and a2, else ``groupID + 8``, and k is in the
    second part for a2 and a3; of b it is ``groupID``, and k is in the second part for b1.
    """
    group, thread = lane >> 2, lane % 4
    line = group + 8 * (register % 2) if rows else group
    part = register // 2 if rows else register
    return [(line, 4 * per * part + thread * per + i) for i in range(per)]


def fragments(matrix: Array, per: int) -> Array:
    """A matrix ``[row or column, k]`` as words ``[registers, lanes]``."""
    rows, registers = len(matrix) == 16, matrix.size // per // 32
    found = np.zeros((registers, 32), np.uint32)
    for register in range(registers):
        for lane in range(32):
            values = [matrix[place] for place in elements(rows, register, lane, per)]
            found[register, lane] = np.array(values).view(np.uint32)[0]
    return found


@pytest.mark.skipif(not target.SIMULATED, reason="a kernel of Python's own types")
@pytest.mark.parametrize("kind", ["bytes", "few bytes", "halves", "brains"])
def test_fragments_are_those_of_the_ptx_isa(kind: str) -> None:
    rng, number = np.random.default_rng(1), ["bytes", "few bytes", "halves", "brains"].index(kind)
    depth = 32 if kind == "bytes" else 16
    size = (16, depth), (8, depth)
    if "bytes" in kind:
        a, b = (rng.integers(-128, 128, shape, np.int8) for shape in size)
        c, want, per = np.zeros((16, 8), np.float32), a.astype(int) @ b.astype(int).T, 4
    else:
        a, b = (rng.integers(-8, 8, shape).astype(np.float16) for shape in size)
        c = rng.integers(-8, 8, (16, 8)).astype(np.float32)
        want, per = a.astype(np.float32) @ b.astype(np.float32).T + c, 2
    if kind == "brains":
        a, b = ((m.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for m in (a, b))
    lanes = np.arange(32)
    line, column = lanes >> 2, lanes % 4 * 2
    results = [(line + 8 * (i >= 2), column + (i & 1)) for i in range(4)]
    given = np.stack([c[place] for place in results])
    out = np.zeros((4, 32), np.float32)
    one_instruction[1, 32](number, fragments(a, per), fragments(b, per), given, out)
    assert (out == np.stack([want[place] for place in results])).all()


# -- products -----------------------------------------------------------------------------------

#: blocks of a row, rows, columns and planes of x: tiles with edges, and one that is small
SIZES = [(kind, 1, 3, 9, 1) for kind in KINDS]
SIZES += [
    ("q8_0", STEPS + 1, ROWS + 3, COLUMNS + 1, 1), ("f16", STEPS + 1, 3, 9, 1), ("q4_0", 1, 3, 9, 2)
]  # fmt: skip


@pytest.mark.parametrize(("kind", "blocks", "rows", "columns", "planes"), SIZES)
def test_mul_mat(kind: str, blocks: int, rows: int, columns: int, planes: int) -> None:
    k = blocks * PACKINGS[kind].weights
    x_ne = (k, columns, planes)
    w, x = weights(kind, (k, rows), "gaps"), place("x", "f32", x_ne, normal(2, x_ne), "gaps")
    y = place("y", "f32", (rows, columns, planes), form="gaps")
    node = run("matmul", "mul_mat", y, [w, x])
    close(y.value, due_rounded(node, y, [w, x]))


CHOSEN = {
    "with an expert of nobody": [[0, 2, -1, 2, 0], [2, 0, 2, -5, 2]],
    "more than a tile": [[1] * (COLUMNS // 2 + 1)] * 2,
    "nobody": [[-1] * 4] * 2,
}


@pytest.mark.parametrize(
    ("kind", "name", "shared"),
    [(kind, "with an expert of nobody", True) for kind in KINDS]
    + [("q8_0", name, False) for name in CHOSEN],
)
def test_mul_mat_id(kind: str, name: str, shared: bool) -> None:
    number, k = np.array(CHOSEN[name]), PACKINGS[kind].weights
    used, tokens = number.shape
    experts = 3 if used * tokens > 2 * 3 else 1
    w, x_ne = weights(kind, (k, 3, experts)), (k, 1 if shared else used, tokens)
    x = place("x", "f32", x_ne, normal(2, x_ne), "gaps")
    chosen = place("ids", "i32", number.shape, number, "transposed")
    y = place("y", "f32", (3, used, tokens), form="gaps")
    node = run("matmul", "mul_mat_id", y, [w, x, chosen])
    close(y.value, due_rounded(node, y, [w, x, chosen]))
    assert not y.value[:, number < 0].any()


def test_an_expert_that_is_not_there() -> None:
    number = np.array([[0, 1, 2, -1, 0, 1]])
    w, x = weights("q8_0", (32, 3, 2)), place("x", "f32", (32, 1, 6), normal(2, (32, 1, 6)))
    chosen, y = place("ids", "i32", (1, 6), number), place("y", "f32", (3, 1, 6))
    (target_, buffer), there = upload(y), [upload(source)[0] for source in (w, x, chosen)]
    launch = Launch()
    matmul.mul_mat_id(target_, there, Node("mul_mat_id", "y"), launch)
    with pytest.raises(OutOfRange, match="outside the table"):
        launch.finish()
    y.buffer[:] = buffer.copy_to_host()
    assert np.isnan(y.value[:, 0, 2]).all()
    assert np.isfinite(y.value[:, 0, [0, 1, 3, 4, 5]]).all() and not y.value[:, 0, 3].any()


@pytest.mark.filterwarnings("ignore:.*invalid value:RuntimeWarning")
@pytest.mark.parametrize("kind", ["q8_0", "q4_k", "f16"])
def test_poison_is_not_rounded_away(kind: str) -> None:
    k = step(kind)
    value = normal(2, (k, 9))
    value[13, 4] = np.nan
    w, x, y = weights(kind, (k, 3)), place("x", "f32", (k, 9), value), place("y", "f32", (3, 9))
    run("matmul", "mul_mat", y, [w, x])
    assert np.isnan(y.value[:, 4]).all()
    assert np.isfinite(np.delete(y.value, 4, axis=1)).all()


@pytest.mark.parametrize("experts", [1, 3])
def test_pairs_in_the_order_of_their_experts(experts: int) -> None:
    number = np.random.default_rng(3).integers(-1, experts + 1, (3, COLUMNS))
    ids, launch = place("ids", "i32", number.shape, number, "gaps"), Launch()
    order, tiles = ordered(upload(ids)[0], experts, launch)
    found = order.copy_to_host()[: 2 * tiles * COLUMNS].reshape(tiles, COLUMNS, 2)
    flat = number.T.reshape(-1)
    group = np.where((flat < 0) | (flat >= experts), experts, flat)
    due: list[list[int]] = []
    for expert in range(experts + 1):
        pairs = [[pair % 3, pair // 3] for pair in np.nonzero(group == expert)[0].tolist()]
        due += pairs + [[-1, -1]] * (-len(pairs) % COLUMNS)
    due += [[-1, -1]] * (tiles * COLUMNS - len(due))
    assert found.reshape(-1, 2).tolist() == due


@pytest.mark.parametrize(("columns", "tiled"), [(8, False), (9, True)])
def test_where_tiles_begin(columns: int, tiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("block_product", "tiled_product"):
        kernel = getattr(matmul, name)
        monkeypatch.setattr(
            matmul, name, lambda kind, name=name, kernel=kernel: asked.append(name) or kernel(kind)
        )
    x = place("x", "f32", (32, columns), normal(2, (32, columns)))
    run("matmul", "mul_mat", place("y", "f32", (1, columns)), [weights("q8_0", (32, 1)), x])
    assert asked == ["tiled_product" if tiled else "block_product"]
