"""The GPUs that a run asks for by number, or one line that says why there are none."""

from __future__ import annotations

from collections.abc import Mapping

from numba import cuda

from ..hardware import Hardware
from .driver import why_not
from .gpu import CudaGpu


class NoGpuError(RuntimeError):
    """A GPU that is not there; the message says why, and what can be done."""


def open_gpus(numbers: Mapping[str, int]) -> Hardware:
    """``numbers``: of GPUs, by name of device.  ``NoGpuError``."""
    why = why_not()
    if why is not None:
        raise NoGpuError(f"{next(iter(numbers))}: {why}")
    count = len(cuda.gpus)
    for name, number in numbers.items():
        if number >= count:
            last = f"cuda{count - 1}" if count else "none"
            raise NoGpuError(f"{name}: there is no such GPU; the last is {last}")
    return Hardware({name: CudaGpu(number, name) for name, number in numbers.items()})
