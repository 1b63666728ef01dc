"""Bytes in separate spaces, each byte with the version that was written there last."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layout import Layout
from .quant import Bytes

#: The version of a byte that nobody wrote, or that somebody is writing.
POISON = 0
#: What a poisoned byte holds: as a float of any width it is a NaN.
POISON_BYTE = 0xFF

VersionArray = NDArray[np.int64]


class Versions:
    """Numbers for versions: one block of numbers per write, one number per logical byte.

    A write is named by ``(kind, name, pass)``.  The sequential run and a replay of one schedule
    share one of these, so that equal numbers mean the same byte of the same write.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, int], int] = {}
        self._starts: list[int] = []
        self._keys: list[tuple[str, str, int]] = []
        self._next = POISON + 1

    def of(self, kind: str, name: str, pass_: int, count: int) -> VersionArray:
        """The versions of ``count`` bytes that this write gives, in logical order."""
        key = (kind, name, pass_)
        first = self._first.get(key)
        if first is None:
            first = self._first[key] = self._next
            self._starts.append(first)
            self._keys.append(key)
            self._next += max(count, 1)
        return np.arange(first, first + count, dtype=np.int64)

    def text(self, version: int) -> str:
        """``"node h, pass 1, byte 12"``; ``"poison"`` for undefined bytes."""
        if version == POISON:
            return "poison"
        place = bisect_right(self._starts, version) - 1
        kind, name, pass_ = self._keys[place]
        when = "" if kind == "initial" else f", pass {pass_}"
        return f"{kind} {name}{when}, byte {version - self._starts[place]}"


@dataclass(frozen=True, slots=True)
class Region:
    """Some bytes of a space (those of tensor ``name``), in an order of their own."""

    space: str
    where: slice | NDArray[np.int64]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes with their versions, packed, in logical order."""

    raw: Bytes
    version: VersionArray

    def part(self, first: int, last: int) -> Content:
        """Bytes ``[first, last)``."""
        return Content(self.raw[first:last], self.version[first:last])

    @property
    def poisoned(self) -> bool:
        return not self.version.all()


class Memory:
    """The spaces (buffers, and ``own:TENSOR``) of one run.  Starts as poison."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.data = {s: np.full(n, POISON_BYTE, np.uint8) for s, n in sizes.items()}
        self.version = {s: np.zeros(n, np.int64) for s, n in sizes.items()}
        #: When each byte was last touched by a write (its start or its end counts).
        self.touched = {s: np.zeros(n, np.int64) for s, n in sizes.items()}
        self.clock = 0
        #: Which tensor was written at each clock, from 1 on.
        self.writers: list[str] = []

    def copy(self) -> Memory:
        """An independent memory with the same contents, untouched so far."""
        twin = Memory({})
        twin.data = {s: a.copy() for s, a in self.data.items()}
        twin.version = {s: a.copy() for s, a in self.version.items()}
        twin.touched = {s: np.zeros(len(a), np.int64) for s, a in self.data.items()}
        return twin

    def reset(self, start: Memory) -> None:
        """Take the contents of ``start``, which has the same spaces."""
        for space, data in start.data.items():
            np.copyto(self.data[space], data)
            np.copyto(self.version[space], start.version[space])
            self.touched[space].fill(0)
        self.clock = 0
        self.writers.clear()

    def write_content(self, layout: Layout | Region, content: Content) -> None:
        self.write(layout, content.raw, content.version)

    def read(self, layout: Layout | Region) -> Content:
        return Content(
            self.data[layout.space][layout.where].copy(),
            self.version[layout.space][layout.where].copy(),
        )

    def write(self, layout: Layout | Region, raw: Bytes, version: VersionArray) -> None:
        self._tick(layout)
        self.data[layout.space][layout.where] = raw
        self.version[layout.space][layout.where] = version
        self.touched[layout.space][layout.where] = self.clock

    def _tick(self, layout: Layout | Region) -> None:
        self.clock += 1
        self.writers.append(layout.name)

    def poison(self, layout: Layout | Region) -> None:
        self._tick(layout)
        self.data[layout.space][layout.where] = POISON_BYTE
        self.version[layout.space][layout.where] = POISON
        self.touched[layout.space][layout.where] = self.clock

    def read_since(self, layout: Layout | Region, start: int) -> Content:
        """A read that began at clock ``start``: what was touched since then reads as poison."""
        content = self.read(layout)
        torn = self.touched[layout.space][layout.where] > start
        if torn.any():
            content.raw[torn] = POISON_BYTE
            content.version[torn] = POISON
        return content
