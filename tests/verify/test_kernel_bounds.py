"""The bounds of the CUDA kernels: proved for each of them, and planted faults are found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba import cuda
from splitproof.exec.cuda import index, products
from splitproof.exec.cuda.catalog import kernels
from splitproof.exec.cuda.dequantise import KINDS
from splitproof.exec.cuda.target import row_place, row_start
from splitproof.model.kernel import Data, Kernel, Shape, Steps
from splitproof.verify.kernel import Known, check_bounds
from splitproof.verify.kernel_lemma import check_lemmas, check_tile
from splitproof.verify.kernel_value import Unclear

CATALOG = kernels()
#: What was proved is not asked again: the planted faults stand in kernels that are alike.
KNOWN = Known()


def test_every_kernel_is_proved_as_a_gpu_runs_it() -> None:
    script = Path(__file__).with_name("kernel_bounds.py")
    there = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run([sys.executable, str(script)], env=there, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert not said["simulated"]
    assert said["lemmas"] == []
    left_out = set(said["left_out"])
    assert said["faults"] == {name: [] for name in CATALOG if name not in left_out}
    assert all(re.fullmatch(r"mul_mat_id \w+ in tiles", name) for name in left_out)
    assert "mul_mat_id q8_0 in tiles" not in left_out
    assert not left_out or os.environ.get("SPLITPROOF_KERNELS") != "all"
    assert all(said["writes"].values())


# -- planted faults -------------------------------------------------------------------------

ROW_LOOP = "range(cuda.threadIdx.x, ne[0], cuda.blockDim.x)"
RESULT = "if lane == 0 and row < w_ne[1]:"
ELEMENTS = "mul_mat_id f32 by elements"
TILES, PAIRS = "mul_mat f16 in tiles", "mul_mat_id f16 in tiles"
#: kernel, module, the text and what takes its place, a word of the fault
PLANTED = {
    "one element too many": ("fill", "moves", ROW_LOOP, ROW_LOOP.replace("ne[0]", "ne[0] + 1"),
                             "outside dimension 0"),
    "each thread does all": ("fill", "moves", ROW_LOOP, "range(ne[0])", "two threads write"),
    "strides exchanged": ("fill", "moves", "d[1], d[2], d[3]", "d[2], d[1], d[3]",
                          "outside dimension"),
    "the stride of another": ("repeat", "moves", "dst[out + k * d[0]]", "dst[out + k * s[0]]",
                              "with a stride of x"),
    "rows that are not there": (ELEMENTS, "products", RESULT, "if lane == 0:",
                                "outside dimension 0"),
    "every lane writes": (ELEMENTS, "products", RESULT, "if row < w_ne[1]:", "two threads write"),
    "an expert too many": (ELEMENTS, "products", "expert >= w_ne[2]", "expert > w_ne[2]",
                           "outside dimension 2"),
    "a column too many": ("mul_mat q8_0", "products", "if c < count:", "if c <= count:",
                          "read of scratch (f32): outside"),
    "a part too many": ("mul_mat_id q6_k", "products", "blocks * parts, LANES",
                        "blocks * parts + 1, LANES", "read of w (u16): beside the element"),
    "past the block": ("mul_mat_id q4_k", "packing", "quad(w, at + 4 + 4 * part)",
                       "quad(w, at + 8 + 4 * part)", "read of w (u32): beside the element"),
    "between two loads": ("mul_mat_id q4_k", "packing", "quad(w, at + 4 + 4 * part)",
                          "quad(w, at + 3 + 4 * part)", "read of w (u32): not at a whole load"),
    "past the halves": ("mul_mat_id f16", "packing", "quad(words, block * 8 + 4 * part)",
                        "quad(words, block * 8 + 4 * part + 4)", "read of scratch (u32): outside"),
    "a sum too many": ("quantise q8_k", "quantise", "range(lane, SUPER_SUMS, LANES)",
                       "range(lane, SUPER_SUMS + 1, LANES)", "write of scratch (i32): outside"),
    "a pair too many": ("halve", "quantise", "(cuda.threadIdx.x, pairs, cuda.blockDim.x)",
                        "(cuda.threadIdx.x, pairs + 1, cuda.blockDim.x)",
                        "write of scratch (u32): outside"),
    "a row of a tile too many": (TILES, "tiles", "if row < rows and column <",
                                 "if row <= rows and column <",
                                 "write of y (f32): outside dimension 0"),
    "tiles over each other": (TILES, "tiles", "block_y * COLUMNS + place",
                              "block_y * (COLUMNS - 1) + place", "two threads write"),
    "past the tile": (TILES, "tiles", "_keep(tile, at + 4, e", "_keep(tile, at + 12, e",
                      "write of shared memory (uint32): outside"),
    "a group too many": (TILES, "tiles", "if row < count and group < most:",
                         "if row < count and group <= most:", "read of w (u32): beside"),
    "a token too many": (PAIRS, "tiles", "if row < rows and pair_inside(i1, i_ne[0], i2, i_ne[1]):",
                         "if row < rows and pair_inside(i1, i_ne[0], i2, i_ne[1] + 1):",
                         "write of y (f32): outside dimension 2"),
    "an expert beyond the last": (PAIRS, "tiles", "expert < w_ne[2]", "expert <= w_ne[2]",
                                  "read of w (u32): outside dimension 2"),
    "a tile to clear too many": ("clear", "group", "2 * COLUMNS, cuda.blockDim.x",
                                 "2 * COLUMNS + 1, cuda.blockDim.x", "scratch (i32)"),
    "places over tokens": ("order", "group", "order[2 * rank + 1]", "order[2 * rank + 2]",
                           "scratch (i32)"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLANTED.values()}))
def test_the_kernels_that_faults_are_planted_in_are_proved(name: str) -> None:
    assert check_bounds(name, CATALOG[name], KNOWN).faults == ()


@pytest.mark.parametrize(
    ("name", "module", "old", "new", "word"), PLANTED.values(), ids=PLANTED.keys()
)
def test_a_planted_fault_is_found(
    name: str, module: str, old: str, new: str, word: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    changed = _changed(module, old, new, tmp_path)
    if module == "packing":
        monkeypatch.setattr(products, "PACKINGS", changed.PACKINGS)
        changed = products
    kernel = replace(CATALOG[name], function=_kernel_of(name, changed))
    bounds = check_bounds(name, kernel, KNOWN)
    assert any(word in fault for fault in bounds.faults), bounds


def _kernel_of(name: str, module: ModuleType) -> Any:
    """The function of a kernel of the catalogue, as that module has it."""
    op, *kind = name.split(" ")
    if not op.startswith("mul_mat"):
        return getattr(module, CATALOG[name].function.__name__)
    suffix = "_id" if op.endswith("_id") else ""
    if "elements" in kind:
        return getattr(module, f"plain_product{suffix}").__wrapped__(KINDS[kind[0]])
    way = "tiled" if "tiles" in kind else "block"
    return getattr(module, f"{way}_product{suffix}").__wrapped__(kind[0])


def _changed(name: str, old: str, new: str, folder: Path) -> ModuleType:
    """A module of ``exec.cuda`` with another text in one place (or several)."""
    spec = importlib.util.find_spec(f"splitproof.exec.cuda.{name}")
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text()
    assert old in text
    path = folder / f"{name}.py"
    path.write_text(text.replace(old, new))
    changed = importlib.util.spec_from_file_location("splitproof.exec.cuda.changed", path)
    assert changed is not None and changed.loader is not None
    module = importlib.util.module_from_spec(changed)
    sys.modules[changed.name] = module  # dataclasses ask for it
    changed.loader.exec_module(module)
    return module


def test_a_grid_that_is_too_large() -> None:
    bounds = check_bounds("fill", replace(CATALOG["fill"], grid=("y.1*y.2*y.3*2",)))
    assert any("outside dimension 3" in fault for fault in bounds.faults)


def test_sizes_that_nobody_promises_to_be_equal() -> None:
    bounds = check_bounds("gate", replace(CATALOG["gate"], same=()))
    assert any("read of a (f32): outside" in fault for fault in bounds.faults)


def test_groups_that_nobody_promises_to_divide() -> None:
    name = "mul_mat f32 by elements"
    with pytest.raises(Unclear, match="no promise"):
        check_bounds(name, replace(CATALOG[name], divides=()))


def _kernel(function: Callable[..., None], **more: Any) -> Kernel:
    parameters = (Data("y"), Steps("y"), Shape("y"))
    return Kernel(function, parameters, ("y.1*y.3",), 1, (("y.2", "2"),), **more)


def test_places_among_different_sizes_may_be_the_same() -> None:
    def two_orders(dst: Any, d: Any, ne: Any) -> None:
        block = cuda.blockIdx.x
        if block % 2 == 0:
            i1, i2, i3 = row_place(block, ne[1], ne[2])
        else:
            i1, i2, i3 = row_place(block, ne[1], 1)
        dst[row_start(i1, i2, i3, d[1], d[2], d[3])] = 1

    faults = check_bounds("two orders", _kernel(two_orders)).faults
    assert len(faults) == 1 and "two threads write" in faults[0]


def test_an_index_from_the_iteration_before_is_not_followed() -> None:
    def carried(dst: Any, d: Any, ne: Any) -> None:
        at = 0
        for k in range(ne[0] + 1):
            dst[at * d[0]] = 1
            at = k

    def left_over(dst: Any, d: Any, ne: Any) -> None:
        for k in range(ne[0]):
            dst[k * d[0]] = 1
        for _ in range(ne[0]):
            dst[k * d[0]] = 1
            for k in range(ne[0] + 1):  # noqa: B007
                pass

    for function in (carried, left_over):
        with pytest.raises(Unclear, match="carried from one iteration"):
            check_bounds("carried", _kernel(function))


def test_a_helper_that_is_not_looked_at_is_given_no_memory() -> None:
    def block_sum(dst: Any) -> None:
        dst[-1] = 0

    @cuda.jit(device=True)
    def hidden(dst: Any, d: Any, ne: Any) -> None:
        block_sum(dst)

    with pytest.raises(Unclear, match="block_sum does to memory"):
        check_bounds("hidden", _kernel(hidden))


def test_each_way_through_a_helper_without_a_result_is_looked_at() -> None:
    @cuda.jit(device=True)
    def end(dst: Any, d: Any, ne: Any, k: Any) -> None:
        if k < ne[0]:
            dst[k * d[0]] = 1
        else:
            dst[(k + 1) * d[0]] = 1

    def after(dst: Any, d: Any, ne: Any) -> None:
        end(dst, d, ne, cuda.blockIdx.x)
        dst[cuda.blockIdx.x * d[0]] = 1  # no longer known to be inside

    faults = check_bounds("after", _kernel(after)).faults
    assert sum("outside dimension 0" in fault for fault in faults) == 2


def test_a_loop_that_does_not_end_is_unclear() -> None:
    def endless(dst: Any, d: Any, ne: Any) -> None:
        while dst[0] > 0:
            pass

    with pytest.raises(Unclear, match="decisions"):
        check_bounds("endless", _kernel(endless))


def test_a_pair_is_inside_of_both_dimensions_or_not_at_all() -> None:
    for i1, i2 in product(range(-1, 4), repeat=2):
        assert index.pair_inside(i1, 3, i2, 2) == (i1 in range(3) and i2 in range(2))


def test_a_tile_that_has_an_element_twice_is_found() -> None:
    def twice(thread: int, eighth: int, k: int) -> tuple[int, int]:
        row, column = index.tile_place(thread, eighth, k)
        return row, column // 2

    assert check_tile(index.tile_place, 64) == []
    assert check_tile(twice, 64) == ["tile_place: not a tile of 64 threads"]


def test_a_wrong_helper_is_found() -> None:
    def rows(row: Any, ne1: Any, ne2: Any) -> tuple[Any, ...]:
        return row % ne1, row // ne1 % ne1, row // ne1 // ne2

    found = check_lemmas(rows, index.element_place, lambda place, count, groups: place // groups)
    assert [text.rpartition(":")[0] for text in found] == [
        "row_place: place 1 below its size",
        "row_place: different numbers, different places",
        "group_place: a group below groups",
    ]
