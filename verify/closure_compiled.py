"""The closure as machine code, for programs that are too large for plain Python.

Same functions, same arrays: what :mod:`.closure` says is compiled, not said again.  Imported only
when a large program is checked, because Numba takes its time to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from . import closure as _plain
from .closure import NONE, Clocks, Steps


def _compile(*names: str) -> Any:
    """The last of the functions named, each compiled with the ones before it in its sight."""
    seen = dict(vars(_plain))
    for name in names:
        plain = getattr(_plain, name)
        twin = FunctionType(plain.__code__, seen, name)
        twin.__qualname__ = plain.__qualname__
        seen[name] = njit(cache=True)(twin)
    return seen[names[-1]]


closure = _compile("joined", "told", "closure")
conflicts = _compile("conflicts")


def run(steps: Steps, width: int, kinds: int, may_wait: Sequence[int], events: int) -> Clocks:
    """:func:`.closure.closure` with room for its results."""
    parts = len(steps.chain)
    arrays = Steps(*(array(values) for values in steps))
    rows: Any = np.empty((4 * parts + 1) * width, np.int32)
    out = Clocks(full(parts, 0), rows, full(parts), full(parts), full(parts))
    used = closure(arrays, width, kinds, array(may_wait), full(events), full(6 * width), out)
    kept: Any = out._replace(rows=rows[: used * width].copy())  # gives back what was not used
    views: Any = [memoryview(values) for values in kept]
    return Clocks(*views)  # one by one, a view is read faster than an array


def as_arrays(clocks: Clocks) -> Clocks:
    """What :func:`run` returns, as :data:`conflicts` takes it."""
    return Clocks(*(array(values) for values in clocks))


def full(size: int, value: int = NONE) -> Any:
    return np.full(size, value, np.int32)


def array(values: Any) -> Any:
    return np.asarray(values, np.int32)
