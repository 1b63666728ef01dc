"""Where each byte of a tensor lies, at concrete values of the symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..model.command import Compute
from ..model.device import Usage
from ..model.schedule import Schedule
from ..model.tensor import DType, Tensor, dtype


@dataclass(frozen=True)
class Layout:
    """The bytes of one tensor: ``ne`` and ``nb`` (bytes) as in ggml, from ``offset`` in ``space``.

    ``nb[0]`` is the stride of a block.  ``known`` is false for a tensor of which only the size
    is known: it can be moved but not computed with.
    """

    name: str
    dtype: DType
    ne: tuple[int, int, int, int]
    nb: tuple[int, int, int, int]
    space: str
    offset: int
    values: tuple[int, int] | None = None
    known: bool = True

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the elements, holes not counted."""
        return int(np.prod(self.counts, dtype=np.int64)) * self.dtype.block_bytes

    @cached_property
    def counts(self) -> tuple[int, int, int, int]:
        """Blocks per row, then rows, planes, …"""
        return self.ne[0] // self.dtype.block, self.ne[1], self.ne[2], self.ne[3]

    @cached_property
    def end(self) -> int:
        """One past the last byte in ``space`` (``offset`` for an empty tensor)."""
        if not self.nbytes:
            return self.offset
        steps = zip(self.counts, self.nb, strict=True)
        reach = sum((count - 1) * max(stride, 0) for count, stride in steps)
        return self.offset + reach + self.dtype.block_bytes

    @cached_property
    def packed(self) -> bool:
        stride = self.dtype.block_bytes
        for count, step in zip(self.counts, self.nb, strict=True):
            if count != 1 and step != stride:
                return False
            stride *= count
        return True

    @cached_property
    def where(self) -> slice | NDArray[np.int64]:
        """Index of the bytes in their space, in logical order."""
        if self.packed:
            return slice(self.offset, self.offset + self.nbytes)
        address = np.arange(self.dtype.block_bytes, dtype=np.int64) + self.offset
        for count, stride in zip(self.counts, self.nb, strict=True):
            steps = np.arange(count, dtype=np.int64) * stride
            address = np.add.outer(steps, address)
        return address.reshape(-1)

    @cached_property
    def addresses(self) -> NDArray[np.int64]:
        """The same as :attr:`where`, always as an array."""
        if isinstance(self.where, slice):
            return np.arange(self.where.start, self.where.stop, dtype=np.int64)
        return self.where

    def part(self, dimension: int, index: int) -> Layout:
        """One row (1), expert (2)… of the tensor, as a layout of its own."""
        ne = list(self.ne)
        ne[dimension] = 1
        return Layout(
            self.name, self.dtype, (ne[0], ne[1], ne[2], ne[3]), self.nb, self.space,
            self.offset + index * self.nb[dimension],
        )  # fmt: skip


class Layouts:
    """The layouts of a schedule's tensors at given values of its symbols."""

    def __init__(self, schedule: Schedule, symbols: Mapping[str, int]) -> None:
        self.schedule = schedule
        self.symbols = dict(symbols)
        self._placed: dict[str, Layout] = {}
        self._sequential: dict[str, Layout] = {}

    def placed(self, name: str) -> Layout:
        """Where the tensor lies when the program runs.  ``KeyError`` if there is none."""
        if name not in self._placed:
            location = self.schedule.location(name)
            self._placed[name] = self._layout(
                self.schedule.tensor(name), location.space, location.offset.value(self.symbols)
            )
        return self._placed[name]

    def sequential(self, name: str) -> Layout:
        """Where it lies in the sequential run: a base outside ``weights`` and ``any`` buffers
        has a space of its own, named ``own:BASE``."""
        if name not in self._sequential:
            location = self.schedule.location(name)
            offset = location.offset
            space = location.space
            if location.usage not in (Usage.WEIGHTS, Usage.ANY):
                base = self.schedule.base(name).name
                space = f"own:{base}"
                offset = offset - self.schedule.location(base).offset
            self._sequential[name] = self._layout(
                self.schedule.tensor(name), space, offset.value(self.symbols)
            )
        return self._sequential[name]

    def _layout(self, tensor: Tensor, space: str, offset: int) -> Layout:
        if not tensor.shape:
            size = tensor.bytes or 0
            return Layout(
                tensor.name, dtype("i8"), (size, 1, 1, 1), (1, size, size, size), space, offset,
                known=False,
            )  # fmt: skip
        ne = [size.value(self.symbols) for size in tensor.ne]
        nb = [stride.value(self.symbols) for stride in tensor.nb]
        nb += [nb[-1] * (ne[len(nb) - 1] if len(nb) > 1 else ne[0] // tensor.type.block)] * (
            4 - len(nb)
        )
        values = tensor.values or self.schedule.base(tensor.name).values
        return Layout(
            tensor.name, tensor.type, (ne[0], ne[1], ne[2], ne[3]), (nb[0], nb[1], nb[2], nb[3]),
            space, offset, values, known=not tensor.about,
        )  # fmt: skip


def mentioned_tensors(schedule: Schedule) -> tuple[str, ...]:
    """Every tensor that has bytes: the declared ones, and the copies that the program names."""
    names = dict.fromkeys(tensor.name for tensor in schedule.graph.tensors)
    for command in schedule.program or ():
        if isinstance(command, Compute):
            node = schedule.graph.node(command.node)
            names.update(dict.fromkeys(schedule.bound(command, i) for i in range(len(node.src))))
            continue
        for attribute in ("src", "dst", "ids", "tensor", "slot_ids", "slot_map"):
            name = getattr(command, attribute, None)
            if name is not None:
                names[name] = None
    return tuple(names)
