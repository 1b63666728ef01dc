"""Each op against a formula written out in loops, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from splitproof.exec.evaluate import evaluate
from splitproof.exec.functions import (
    FUNCTIONS,
    Operand,
    OutOfRange,
    UnsupportedOp,
    apply,
    digest_of,
)
from splitproof.exec.layout import Layout
from splitproof.exec.quant import Array, from_array, to_array
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

RNG = np.random.default_rng(3)


def ne_of(array: Array) -> tuple[int, int, int, int]:
    a, b, c, d = (*array.shape, 1, 1, 1, 1)[:4]
    return a, b, c, d


def source(array: Array, kind: str = "f32") -> Operand:
    full = array.reshape(ne_of(array), order="F")
    return Operand("s", dtype(kind), ne_of(full), from_array(dtype(kind), full))


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def run(op: str, *sources: Operand, ne: tuple[int, ...], **params: Any) -> Array:
    full = (*ne, 1, 1, 1, 1)[:4]
    result = apply(sources, Node(op, "y", params=tuple(params.items())), full)
    assert result.shape == full
    return result


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0", "q6_K"])
def test_mul_mat_repeats_planes_in_groups(kind: str) -> None:
    if kind == "q6_K":
        raw = RNG.integers(0, 60, dtype("q6_K").block_bytes * 6, dtype=np.uint8)
        w = Operand("w", dtype(kind), (256, 3, 2, 1), raw)
    else:
        w = source(floats(64, 3, 2), kind)
    x = floats(w.ne[0], 5, 4)
    got = run("mul_mat", w, source(x), ne=(3, 5, 4))
    for m, n, plane in np.ndindex(3, 5, 4):
        terms = w.array[:, m, plane // 2, 0].astype(float) * x[:, n, plane]
        assert got[m, n, plane, 0] == pytest.approx(math.fsum(terms), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("kind", "rows"), [("f32", 1), ("q8_0", 1), ("q4_0", 2)])
def test_mul_mat_id_takes_the_expert_of_each_id(kind: str, rows: int) -> None:
    experts, x = source(floats(32, 3, 4), kind), floats(32, rows, 5)
    ids = RNG.integers(0, 4, (2, 5))
    ids[1, 2] = -1
    got = run("mul_mat_id", experts, source(x), source(ids, "i32"), ne=(3, 2, 5))
    for m, j, t in np.ndindex(3, 2, 5):
        expert = ids[j, t]
        terms = experts.array[:, m, expert, 0].astype(float) * x[:, j % rows, t]
        due = 0.0 if expert < 0 else math.fsum(terms)
        assert got[m, j, t, 0] == pytest.approx(due, rel=1e-5, abs=1e-5)


def test_mul_mat_id_refuses_an_id_without_an_expert() -> None:
    ids = source(np.array([[4]]), "i32")
    with pytest.raises(OutOfRange, match="there is no number 4"):
        run("mul_mat_id", source(floats(8, 2, 4)), source(floats(8, 1, 1)), ids, ne=(2, 1, 1))


@pytest.mark.parametrize(
    ("op", "due"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul", lambda a, b: a * b),
        ("div", lambda a, b: a / b),
    ],
)
def test_binary_ops_repeat_the_second_source(op: str, due: Any) -> None:
    a, b = floats(6, 4), floats(3, 1)
    got = run(op, source(a), source(b), ne=(6, 4))
    for i, j in np.ndindex(6, 4):
        assert got[i, j, 0, 0] == pytest.approx(due(float(a[i, j]), float(b[i % 3, 0])), rel=1e-5)


@pytest.mark.parametrize(
    ("op", "due"),
    [
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
        ("relu", lambda x: max(x, 0.0)),
        ("gelu", lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
    ],
)
def test_unary_ops(op: str, due: Any) -> None:
    x = floats(40)
    got = run(op, source(x), ne=(40,)).reshape(-1)
    # ggml's gelu is the tanh approximation of the exact one, good to about 5e-4
    limit = 5e-4 if op == "gelu" else 1e-6
    assert np.abs(got - [due(float(v)) for v in x]).max() < limit


def test_scale_and_clamp() -> None:
    x = floats(20)
    np.testing.assert_allclose(
        run("scale", source(x), ne=(20,), scale=0.5, bias=2.0).reshape(-1), x * 0.5 + 2, rtol=1e-6
    )
    got = run("clamp", source(x), ne=(20,), min=-0.5, max=0.25).reshape(-1)
    assert list(got) == [min(max(v, np.float32(-0.5)), np.float32(0.25)) for v in x]


def test_rms_norm_scales_each_row_to_unit_mean_square() -> None:
    got = run("rms_norm", source(floats(16, 3)), ne=(16, 3), eps=0.0)
    np.testing.assert_allclose((got**2).mean(axis=0), 1.0, rtol=1e-5)
    x = np.full((4, 1), 3.0, np.float32)
    got = run("rms_norm", source(x), ne=(4, 1), eps=7.0)
    np.testing.assert_allclose(got, 3 / math.sqrt(9 + 7), rtol=1e-6)


def test_soft_max_with_scale_mask_and_sinks() -> None:
    x, mask, sinks = floats(5, 3, 2), floats(5, 4), floats(2)
    mask[0, 1] = -np.inf
    sources = source(x), source(mask, "f16"), source(sinks)
    got = run("soft_max", *sources, ne=(5, 3, 2), scale=0.3)
    rounded = mask.astype(np.float16).astype(float)
    for row, head in np.ndindex(3, 2):
        scores = [float(x[i, row, head]) * 0.3 + rounded[i, row] for i in range(5)]
        total = sum(map(math.exp, scores)) + math.exp(sinks[head])
        for i in range(5):
            assert got[i, row, head, 0] == pytest.approx(math.exp(scores[i]) / total, rel=1e-5)


def test_argsort_both_ways_and_stable() -> None:
    x = np.array([[2.0, 1.0, 2.0, -1.0]], np.float32).T
    assert list(run("argsort", source(x), ne=(4, 1)).reshape(-1)) == [3, 1, 0, 2]
    assert list(run("argsort", source(x), ne=(4, 1), order="desc").reshape(-1)) == [0, 2, 1, 3]


def test_rows() -> None:
    x = floats(4, 3)
    np.testing.assert_allclose(
        run("sum_rows", source(x), ne=(1, 3)).reshape(-1), x.sum(axis=0), rtol=1e-5, atol=1e-6
    )
    table, ids = source(floats(32, 5, 2), "q8_0"), np.array([[3, 0], [1, 4], [2, 2]])
    got = run("get_rows", table, source(ids, "i32"), ne=(32, 3, 2))
    for i, j in np.ndindex(3, 2):
        np.testing.assert_array_equal(got[:, i, j, 0], table.array[:, ids[i, j], j, 0])
    with pytest.raises(OutOfRange, match="holds 5; 0 to 4 was due"):
        run("get_rows", table, source(np.array([[5]]), "i32"), ne=(32, 1, 1))


def test_moving() -> None:
    x = floats(4, 6)
    got = run("cont", source(x), ne=(3, 8))
    np.testing.assert_array_equal(got.reshape(-1, order="F"), x.reshape(-1, order="F"))
    y = floats(4, 2)
    got = run("concat", source(x), source(y), ne=(4, 8), dim=1)
    np.testing.assert_array_equal(got[:, 6:, 0, 0], y)
    got = run("repeat", source(y), ne=(8, 2))
    np.testing.assert_array_equal(got[4:, :, 0, 0], y)


def test_gated_ops_take_two_sources_or_two_halves() -> None:
    gate, up = floats(4, 3), floats(4, 3)
    due = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(
        run("swiglu", source(gate), source(up), ne=(4, 3))[:, :, 0, 0], due, rtol=1e-5
    )
    both = np.concatenate([gate, up])
    np.testing.assert_allclose(run("swiglu", source(both), ne=(4, 3))[:, :, 0, 0], due, rtol=1e-5)
    swapped = run("swiglu", source(np.concatenate([up, gate])), ne=(4, 3), swapped=True)
    np.testing.assert_allclose(swapped[:, :, 0, 0], due, rtol=1e-5)


def target(kind: str, ne: tuple[int, int, int, int], values: Any = None) -> Layout:
    t = dtype(kind)
    row = ne[0] // t.block * t.block_bytes
    return Layout(
        "y", t, ne, (t.block_bytes, row, row * ne[1], row * ne[1] * ne[2]), "b", 0, values
    )


def test_set_rows_leaves_the_other_rows() -> None:
    rows, ids = floats(32, 2), source(np.array([3, 1]), "i64")
    cache = target("f16", (32, 5, 1, 1))
    old = from_array(cache.dtype, floats(32, 5).reshape(32, 5, 1, 1))
    written = evaluate(Node("set_rows", "y"), [source(rows), ids], [cache], old)[0]
    after, before = (to_array(cache.dtype, raw, cache.ne) for raw in (written.raw, old))
    np.testing.assert_array_equal(after[:, 3, 0, 0], rows[:, 0].astype(np.float16))
    np.testing.assert_array_equal(after[:, 1, 0, 0], rows[:, 1].astype(np.float16))
    for kept in (0, 2, 4):
        np.testing.assert_array_equal(after[:, kept], before[:, kept])
    assert written.mask is not None and written.mask.sum() == 2 * 64


@pytest.mark.parametrize(("kind", "values"), [("f32", None), ("i32", (3, 9)), ("f16", None)])
def test_custom_shows_every_byte(kind: str, values: Any) -> None:
    sources = [source(floats(8)), source(floats(4))]
    place = target(kind, (8, 2, 1, 1), values)
    first = evaluate(Node("custom", "y"), sources, [place])[0].raw
    array = to_array(place.dtype, first, place.ne)
    if values is None:
        assert np.isfinite(array).all() and np.abs(array).max() <= 1
    else:
        assert array.min() >= 3 and array.max() < 9
    for which, count in ((0, 32), (1, 16)):
        for byte in range(count):
            changed = list(sources)
            raw = sources[which].raw.copy()
            raw[byte] ^= 1
            changed[which] = Operand("s", dtype("f32"), sources[which].ne, raw)
            assert (
                evaluate(Node("custom", "y"), changed, [place])[0].raw.tobytes() != first.tobytes()
            )


def test_the_digest_is_the_documented_number() -> None:
    """Written out with plain integers, so that another implementation can hold itself to it."""
    word = (1 << 64) - 1

    def scramble(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & word
        z = (z ^ z >> 27) * 0x94D049BB133111EB & word
        return z ^ z >> 31

    state = 0
    for raw in (b"\x00\xff\x07", b"", b"\x01"):
        total = sum((byte + 1) * scramble(k + 1) for k, byte in enumerate(raw))
        state = scramble(state + total & word)
    got = digest_of([np.frombuffer(raw, np.uint8) for raw in (b"\x00\xff\x07", b"", b"\x01")])
    assert got == state


def test_an_op_without_a_meaning_is_named() -> None:
    assert "flash_attn_ext" not in FUNCTIONS
    with pytest.raises(UnsupportedOp, match=r"flash_attn_ext \(y\) has no reference"):
        run("flash_attn_ext", source(floats(4)), ne=(4,))
