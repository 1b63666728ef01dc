"""Every CUDA kernel compiles without a GPU, and needs what the recorded table says.

``cuda_registers.json`` is ``python tests/exec/cuda_offline.py 80 90`` of the toolkit and the Numba
that it names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from splitproof.exec.cuda.catalog import kernels

HERE = Path(__file__).parent
ARCHITECTURES = ("80", "90")


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    if shutil.which("ptxas") is None:
        pytest.skip("there is no ptxas here: it comes with the CUDA toolkit")
    there = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    command = [sys.executable, str(HERE / "cuda_offline.py"), *ARCHITECTURES]
    done = subprocess.run(command, env=there, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(f"there is no NVVM here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_kernel_compiles_without_spills(compiled: dict[str, Any]) -> None:
    for architecture in ARCHITECTURES:
        table = compiled["kernels"][architecture]
        assert table.keys() == kernels().keys()
        spilled = {name for name, needs in table.items() if needs["stored"] or needs["loaded"]}
        assert spilled == set()


def test_products_keep_their_numbers_in_registers(compiled: dict[str, Any]) -> None:
    for table in compiled["kernels"].values():
        products = {name: needs["stack"] for name, needs in table.items() if "mul_mat" in name}
        assert products and not any(products.values()), products


def test_what_starts_at_multiples_of_16_bytes_is_loaded_so(compiled: dict[str, Any]) -> None:
    for kind in ("q4_k", "f16", "bf16"):
        assert {f"mul_mat {kind}", f"mul_mat_id {kind}"} <= set(compiled["wide"])


MMA = {
    "f16": "m16n8k16.row.col.f32.f16.f16.f32", "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "q6_k": "m16n8k16.row.col.s32.s8.s8.s32",
}  # fmt: skip


def test_tiles_are_multiplied_by_tensor_cores(compiled: dict[str, Any]) -> None:
    for name, found in compiled["mma"].items():
        kind = MMA.get(name.split(" ")[1], "m16n8k32.row.col.s32.s8.s8.s32") if " " in name else ""
        assert found == ([f"mma.sync.aligned.{kind}"] if name.endswith("in tiles") else []), name


def test_indices_are_64_bits_wide(compiled: dict[str, Any]) -> None:
    helpers = dict(compiled["helpers"])
    assert helpers.pop("pair_inside") == ["bool"]
    assert {"row_place", "row_start", "element_place", "group_place", "warp_row"} <= helpers.keys()
    for name, returned in helpers.items():
        wide = {"int64", *(f"UniTuple(int64 x {count})" for count in (2, 3, 4))}
        assert set(returned) <= wide and returned, name


def test_what_kernels_need_is_what_was_recorded(compiled: dict[str, Any]) -> None:
    recorded = json.loads((HERE / "cuda_registers.json").read_text())
    for tool in ("toolkit", "numba"):
        if compiled[tool] != recorded[tool]:
            pytest.skip(f"recorded with {tool} {recorded[tool]}; here it is {compiled[tool]}")
    assert compiled["kernels"] == recorded["kernels"]
