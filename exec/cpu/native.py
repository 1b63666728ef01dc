"""Addresses, and the instruction set that the kernels are written for."""

from __future__ import annotations

import os
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from .emit import AVX2, PORTABLE, VNNI

#: Names by which a path can be asked for, in the environment variable ``SPLITPROOF_CPU``.
NAMES = {"portable": PORTABLE, "avx2": AVX2, "vnni": VNNI}
CHOICE = "SPLITPROOF_CPU"
_NEEDS = {
    AVX2: ("avx2", "fma", "f16c"),
    VNNI: ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni"),
}  # fmt: skip


class PathError(ValueError):
    """An instruction set that does not exist, or that this machine has not."""


@cache
def features() -> frozenset[str]:
    """What Numba compiles for: the machine's, or those of ``NUMBA_CPU_FEATURES``."""
    triple, _, listed = cpu_target.target_context.codegen().magic_tuple()
    if not triple.startswith("x86_64"):
        return frozenset()
    return frozenset(name[1:] for name in listed.split(",") if name.startswith("+"))


def available(path: int) -> bool:
    return path == PORTABLE or features().issuperset(_NEEDS[path])


@cache
def native_path() -> int:
    """The best path of this machine, or the one that ``SPLITPROOF_CPU`` names.  ``PathError``."""
    wanted = os.environ.get(CHOICE)
    if wanted is None:
        return next(path for path in (VNNI, AVX2, PORTABLE) if available(path))
    if wanted not in NAMES:
        raise PathError(f"{CHOICE}={wanted}: one of {', '.join(NAMES)} was due")
    if not available(NAMES[wanted]):
        missing = sorted(set(_NEEDS[NAMES[wanted]]) - features())
        raise PathError(f"{CHOICE}={wanted}: this machine has no {', '.join(missing)}")
    return NAMES[wanted]


@cache
def stamp(*modules: str) -> int:
    """A number of the text of modules beside this one.

    The cache of compiled code knows the file of a kernel and the values that its function
    closes over, not the modules that write its inner loops: so kernels close over this.
    """
    here = Path(__file__).parent
    return zlib.crc32(b"".join((here / f"{name}.py").read_bytes() for name in modules))


def address(array: Any) -> int:
    """Where the first byte of an array lies."""
    return int(array.__array_interface__["data"][0])


@intrinsic
def pointer(typing: Any, place: Any) -> Any:
    """An address as what ``carray`` takes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate
