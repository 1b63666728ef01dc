"""The GPUs that a run asks for by number, or one line that says why there are none."""

from __future__ import annotations

from collections.abc import Mapping

from numba import cuda
from numba.cuda.cudadrv.error import CudaSupportError

from ..hardware import Hardware
from .gpu import CudaGpu
from .target import SIMULATED


class NoGpuError(RuntimeError):
    """A GPU that is not there; the message says why, and what can be done."""


def open_gpus(numbers: Mapping[str, int]) -> Hardware:
    """``numbers``: of GPUs, by name of device.  ``NoGpuError``."""
    first = next(iter(numbers))
    try:
        count = len(cuda.gpus)
    except CudaSupportError as error:
        why = " ".join(str(error).split()).removeprefix("Error at driver init:").strip()
        raise NoGpuError(
            f"{first}: {why.partition('.')[0] or 'no CUDA driver'}; with NUMBA_ENABLE_CUDASIM=1 in "
            "the environment Numba's simulator takes its place, for small models"
        ) from None
    if not SIMULATED:
        if not cuda.is_available():
            raise NoGpuError(
                f"{first}: there is a driver but no CUDA compiler; "
                "pip install 'splitproof[cuda]' brings one"
            )
        from numba.cuda import dispatcher

        dispatcher.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # decoding has small grids
    for name, number in numbers.items():
        if number >= count:
            last = f"cuda{count - 1}" if count else "none"
            raise NoGpuError(f"{name}: there is no such GPU; the last is {last}")
    return Hardware({name: CudaGpu(number, name) for name, number in numbers.items()})
