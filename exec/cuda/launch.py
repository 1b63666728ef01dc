"""How a kernel is started: on which stream, and where it says that an id was out of range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from ..functions import OutOfRange
from ..operand import Operand
from .target import THREADS


@dataclass
class Launch:
    """A queue as kernels see it: a stream, and device memory that they may use meanwhile.

    ``stream``: 0 is the default stream.  Scratch memory belongs to the stream: kernels of one
    stream run one after the other, so each may use all of it.
    """

    stream: Any = 0
    _scratch: dict[str, Any] = field(default_factory=dict)
    _constants: dict[tuple[str, str], Any] = field(default_factory=dict)
    _fault: Any = None

    @property
    def fault(self) -> Any:
        """int32[1] on the device: not zero once a kernel met an id out of range."""
        if self._fault is None:
            self._fault = cuda.to_device(np.zeros(1, np.int32), stream=self.stream)
        return self._fault

    def scratch(self, name: str, count: int, kind: type[np.generic]) -> Any:
        """At least ``count`` elements on the device, the same memory for the same name."""
        known = self._scratch.get(name)
        if known is None or known.size < count:
            known = cuda.device_array(max(count, 1), kind, stream=self.stream)
            self._scratch[name] = known
        return known

    def constant(self, op: str, name: str, value: NDArray[Any]) -> Any:
        """An array that a node needs in each pass; it is uploaded in the first."""
        if (op, name) not in self._constants:
            self._constants[op, name] = cuda.to_device(value, stream=self.stream)
        return self._constants[op, name]

    def rows(self, kernel: Any, ne: tuple[int, int, int, int], *args: Any) -> None:
        """Start one block per row of a tensor; nothing for an empty one."""
        count = ne[1] * ne[2] * ne[3]
        if count and ne[0]:
            kernel[count, THREADS, self.stream](*args)

    def finish(self) -> None:
        """Wait for the stream.  ``OutOfRange`` if a kernel met an id out of range."""
        if self._fault is not None and int(self._fault.copy_to_host(stream=self.stream)[0]):
            raise OutOfRange("a kernel met an id outside the table that it selects from")
        if self.stream:
            self.stream.synchronize()


def whole(operand: Operand, kind: type[np.generic]) -> Any:
    """The window of an operand as elements of that type, bytes past the last one left out."""
    size = np.dtype(kind).itemsize
    return operand.data[: len(operand.data) // size * size].view(kind)
