"""Each kernel against the NumPy reference, over shapes, strides and the edges of both."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import splitproof.exec.cpu as cpu
from operands import POISON, Placed, place
from splitproof.exec.cpu.table import TABLE, NoKernelError, choose
from splitproof.exec.functions import FUNCTIONS, OutOfRange, apply, mixed, name_bytes
from splitproof.exec.quant import Array, from_array, to_array
from splitproof.model.graph import Node
from splitproof.model.ops import OPS
from splitproof.model.tensor import dtype

RNG = np.random.default_rng


def run(op: str, dst: Placed, sources: Sequence[Placed], **params: object) -> Node:
    """Run the compiled kernel; nothing beside the destination may change."""
    node = Node(op, "y", tuple(f"s{i}" for i in range(len(sources))), tuple(params.items()))
    operands = [p.operand for p in (dst, *sources)]
    choice = choose(node, operands)
    assert choice.kernel is not None, "the reference was chosen: nothing is tested"
    before = [source.buffer.copy() for source in sources]
    choice.kernel(dst.operand, operands[1:], node)
    assert (dst.holes == POISON).all()
    for source, old in zip(sources, before, strict=True):
        assert (source.buffer == old).all()
    return node


def due(node: Node, dst: Placed, sources: Sequence[Placed]) -> Array:
    return apply([source.meant for source in sources], node, dst.operand.ne)


def normal(seed: int, ne: Sequence[int]) -> Array:
    return RNG(seed).standard_normal(tuple(ne), dtype=np.float32)


def weights(kind: str, ne: Sequence[int], form: str, seed: int = 1) -> Placed:
    return place("w", kind, ne, normal(seed, ne), form)


def rounded(x: Placed) -> Placed:
    """Activations through q8_0 and back, by the ``gguf`` package."""
    kind = dtype("q8_0")
    ne = x.operand.ne
    value = to_array(kind, from_array(kind, x.value), ne)
    return place("x", "f32", ne, value)


def close(got: Array, want: Array) -> None:
    size = np.abs(want).max(initial=0.0)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * size + 1e-30)


# -- products -------------------------------------------------------------------------------

#: w [k, rows, planes], tokens and planes of x
PRODUCTS = [
    ((32, 1, 1, 1), (32, 1, 1, 1)),
    ((64, 1, 1, 1), (64, 5, 1, 1)),
    ((64, 33, 1, 1), (64, 1, 1, 1)),
    ((96, 7, 1, 1), (96, 3, 1, 1)),
    ((32, 5, 2, 1), (32, 3, 4, 1)),
    ((64, 3, 1, 3), (64, 2, 5, 3)),
    ((64, 4, 1, 1), (64, 0, 1, 1)),
]


@pytest.mark.parametrize("form", ["packed", "gaps", "permuted", "transposed"])
@pytest.mark.parametrize(("w_ne", "x_ne"), PRODUCTS)
@pytest.mark.parametrize("kind", ["f32", "q8_0", "q4_0"])
def test_mul_mat(kind: str, w_ne: tuple[int, ...], x_ne: tuple[int, ...], form: str) -> None:
    w = weights(kind, w_ne, form)
    x = place("x", "f32", x_ne, normal(2, x_ne), form)
    y = place("y", "f32", (w_ne[1], *x_ne[1:]), form=form)
    node = run("mul_mat", y, [w, x])
    seen = rounded(x) if kind != "f32" else x
    close(y.value, due(node, y, [w, seen]))


@pytest.mark.parametrize("k", [7, 1, 33])
def test_mul_mat_of_odd_rows_in_f32(k: int) -> None:
    w, x = weights("f32", (k, 3), "gaps"), place("x", "f32", (k, 2), normal(2, (k, 2)))
    y = place("y", "f32", (3, 2))
    node = run("mul_mat", y, [w, x])
    close(y.value, due(node, y, [w, x]))


IDS = {
    "one token": [[0], [4]],
    "repeated in a token": [[2, 1], [2, 1], [2, 3]],
    "the same for all": [[3] * 7, [3] * 7],
    "negative": [[-1, 0, 4], [1, -1, -1]],
    "nobody": [[-1, -1], [-1, -1]],
    "no tokens": np.zeros((2, 0)),
    "no ids per token": np.zeros((0, 3)),
}


@pytest.mark.parametrize("form", ["packed", "gaps", "transposed"])
@pytest.mark.parametrize("shared", [True, False], ids=["one row a token", "a row per id"])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
@pytest.mark.parametrize("kind", ["f32", "q8_0", "q4_0"])
def test_mul_mat_id(kind: str, ids: list[list[int]], shared: bool, form: str) -> None:
    number = np.array(ids)
    used, tokens = number.shape
    w = weights(kind, (64, 9, 5), form)
    x_ne = (64, 1 if shared else used, tokens)
    x = place("x", "f32", x_ne, normal(2, x_ne), form)
    chosen = place("ids", "i32", number.shape, number, form)
    y = place("y", "f32", (9, used, tokens), form=form)
    node = run("mul_mat_id", y, [w, x, chosen])
    seen = rounded(x) if kind != "f32" else x
    want = due(node, y, [w, seen, chosen])
    close(y.value, want)
    assert not y.value[:, number < 0].any()


def test_mul_mat_id_refuses_an_expert_that_is_not_there() -> None:
    w, x = (
        weights("f32", (32, 2, 4), "packed"),
        place("x", "f32", (32, 1, 1), normal(2, (32, 1, 1))),
    )
    chosen, y = place("ids", "i32", (2, 1), np.array([[0], [4]])), place("y", "f32", (2, 2, 1))
    with pytest.raises(IndexError, match="expert 4 of ids: w has 4"):
        run("mul_mat_id", y, [w, x, chosen])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_rounded_activations_stay_within_half_a_step(scale: float) -> None:
    """|error| ≤ Σ_blocks max|x| (1/254 + 2⁻¹¹) Σ|w|: half a step, and the rounding of the step."""
    ne = (256, 6)
    w, x = weights("q8_0", (256, 40), "packed"), place("x", "f32", ne, normal(3, ne) * scale)
    x.operand.array[0, 0, 2] = 0  # an empty row has no step at all
    y = place("y", "f32", (40, 6))
    node = run("mul_mat", y, [w, x])
    exact = due(node, y, [w, x])
    most = np.abs(x.value[:, :, 0, 0]).reshape(8, 32, 6).max(axis=1)
    mass = np.abs(w.value[:, :, 0, 0]).reshape(8, 32, 40).sum(axis=1)
    bound = (mass.T @ most) * (1 / 254 + 2.0**-11) * 1.0001
    error = np.abs(y.value - exact)[:, :, 0, 0]
    assert (error <= bound).all()
    assert error.max() > bound.max() / 1000, "the activations were not rounded"
    assert not y.value[:, 2].any()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["f32", "q8_0", "q4_0"])
def test_poison_is_not_rounded_away(kind: str, poison: float) -> None:
    value = normal(2, (64, 3))
    value[40, 1] = poison
    w, x = weights(kind, (64, 5), "packed"), place("x", "f32", (64, 3), value)
    y = place("y", "f32", (5, 3))
    run("mul_mat", y, [w, x])
    assert not np.isfinite(y.value[:, 1]).any()
    assert np.isfinite(y.value[:, [0, 2]]).all()


# -- rows -----------------------------------------------------------------------------------

SHAPES = [(1, 1, 1, 1), (5, 1, 1, 1), (64, 3, 1, 1), (7, 2, 3, 2), (16, 0, 1, 1)]
FORMS = ["packed", "gaps", "transposed", "permuted"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ne", SHAPES)
@pytest.mark.parametrize("op", ["rms_norm", "silu", "soft_max"])
def test_one_source(op: str, ne: tuple[int, ...], form: str) -> None:
    x, y = place("x", "f32", ne, normal(4, ne) * 3, form), place("y", "f32", ne, form=form)
    params = {"rms_norm": {"eps": 1e-5}, "soft_max": {"scale": 0.5}}.get(op, {})
    node = run(op, y, [x], **params)
    close(y.value, due(node, y, [x]))


@pytest.mark.parametrize("op", ["rms_norm", "silu", "soft_max"])
def test_one_source_in_place(op: str) -> None:
    ne = (16, 3)
    x, y = place("x", "f32", ne, normal(4, ne)), place("y", "f32", ne, normal(4, ne))
    node = Node(op, "y", ("y",))
    kernel = choose(node, [y.operand, y.operand]).kernel
    assert kernel is not None
    kernel(y.operand, [y.operand], node)
    close(y.value, due(node, x, [x]))


@pytest.mark.parametrize("mask_kind", ["f32", "f16"])
@pytest.mark.parametrize("sinks", [False, True])
def test_soft_max_with_a_mask(mask_kind: str, sinks: bool) -> None:
    ne = (9, 4, 3, 2)
    x = place("x", "f32", ne, normal(5, ne), "gaps")
    allowed = np.tri(9, 4, k=5, dtype=np.float32)
    mask = np.where(allowed, 0, -np.inf).astype(np.float32)
    mask[0] = 0  # no row is masked altogether
    sources = [x, place("mask", mask_kind, (9, 4), mask)]
    if sinks:
        sources.append(place("sinks", "f32", (3,), normal(6, (3,))))
    y = place("y", "f32", ne)
    node = run("soft_max", y, sources, scale=0.25)
    close(y.value, due(node, y, sources))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [[3, 0, 3], [6], []], ids=["repeated", "one", "none"])
@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_0", "bf16"])
def test_get_rows(kind: str, rows: list[int], form: str) -> None:
    table = weights(kind, (64, 7), form)
    ids = place("ids", "i32", (len(rows),), np.array(rows, np.int64))
    y = place("y", "f32", (64, len(rows)), form=form)
    node = run("get_rows", y, [table, ids])
    want = due(node, y, [table, ids])
    assert (y.value == want).all()


@pytest.mark.parametrize("rows", [[3, 0, 3], []])
@pytest.mark.parametrize("kind", ["mxfp4", "q4_k", "q6_k"])
def test_get_rows_of_large_blocks(kind: str, rows: list[int]) -> None:
    table = place("table", kind, (512, 5, 2))
    table.operand.data[:] = RNG(3).integers(0, 60, len(table.operand.data), dtype=np.uint8)
    ids = place("ids", "i32", (len(rows), 2), np.array([rows, rows[::-1]], np.int64).T)
    y = place("y", "f32", (512, len(rows), 2))
    node = run("get_rows", y, [table, ids])
    assert (y.value == due(node, y, [table, ids])).all()


def test_get_rows_of_several_planes() -> None:
    table = weights("f32", (5, 7, 2), "gaps")
    number = RNG(7).integers(0, 7, (3, 2, 2))
    ids, y = place("ids", "i64", number.shape, number), place("y", "f32", (5, 3, 2, 2))
    node = run("get_rows", y, [table, ids])
    assert (y.value == due(node, y, [table, ids])).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ne", [(1, 7), (3, 7, 2, 2)])
def test_get_rows_of_numbers(ne: tuple[int, ...], form: str) -> None:
    """A slot map is looked up so; -1 says that an expert is nowhere."""
    table = place("map", "i32", ne, RNG(7).integers(-1, 2**31 - 1, ne), form)
    number = RNG(8).integers(0, 7, (4, *ne[2:]))
    ids = place("ids", "i32", number.shape, number, form)
    y = place("y", "i32", (ne[0], *number.shape), form=form)
    node = run("get_rows", y, [table, ids])
    assert (y.value == due(node, y, [table, ids])).all()


@pytest.mark.parametrize("wrong", [-1, 7])
@pytest.mark.parametrize("op", ["get_rows", "set_rows"])
def test_rows_that_are_not_there(op: str, wrong: int) -> None:
    ids = place("ids", "i32", (2,), np.array([0, wrong]))
    many, few = weights("f32", (4, 7), "packed"), weights("f32", (4, 2), "packed")
    dst, source = (few, many) if op == "get_rows" else (many, few)
    with pytest.raises(OutOfRange, match=f"{op} y: ids holds {wrong}; 0 to 6 was due"):
        run(op, dst, [source, ids])


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
    run("set_rows", y, [source, ids])
    for place_, row in enumerate(rows):
        want[:, row] = new[:, place_, :, None].astype(np.float16 if kind == "f16" else np.float32)
    assert (y.value == want).all()


def test_every_float16_is_widened_exactly() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    table = place("table", "f16", (64, 1024))
    table.operand.assign(bits.view(np.uint8))
    ids, y = place("ids", "i32", (1024,), np.arange(1024)), place("y", "f32", (64, 1024))
    run("get_rows", y, [table, ids])
    got = y.operand.array.reshape(-1)
    want = bits.view(np.float16).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


def test_float32_is_narrowed_as_numpy_does() -> None:
    """Random bits, every float16, and the middles between neighbours (ties)."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    some = RNG(12).integers(0, 2**32, 65536, dtype=np.uint32).view(np.float32)
    near = RNG(13).integers(0x33000000, 0x48000000, 65536, dtype=np.uint32).view(np.float32)
    edges = np.array([65504, 65519.99, 65520, np.inf, np.nan], np.float32)
    value = np.concatenate([halves, -halves, ties, -ties, some, near, edges])
    count = len(value)
    rows, y = place("rows", "f32", (count, 1), value), place("y", "f16", (count, 1))
    run("set_rows", y, [rows, place("ids", "i32", (1,), np.array([0]))])
    with np.errstate(over="ignore"):
        want = value.astype(np.float16)
    got = y.operand.array.reshape(-1)
    number = ~np.isnan(want)
    assert (got[number].view(np.uint16) == want[number].view(np.uint16)).all()
    assert np.isnan(got[~number]).all()


# -- element by element ---------------------------------------------------------------------

BROADCASTS = [
    ((6, 4, 2, 2), (6, 4, 2, 2)),
    ((6, 4, 2, 2), (6, 1, 1, 1)),
    ((6, 4, 2, 2), (1, 4, 2, 1)),
    ((6, 4, 2, 2), (3, 2, 1, 2)),
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((5, 0, 1, 1), (5, 1, 1, 1)),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("left", "right"), BROADCASTS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_two_sources(op: str, left: tuple[int, ...], right: tuple[int, ...], form: str) -> None:
    a = place("a", "f32", left, normal(10, left), form)
    b = place("b", "f32", right, normal(11, right), form)
    y = place("y", "f32", left, form=form)
    node = run(op, y, [a, b])
    assert (y.value == due(node, y, [a, b])).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["f32", "f16", "i32", "i64"])
def test_custom_is_the_same_to_the_bit(kind: str, form: str) -> None:
    sources = [weights("q8_0", (32, 3), form), place("x", "f32", (5, 3), normal(2, (5, 3)), form)]
    y = place("y", kind, (7, 3), form=form)
    run("custom", y, sources)
    raws = [name_bytes("y"), *(source.operand.packed() for source in sources)]
    integer = kind.startswith("i")
    want = from_array(dtype(kind), mixed(raws, y.operand.ne, integer, (0, 128)))
    assert (y.operand.packed() == want).all()


def test_custom_sees_every_byte() -> None:
    x, y = place("x", "f32", (9,), normal(2, (9,))), place("y", "f32", (4,))
    seen = set()
    for byte in (None, *range(36)):
        if byte is not None:
            x.operand.data[byte] ^= 1
        run("custom", y, [x])
        seen.add(y.operand.packed().tobytes())
    assert len(seen) == 37


# -- the table ------------------------------------------------------------------------------


def test_every_op_that_has_a_meaning_has_a_row() -> None:
    rows = {row.op for row in TABLE}
    assert rows == set(FUNCTIONS) | {"set_rows", "custom"}
    assert rows <= set(OPS)


def test_an_op_without_a_row_is_refused() -> None:
    x = place("x", "f32", (4,), normal(1, (4,)))
    with pytest.raises(NoKernelError, match="flash_attn_ext y: no row"):
        choose(Node("flash_attn_ext", "y", ("x",)), [x.operand, x.operand])


def test_types_without_a_kernel_go_to_the_reference_by_name() -> None:
    w, x = weights("q5_0", (32, 2), "packed"), place("x", "f32", (32, 1), normal(1, (32, 1)))
    y = place("y", "f32", (2, 1))
    choice = choose(Node("mul_mat", "y", ("w", "x")), [y.operand, w.operand, x.operand])
    assert (choice.op, choice.dtype, choice.kernel) == ("mul_mat", "q5_0", None)


def test_a_machine_without_float16_instructions(tmp_path: Path) -> None:
    """Compiled for the plainest processor, a q8_0 product gives the same numbers."""
    environment = {
        **os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent),
    }  # fmt: skip
    program = "import test_kernels as t; print(t.product().tobytes().hex())"
    plain = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    got = np.frombuffer(bytes.fromhex(plain.stdout.strip()), np.float32)
    np.testing.assert_allclose(got, product(), rtol=0, atol=2e-6 * np.abs(got).max())


def product() -> np.ndarray:
    """A small q8_0 product, flat."""
    w, x = weights("q8_0", (64, 5), "packed"), place("x", "f32", (64, 3), normal(2, (64, 3)))
    y = place("y", "f32", (5, 3))
    run("mul_mat", y, [w, x])
    return y.operand.array.reshape(-1).copy()


def test_kernels_call_no_compiled_helper_of_another_file() -> None:
    """The cache of compiled code would not see that helper change."""
    for path in Path(cpu.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.module not in ("matmul", "rows", "pointwise", "rotate"), path.name


def test_kernels_are_kept_by_the_text_of_what_writes_them() -> None:
    """A module that asks for a stamp names every module beside it that it takes code from."""
    checked = set()
    for path in Path(cpu.__path__[0]).glob("*.py"):
        tree = ast.parse(path.read_text())
        stamps = [
            {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "stamp"
        ]
        taken = {
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level == 1
        }
        for named in stamps:
            assert taken - {"native"} <= named, path.name
            checked.add(path.stem)
    assert checked == {"activations", "dots", "products"}
