"""Kernels of what a decoder needs besides products, against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest
from operands import Placed, place
from splitproof.exec.functions import OutOfRange, UnsupportedOp, apply
from splitproof.exec.parallel import LEAST_WORK, Team
from splitproof.exec.quant import Array, from_array, to_array
from splitproof.exec.rotation import Angles
from splitproof.exec.rounding import to_q8_0
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype
from test_kernels import close, due, normal, run, weights

FORMS = ["packed", "gaps", "transposed", "permuted"]
NE = (6, 4, 3, 2)


def some(name: str, seed: int, form: str = "packed", scale: float = 1.0) -> Placed:
    return place(name, "f32", NE, normal(seed, NE) * np.float32(scale), form)


# -- element by element -------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("op", "params"),
    [
        ("sigmoid", {}),
        ("scale", {"scale": 2.5, "bias": -0.5}),
        ("clamp", {"min": -0.5, "max": 0.25}),
        ("clamp", {"min": 2.0**-14, "max": "+inf"}),
    ],
)
def test_one_source(op: str, params: dict[str, object], form: str) -> None:
    x, y = some("x", 1, form, 2.0), place("y", "f32", NE, form=form)
    node = run(op, y, [x], **params)
    close(y.value, due(node, y, [x]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", ["swiglu", "swiglu_oai"])
def test_gates(op: str, form: str) -> None:
    gate, up = some("g", 2, form, 6.0), some("u", 3, form, 6.0)
    y = place("y", "f32", NE, form=form)
    node = run(op, y, [gate, up], alpha=1.702, limit=7.0)
    close(y.value, due(node, y, [gate, up]))


@pytest.mark.parametrize("swapped", [0, 1])
def test_a_gate_of_two_halves(swapped: int) -> None:
    both, y = some("x", 4, "gaps"), place("y", "f32", (3, *NE[1:]))
    node = run("swiglu", y, [both], swapped=swapped)
    close(y.value, due(node, y, [both]))


def test_the_limit_of_swiglu_oai_is_one_sided_for_the_gate() -> None:
    """Worked by hand: g = min(gate, 7), u = clamp(up), g·sigmoid(1.702 g)·(u + 1)."""
    gate = place("g", "f32", (3,), np.array([9.0, -9.0, 1.0], np.float32))
    up = place("u", "f32", (3,), np.array([9.0, 0.0, -9.0], np.float32))
    y = place("y", "f32", (3,))
    run("swiglu_oai", y, [gate, up])
    want = [7 / (1 + np.exp(-1.702 * 7)) * 8, -9 / (1 + np.exp(1.702 * 9)), -6 * 0.845795]
    np.testing.assert_allclose(y.value[:, 0, 0, 0], want, rtol=1e-5)


# -- rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_sums_of_rows(form: str) -> None:
    x, y = some("x", 5, form), place("y", "f32", (1, *NE[1:]))
    node = run("sum_rows", y, [x])
    close(y.value, due(node, y, [x]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_sorting_keeps_the_order_of_equals(order: str, form: str) -> None:
    value = np.random.default_rng(6).integers(-3, 3, NE).astype(np.float32)
    value[0, 0, 0, 0] = -np.inf
    x, y = place("x", "f32", NE, value, form), place("y", "i32", NE, form=form)
    node = run("argsort", y, [x], order=order)
    assert (y.value == due(node, y, [x])).all()


# -- moves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_packed_copy_of_another_shape(form: str) -> None:
    x, y = some("x", 7, form), place("y", "f32", (24, 6))
    node = run("cont", y, [x])
    assert (y.value == due(node, y, [x])).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_joined(dim: int, form: str) -> None:
    more = [size + 2 * (index == dim) for index, size in enumerate(NE)]
    rest = [2 if index == dim else size for index, size in enumerate(NE)]
    a, b = some("a", 8, form), place("b", "f32", rest, normal(9, rest), form)
    y = place("y", "f32", more, form=form)
    node = run("concat", y, [a, b], dim=dim)
    assert (y.value == due(node, y, [a, b])).all()


def test_a_bias_per_expert() -> None:
    x, bias = place("x", "f32", (6, 2, 3), normal(10, (6, 2, 3))), weights("f32", (6, 5), "gaps")
    ids = place("ids", "i32", (2, 3), np.array([[0, 4, 4], [1, 0, 2]]), "gaps")
    y = place("y", "f32", (6, 2, 3))
    node = run("add_id", y, [x, bias, ids])
    assert (y.value == due(node, y, [x, bias, ids])).all()
    with pytest.raises(OutOfRange, match="ids 0 to 5; 0 to 4 were due"):
        run("add_id", y, [x, bias, place("ids", "i32", (2, 3), np.array([[0, 5, 4], [1, 0, 2]]))])


@pytest.mark.parametrize("form", FORMS)
def test_the_same_everywhere(form: str) -> None:
    y = place("y", "f32", NE, form=form)
    run("fill", y, [some("x", 17, form)], value="-inf")
    assert (y.value == -np.inf).all()


# -- rotation -----------------------------------------------------------------------------------

YARN = {
    "n_ctx_orig": 32, "freq_scale": 0.25, "ext_factor": 1.0, "attn_factor": 1.0,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("yarn", [{}, YARN], ids=["plain", "yarn"])
@pytest.mark.parametrize("mode", ["normal", "neox"])
def test_rotation(mode: str, yarn: dict[str, float], form: str) -> None:
    ne = (12, 3, 5)
    x = place("x", "f32", ne, normal(11, ne), form)
    positions = place("p", "i32", (5,), np.array([0, 1, 7, 100, 5]))
    divisors = place("f", "f32", (4,), np.array([1, 1, 2, 4], np.float32))
    for sources in ([x, positions], [x, positions, divisors]):
        y = place("y", "f32", ne, form=form)
        params = {"n_dims": 8, "mode": mode, "freq_base": 150000.0, **yarn}
        node = run("rope", y, sources, **params)
        close(y.value, due(node, y, sources))
        assert (y.value[8:] == x.value[8:]).all()


@pytest.mark.parametrize(("mode", "pair"), [("normal", (2, 3)), ("neox", (1, 5))])
def test_rotation_by_hand(mode: str, pair: tuple[int, int]) -> None:
    """Pair 1 of position 3 turns by 3 · base^(-2/8)."""
    x, p = (
        place("x", "f32", (8, 1, 1), normal(12, (8, 1, 1))),
        place("p", "i32", (1,), np.array([3])),
    )
    y = place("y", "f32", (8, 1, 1))
    run("rope", y, [x, p], n_dims=8, mode=mode, freq_base=10000.0)
    a, b = (x.value[i, 0, 0, 0] for i in pair)
    angle = 3 * 10000.0**-0.25
    want = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    np.testing.assert_allclose([y.value[i, 0, 0, 0] for i in pair], want, rtol=1e-6)


def test_yarn_of_gpt_oss_by_hand() -> None:
    """low = 0, high = 3, and a size of 1 + 0.1 ln 4 (worked out beside the recorded models)."""
    node = Node("rope", "y", (), (("n_dims", 32), ("freq_base", 150000.0), *YARN.items()))
    found = Angles.of(node)
    np.testing.assert_allclose(found.ramp[:5], [1, 2 / 3, 1 / 3, 0, 0], atol=1e-6)
    assert found.size == pytest.approx(1.138629)


# -- rounded activations ------------------------------------------------------------------------


def test_rounding_is_that_of_the_package() -> None:
    """Equal but for halves: gguf rounds them away from zero, ggml's vector code to even."""
    x = np.random.default_rng(13).standard_normal((64, 40)).astype(np.float32)
    x[:32, 3] = 0
    kind = dtype("q8_0")
    want = to_array(kind, from_array(kind, x), x.shape)
    np.testing.assert_array_equal(to_q8_0(x), want)
    halves = np.zeros((32, 1), np.float32)
    halves[:5, 0] = [127, 0.5, 1.5, 2.5, -2.5]
    assert to_q8_0(halves)[:5, 0].tolist() == [127, 0, 2, 2, -2]


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_the_rounded_reference_is_what_the_kernel_computes(kind: str) -> None:
    w, x = weights(kind, (64, 9), "packed"), place("x", "f32", (64, 3), normal(14, (64, 3)))
    y = place("y", "f32", (9, 3))
    node = run("mul_mat", y, [w, x])
    rounded: Array = apply([w.meant, x.meant], node, y.operand.ne, rounded=True)
    plain: Array = apply([w.meant, x.meant], node, y.operand.ne)
    close(y.value, rounded)
    assert np.abs(plain - rounded).max() > 1e-3 * np.abs(plain).max()


# -- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["mul_mat", "mul_mat_id"])
def test_shared_products_are_the_same_to_the_bit(op: str) -> None:
    rows = LEAST_WORK // 256 // 6 + 7
    experts = 3 if op == "mul_mat_id" else 1
    w = weights("q8_0", (256, rows, experts), "packed")
    x = place("x", "f32", (256, 1, 6), normal(15, (256, 1, 6)))
    sources = [w, x]
    ne: tuple[int, ...] = (rows, 1, 6)
    if op == "mul_mat_id":
        sources.append(place("ids", "i32", (1, 6), np.array([[0, 2, 2, 1, 0, 0]])))
    alone, shared = place("y", "f32", ne), place("y", "f32", ne, form="gaps")
    node = run(op, alone, sources)
    team = Team(3)
    operands = [source.operand for source in sources]
    from splitproof.exec.cpu.table import choose

    kernel = choose(node, [shared.operand, *operands]).kernel
    assert kernel is not None
    team.run(kernel, node, shared.operand, operands)
    team.close()
    assert (shared.value == alone.value).all()
    assert (shared.holes == 0xFF).all()


def test_a_recording_without_parameters_is_unsupported() -> None:
    x, p = place("x", "f32", (8, 1, 1), normal(16, (8, 1, 1))), place("p", "i32", (1,))
    with pytest.raises(UnsupportedOp, match="rope y: the parameter n_dims is not given"):
        run("rope", place("y", "f32", (8, 1, 1)), [x, p])
