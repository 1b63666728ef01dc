"""For each byte of the memories of a run: its version, and who touched it last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layout import Layout
from .memory import POISON, VersionArray

Clock = Mapping[str, int]

Where = slice | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clash:
    """A part touches a byte that another one touched, and nothing orders the two.

    ``chain``, ``position``: the other part; ``wrote``: whether it wrote; ``known``: up to where
    this one knows that chain.
    """

    byte: int
    chain: str
    position: int
    known: int
    wrote: bool


class Shadow:
    """What is known of each byte of one space.  Positions count the parts of a chain from 1."""

    def __init__(self, size: int, start: VersionArray | None) -> None:
        self.version = np.full(size, POISON, np.int64) if start is None else start.copy()
        self.writer: dict[str, NDArray[np.int64]] = {}
        self.reader: dict[str, NDArray[np.int64]] = {}

    def settle(self) -> None:
        """Everything so far is before everything to come."""
        self.writer.clear()
        self.reader.clear()

    def late(self, where: Where, clock: Clock, readers: bool) -> Clash | None:
        """The first byte with a write (or, if asked, a read) that the clock does not cover."""
        for table in (self.writer, self.reader) if readers else (self.writer,):
            for chain, positions in table.items():
                found, known = positions[where], clock.get(chain, 0)
                beyond = np.flatnonzero(found > known)
                if len(beyond):
                    at = int(beyond[0])
                    byte = where.start + at if isinstance(where, slice) else int(where[at])
                    return Clash(byte, chain, int(found[at]), known, table is self.writer)
        return None

    def mark(self, where: Where, chain: str, position: int, *, writes: bool) -> None:
        table = self.writer if writes else self.reader
        if chain not in table:
            table[chain] = np.zeros(len(self.version), np.int64)
        table[chain][where] = position


def planes(layout: Layout, numbers: list[int]) -> Where:
    """The bytes of some experts of a tensor, in logical order."""
    parts = [layout.part(2, number).addresses for number in numbers]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def of_planes(version: VersionArray, layout: Layout, numbers: list[int]) -> VersionArray:
    """Of versions of a whole tensor in logical order, those of some experts."""
    each = version.reshape(max(layout.ne[2], 1), -1)
    return each[numbers].reshape(-1)
