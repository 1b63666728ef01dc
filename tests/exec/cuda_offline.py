"""Compile every CUDA kernel without a GPU and print what each needs, as JSON.

``python cuda_offline.py 80 90``: for each architecture one entry per kernel, with registers, bytes
of shared memory, of the stack and of spills, as ``ptxas`` reports them of the PTX for the first
architecture; the instructions for tensor cores in that PTX; and for each helper of index arithmetic
what it returns.  Without NVVM the exit code is 77.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
from numba import cuda, types
from numba.cuda import dispatcher
from numba.cuda.cudadrv.error import NvvmSupportError
from numba.cuda.cudadrv.nvvm import NVVM
from splitproof.exec.cuda import index, target
from splitproof.exec.cuda.catalog import kernels
from splitproof.model.kernel import Data, Flag, Parameter, Scratch, Shape, Size, Step, Steps, Value

SCALARS = {
    "u8": types.uint8, "u16": types.uint16, "u32": types.uint32, "i32": types.int32,
    "i64": types.int64, "f32": types.float32, "f64": types.float64,
}  # fmt: skip
NO_NVVM = 77


def type_of(parameter: Parameter) -> Any:
    """The type that a launch gives a parameter."""
    match parameter:
        case Data(kind=kind) | Scratch(kind=kind):
            return types.Array(SCALARS[kind], 1, "C")
        case Flag():
            return types.Array(types.int32, 1, "C")
        case Steps() | Shape():
            return types.UniTuple(types.int64, 4)
        case Step() | Size():
            return types.int64
        case Value(kind=kind):
            return SCALARS[kind]


def needs(texts: dict[str, str], architecture: int) -> dict[str, dict[str, int]]:
    """Registers, shared memory and spills by ``ptxas``, for each text of PTX."""
    with tempfile.TemporaryDirectory() as folder:
        sources = {name: Path(folder) / f"{k}.ptx" for k, name in enumerate(texts)}
        for name, source in sources.items():
            source.write_text(texts[name])
        command = ["ptxas", "-v", f"-arch=sm_{architecture}", "-o", os.devnull]

        def one(source: Path) -> dict[str, int]:
            done = subprocess.run([*command, source], capture_output=True, text=True, check=True)
            return numbers(done.stdout + done.stderr)

        return {name: one(source) for name, source in sources.items()}


def numbers(said: str) -> dict[str, int]:
    wanted = {
        "registers": r"Used (\d+) registers", "shared": r"(\d+) bytes smem",
        "stack": r"(\d+) bytes stack frame", "stored": r"(\d+) bytes spill stores",
        "loaded": r"(\d+) bytes spill loads",
    }  # fmt: skip
    found = {name: re.search(pattern, said) for name, pattern in wanted.items()}
    return {name: int(match[1]) if match else 0 for name, match in found.items()}


def helpers() -> dict[str, list[str]]:
    """What the helpers of index arithmetic that were compiled return, by the compiler's types."""
    return {
        name: sorted({str(found.signature.return_type) for found in helper.overloads.values()})
        for name in vars(index)
        if (helper := getattr(target, name, None)) is not None and hasattr(helper, "overloads")
    }


def toolkit() -> str:
    said = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=True).stdout
    (version,) = re.findall(r"V([\d.]+)", said)
    return str(version)


def main(architectures: list[int]) -> None:
    try:
        NVVM()
    except NvvmSupportError as error:
        print(error, file=sys.stderr)
        sys.exit(NO_NVVM)
    # Helpers are compiled for "the current device": there is none here.
    capability = divmod(architectures[0], 10)
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    catalog = kernels()
    texts: dict[tuple[Any, ...], str] = {}
    for kernel in catalog.values():
        key = kernel.function.py_func, tuple(map(type_of, kernel.parameters))
        if key not in texts:
            texts[key], _ = cuda.compile_ptx(*key, cc=capability)
    named = {
        name: texts[kernel.function.py_func, tuple(map(type_of, kernel.parameters))]
        for name, kernel in catalog.items()
    }
    once = dict.fromkeys(named.values())
    tables = {number: needs({text: text for text in once}, number) for number in architectures}
    found = {
        "toolkit": toolkit(), "numba": numba.__version__,
        "kernels": {
            str(number): {name: table[text] for name, text in named.items()}
            for number, table in tables.items()
        },
        "mma": {name: sorted(set(re.findall(r"mma\.sync[\w.]*", t))) for name, t in named.items()},
        "wide": sorted(name for name, text in named.items() if re.search(r"ld[\w.]*\.v4\.", text)),
        "helpers": helpers(),
    }  # fmt: skip
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
