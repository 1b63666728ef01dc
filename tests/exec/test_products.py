"""Products on each instruction set that this machine has, held against the NumPy reference."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from operands import Placed, place
from splitproof.exec.cpu import matmul, native
from splitproof.exec.cpu.blocks import FORMS
from splitproof.exec.cpu.emit import PATHS, Line, Portable, Vnni
from splitproof.exec.cpu.table import choose
from splitproof.exec.functions import apply
from splitproof.exec.operand import Operand
from splitproof.exec.panels import PANEL, PANEL_TYPES, pack, panel_type
from splitproof.exec.parallel import Team
from splitproof.exec.quant import Array
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

RNG = np.random.default_rng
QUANTISED = ("q8_0", "q4_0", "mxfp4", "q4_k", "q6_k")
PLAIN = ("f32", "f16", "bf16")
Path = int


class Spelled(Vnni):
    """The code for VNNI with its own instructions spelled out, so that every machine can run it."""

    def products(self, line: Line, activations: Any, before: Any) -> Any:
        left, right = self._split(line.values, False), self._split(activations[0], True)
        for pair in zip(left, right, strict=True):
            before = self.plus(before, self.dots(*pair))
        return before

    look_up = Portable.look_up


#: A number of its own: compiled code is kept by it, and by what this file says.
SPELLED = 100 + zlib.crc32(FilePath(__file__).read_bytes())
SETS = {name: path for name, path in native.NAMES.items() if native.available(path)}
if native.available(native.NAMES["avx2"]):
    SETS["vnni, spelled out"] = SPELLED


@pytest.fixture(params=SETS.values(), ids=SETS.keys())
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Each instruction set that this machine has in turn, forced."""
    monkeypatch.setitem(PATHS, SPELLED, Spelled)
    monkeypatch.setattr(matmul, "native_path", lambda: request.param)
    yield request.param


def quantised_bytes(kind: str, rows: int, k: int, seed: int) -> np.ndarray:
    """Rows of random blocks: every bit pattern of the integers, scales of a sensible size."""
    form, rng = next(f for f in FORMS if f.name == kind), RNG(seed)
    raw = rng.integers(0, 256, (rows, k // form.block, form.bytes), dtype=np.uint8)
    for at in form.scales:
        if form.width == 1:
            raw[:, :, at] = rng.integers(122, 130, raw.shape[:2])
            continue
        scales = rng.uniform(-1, 1, raw.shape[:2]).astype(np.float16)
        raw[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(-1)


def weight(kind: str, k: int, rows: int, experts: int = 1, seed: int = 1) -> Placed:
    ne = (k, rows, experts)
    if kind in PLAIN:
        return place("w", kind, ne, RNG(seed).standard_normal(ne, dtype=np.float32))
    placed = place("w", kind, ne)
    placed.operand.data[:] = quantised_bytes(kind, rows * experts, k, seed)
    return placed


def as_panels(w: Placed) -> Operand:
    """A copy whose rows stand as panels."""
    kind, raw = w.operand.layout.dtype, w.operand.data.copy()
    pack(raw, kind, w.operand.ne)
    return Operand(replace(w.operand.layout, dtype=panel_type(kind)), raw)


def activations(*ne: int, seed: int = 2, form: str = "packed") -> Placed:
    return place("x", "f32", ne, RNG(seed).standard_normal(ne, dtype=np.float32), form)


def product(w: Operand, *rest: Placed, rows: int, team: int = 1, op: str = "mul_mat") -> Array:
    shape = (rows, *rest[0].operand.ne[1:]) if op == "mul_mat" else (rows, *rest[1].operand.ne[:2])
    y = place("y", "f32", shape)
    node = Node(op, "y", ("w", "x", "ids")[: 1 + len(rest)])
    sources = [w, *(p.operand for p in rest)]
    choice = choose(node, [y.operand, *sources])
    assert choice.kernel is not None
    crew = Team(team)
    crew.run(choice.kernel, node, y.operand, sources)
    crew.close()
    return y.value


def due(op: str, *sources: Placed, rows: int) -> Array:
    rest = sources[1:]
    shape = (rows, *rest[0].operand.ne[1:]) if op == "mul_mat" else (rows, *rest[1].operand.ne[:2])
    full = (*shape, 1, 1, 1, 1)[:4]
    return apply([s.meant for s in sources], Node(op, "y"), full, rounded=True)


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max(initial=1e-30))


def forms(w: Placed) -> list[Operand]:
    """The weights as they stand in a file, and as panels where there are such."""
    panels = w.operand.dtype in PANEL_TYPES
    return [w.operand, as_panels(w)] if panels else [w.operand]


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 48])
@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_rows_that_do_and_do_not_fill_panels(path: Path, kind: str, rows: int) -> None:
    w, x = weight(kind, 512, rows), activations(512, 5)
    want = due("mul_mat", w, x, rows=rows)
    for operand in forms(w):
        close(product(operand, x, rows=rows), want)


@pytest.mark.parametrize("tokens", [1, 2, 4, 7, 8, 9, 32, 33])
@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_numbers_of_tokens(path: Path, kind: str, tokens: int) -> None:
    w, x = weight(kind, 256, 18), activations(256, tokens)
    want = due("mul_mat", w, x, rows=18)
    for operand in forms(w):
        close(product(operand, x, rows=18), want)


@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
@pytest.mark.parametrize("blocks", [1, 9])
def test_one_block_and_many(path: Path, kind: str, blocks: int) -> None:
    k = blocks * max(dtype(kind).block, 32)
    w, x = weight(kind, k, 33), activations(k, 6, form="gaps")
    want = due("mul_mat", w, x, rows=33)
    for operand in forms(w):
        close(product(operand, x, rows=33), want)


@pytest.mark.parametrize("k", [1, 7, 31, 65, 100])
@pytest.mark.parametrize("kind", PLAIN)
def test_plain_rows_of_any_length(path: Path, kind: str, k: int) -> None:
    w, x = weight(kind, k, 5), activations(k, 6)
    close(product(w.operand, x, rows=5), due("mul_mat", w, x, rows=5))


@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_planes_share_weights_and_activations_are_views(path: Path, kind: str) -> None:
    w, x = weight(kind, 256, 19, experts=2), activations(256, 3, 4, form="transposed")
    want = due("mul_mat", w, x, rows=19)
    for operand in forms(w):
        close(product(operand, x, rows=19), want)


IDS = {
    "decode": [[0], [4], [2]],
    "crowded": [[3] * 9, [1] * 9],
    "nobody": [[-1, -1], [-1, -1]],
    "some": [[-1, 0, 4], [1, -1, -1]],
    "repeated": [[2, 1, 0], [2, 1, 3]],
    "no tokens": np.zeros((2, 0)),
}


@pytest.mark.parametrize("shared", [True, False], ids=["one row a token", "a row per id"])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_experts(path: Path, kind: str, ids: Any, shared: bool) -> None:
    numbers = np.array(ids)
    used, tokens = numbers.shape
    w, x = weight(kind, 256, 35, experts=5), activations(256, 1 if shared else used, tokens)
    chosen = place("ids", "i32", numbers.shape, numbers)
    want = due("mul_mat_id", w, x, chosen, rows=35)
    for operand in forms(w):
        got = product(operand, x, chosen, rows=35, op="mul_mat_id")
        close(got, want)
        assert not got[:, numbers < 0].any()


@pytest.mark.parametrize("kind", QUANTISED)
def test_threads_share_whole_panels(kind: str) -> None:
    w, x = weight(kind, 256, 150), activations(256, 40)
    want = product(w.operand, x, rows=150)
    for operand in forms(w):
        for threads in (2, 3):
            assert (product(operand, x, rows=150, team=threads) == want).all()


@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_parts_that_stay_in_the_cache_change_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, x = weight(kind, 256, 35, experts=3), activations(256, 2, 11)
    chosen = place("ids", "i32", (2, 11), RNG(3).integers(0, 3, (2, 11)))
    for operand in forms(w):
        want = product(operand, x, chosen, rows=35, op="mul_mat_id")
        with monkeypatch.context() as patch:
            patch.setattr(matmul, "_CACHED", 1)  # 4 columns and a panel at a time
            got = product(operand, x, chosen, rows=35, op="mul_mat_id")
        assert (got == want).all()


@pytest.mark.parametrize("kind", QUANTISED)
def test_an_expert_moves_as_a_unit(kind: str) -> None:
    """The bytes of expert 2, put where expert 0 was, are expert 2."""
    w, x = weight(kind, 256, 35, experts=3), activations(256, 1, 2)
    chosen = place("ids", "i32", (1, 2), np.array([[0, 2]]))
    panels, size = as_panels(w), w.operand.layout.nb[2]
    panels.data[:size] = panels.data[2 * size :]
    got = product(panels, x, place("ids", "i32", (1, 2), np.array([[0, 0]])), rows=35,
                  op="mul_mat_id")  # fmt: skip
    want = due("mul_mat_id", w, x, chosen, rows=35)
    close(got[:, :, 1], want[:, :, 1])


# -- the instruction sets beside each other -----------------------------------------------------


def whole(kind: str, k: int, rows: int) -> tuple[Placed, Array]:
    """Weights of random integers whose scales are 1, and their values as integers."""
    w, form = weight(kind, k, rows, seed=5), next(f for f in FORMS if f.name == kind)
    blocks = w.operand.data.reshape(-1, form.bytes)
    one = np.array([1], np.float16).view(np.uint8) if form.width == 2 else [128]
    for at in form.scales:
        blocks[:, at : at + form.width] = one
    code = GGMLQuantizationType[kind.upper()]
    values = quants.dequantize(w.operand.data.reshape(rows, -1), code).astype(np.int64)
    return w, values


@pytest.mark.parametrize("kind", QUANTISED)
def test_integers_are_exact(path: Path, kind: str) -> None:
    """Scales of 1 and integer activations up to 127: every sum below 2²⁴ is exact in float32."""
    k = dtype(kind).block
    w, values = whole(kind, k, 200)
    numbers = RNG(6).integers(-127, 128, (k, 9))
    numbers[0] = 127
    numbers[:, 0] = 127  # the largest sums that there are
    numbers[1:, 1] = -127
    x = place("x", "f32", numbers.shape, (-numbers if k == 256 else numbers).astype(np.float32))
    exact = values @ (-numbers if k == 256 else numbers)
    small = np.abs(exact) < 2**24
    assert small.mean() > 0.9
    for operand in forms(w):
        got = product(operand, x, rows=200)[:, :, 0, 0]
        assert (got == exact)[small].all()


@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_instruction_sets_agree(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = weight(kind, 1024, 50), activations(1024, 7)
    results = []
    monkeypatch.setitem(PATHS, SPELLED, Spelled)
    for number in SETS.values():
        monkeypatch.setattr(matmul, "native_path", lambda number=number: number)
        results += [product(operand, x, rows=50) for operand in forms(w)]
    for other in results[1:]:
        close(other, results[0])


@pytest.mark.parametrize("kind", QUANTISED + PLAIN)
def test_a_nan_or_an_infinity_reaches_the_results(path: Path, kind: str) -> None:
    for poison in (np.nan, np.inf, -np.inf):
        w, x = weight(kind, 256, 20), activations(256, 5)
        x.operand.array[0, 0, 2, 100] = poison
        for operand in forms(w):
            got = product(operand, x, rows=20)[:, :, 0, 0]
            assert not np.isfinite(got[:, 2]).any()
            assert np.isfinite(got[:, [0, 1, 3, 4]]).all()


def test_an_instruction_set_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    native.native_path.cache_clear()
    monkeypatch.setenv(native.CHOICE, "portable")
    assert native.native_path() == native.NAMES["portable"]
    native.native_path.cache_clear()
    monkeypatch.setenv(native.CHOICE, "mmx")
    with pytest.raises(native.PathError, match="SPLITPROOF_CPU=mmx: one of portable, avx2, vnni"):
        native.native_path()
    monkeypatch.setenv(native.CHOICE, "vnni")
    monkeypatch.setattr(native, "features", lambda: frozenset({"avx2", "fma", "f16c"}))
    with pytest.raises(native.PathError, match="this machine has no avx512bw"):
        native.native_path()
    monkeypatch.delenv(native.CHOICE)
    assert native.native_path() == native.NAMES["avx2"]
    native.native_path.cache_clear()


#: The code of a kernel for a processor that this machine need not be.
ASSEMBLY = """
import sys
from splitproof.exec.cpu.blocks import FORMS
from splitproof.exec.cpu.products import quantised
form = [form.name for form in FORMS].index(sys.argv[1])
print(quantised(form, 2)._library.get_asm_str())
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="not an x86-64 machine")
@pytest.mark.parametrize("kind", ["q8_0", "mxfp4"])
def test_vnni_code_multiplies_with_its_own_instruction(tmp_path: FilePath, kind: str) -> None:
    """A tile of 4 columns and a single one: 8 lines each (mxfp4: 4, in two halves)."""
    environment = {
        **os.environ, "NUMBA_CPU_NAME": "cascadelake", "NUMBA_CACHE_DIR": str(tmp_path),
        "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512vnni",
    }  # fmt: skip
    command = [sys.executable, "-c", ASSEMBLY, kind]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [line for line in made.stdout.splitlines() if "vpdpbusd" in line]
    assert len(lines) == 8 * (4 + 1)
    assert all("zmm" in line for line in lines)
    if kind == "q8_0":  # activations straight from memory
        assert all("{1to16}" in line for line in lines)
    else:
        assert any("vpshufb" in line and "zmm" in line for line in made.stdout.splitlines())


def test_panels_have_a_multiple_of_every_vector() -> None:
    assert all(PANEL % kind.rows == 0 for kind in PATHS.values())
    assert {form.name for form in FORMS} == PANEL_TYPES
    for form in FORMS:
        assert (form.block, form.bytes) == (dtype(form.name).block, dtype(form.name).block_bytes)
