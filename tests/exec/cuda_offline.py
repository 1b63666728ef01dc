"""Compile every CUDA kernel without a GPU and print what each needs, as JSON.

``python cuda_offline.py 90``: one entry per kernel for that architecture, with registers, bytes of
shared memory, of the stack and of spills, as ``ptxas`` reports them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from numba import cuda, types
from numba.cuda import dispatcher
from splitproof.exec.cuda import moves, pointwise, products, quantise, rotate, rows
from splitproof.exec.cuda.dequantise import KINDS

F32, F64, I64 = types.float32, types.float64, types.int64
NE = types.UniTuple(types.int64, 4)


def array(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


FLOATS, HALVES, WORDS, BYTES = map(array, (F32, types.uint16, types.uint32, types.uint8))
IDS, LONG_IDS = array(types.int32), array(types.int64)
W, X, Y = (HALVES, NE, NE), (FLOATS, NE, NE), (FLOATS, NE)
QUANTISED = (WORDS, FLOATS, IDS, NE)
CHOSEN = (IDS, NE, NE)


def kernels() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Each kernel with the types that it is called with."""
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "quantise": (quantise._quantise, (*X, I64, WORDS, FLOATS, IDS)),
        "binary": (pointwise._binary, (I64, FLOATS, NE, FLOATS, NE, NE, *Y, NE)),
        "unary": (pointwise._unary, (I64, FLOATS, NE, *Y, NE, F32, F32)),
        "gate": (pointwise._gate, (I64, FLOATS, NE, FLOATS, NE, *Y, NE, F32, F32)),
        "rms_norm": (rows._rms_norm, (*X, F64, *Y)),
        "sum_rows": (rows._sum_rows, (*X, *Y)),
        "argsort": (rows._argsort, (*X, F32, I64, IDS, NE)),
        "rope": (
            rotate._rope,
            (*X, IDS, I64, FLOATS, I64, FLOATS, F32, F32, F32, I64, I64, *Y),
        ),
        "reshape": (moves._reshape, (WORDS, NE, NE, WORDS, NE, NE)),
        "repeat": (moves._repeat, (WORDS, NE, NE, WORDS, NE, NE)),
        "fill": (moves._fill, (F32, *Y, NE)),
        "add_id": (moves._add_id, (FLOATS, NE, FLOATS, NE, I64, IDS, NE, *Y, NE, IDS)),
    }
    for mask, kind in (("f32", FLOATS), ("f16", HALVES)):
        call = (*X, F64, kind, NE, NE, I64, FLOATS, I64, *Y)
        found[f"soft_max {mask}"] = rows._soft_max, call
        found[f"set_rows {mask}"] = rows._set_rows, (*X, LONG_IDS, NE, NE, kind, NE, I64, I64, IDS)
    table = (BYTES, HALVES, FLOATS, NE, NE, I64)
    found["get_rows"] = rows._get_rows, (*table, IDS, NE, *Y, NE, IDS)
    for name in ("q8_0", "q4_0"):
        made = KINDS[name], products.BLOCK_HALVES[name]
        found[f"mul_mat {name}"] = products.block_product(*made), (*W, *QUANTISED, *Y)
        call = (*W, *QUANTISED, *CHOSEN, *Y, IDS)
        found[f"mul_mat_id {name}"] = products.block_product_id(*made), call
    for name in ("f32", "f16", "bf16"):
        weights = X if name == "f32" else W
        made_plain = products.plain_product(KINDS[name]), products.plain_product_id(KINDS[name])
        found[f"mul_mat {name}"] = made_plain[0], (*weights, *X, *Y)
        found[f"mul_mat_id {name}"] = made_plain[1], (*weights, *X, *CHOSEN, *Y, IDS)
    return found


def needs(ptx: str, architecture: int) -> dict[str, int]:
    """Registers, shared memory and spills by ``ptxas``."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        done = subprocess.run(
            ["ptxas", "-v", f"-arch=sm_{architecture}", str(source), "-o", str(source) + ".cubin"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    said = done.stdout + done.stderr
    wanted = {
        "registers": r"Used (\d+) registers", "shared": r"(\d+) bytes smem",
        "stack": r"(\d+) bytes stack frame", "stored": r"(\d+) bytes spill stores",
        "loaded": r"(\d+) bytes spill loads",
    }  # fmt: skip
    found = {name: re.search(pattern, said) for name, pattern in wanted.items()}
    return {name: int(match[1]) if match else 0 for name, match in found.items()}


def main(architecture: int) -> None:
    capability = divmod(architecture, 10)
    # Helpers are compiled for "the current device": there is none here.
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    table = {}
    for name, (kernel, signature) in kernels().items():
        ptx, _ = cuda.compile_ptx(kernel.py_func, signature, cc=capability)
        table[name] = needs(ptx, architecture)
    json.dump(table, sys.stdout, indent=1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
