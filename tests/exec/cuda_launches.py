"""What kernels are launched with, held against what the catalogue promises to the proof of bounds.

For the simulator: its launches go through one class.  A launch conforms if it does to one entry of
its function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pytest
from numba.cuda.simulator.kernel import FakeCUDAKernel
from splitproof.exec.cuda import rows
from splitproof.exec.cuda.catalog import kernels
from splitproof.model.kernel import (
    Data,
    Flag,
    Kernel,
    Parameter,
    Scratch,
    Shape,
    Size,
    Step,
    Steps,
    Value,
)

TYPES = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i32": np.int32, "i64": np.int64,
    "f32": np.float32, "f64": np.float64,
}  # fmt: skip
#: Weights of a block.
BLOCK = 32
#: Grid dimensions after the first are at most this on a GPU, and the first at most 2**31 - 1.
GRID = (2**31 - 1, 65535, 65535)

Sizes = dict[str, int]


class Launches:
    """``names``: the catalogue's entries that were launched; ``faults``: launches that keep no
    entry's promises, with what the nearest entry misses.  ``unsaid``: launches of a ``soft_max``
    without a mask (the router's): the catalogue has no entry for it."""

    def __init__(self) -> None:
        self._entries: dict[int, list[tuple[str, Kernel]]] = {}
        for name, kernel in kernels().items():
            self._entries.setdefault(id(kernel.function), []).append((name, kernel))
        self.names: set[str] = set()
        self.faults: list[str] = []
        self.count = self.unsaid = 0

    def take(self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], args: Any) -> None:
        self.count += 1
        entries = self._entries.get(id(function))
        if not entries:
            self.faults.append(f"{function.__name__} is in no entry of the catalogue")
            return
        if function is rows._soft_max and args[7] == rows.NO_MASK:
            self.unsaid += 1
            return
        missed = []
        for name, kernel in entries:
            faults = list(faults_of(kernel, grid, block, args))
            if not faults:
                self.names.add(name)
                return
            missed.append(f"{name}: {'; '.join(faults)}")
        self.faults.append(min(missed, key=len))


@contextmanager
def held(patch: pytest.MonkeyPatch) -> Iterator[Launches]:
    """While it lasts, each launch is looked at."""
    found = Launches()
    plain: Callable[..., None] = FakeCUDAKernel.__call__

    def call(self: Any, *args: Any) -> Any:
        if not self._device:
            found.take(self, self.grid_dim, self.block_dim, args)
        return plain(self, *args)

    with patch.context() as inner:
        inner.setattr(FakeCUDAKernel, "__call__", call)
        yield found


def faults_of(
    kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]
) -> Iterator[str]:
    """What a launch misses of the promises of an entry."""
    if len(args) != len(kernel.parameters):
        yield f"{len(args)} arguments, {len(kernel.parameters)} were due"
        return
    given = list(zip(kernel.parameters, args, strict=True))
    sizes = sizes_of(kernel, given)
    if tuple(block) != (kernel.threads, 1, 1):
        yield f"blocks of {block} threads, {kernel.threads} were due"
    due = tuple(value(text, sizes) for text in kernel.grid) + (1,) * (3 - len(kernel.grid))
    if tuple(grid) != due:
        yield f"a grid of {grid}, {due} was due"
    if any(not 1 <= count <= most for count, most in zip(grid, GRID, strict=True)):
        yield f"a grid of {grid}, at most {GRID} can be launched"
    for left, right in kernel.same:
        if value(left, sizes) != value(right, sizes):
            yield f"{left} is {value(left, sizes)}, and {right} is {value(right, sizes)}"
    for left, right in kernel.divides:
        if value(right, sizes) % value(left, sizes):
            yield f"{left} ({value(left, sizes)}) does not divide {right} ({value(right, sizes)})"
    steps = {p.tensor: arg for p, arg in given if isinstance(p, Steps)}
    views = [p for p, _ in given if isinstance(p, Data)]
    single = {(p.tensor, p.dimension): arg for p, arg in given if isinstance(p, Step)}
    for number, (parameter, arg) in enumerate(given):
        several = False
        if isinstance(parameter, Data):
            alike = [view for view in views if view.tensor == parameter.tensor]
            if not parameter.block and any(view.block for view in alike):
                continue  # of a table of blocks, nobody reads the view without
            several = len(alike) > 1
        for fault in of_argument(parameter, arg, sizes, steps, single, in_bytes=several):
            yield f"argument {number}: {fault}"


def sizes_of(kernel: Kernel, given: list[tuple[Parameter, Any]]) -> Sizes:
    """Every dimension that the launch says, or that the entry says is equal to such a one."""
    sizes: Sizes = {}
    for parameter, arg in given:
        if isinstance(parameter, Shape):
            sizes |= {f"{parameter.tensor}.{n}": int(arg[n]) for n in range(4)}
    for parameter, arg in given:
        if isinstance(parameter, Size):
            sizes.setdefault(parameter.dimension, int(arg))
    for parameter, arg in given:
        if isinstance(parameter, Scratch) and len(parameter.size) == 1:
            sizes.setdefault(parameter.size[0], int(arg.size))
    for _ in range(2):
        for left, right in kernel.same:
            for known, other in ((left, right), (right, left)):
                if "*" not in other and "/" not in other and other not in sizes:
                    found = _value_if_known(known, sizes)
                    if found is not None:
                        sizes[other] = found
    return sizes


def value(text: str, sizes: Mapping[str, int]) -> int:
    """``a.1*a.2``, ``a.1/8`` (rounded up), or a number."""
    return prod(_factor(factor, sizes) for factor in text.split("*"))


def _factor(text: str, sizes: Mapping[str, int]) -> int:
    name, *divisors = text.split("/")
    number = int(name) if name.isdigit() else sizes[name]
    for divisor in divisors:
        number = -(-number // int(divisor))
    return number


def _value_if_known(text: str, sizes: Mapping[str, int]) -> int | None:
    try:
        return value(text, sizes)
    except KeyError:
        return None


def of_argument(
    parameter: Parameter,
    arg: Any,
    sizes: Sizes,
    steps: Mapping[str, tuple[int, ...]],
    single: Mapping[tuple[str, int], int],
    in_bytes: bool,
) -> Iterator[str]:
    """``in_bytes``: whether strides are in bytes though the data has no blocks."""
    match parameter:
        case Data(tensor=tensor, kind=kind):
            yield from _of_array(arg, kind)
            last = _last(parameter, sizes, steps, single, in_bytes)
            if last is not None and arg.size <= last:
                yield f"element {last} of {tensor}, which has {arg.size}"
        case Scratch(kind=kind, size=size):
            yield from _of_array(arg, kind)
            due = value("*".join(size), sizes)
            if arg.size < due:
                yield f"{arg.size} elements, {due} were due"
        case Flag():
            yield from _of_array(arg, "i32")
            if arg.size != 1:
                yield f"a flag of {arg.size} elements"
        case Steps():
            if len(arg) != 4 or any(type(step) is not int or step < 0 for step in arg):
                yield f"strides {arg}"
        case Step():
            if type(arg) is not int or arg < 0:
                yield f"a stride of {arg!r}"
        case Shape():
            if len(arg) != 4 or any(type(size) is not int or size < 1 for size in arg):
                yield f"sizes {arg}"
        case Size(dimension):
            due_size = _value_if_known(dimension, sizes)
            if type(arg) is not int or (due_size is not None and arg != due_size):
                yield f"{dimension} is {arg!r}, {due_size} was due"
        case Value(kind=kind, choices=choices):
            if choices and arg not in choices:
                yield f"{arg!r} is none of {choices}"
            whole = {"i64": int, "f64": float}.get(kind, TYPES[kind])
            if type(arg) is not whole:
                yield f"a {type(arg).__name__}, {kind} was due"


def _of_array(arg: Any, kind: str) -> Iterator[str]:
    if arg.dtype != TYPES[kind] or arg.ndim != 1 or not arg.flags.c_contiguous:
        yield f"an array {arg.dtype}[{arg.ndim}], packed {kind}[1] was due"


def _last(
    data: Data,
    sizes: Sizes,
    steps: Mapping[str, tuple[int, ...]],
    single: Mapping[tuple[str, int], int],
    in_bytes: bool,
) -> int | None:
    """The number of the last element that the proof takes to be inside; ``None``: not said."""
    tensor = data.tensor
    if (tensor, 0) in single:
        size = sizes.get(f"{tensor}.0")
        return None if size is None else (size - 1) * single[tensor, 0]
    if tensor not in steps or any(f"{tensor}.{n}" not in sizes for n in range(4)):
        return None
    strides = steps[tensor]
    reach = sum((sizes[f"{tensor}.{n}"] - 1) * strides[n] for n in (1, 2, 3))
    width = TYPES[data.kind]().itemsize
    if data.block:  # strides in bytes, and blocks that follow each other along a row
        return reach // width + sizes[f"{tensor}.0"] // BLOCK * data.block - 1
    reach += (sizes[f"{tensor}.0"] - 1) * strides[0]
    return reach // width if in_bytes else reach
