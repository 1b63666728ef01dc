"""Which tensors may not share bytes, and the lowest places that respect it; on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .lifetime import Life

Array = np.ndarray[Any, np.dtype[Any]]

_ALWAYS = np.iinfo(np.int64).max


def lowest_places(
    conflicts: Conflicts, order: Sequence[int], alignment: int
) -> tuple[list[int], int]:
    """Offsets of the lives, and the bytes of all.

    In the given order each gets the lowest gap between those that are in use at the same time.
    """
    placed = np.array(order, np.int64)
    starts, ends = np.zeros(len(placed), np.int64), np.zeros(len(placed), np.int64)
    for k, life in enumerate(order):
        beside = conflicts.of(life, placed[:k])
        beside = beside[np.argsort(starts[beside], kind="stable")]
        # Candidates: the beginning, and where all that begin before have ended.
        reach = np.maximum.accumulate(ends[beside])
        at = np.concatenate(([0], -(-reach // alignment) * alignment))
        until = np.concatenate((starts[beside], [_ALWAYS]))
        size = conflicts.bytes[life]
        starts[life] = at[np.argmax(until - at >= size)]
        ends[life] = starts[life] + size
    return starts.tolist(), int(ends.max(initial=0))


class Conflicts:
    """Which lives, given by first use, are at once.

    Rows of clocks, passes one after another in each row.  ``begins``: the clock of a life's
    first write in each pass; ``done``: what must have ended before others write in that pass
    (its uses up to then).  ``again`` and ``before``: the same for the passes that follow a first.
    All lives from ``until`` on begin after a life is done with, and it begins again after all
    lives up to ``wrap`` are done with: those between the two need no look.
    """

    def __init__(self, lives: Sequence[Life]) -> None:
        passes = 1 + max((p for life in lives for p in (*life.starts, *life.ends)), default=0)
        width = max((len(c) for life in lives for c in life.starts.values()), default=0)
        starts = np.full((len(lives), passes, width), _ALWAYS, np.int64)
        ends = np.zeros((len(lives), passes, width), np.int64)
        for k, life in enumerate(lives):
            for p, clock in life.starts.items():
                starts[k, p] = clock
            for p, clock in life.ends.items():
                ends[k, p] = clock
        ends = np.maximum.accumulate(ends, axis=1)
        rows, later = (len(lives), passes * width), (len(lives), (passes - 1) * width)
        self.bytes = [life.bytes for life in lives]
        self.begins, self.done = starts.reshape(rows), ends.reshape(rows)
        self.again, self.before = starts[:, 1:].reshape(later), ends[:, :-1].reshape(later)
        floor = np.minimum.accumulate(self.begins[::-1], axis=0)[::-1]
        self.until = _places(floor, self.done, "left").max(0, initial=0)
        ceiling = np.maximum.accumulate(self.before, axis=0)
        self.wrap = _places(ceiling, self.again, "right").min(0, initial=len(lives))

    def of(self, life: int, others: Array) -> Array:
        """Those of ``others`` that are in use while a life is."""
        first, last = np.minimum(others, life), np.maximum(others, life)
        near: Array = others[(last < self.until[first]) | (last >= self.wrap[first])]
        meeting: Array = near[~self.apart(life, near)]
        return meeting

    def apart(self, life: int, others: Array) -> Array:
        """Of each, whether it or the life is done with before the other begins, in each pass,
        and the other with the first in the pass that follows."""
        begins, done, again, before = (
            rows[others] for rows in (self.begins, self.done, self.again, self.before)
        )
        ahead = (self.begins[life] >= done).all(1) & (again >= self.before[life]).all(1)
        after = (begins >= self.done[life]).all(1) & (self.again[life] >= before).all(1)
        found: Array = ahead | after
        return found


def _places(rows: Array, values: Array, side: Literal["left", "right"]) -> Array:
    """Where each of the values would be put into its row, which is sorted; a line a row."""
    found = [np.searchsorted(r, v, side) for r, v in zip(rows.T, values.T, strict=True)]
    return np.array(found, np.int64).reshape(len(found), len(values))
