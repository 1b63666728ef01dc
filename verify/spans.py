"""Items found by the bytes that they concern."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: First and one past the last address.
Span = tuple[int, int]


class Spans(Generic[Item]):
    """Items grouped by their span; a query walks an interval tree, so that it costs as much as
    it finds (and a logarithm)."""

    __slots__ = ("_groups", "_reach", "_spans")

    def __init__(self, items: Iterable[tuple[Span, Item]]) -> None:
        found: dict[Span, list[Item]] = {}
        for span, item in items:
            found.setdefault(span, []).append(item)
        self._spans = sorted(found)
        self._groups = [found[span] for span in self._spans]
        #: greatest end below each node of the tree; the node of a range is its middle
        self._reach = [end for _, end in self._spans]
        self._build(0, len(self._spans))

    def _build(self, low: int, high: int) -> int:
        middle = (low + high) // 2
        for a, b in ((low, middle), (middle + 1, high)):
            if a < b:
                self._reach[middle] = max(self._reach[middle], self._build(a, b))
        return self._reach[middle] if low < high else 0

    def meeting(self, span: Span) -> list[list[Item]]:
        """The groups whose span overlaps that one, each in the order in which it was given."""
        found: list[list[Item]] = []
        start, end = span
        ranges = [(0, len(self._spans))]
        while ranges:
            low, high = ranges.pop()
            middle = (low + high) // 2
            if low == high or self._reach[middle] <= start:
                continue
            ranges.append((low, middle))
            least, most = self._spans[middle]
            if least < end:
                ranges.append((middle + 1, high))
                if start < most:
                    found.append(self._groups[middle])
        return found
