"""What a GPU kernel is called with: plain data, for the compiler and for the proof of its bounds.

A *dimension* is written ``tensor.n`` (dimension n of a tensor's shape); a product of dimensions as
``a.1*a.2``; a dimension over a constant, rounded up, as ``a.1/8``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Data:
    """The bytes of a tensor from its first on, as elements of ``kind`` (``f32``, ``u16``, …).

    ``block``: for packed rows of blocks, what one block has of such elements; the block's
    ``weights`` are one step of dimension 0.
    """

    tensor: str
    kind: str = "f32"
    block: int = 0
    weights: int = 32


@dataclass(frozen=True, slots=True)
class Steps:
    """The four strides of a tensor, in bytes or in elements of the data beside it."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Step:
    """One stride of a tensor."""

    tensor: str
    dimension: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """The four sizes of a tensor, each at least 1."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Size:
    """A number that is that dimension (see above)."""

    dimension: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """Packed memory of the kernel's own, or a small table; ``size``: its dimensions, outermost
    first."""

    kind: str
    size: tuple[str, ...] = ("1",)


@dataclass(frozen=True, slots=True)
class Value:
    """A number that no index hangs on; for integers, the values that it takes."""

    kind: str = "f32"
    choices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """int32[1] that any thread may set to 1."""


Parameter = Data | Steps | Step | Shape | Size | Scratch | Value | Flag


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel (a jitted function, with ``py_func``) and all that its launch promises.

    ``grid``: blocks along x, y and z.  ``same``: dimensions that are equal; ``divides``: pairs of
    dimensions of which the first divides the second.
    """

    function: Callable[..., None]
    parameters: tuple[Parameter, ...]
    grid: tuple[str, ...]
    threads: int
    same: tuple[tuple[str, str], ...] = ()
    divides: tuple[tuple[str, str], ...] = ()
