"""The few writes that matter to one read: a cut that keeps every order edge between them.

A *line* is what one queue writes in one place, in issue order.  Along a line "ended before the
read" holds for a first stretch and "starts after the read" for a last one.  What starts after the
read cannot reach it.  Of what ended before, a write w is of no account once some c, with w → c → r,
surely writes the byte again: w is no latest writer, and it is no witness that c is not.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .access import Write
from .order import Order
from .term import Bool


class Numbered(NamedTuple):
    """A write, and its place among all writes in issue order."""

    number: int
    write: Write


#: Writes of one queue to one place, in issue order.
Line = list[Numbered]


class Near(NamedTuple):
    """A write that matters.  ``covers``: where it writes the byte.  ``ended``: it is before the
    read in every order; else the two are unordered."""

    number: int
    write: Write
    covers: Bool
    ended: bool


def near(
    order: Order,
    part: int,
    lines: Iterable[Line],
    covers: Callable[[Write], Bool],
    everything: bool = False,
) -> list[Near]:
    """The writes that matter to what ``part`` reads, in issue order.

    ``covers``: where a write writes the byte in question.  ``everything``: also those that a
    later one covers.
    """
    before = order.before
    found: list[Near] = []
    ended: list[tuple[int, int, Line]] = []
    for line in lines:
        some = bisect_left(line, True, key=lambda w: not before(w.write.part, part))
        for number, write in line[some:]:
            if before(part, write.part):
                break
            if write.part == part:
                continue
            here = covers(write)
            if here is not False:
                found.append(Near(number, write, here, False))
        if some:
            heapq.heappush(ended, (-line[some - 1].number, some - 1, line))
    covering: list[int] = []
    while ended:
        _, at, line = heapq.heappop(ended)
        number, write = line[at]
        if any(before(write.part, other) for other in covering):
            continue  # and so is what the line wrote earlier
        here = covers(write)
        if here is not False:
            found.append(Near(number, write, here, True))
        if here is True and not everything:
            covering.append(write.part)
        if at:
            heapq.heappush(ended, (-line[at - 1].number, at - 1, line))
    found.sort(key=lambda n: n.number)
    return found
