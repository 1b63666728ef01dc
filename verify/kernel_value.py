"""Symbolic values for running a GPU kernel's Python on all sizes and all threads at once.

An index is a sum ``Σ coefficient · stride + rest``: strides stay symbols that are never multiplied
with each other, so what the solver sees of an access are the coefficients, which are coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import z3

if TYPE_CHECKING:
    from .kernel_run import Run

#: the tensor and the dimension of a stride
Stride = tuple[str, int]


class Unclear(Exception):
    """The kernel does something that the symbolic run has no meaning for; the message says what."""


@dataclass(eq=False)
class Num:
    """An integer of the kernel, of at most 64 bits.

    ``strides``: coefficients of strides; ``divisor``: what the whole was divided by (bytes to
    elements).  ``natural``: it is known not to be negative; ``below``: terms that it is known to
    be below.  ``packed``: numbers (place, count, rest) of which it is ``place · count + rest``.
    """

    run: Run
    rest: Any
    strides: dict[Stride, Any] = field(default_factory=dict)
    divisor: int = 1
    natural: bool = False
    below: tuple[Any, ...] = ()
    packed: tuple[Num, Num, Num] | None = None

    def _other(self, other: Any) -> Num:
        if isinstance(other, Num):
            return other
        if isinstance(other, int):
            return Num(self.run, z3.IntVal(other), natural=other >= 0)
        raise Unclear(f"an index meets {type(other).__name__}")

    def __add__(self, other: Any) -> Num:
        other = self._other(other)
        if self.divisor != other.divisor and self.strides and other.strides:
            raise Unclear("strides in different units are added")
        strides = dict(self.strides)
        for stride, coefficient in other.strides.items():
            strides[stride] = strides[stride] + coefficient if stride in strides else coefficient
        divisor = self.divisor if self.strides else other.divisor
        total = Num(self.run, self.rest + other.rest, strides, divisor)
        if not strides:
            self.run.sum(self, other, total)
        return total

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Num:
        raise Unclear("a number is carried from one iteration of a loop to the next")

    def __neg__(self) -> Num:
        return self * -1

    def __sub__(self, other: Any) -> Num:
        return self + self._other(other) * -1

    def __rsub__(self, other: Any) -> Num:
        return self._other(other) - self

    def __mul__(self, other: Any) -> Num:
        other = self._other(other)
        if self.strides and other.strides:
            raise Unclear("strides are multiplied with each other")
        plain, strided = (self, other) if other.strides else (other, self)
        if strided.strides and strided.divisor != 1:
            raise Unclear("a divided stride is multiplied")
        strides = {s: c * plain.rest for s, c in strided.strides.items()}
        product = Num(self.run, self.rest * other.rest, strides, strided.divisor)
        if not strides:
            self.run.product(self, other, product)
        return product

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Num:
        other = self._other(other)
        if other.strides:
            raise Unclear("a number is divided by a stride")
        if self.strides:
            return self._in_units(other)
        return self.run.quotient(self, other)

    def _in_units(self, other: Num) -> Num:
        """Bytes to elements: strides and offsets are whole elements, as the launch promises."""
        if not z3.is_int_value(other.rest) or self.divisor != 1:
            raise Unclear("strides are divided by something other than an element's size")
        size = other.rest.as_long()
        return Num(self.run, self.rest / size, self.strides, size)

    def __rfloordiv__(self, other: Any) -> Num:
        return self._other(other) // self

    def __mod__(self, other: Any) -> Num:
        other = self._other(other)
        if self.strides or other.strides:
            raise Unclear("the remainder of a stride is taken")
        return self.run.remainder(self, other)

    def __rmod__(self, other: Any) -> Num:
        return self._other(other) % self

    def _compared(self, other: Any, relation: Callable[[Any, Any], Any]) -> bool:
        other = self._other(other)
        if self.strides or other.strides:
            return self.run.either()
        return self.run.choose(relation(self.rest, other.rest))

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: a >= b)

    def __eq__(self, other: object) -> bool:
        return self._compared(other, lambda a, b: a == b)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0


@dataclass(eq=False)
class Opaque:
    """A value that no index hangs on: a float, or bits of a weight."""

    run: Run

    def _same(self, *_: Any) -> Opaque:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _same
    __rtruediv__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rshift__ = _same
    __lshift__ = __rlshift__ = __iadd__ = __ior__ = __neg__ = __abs__ = _same

    def _unknown(self, *_: Any) -> bool:
        return self.run.either()

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _unknown

    def __eq__(self, other: object) -> bool:
        return self._unknown()

    def __ne__(self, other: object) -> bool:
        return self._unknown()
