"""Products on a CUDA device against the NumPy reference, in Numba's simulator (or on a GPU).

The simulator raises on an index outside an array, so these tests watch the bounds too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_operands import due_rounded, run, weights
from operands import Placed, place
from splitproof.exec.functions import OutOfRange, UnsupportedOp
from splitproof.model.tensor import dtype
from test_kernels import IDS, close, normal

QUANTISED = ["q8_0", "q4_0", "q4_k", "q6_k"]
KINDS = ["f32", "f16", "bf16", *QUANTISED]

#: blocks of a row, rows and planes of w; tokens and planes of x; how all of them lie in memory
PRODUCTS = {
    "one of all": (1, (1, 1, 1), (1, 1, 1), "gaps"),
    "odd": (3, (3, 1, 1), (5, 1, 1), "packed"),
    "planes that repeat": (1, (3, 2, 1), (1, 4, 1), "permuted"),
    "planes of planes": (1, (2, 1, 2), (1, 3, 2), "gaps"),
    "no tokens": (2, (4, 1, 1), (0, 1, 1), "packed"),
}
CHOICES = [
    (kind, name, shared)
    for kind in KINDS for name in IDS for shared in (True, False)
    if kind in ("f32", "q8_0") or (name == "negative" and not shared)
]  # fmt: skip


def step(kind: str) -> int:
    """Weights of a block."""
    return max(32, dtype(kind).block)


@pytest.mark.parametrize(("blocks", "w_ne", "x_ne", "form"), PRODUCTS.values(), ids=PRODUCTS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_mul_mat(
    kind: str, blocks: int, w_ne: tuple[int, ...], x_ne: tuple[int, ...], form: str
) -> None:
    k = blocks * step(kind)
    w = weights(kind, (k, *w_ne), form)
    x = place("x", "f32", (k, *x_ne), normal(2, (k, *x_ne)), form)
    y = place("y", "f32", (w_ne[0], *x_ne), form=form)
    node = run("matmul", "mul_mat", y, [w, x])
    close(y.value, due_rounded(node, y, [w, x]))


@pytest.mark.parametrize("k", [7, 1, 33])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_mul_mat_of_odd_rows(kind: str, k: int) -> None:
    w, x = weights(kind, (k, 3), "transposed"), place("x", "f32", (k, 2), normal(2, (k, 2)))
    y = place("y", "f32", (3, 2))
    node = run("matmul", "mul_mat", y, [w, x])
    close(y.value, due_rounded(node, y, [w, x]))


@pytest.mark.parametrize(("kind", "name", "shared"), CHOICES)
def test_mul_mat_id(kind: str, name: str, shared: bool) -> None:
    number, k = np.array(IDS[name]), step(kind)
    used, tokens = number.shape
    w = weights(kind, (k, 5, 5))
    x_ne = (k, 1 if shared else used, tokens)
    x = place("x", "f32", x_ne, normal(2, x_ne), "gaps")
    chosen = place("ids", "i32", number.shape, number, "transposed")
    y = place("y", "f32", (5, used, tokens), form="gaps")
    node = run("matmul", "mul_mat_id", y, [w, x, chosen])
    close(y.value, due_rounded(node, y, [w, x, chosen]))
    assert not y.value[:, number < 0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_expert_that_is_not_there(kind: str) -> None:
    k = step(kind)
    w, x = weights(kind, (k, 2, 4)), place("x", "f32", (k, 1, 1), normal(2, (k, 1, 1)))
    chosen, y = place("ids", "i32", (2, 1), np.array([[0], [4]])), place("y", "f32", (2, 2, 1))
    with pytest.raises(OutOfRange, match="outside the table"):
        run("matmul", "mul_mat_id", y, [w, x, chosen])


@pytest.mark.filterwarnings("ignore:.*invalid value:RuntimeWarning")
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_poison_is_not_rounded_away(kind: str, poison: float) -> None:
    k = 2 * step(kind)
    value = normal(2, (k, 3))
    value[40, 1] = poison
    w, x = weights(kind, (k, 5)), place("x", "f32", (k, 3), value)
    y = place("y", "f32", (5, 3))
    run("matmul", "mul_mat", y, [w, x])
    assert not np.isfinite(y.value[:, 1]).any()
    assert np.isfinite(y.value[:, [0, 2]]).all()


@pytest.mark.parametrize("value", [0.0, 1e-42, -1e-42])
@pytest.mark.parametrize("kind", QUANTISED)
def test_activations_too_small_for_a_scale_count_as_zeros(kind: str, value: float) -> None:
    k = step(kind)
    x = place("x", "f32", (k, 1), np.full((k, 1), value, np.float32))
    w, y = weights(kind, (k, 2)), place("y", "f32", (2, 1))
    run("matmul", "mul_mat", y, [w, x])
    assert (y.value == 0).all()


def test_of_two_largest_the_first_one_gives_the_scale() -> None:
    value = np.tile(np.array([[0.5], [-3], [3], [0.25]], np.float32), (64, 1))
    w, x = weights("q4_k", (256, 3)), place("x", "f32", (256, 1), value)
    y = place("y", "f32", (3, 1))
    node = run("matmul", "mul_mat", y, [w, x])
    close(y.value, due_rounded(node, y, [w, x]))


def test_weights_that_loads_of_16_bytes_cannot_take_are_refused() -> None:
    w, x = weights("q4_k", (256, 3)), place("x", "f32", (256, 1), normal(2, (256, 1)))
    layout = replace(w.operand.layout, nb=(144, 136, 408, 408))
    between = Placed(replace(w.operand, layout=layout), w.buffer)
    with pytest.raises(UnsupportedOp, match="multiples of 16 bytes"):
        run("matmul", "mul_mat", place("y", "f32", (3, 1)), [between, x])
