"""Where splits begin and what crosses into them: the fifth pass of ggml's scheduler.

As in :mod:`.assign`, the functions on arrays run on lists and, compiled, on NumPy arrays.
Compiled code is remembered per file, so nothing here calls a function of another one.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from enum import IntEnum
from typing import NamedTuple

from .arrays import NO_WEIGHT, NONE, GraphArrays, Ints
from .assign import Assignment


class Begins(IntEnum):
    """Why a split begins: with the graph, at another device, because a weight must be brought
    while the split before had inputs (whose bytes can then be used again), or because the input
    list of the split before is full."""

    GRAPH = 0
    DEVICE = 1
    WEIGHT = 2
    FULL = 3


class Splits(NamedTuple):
    """Per split: its ``device``, its first node, why it begins, and the tensor that made it
    (a weight, or the input that was one too many).  Inputs of split k are ``inputs[first[k]]``
    to ``inputs[first[k + 1]]``.  ``copied``: what the pass itself remembers, per tensor the mask
    of devices that have a copy.  The lists begin as long as they can get: see ``trimmed``.
    """

    device: MutableSequence[int]
    start: MutableSequence[int]
    begins: MutableSequence[int]
    made_by: MutableSequence[int]
    first: MutableSequence[int]
    inputs: MutableSequence[int]
    copied: MutableSequence[int]


def empty_splits(nodes: int, sources: int, tensors: int) -> Splits:
    return Splits(
        [0] * (nodes + 1), [0] * (nodes + 1), [0] * (nodes + 1), [NONE] * (nodes + 1),
        [0] * (nodes + 2), [NONE] * sources, [0] * tensors,
    )  # fmt: skip


def trimmed(s: Splits, count: int) -> Splits:
    """The first ``count`` splits, without what only the pass needs."""
    return Splits(
        s.device[:count], s.start[:count], s.begins[:count], s.made_by[:count],
        s.first[: count + 1], s.inputs[: s.first[count]], s.copied[:0],
    )  # fmt: skip


def cut(
    g: GraphArrays, a: Assignment, reach: Ints, out: Splits, limit: int, grows: int
) -> tuple[int, int]:
    """Fill ``out``; returns the number of splits, and a tensor that made it fail (or NONE): a
    source without a device, or, if lists do not grow, the input that did not fit.

    ``reach``: per tensor, the devices that read it where it lies.  ``limit``: places of an input
    list; a split ends where its list is full and another input is due.  ``grows``: a list that
    one node overfills doubles, and the split goes on up to the new size.
    """
    count, at = 1, 0
    room = limit
    current = -1
    for i in range(len(g.node)):
        if g.idle[i]:
            continue
        device = a.device[g.node[i]]
        if current == NONE:
            current = device
            out.device[0] = device
        begins, made_by = begins_at(g, a, reach, out, i, current, at - out.first[count - 1], room)
        if begins:
            out.device[count] = device
            out.start[count] = i
            out.begins[count] = begins
            out.made_by[count] = made_by
            out.first[count] = at
            count += 1
            current = device
            room = limit
        for k in range(g.first[i], g.first[i + 1]):
            s = g.source[k]
            if a.device[s] == NONE:
                return count, s
            if a.device[s] == current or ((reach[s] | out.copied[s]) >> current) & 1:
                continue
            out.copied[s] |= 1 << current
            if at - out.first[count - 1] == room:
                if not grows:
                    return count, s
                room = 2 * room
            out.inputs[at] = s
            at += 1
    out.first[count] = at
    return count, NONE


def begins_at(
    g: GraphArrays,
    a: Assignment,
    reach: Ints,
    out: Splits,
    i: int,
    current: int,
    inputs: int,
    room: int,
) -> tuple[int, int]:
    """Whether a split begins at node i (0: no), and the tensor that makes it."""
    if a.device[g.node[i]] != current:
        return 1, -1
    if inputs == 0:
        return 0, -1
    for k in range(g.first[i], g.first[i + 1]):
        s = g.source[k]
        if a.device[s] == current or (reach[s] >> current) & 1:
            continue
        if g.weight[s] != NO_WEIGHT:
            return 2, s
        if inputs >= room and not (out.copied[s] >> current) & 1:
            return 3, s
    return 0, -1
