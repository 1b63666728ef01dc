"""The clock of a GPU, and kernels that keep a stream busy until it has come far enough."""

from __future__ import annotations

import time
from typing import Any

from numba import config, cuda, types
from numba.extending import intrinsic

if config.ENABLE_CUDASIM:

    def now() -> Any:
        """Nanoseconds."""
        return time.perf_counter_ns()

else:
    from llvmlite import ir
    from numba.cuda import dispatcher

    # Kernels that wait, and those of small tensors, start few blocks: Numba would warn of each.
    # The package numba-cuda has settings of its own, which its dispatcher looks at.
    dispatcher.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

    @intrinsic
    def now(typing: Any) -> Any:
        """Nanoseconds of the timer that all multiprocessors share."""

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.IntType(64), [])
            # With a side effect: each read is made, and none is moved out of a loop.
            return builder.asm(kind, "mov.u64 $0, %globaltimer;", "=l", [], side_effect=True)

        return types.int64(), generate


@cuda.jit
def hold_for(nanoseconds: Any) -> None:
    """Take that long.  For one thread."""
    end = now() + nanoseconds
    while now() < end:
        pass


@cuda.jit
def hold_until(start: Any, nanoseconds: Any) -> None:
    """End that long after ``start[0]``, at once if that is past.  For one thread."""
    end = start[0] + nanoseconds
    while now() < end:
        pass


@cuda.jit
def tell(place: Any) -> None:
    """Write the time to ``place[0]`` (int64).  For one thread."""
    place[0] = now()
