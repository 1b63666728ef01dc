"""The passes as machine code, for graphs that are too large for plain Python.

Same functions, same arrays: what :mod:`.assign` and :mod:`.split` say is compiled, not said
again.  Imported only when a large graph is planned, because Numba takes its time to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit

from . import assign as _assign
from . import split as _split
from .arrays import NONE, GraphArrays
from .assign import Assignment
from .split import Splits

#: A mask of devices must fit in a signed 64-bit integer.
MOST_DEVICES = 62


def _compile(module: ModuleType, *names: str) -> Any:
    """The last of the functions named, each compiled with the ones before it in its sight."""
    seen = dict(vars(module))
    for name in names:
        plain = getattr(module, name)
        twin = FunctionType(plain.__code__, seen, name)
        twin.__qualname__ = plain.__qualname__
        seen[name] = njit(cache=True)(twin)
    return seen[names[-1]]


assign = _compile(
    _assign,
    "lowest", "place", "follow_weight", "from_placement", "expand", "expand_fast", "expand_rest",
    "located", "readable", "reads_all", "rescue", "upgrade", "inherit", "the_rest", "assign",
)  # fmt: skip
reach = _compile(_assign, "located", "reach")
cut = _compile(_split, "begins_at", "cut")


def as_arrays(g: GraphArrays) -> GraphArrays:
    """The lists of a graph as 64-bit integer arrays."""
    return GraphArrays(g.devices, g.offload, *map(_array, g[2:]))


def _array(values: Any) -> Any:
    return np.asarray(values, dtype=np.int64)


def empty_assignment(tensors: int) -> Assignment:
    return Assignment(_full(tensors, NONE), _full(tensors, 0), _full(tensors, NONE))


def empty_splits(nodes: int, sources: int, tensors: int) -> Splits:
    sizes = nodes + 1, nodes + 1, nodes + 1, nodes + 1, nodes + 2, sources, tensors
    return Splits(*(_full(size, 0) for size in sizes))


def _full(size: int, value: int) -> Any:
    return np.full(size, value, dtype=np.int64)


def as_list(values: Any) -> Sequence[int]:
    found: list[int] = values.tolist()
    return found
