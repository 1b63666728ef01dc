"""Happens-before on arrays: vector clocks whose rows are shared, and conflicts between accesses.

The functions run on lists and, compiled by :mod:`.closure_compiled`, on NumPy arrays; compiled
code is remembered per file, so nothing here calls a function of another one.

A *clock* says, for each chain, the last part of it that has certainly ended; its row is kept
once for all parts that know the same.  Two things need no row: a chain is ordered with itself,
and the host is before all that is issued later, as every part starts after the host's parts
before it.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

Ints = Sequence[int]

NONE = -1
#: ``met`` of a wait whose queue cannot wait for that kind of event
VOID = -2
PLAIN, RECORD, WAIT, SYNC_EVENT, SYNC_QUEUE = range(5)


class Steps(NamedTuple):
    """One entry per part, in issue order.

    ``chain``: 0 is the host; of a loose part that of its queue.  ``loose``: 1 for an unordered
    copy.  ``does``: ``PLAIN``, ``RECORD``, …  ``of``: the event, or the chain that is awaited.
    ``kind``: the device of a record or wait, 0 the host.
    """

    chain: Ints
    loose: Ints
    does: Ints
    of: Ints
    kind: Ints


class Clocks(NamedTuple):
    """``row``: of each part, into ``rows`` (``width`` entries each).  ``met``: the record that a
    wait or event sync follows, ``NONE`` or ``VOID``.  ``recorded``, ``synced``: what a loose part
    is followed by, the next record of its queue and the host's next wait for it."""

    row: MutableSequence[int]
    rows: MutableSequence[int]
    met: MutableSequence[int]
    recorded: MutableSequence[int]
    synced: MutableSequence[int]


def joined(rows: MutableSequence[int], used: int, width: int, row: int, other: int) -> int:
    """The row that knows what both know: ``row`` if that is all, else a new one at ``used``."""
    at, add, new = row * width, other * width, used * width
    if row == other:
        return row
    for c in range(width):
        if rows[add + c] > rows[at + c]:
            break
    else:
        return row
    for c in range(width):
        a, b = rows[at + c], rows[add + c]
        rows[new + c] = a if a > b else b
    return used


def told(rows: MutableSequence[int], used: int, width: int, row: int, chain: int, part: int) -> int:
    """The row that also knows that ``part`` of ``chain`` has ended."""
    at, new = row * width, used * width
    if rows[at + chain] >= part:
        return row
    for c in range(width):
        rows[new + c] = rows[at + c]
    rows[new + chain] = part
    return used


def closure(
    s: Steps,
    width: int,
    kinds: int,
    may_wait: Ints,
    latest: MutableSequence[int],
    scratch: MutableSequence[int],
    out: Clocks,
) -> int:
    """Fill ``out``; returns how many rows there are (at most ``4 * parts + 1``).

    ``may_wait[a * kinds + b]``: whether queues of a can wait for events of b.  ``latest``: one
    ``NONE`` per event.  ``scratch``: ``6 * width`` times ``NONE``.
    """
    chain_of, loose_of, does, of, kind = s
    row, rows, met, recorded, synced = out
    # Of each chain: its tail, its row, the host's row when last seen, its last wait, and the
    # first loose part without a record, and without a host wait.
    tail, current, seen, wait, pending, unsynced = (
        0,
        width,
        2 * width,
        3 * width,
        4 * width,
        5 * width,
    )
    for c in range(width):
        rows[c] = NONE
        scratch[current + c] = 0
        scratch[seen + c] = 0
    used = 1
    for part in range(len(chain_of)):
        chain = chain_of[part]
        host = scratch[current]
        if loose_of[part]:
            mine = host
            before = scratch[wait + chain]
            if before != NONE:
                mine = joined(rows, used, width, row[before], host)
                used += mine == used
                mine = told(rows, used, width, mine, chain, before)
                used += mine == used
            row[part] = mine
            if scratch[pending + chain] == NONE:
                scratch[pending + chain] = part
            if scratch[unsynced + chain] == NONE:
                scratch[unsynced + chain] = part
            continue
        mine = scratch[current + chain]
        if scratch[seen + chain] != host:
            mine = joined(rows, used, width, mine, host)
            used += mine == used
            scratch[seen + chain] = host
        action, which = does[part], of[part]
        if action == RECORD:
            first = scratch[pending + chain]
            if first != NONE:
                for other in range(first, part):
                    if loose_of[other] and chain_of[other] == chain:
                        recorded[other] = part
                        mine = joined(rows, used, width, mine, row[other])
                        used += mine == used
                scratch[pending + chain] = NONE
            latest[which] = part
        elif action in (WAIT, SYNC_EVENT):
            record = latest[which]
            if action == WAIT:
                scratch[wait + chain] = part
                if record != NONE and not may_wait[kind[part] * kinds + kind[record]]:
                    record = VOID
            met[part] = record
            if record >= 0:
                mine = joined(rows, used, width, mine, row[record])
                used += mine == used
                mine = told(rows, used, width, mine, chain_of[record], record)
                used += mine == used
        elif action == SYNC_QUEUE and which >= 0:
            first = scratch[unsynced + which]
            if first != NONE:
                for other in range(first, part):
                    if loose_of[other] and chain_of[other] == which:
                        synced[other] = part
                        mine = joined(rows, used, width, mine, row[other])
                        used += mine == used
                scratch[unsynced + which] = NONE
            last = scratch[tail + which]
            if which and last != NONE:
                mine = joined(rows, used, width, mine, row[last])
                used += mine == used
                mine = told(rows, used, width, mine, which, last)
                used += mine == used
        row[part] = mine
        scratch[current + chain] = mine
        scratch[tail + chain] = part
    return used


def conflicts(
    s: Steps,
    width: int,
    clocks: Clocks,
    first: Ints,
    place: Ints,
    writes: Ints,
    last: MutableSequence[int],
    raced: MutableSequence[int],
) -> int:
    """How many accesses of one place are unordered with the latest conflicting one of a chain.

    A place has no such access iff all its conflicting accesses are ordered.  Accesses of part p
    are ``first[p]`` to ``first[p + 1]``: the ``place``, and whether it ``writes``.  ``last``:
    ``2 * width`` times ``NONE`` a place.  ``raced``: 1 for the places that have one.  What is
    loose counts as unordered with everything.
    """
    chain_of, loose_of = s.chain, s.loose
    row, rows = clocks.row, clocks.rows
    found = 0
    for part in range(len(chain_of)):
        chain, clock = chain_of[part], row[part] * width
        for access in range(first[part], first[part + 1]):
            where = place[access]
            wrote = where * 2 * width
            if loose_of[part]:
                found += 1
                raced[where] = 1
                continue
            known = rows[clock : clock + width]
            end = wrote + (2 * width if writes[access] else width)
            unordered = 0
            for begin in range(wrote, end, width):
                latest = last[begin : begin + width]
                for c in range(width):  # without a branch: this becomes vector code
                    unordered += latest[c] > known[c]
                if latest[chain] > known[chain]:
                    unordered -= 1  # a chain is in order, whatever the row says
            if unordered:
                found += unordered
                raced[where] = 1
        for access in range(first[part], first[part + 1]):
            if chain and not loose_of[part]:  # the host's are before all that is issued later
                last[(place[access] * 2 + 1 - writes[access]) * width + chain] = part
    return found
