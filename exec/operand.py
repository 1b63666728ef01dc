"""One operand of a kernel: the bytes of a tensor in a memory, with its layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import Layout
from .quant import Bytes

#: NumPy's type for the elements that kernels compute with.
PLAIN: dict[str, type[np.generic]] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """The tensor of ``layout``; ``data`` holds its bytes from the first to the last.

    ``data`` is a one-dimensional window on the memory itself, holes of a strided tensor
    included: what is written to it is written to the tensor.
    """

    layout: Layout
    data: Bytes

    @property
    def dtype(self) -> str:
        return self.layout.dtype.name

    @property
    def ne(self) -> tuple[int, int, int, int]:
        return self.layout.ne

    @property
    def empty(self) -> bool:
        return not self.layout.nbytes

    @cached_property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes as ``(ne3, ne2, ne1, blocks, bytes of a block)``, a view."""
        counts, steps = self.layout.counts[::-1], self.layout.nb[::-1]
        size = self.layout.dtype.block_bytes
        if self.empty:
            return np.empty((*counts, size), np.uint8)
        return np.lib.stride_tricks.as_strided(self.data, (*counts, size), (*steps, 1))

    @cached_property
    def array(self) -> NDArray[Any]:
        """The elements of a plain type as ``(ne3, ne2, ne1, ne0)``, a view."""
        kind = np.dtype(PLAIN[self.dtype])
        if self.empty:
            return np.empty(self.ne[::-1], kind)
        whole = self.data[: len(self.data) // kind.itemsize * kind.itemsize].view(kind)
        return np.lib.stride_tricks.as_strided(whole, self.ne[::-1], self.layout.nb[::-1])

    @cached_property
    def flat(self) -> NDArray[Any]:
        """The window as elements of a plain type (for a kernel, with :attr:`steps`)."""
        return self.data.view(PLAIN[self.dtype])

    @cached_property
    def steps(self) -> tuple[int, int, int, int]:
        """Strides in elements (plain types)."""
        size = self.layout.dtype.block_bytes
        if any(stride % size for stride in self.layout.nb):
            raise ValueError(
                f"{self.layout.name}: strides {self.layout.nb} are no multiples of {size} bytes"
            )
        a, b, c, d = self.layout.nb
        return a // size, b // size, c // size, d // size

    @property
    def rows_packed(self) -> bool:
        """Whether the blocks of each row follow each other."""
        return self.layout.counts[0] == 1 or self.layout.nb[0] == self.layout.dtype.block_bytes

    @property
    def here(self) -> Operand:
        """Itself, or a copy where the host can read it."""
        return self

    def packed(self) -> Bytes:
        """The bytes in logical order: the window itself if it has no holes, else gathered."""
        if self.layout.packed:
            return self.data
        return np.ascontiguousarray(self.raw).reshape(-1)

    def with_packed_rows(self) -> Operand:
        """Itself, or a gathered copy if the blocks of a row do not follow each other."""
        if self.rows_packed:
            return self
        return scratch(self.layout, self.packed())

    def assign(self, raw: Bytes) -> None:
        """Write packed bytes, given in logical order (or one byte, everywhere)."""
        if self.layout.packed:
            self.data[:] = raw
        elif len(raw) == 1:
            self.raw[...] = raw
        else:
            self.raw[...] = raw.reshape(self.raw.shape)


def scratch(layout: Layout, raw: Bytes) -> Operand:
    """A packed operand of the same type and shape outside every memory."""
    stride = layout.dtype.block_bytes
    steps = []
    for count in layout.counts:
        steps.append(stride)
        stride *= count
    nb = (steps[0], steps[1], steps[2], steps[3])
    return Operand(replace(layout, nb=nb, space="scratch", offset=0), raw)
