"""Each CUDA kernel against the NumPy reference, in Numba's simulator (or on a GPU).

The simulator raises on an index outside an array, so these tests watch the bounds too.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_operands import run, weights
from operands import place
from splitproof.exec.functions import OutOfRange
from splitproof.model.tensor import dtype
from test_kernels import BROADCASTS, FORMS, SHAPES, close, due, normal

# -- rows -----------------------------------------------------------------------------------

ONE_SOURCE = {"rms_norm": {"eps": 1e-5}, "soft_max": {"scale": 0.5}, "sum_rows": {}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ne", SHAPES)
@pytest.mark.parametrize("op", ONE_SOURCE)
def test_one_source(op: str, ne: tuple[int, ...], form: str) -> None:
    x = place("x", "f32", ne, normal(4, ne) * 3, form)
    y = place("y", "f32", (1, *ne[1:]) if op == "sum_rows" else ne, form=form)
    node = run("rows", op, y, [x], **ONE_SOURCE[op])
    close(y.value, due(node, y, [x]))


@pytest.mark.parametrize("mask_kind", ["f32", "f16"])
@pytest.mark.parametrize("sinks", [False, True])
def test_soft_max_with_a_mask(mask_kind: str, sinks: bool) -> None:
    ne = (9, 4, 3, 2)
    x = place("x", "f32", ne, normal(5, ne), "gaps")
    mask = np.where(np.tri(9, 4, k=5, dtype=np.float32), 0, -np.inf).astype(np.float32)
    mask[0] = 0  # no row is masked altogether
    sources = [x, place("mask", mask_kind, (9, 4), mask)]
    if sinks:
        sources.append(place("sinks", "f32", (3,), normal(6, (3,))))
    y = place("y", "f32", ne)
    node = run("rows", "soft_max", y, sources, scale=0.25)
    close(y.value, due(node, y, sources))


@pytest.mark.parametrize("form", ["packed", "gaps"])
@pytest.mark.parametrize("rows", [[3, 0, 3], [6], []], ids=["repeated", "one", "none"])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k"])
def test_get_rows(kind: str, rows: list[int], form: str) -> None:
    k = max(64, dtype(kind).block)
    table = weights(kind, (k, 7), form)
    ids = place("ids", "i32", (len(rows),), np.array(rows, np.int64))
    y = place("y", "f32", (k, len(rows)), form=form)
    node = run("rows", "get_rows", y, [table, ids])
    assert (y.value == due(node, y, [table, ids])).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [[5, 0, 2], [1, 1, 1], []], ids=["apart", "repeated", "none"])
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_set_rows(kind: str, rows: list[int], form: str) -> None:
    ne = (6, len(rows), 2)
    old, new = normal(8, (6, 7, 2)), normal(9, ne) * 100
    source = place("rows", "f32", ne, new, form)
    ids = place("ids", "i64", (len(rows),), np.array(rows, np.int64))
    y = place("y", kind, (6, 7, 2), old, form)
    want = y.value.copy()
    run("rows", "set_rows", y, [source, ids])
    for place_, row in enumerate(rows):
        want[:, row] = new[:, place_, :, None].astype(np.float16 if kind == "f16" else np.float32)
    assert (y.value == want).all()


@pytest.mark.parametrize("wrong", [-1, 7])
@pytest.mark.parametrize("op", ["get_rows", "set_rows"])
def test_rows_that_are_not_there(op: str, wrong: int) -> None:
    ids = place("ids", "i32", (2,), np.array([0, wrong]))
    many, few = weights("f32", (4, 7), "packed"), weights("f32", (4, 2), "packed")
    dst, source = (few, many) if op == "get_rows" else (many, few)
    with pytest.raises(OutOfRange, match="outside the table"):
        run("rows", op, dst, [source, ids])


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_argsort(order: str) -> None:
    value = np.round(normal(7, (9, 4)), 1)
    value[3, 1] = np.nan
    x, y = place("x", "f32", (9, 4), value, "gaps"), place("y", "i32", (9, 4))
    node = run("rows", "argsort", y, [x], order=order)
    assert (y.value == due(node, y, [x])).all()


def test_top_k() -> None:
    x, y = place("x", "f32", (9, 4), normal(7, (9, 4))), place("y", "i32", (3, 4))
    node = run("rows", "top_k", y, [x])
    assert (y.value == due(node, y, [x])).all()


# -- element by element, and moves ----------------------------------------------------------


@pytest.mark.parametrize("form", ["packed", "permuted"])
@pytest.mark.parametrize(("left", "right"), BROADCASTS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_two_sources(op: str, left: tuple[int, ...], right: tuple[int, ...], form: str) -> None:
    a = place("a", "f32", left, normal(10, left), form)
    b = place("b", "f32", right, normal(11, right), form)
    y = place("y", "f32", left, form=form)
    node = run("pointwise", op, y, [a, b])
    assert (y.value == due(node, y, [a, b])).all()


def test_a_division_by_zero_is_that_of_ieee_754() -> None:
    a = place("a", "f32", (5,), np.array([1, -1, 0, np.nan, np.inf], np.float32))
    b = place("b", "f32", (5,), np.array([0, 0, 0, 0, -0.0], np.float32))
    y = place("y", "f32", (5,))
    node = run("pointwise", "div", y, [a, b])
    assert np.array_equal(y.value, due(node, y, [a, b]), equal_nan=True)


UNARY = {
    "silu": {}, "sigmoid": {}, "gelu": {}, "relu": {}, "scale": {"scale": 2.5, "bias": -1.0},
    "clamp": {"min": -0.5, "max": 0.75},
}  # fmt: skip


@pytest.mark.parametrize("form", ["gaps", "transposed"])
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, form: str) -> None:
    value = normal(12, (6, 3, 2)) * 4
    x, y = place("x", "f32", value.shape, value, form), place("y", "f32", value.shape, form=form)
    node = run("pointwise", op, y, [x], **UNARY[op])
    close(y.value, due(node, y, [x]))


@pytest.mark.parametrize("halves", [None, False, True])
@pytest.mark.parametrize("op", ["swiglu", "geglu", "swiglu_oai"])
def test_gates(op: str, halves: bool | None) -> None:
    y = place("y", "f32", (6, 3), form="gaps")
    if halves is None:
        sources = [place(n, "f32", (6, 3), normal(k, (6, 3)) * 9) for k, n in enumerate("ab")]
        node = run("pointwise", op, y, sources)
    else:
        sources = [place("a", "f32", (12, 3), normal(3, (12, 3)) * 9, "gaps")]
        node = run("pointwise", op, y, sources, swapped=halves)
    close(y.value, due(node, y, sources))


@pytest.mark.parametrize("mode", ["normal", "neox"])
@pytest.mark.parametrize("factors", [False, True])
def test_rope(mode: str, factors: bool) -> None:
    ne = (20, 3, 4)
    x = place("x", "f32", ne, normal(13, ne), "permuted")
    sources = [x, place("p", "i32", (4,), np.array([0, 3, 77, 5]))]
    if factors:
        sources.append(place("f", "f32", (8,), 1 + np.abs(normal(14, (8,)))))
    y = place("y", "f32", ne)
    params = {"n_dims": 16, "mode": mode, "freq_base": 1e4, "freq_scale": 0.5, "ext_factor": 1.0,
              "n_ctx_orig": 64}  # fmt: skip
    node = run("rotate", "rope", y, sources, **params)
    close(y.value, due(node, y, sources))


@pytest.mark.parametrize("kind", ["f32", "f16", "i32"])
def test_moves(kind: str) -> None:
    value = np.round(normal(15, (6, 4, 2)) * 50)
    x = place("x", kind, value.shape, value, "permuted")
    for op, ne in (("cont", (8, 3, 2)), ("dup", (6, 4, 2)), ("repeat", (12, 4, 6))):
        y = place("y", kind, ne, form="gaps")
        node = run("moves", op, y, [x])
        assert (y.value == due(node, y, [x])).all(), op


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_concat(dim: int) -> None:
    one, two = [3, 4, 2], [3, 4, 2]
    two[dim] += 2
    a = place("a", "f32", one, normal(16, one), "gaps")
    b = place("b", "f32", two, normal(17, two), "permuted")
    both = [*one]
    both[dim] += two[dim]
    y = place("y", "f32", both, form="gaps")
    node = run("moves", "concat", y, [a, b], dim=dim)
    assert (y.value == due(node, y, [a, b])).all()


def test_fill_and_add_id() -> None:
    y = place("y", "f32", (5, 3), form="gaps")
    run("moves", "fill", y, [], value=2.5)
    assert (y.value == 2.5).all()
    x, bias = place("x", "f32", (4, 2, 3), normal(18, (4, 2, 3))), weights("f32", (4, 6), "gaps")
    ids, y = (
        place("i", "i32", (2, 3), np.array([[0, 5, 2], [1, 1, 3]])),
        place("y", "f32", (4, 2, 3)),
    )
    node = run("moves", "add_id", y, [x, bias, ids])
    assert (y.value == due(node, y, [x, bias, ids])).all()
