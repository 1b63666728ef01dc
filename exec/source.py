"""A source as the reference's functions see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..model.tensor import DType
from .quant import Array, Bytes, to_array

Shape = tuple[int, int, int, int]


class OutOfRange(IndexError):
    """An id or a row number outside of what it indexes."""


@dataclass(frozen=True)
class Operand:
    """A source as a function sees it: packed bytes in logical order, and their values."""

    name: str
    dtype: DType
    ne: Shape
    raw: Bytes

    @cached_property
    def array(self) -> Array:
        return to_array(self.dtype, self.raw, self.ne)

    def plane(self, index: int) -> Array:
        """Matrix ``index`` along dimension 2 (an expert), of shape ``ne[:2]``."""
        if not 0 <= index < self.ne[2]:
            raise OutOfRange(f"{self.name} has {self.ne[2]} experts, there is no number {index}")
        size = len(self.raw) // (self.ne[2] * self.ne[3])
        ne = (self.ne[0], self.ne[1], 1, 1)
        return to_array(self.dtype, self.raw[index * size : (index + 1) * size], ne)[:, :, 0, 0]
