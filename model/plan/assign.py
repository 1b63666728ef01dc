"""Who runs what: the five passes of ggml's scheduler, the first four of which are here.

The source of each rule is ``ggml_backend_sched_split_graph`` and
``ggml_backend_sched_backend_id_from_cur`` in ggml 0.25 to 0.27.  The functions on arrays run as
plain Python on lists and, by :mod:`.compiled`, as machine code on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from enum import IntEnum
from typing import NamedTuple

from .arrays import HOST_WEIGHT, NO_WEIGHT, NONE, GraphArrays


class Cause(IntEnum):
    """Why a tensor is on its device.  ``WEIGHT + k``: source k is a weight that lies there."""

    NOTHING = 0
    USER = 1
    PLACED = 2
    INPUT = 3
    OFFLOAD = 4
    FAST_DOWN = 5
    FAST_UP = 6
    REST_DOWN = 7
    REST_UP = 8
    BEST = 9
    UPGRADE = 10
    BASE = 11
    READER = 12
    FIRST = 13
    WEIGHT = 100


#: What ggml's debug output calls them.
_RECORDED = {
    Cause.NOTHING: "", Cause.USER: "usr", Cause.PLACED: "1.dst", Cause.INPUT: "1.inp",
    Cause.OFFLOAD: "1.off", Cause.FAST_DOWN: "2.sup", Cause.FAST_UP: "2.sup",
    Cause.REST_DOWN: "2.sup", Cause.REST_UP: "2.sup", Cause.BEST: "3.best",
    Cause.UPGRADE: "3.upg", Cause.BASE: "4.vsrc", Cause.READER: "4.cur", Cause.FIRST: "2.sup",
}  # fmt: skip


def recorded_name(cause: int) -> str:
    """The name of a cause in ggml's debug output: ``"1.wgt0"``, ``"2.sup"``…"""
    if cause >= Cause.WEIGHT:
        return f"1.wgt{cause - Cause.WEIGHT}"
    return _RECORDED[Cause(cause)]


class Assignment(NamedTuple):
    """Per tensor: its ``device``, the ``cause``, and the tensor that ``led`` there (the weight,
    neighbour, base or reader; ``NONE`` where no other tensor did)."""

    device: MutableSequence[int]
    cause: MutableSequence[int]
    led: MutableSequence[int]


def empty_assignment(tensors: int) -> Assignment:
    return Assignment([NONE] * tensors, [0] * tensors, [NONE] * tensors)


def assign(g: GraphArrays, a: Assignment) -> tuple[int, int]:
    """Run the four passes on lists.

    Returns ``(NONE, NONE)``, or what has no device: ``(node, NONE)``, a node that nobody
    supports; ``(NONE, tensor)``, one whose buffer no device can compute in.
    """
    stuck = from_buffers(g, a)
    if stuck != NONE:
        return NONE, stuck
    from_weights(g, a)
    expand_fast(g, a, 1)
    expand_fast(g, a, -1)
    expand_rest(g, a, 1)
    expand_rest(g, a, -1)
    upgrade(g, a)
    return the_rest(g, a), NONE


# -- pass 1: from what is placed ----------------------------------------------------------------


def from_buffers(g: GraphArrays, a: Assignment) -> int:
    """A pin, a buffer or the input flag decides; leafs first, then nodes.

    Returns a placed tensor that nobody can compute in place, or NONE.
    """
    device, cause, led = a
    pin, placed, readers, is_input = g.pin, g.placed, g.readers, g.input
    leafs, node, supports, base = g.leafs, g.node, g.supports, g.base
    for k in range(len(leafs) + len(node)):
        i = k - len(leafs)
        t = leafs[k] if i < 0 else node[i]
        if pin[t] >= 0:
            device[t] = pin[t]
            cause[t] = 1
        elif placed[t]:
            able = readers[t] if i < 0 else readers[t] & supports[i]
            if able == 0:
                return t
            device[t] = lowest(able, g.devices)
            cause[t] = 2
            led[t] = base[t]
        elif is_input[t]:
            device[t] = g.devices - 1
            cause[t] = 3
    return NONE


def from_weights(g: GraphArrays, a: Assignment) -> None:
    """The first weight among the sources decides, unless a device wants to have it brought."""
    device, cause, led = a
    node, blind, supports, wants = g.node, g.blind, g.supports, g.wants
    first, source, slot, weight, readers = g.first, g.source, g.slot, g.weight, g.readers
    for i in range(len(node)):
        t = node[i]
        if device[t] >= 0 or blind[i]:
            continue
        k, end = first[i], first[i + 1]
        while k < end and weight[source[k]] == NO_WEIGHT:
            k += 1
        if k == end:
            continue
        s = source[k]
        led[t] = s
        cause[t] = 100 + slot[k]
        device[t] = lowest(readers[s] & supports[i], g.devices)
        if g.offload and device[t] == g.devices - 1 and weight[s] == HOST_WEIGHT:
            wanting = lowest(supports[i] & wants[i], g.devices - 1)
            if wanting != NONE:
                device[t] = wanting
                cause[t] = 4


def lowest(mask: int, devices: int) -> int:
    """The first device of a mask, of the first ``devices``; NONE if there is none."""
    for d in range(devices):
        if (mask >> d) & 1:
            return d
    return -1


# -- pass 2: neighbours -------------------------------------------------------------------------


def expand_fast(g: GraphArrays, a: Assignment, step: int) -> None:
    """Nodes without a device take that of the node before (step 1) or after (step -1), unless
    it is the last device's: the CPU gets no node by neighbourhood that another could have."""
    expand(g, a, step, g.devices - 1, 5 if step == 1 else 6)


def expand_rest(g: GraphArrays, a: Assignment, step: int) -> None:
    """The same with every device."""
    expand(g, a, step, g.devices, 7 if step == 1 else 8)


def expand(g: GraphArrays, a: Assignment, step: int, devices: int, cause: int) -> None:
    count = len(g.node)
    current, neighbour = -1, -1
    for k in range(count):
        i = k if step == 1 else count - 1 - k
        if g.idle[i]:
            continue
        t = g.node[i]
        if a.device[t] != NONE:
            current = a.device[t] if a.device[t] < devices else -1
            neighbour = t
        elif current != NONE and (g.supports[i] >> current) & 1:
            a.device[t] = current
            a.cause[t] = cause
            a.led[t] = neighbour
            neighbour = t


# -- pass 3: better devices, and nodes that no neighbour could take -----------------------------


def readable(g: GraphArrays, a: Assignment, t: int, device: int) -> bool:
    """Whether a device reads the memory where a tensor lies, or will lie."""
    if g.placed[t]:
        return (g.readers[t] >> device) & 1 == 1
    home = located(g, a, t)
    return home != NONE and (g.home[home] >> device) & 1 == 1


def located(g: GraphArrays, a: Assignment, t: int) -> int:
    """The device of a tensor, or of its base."""
    if a.device[t] == NONE and g.base[t] != NONE:
        return a.device[g.base[t]]
    return a.device[t]


def upgrade(g: GraphArrays, a: Assignment) -> None:
    for i in range(len(g.node)):
        if g.idle[i]:
            continue
        t = g.node[i]
        if a.device[t] == NONE:
            rescue(g, a, i, t)
            continue
        mask = g.kin[a.device[t]] & g.supports[i]
        for d in range(a.device[t]):
            if (mask >> d) & 1 and reads_all(g, a, i, d):
                a.device[t] = d
                a.cause[t] = 10
                break


def reads_all(g: GraphArrays, a: Assignment, i: int, device: int) -> bool:
    for k in range(g.first[i], g.first[i + 1]):  # noqa: SIM110 - generators do not compile
        if not readable(g, a, g.source[k], device):
            return False
    return True


def rescue(g: GraphArrays, a: Assignment, i: int, t: int) -> None:
    """Take the device that reads most of the sources; the first of equal ones."""
    most = -1
    for d in range(g.devices):
        if not (g.supports[i] >> d) & 1:
            continue
        count = 0
        for k in range(g.first[i], g.first[i + 1]):
            s = g.source[k]
            if located(g, a, s) != NONE and readable(g, a, s, d):
                count += 1
        if count > most:
            most = count
            a.device[t] = d
            a.cause[t] = 9
            a.led[t] = NONE


# -- pass 4: the rest ---------------------------------------------------------------------------


def the_rest(g: GraphArrays, a: Assignment) -> int:
    """Views follow their base and other sources their reader.  Returns a node that nobody
    supports, or NONE."""
    for i in range(len(g.node)):
        t = g.node[i]
        if a.device[t] == NONE and g.base[t] != NONE:
            inherit(a, t, a.device[g.base[t]], 11, g.base[t])
        for k in range(g.first[i], g.first[i + 1]):
            s = g.source[k]
            if a.device[s] != NONE:
                continue
            if g.base[s] != NONE:
                inherit(a, s, a.device[g.base[s]], 11, g.base[s])
            else:
                inherit(a, s, a.device[t], 12, t)
        if a.device[t] == NONE:
            inherit(a, t, lowest(g.supports[i], g.devices), 13, -1)
            if a.device[t] == NONE:
                return i
    return NONE


def inherit(a: Assignment, t: int, device: int, cause: int, led: int) -> None:
    a.device[t] = device
    a.cause[t] = cause
    a.led[t] = led


# -- what split.py asks -------------------------------------------------------------------------


def reach(g: GraphArrays, a: Assignment, out: MutableSequence[int]) -> None:
    """Per tensor, the mask of the devices that read the memory where it lies or will lie."""
    for t in range(len(g.base)):
        home = located(g, a, t)
        if g.placed[t]:
            out[t] = g.readers[t]
        elif home != NONE:
            out[t] = g.home[home]
