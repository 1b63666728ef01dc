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
    "lowest", "from_buffers", "from_weights", "expand", "expand_fast", "expand_rest",
    "located", "readable", "reads_all", "rescue", "upgrade", "inherit", "the_rest", "assign",
)  # fmt: skip
reach = _compile(_assign, "located", "reach")
cut = _compile(_split, "begins_at", "cut")


#: Fields that are flags or numbers of devices; the others hold numbers below 2**31.
_SMALL = {
    "idle": np.uint8, "blind": np.uint8, "placed": np.uint8, "weight": np.uint8,
    "input": np.uint8, "pin": np.int8,
}  # fmt: skip


def as_arrays(g: GraphArrays) -> GraphArrays:
    """A graph of at most ``MOST_DEVICES`` devices as NumPy arrays."""
    fields = zip(g._fields[2:], g[2:], strict=True)
    arrays = (np.asarray(v, _SMALL.get(name, np.int32)) for name, v in fields)
    return GraphArrays(g.devices, g.offload, *arrays)  # type: ignore[arg-type]


def empty_assignment(tensors: int) -> Assignment:
    device: Any = np.full(tensors, NONE, np.int8)
    return Assignment(device, _full(tensors, 0), _full(tensors, NONE))


def empty_splits(nodes: int, sources: int, tensors: int) -> Splits:
    return Splits(
        _full(nodes + 1, 0), _full(nodes + 1, 0), _full(nodes + 1, 0), _full(nodes + 1, NONE),
        _full(nodes + 2, 0), _full(sources, NONE), empty_masks(tensors),
    )  # fmt: skip


def empty_masks(count: int) -> Any:
    return _full(count, 0)


def _full(size: int, value: int) -> Any:
    return np.full(size, value, np.int32)


def as_list(values: Any) -> Sequence[int]:
    found: list[int] = values.tolist()
    return found
