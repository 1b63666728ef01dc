"""Bytes that the host cannot touch: a GPU's memory, through whoever moves them there and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .operand import Operand
from .quant import Bytes


class Window(ABC):
    """Some bytes of such a memory, one after the other.

    In a job of a queue each move is a command of that queue; anywhere else the host waits for it.
    """

    dtype = np.dtype(np.uint8)

    @property
    @abstractmethod
    def size(self) -> int:
        """How many bytes."""

    @property
    def nbytes(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def __len__(self) -> int:
        return self.size

    @abstractmethod
    def __getitem__(self, part: slice) -> Window:
        """A part, on the same bytes."""

    @abstractmethod
    def fill(self, value: int) -> None:
        """The same byte everywhere."""

    @abstractmethod
    def take(self, source: Bytes | Window) -> None:
        """Bytes from the host, or from a memory of this kind; as many as there are here."""

    @abstractmethod
    def give(self, target: Bytes) -> None:
        """These bytes to the host."""

    @abstractmethod
    def settle(self) -> None:
        """The host waits for what was issued to the queue before."""

    @abstractmethod
    def fetch(self) -> Bytes:
        """A copy, on the host; it is complete when this returns."""


def move_bytes(source: NDArray[Any] | Window, target: NDArray[Any] | Window) -> None:
    """From view to view, of equal shape."""
    if isinstance(target, Window):
        target.take(source)
    elif isinstance(source, Window):
        source.give(target)
    else:
        target[...] = source


class RemoteOperand(Operand):
    """A tensor in a :class:`Window`, which only kernels of that device compute with."""

    data: Any  # a Window

    @property
    def here(self) -> Operand:
        return Operand(self.layout, self.data.fetch())

    @property
    def raw(self) -> NDArray[np.uint8]:
        raise self._apart()

    @property
    def array(self) -> NDArray[Any]:
        raise self._apart()

    @property
    def flat(self) -> NDArray[Any]:
        raise self._apart()

    def packed(self) -> Bytes:
        return self.here.packed()

    def assign(self, raw: Bytes) -> None:
        if not self.layout.packed:
            raise self._apart()
        if len(raw) == 1 != self.layout.nbytes:
            self.data.fill(int(raw[0]))
        else:
            self.data.take(raw)

    def _apart(self) -> TypeError:
        return TypeError(
            f"{self.layout.name} lies in {self.layout.space}, in the memory of a GPU: it is copied "
            f"there in whole runs of bytes, and has strides {self.layout.nb} for {self.layout.ne}"
        )
