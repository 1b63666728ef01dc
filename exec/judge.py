"""What a run did wrong: reads of a version that was not due, and numbers that differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layout import Layout
from .memory import POISON, Content
from .quant import Array, to_array
from .reference import World
from .script import Part


@dataclass(frozen=True, slots=True)
class WrongRead:
    """A read that saw another version than the sequential run.

    ``byte``: the first such byte, counted in logical order in ``tensor``, the tensor that was
    read; ``count``: how many bytes; ``got`` and ``due``: the versions, in words.  ``poison``:
    some byte was undefined; ``differs``: some byte has another value than was due.
    """

    command: int
    iteration: int
    tensor: str
    byte: int
    count: int
    got: str
    due: str
    poison: bool
    differs: bool

    def __str__(self) -> str:
        return (
            f"command {self.command}, pass {self.iteration}, reads {self.tensor}: "
            f"{self.count} byte(s) from byte {self.byte} on hold {self.got}; due was {self.due}"
        )


@dataclass(frozen=True, slots=True)
class WrongValue:
    """A node or an output whose numbers are not those of the sequential run.

    ``index``: the first element that differs (in logical order), ``got`` and ``expected`` its
    values (NaN: poison); ``count``: how many elements differ; ``largest``: the largest absolute
    difference, or ``"poison"`` if an undefined number is among them.
    """

    command: int
    iteration: int
    tensor: str
    index: int
    count: int
    got: float
    expected: float
    largest: float | str

    def __str__(self) -> str:
        got, expected = (
            "poison" if np.isnan(value) else f"{value:.7g}" for value in (self.got, self.expected)
        )
        largest = self.largest if isinstance(self.largest, str) else f"{self.largest:.3g}"
        return (
            f"command {self.command}, pass {self.iteration}, {self.tensor}[{self.index}] = {got}; "
            f"{expected} was due ({self.count} value(s) differ, at most by {largest})"
        )


def wrong_read(
    world: World,
    part: Part,
    source: Layout,
    got: Content,
    due: Content | None,
    mask: NDArray[np.bool_] | None = None,
) -> WrongRead | None:
    """The fault of a read, if it has one.

    ``due`` ``None``: any version will do, poison will not.  ``mask``: the bytes that count.
    """
    if due is None:
        wrong = got.version == POISON
    else:
        # A byte that the sequential run reads without a version is a fault whatever is read.
        wrong = (got.version != due.version) | (got.version == POISON)
    if mask is not None:
        wrong = wrong & mask
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    counted = got.version[wrong]
    return WrongRead(
        part.command,
        part.iteration,
        source.name,
        first,
        int(wrong.sum()),
        world.versions.text(int(got.version[first])),
        "some defined value" if due is None else world.versions.text(int(due.version[first])),
        bool((counted == POISON).any()),
        due is None or bool((got.raw[wrong] != due.raw[wrong]).any()),
    )


def wrong_output(part: Part, layout: Layout, got: Content, due: Content) -> WrongValue | None:
    """The difference of an output from the sequential run; bytes that are poison count."""
    return wrong_value(part, layout, got.raw, due.raw)


def wrong_value(
    part: Part,
    layout: Layout,
    got: NDArray[np.uint8],
    due: NDArray[np.uint8],
    mask: NDArray[np.bool_] | None = None,
) -> WrongValue | None:
    """The difference between two contents of a tensor, if there is one."""
    different = got != due
    if mask is not None:
        different = different & mask
    if not different.any():
        return None
    kind = layout.dtype
    if not layout.known:
        first = int(np.argmax(different))
        return WrongValue(
            part.command, part.iteration, layout.name, first, int(different.sum()),
            float(got[first]), float(due[first]), "unknown type",
        )  # fmt: skip
    values, expected = (_flat(to_array(kind, raw, layout.ne)) for raw in (got, due))
    blocks = different.reshape(-1, kind.block_bytes).any(axis=1)
    elements = np.repeat(blocks, kind.block)
    first = int(np.argmax(elements))
    with np.errstate(invalid="ignore"):
        distance = np.abs(values[elements] - expected[elements])
    largest: float | str = "poison" if np.isnan(distance).any() else float(distance.max())
    return WrongValue(
        part.command, part.iteration, layout.name, first, int(elements.sum()),
        float(values[first]), float(expected[first]), largest,
    )  # fmt: skip


def _flat(array: Array) -> Array:
    return array.astype(np.float64).reshape(-1, order="F")
