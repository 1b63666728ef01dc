"""Prefetch policies: which inputs are copied while an earlier split is current.

A policy is a function from a split-level schedule to :class:`Ahead`; a new one is one function
here and a row of :data:`POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from ..command import Callback
from ..device import Buffer, Device, Usage
from ..ops import OPS
from ..schedule import Schedule, Split
from ..symbol import Expr
from .allocate import ALIGNMENT
from .error import PlanError
from .operands import Operands


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is copied early.

    ``moves``: ``(issuing split, consuming split, tensor)`` in issue order.  A move is issued
    before the inputs of the issuing split, or, where ``after`` names it, after its computes.
    ``schedule``: with the places that the policy gave to copies.  ``idle``: why a policy that
    was asked for moves nothing.
    """

    schedule: Schedule
    moves: tuple[tuple[int, int, str], ...] = ()
    after: frozenset[tuple[int, int, str]] = frozenset()
    idle: str = ""


@dataclass(frozen=True, slots=True)
class Guards:
    """What the policies make sure of; each can be switched off in a test."""

    #: only sources in compute buffers are copied one split ahead
    compute_source: bool = True
    #: not what the running split computes or writes
    not_written: bool = True
    #: through views: what writes a view writes its base
    through_views: bool = True


ALL_GUARDS = Guards()
Policy = Callable[[Schedule, int, Guards], Ahead]


def ahead(schedule: Schedule, policy: str, slots: int, guards: Guards = ALL_GUARDS) -> Ahead:
    """Apply a policy by its name (``none``, ``one-ahead``, ``staging``).

    ``slots``: of a staging ring.  ``PlanError`` for another name, and for too few slots.
    """
    if policy not in POLICIES:
        raise PlanError(f"prefetch {policy!r}: one of {', '.join(POLICIES)} was due")
    return POLICIES[policy](schedule, slots, guards)


def _none(schedule: Schedule, slots: int, guards: Guards) -> Ahead:
    return Ahead(schedule)


def _one_ahead(schedule: Schedule, slots: int, guards: Guards) -> Ahead:
    """Inputs of the next split, if the running one has nothing to do with their bytes."""
    moves = []
    splits = schedule.splits or ()
    for index, (running, following) in enumerate(pairwise(splits)):
        if not _copies_aside(schedule.graph.device(following.device)):
            continue
        written = _written(schedule, running, guards)
        for name in Operands(schedule).inputs(following):
            base = schedule.base(name).name if guards.through_views else name
            if guards.compute_source and not _in_compute(schedule, name):
                continue
            if guards.not_written and base in written:
                continue
            moves.append((index, index + 1, name))
    idle = "" if moves else "no input of a split is computed before the split that precedes it"
    return Ahead(schedule, tuple(moves), idle=idle)


def _written(schedule: Schedule, split: Split, guards: Guards) -> set[str]:
    names = set()
    for node in schedule.graph.nodes[split.start : split.end]:
        if not OPS[node.op].view:
            for name in node.writes if node.writes is not None else (node.dst,):
                names.add(schedule.base(name).name if guards.through_views else name)
    return names


def _in_compute(schedule: Schedule, name: str) -> bool:
    return schedule.location(schedule.base(name).name).usage in (None, Usage.COMPUTE)


def _copies_aside(device: Device) -> bool:
    """Whether a device has a second queue, which can copy while the first computes."""
    return device.asynchronous and len(device.queues) > 1


def _staging(schedule: Schedule, slots: int, guards: Guards) -> Ahead:
    """Host weights go through a ring of slots, filled when the slot's last reader was issued."""
    if slots < 1:
        raise PlanError(f"staging {slots}: 1 slot or more was due")
    if schedule.graph.n_copies > 1:
        raise PlanError("staging keeps one copy of a weight, and n_copies asks for several")
    moves: list[tuple[int, int, str]] = []
    after: set[tuple[int, int, str]] = set()
    for device in schedule.graph.devices:
        if not _copies_aside(device):
            continue
        staged = list(_staged(schedule, device))
        schedule = _ring(schedule, device, [name for _, name in staged], slots)
        for number, (split, name) in enumerate(staged):
            issuing = staged[number - slots][0] if number >= slots else 0
            if issuing >= split:
                continue  # nothing passes between: an ordinary copy
            move = issuing, split, name
            moves.append(move)
            if number >= slots:
                after.add(move)
    idle = "" if moves else "no device with a second queue is brought weights from host memory"
    return Ahead(schedule, tuple(moves), frozenset(after), idle)


def _staged(schedule: Schedule, device: Device) -> Iterator[tuple[int, str]]:
    """The host weights that a device is brought, that one split alone reads, and that nothing
    rewrites in a pass."""
    operands = Operands(schedule)
    rewritten = _rewritten(schedule)
    readers: dict[str, set[int]] = {}
    for index, split in enumerate(schedule.splits or ()):
        if split.device == device.name:
            for node in operands.nodes(split):
                for source in node.src:
                    readers.setdefault(source, set()).add(index)
    for index, split in enumerate(schedule.splits or ()):
        if split.device == device.name:
            for name in operands.inputs(split):
                placed = schedule.location(schedule.copy_name(device.name, name)).usage
                if schedule.base(name).name in rewritten:
                    continue
                if operands.host_weight(name) and len(readers[name]) == 1 and placed is None:
                    yield index, name


def _rewritten(schedule: Schedule) -> set[str]:
    """Bases that fills and callbacks write: weights too, such as a cache's slot maps."""
    graph = schedule.graph
    names = {n for b in graph.banks for n in (b.name, b.slot_map, b.slot_ids) if n is not None}
    for split in schedule.splits or ():
        for callback in split.callbacks:
            declared = callback.writes if isinstance(callback, Callback) else ()
            everything = declared is None or f"usage:{Usage.WEIGHTS}" in declared
            names |= {t.name for t in graph.tensors} if everything else set(declared or ())
    return {schedule.base(name).name for name in names if not name.startswith("usage:")}


def _ring(schedule: Schedule, device: Device, names: list[str], slots: int) -> Schedule:
    """Copies of weights in slots of one buffer, in rotation."""
    if not names:
        return schedule
    ranges = schedule.graph.ranges
    sizes = [schedule.tensor(name).data_bytes.bounds(ranges)[1] for name in names]
    stride = -(-max(sizes) // ALIGNMENT) * ALIGNMENT
    count = min(slots, len(names))
    buffer = Buffer(f"staging:{device.name}", device.memory, Usage.COMPUTE, stride * count)
    placements = tuple(
        (schedule.copy_name(device.name, name), buffer.name, Expr.of(number % count * stride))
        for number, name in enumerate(names)
    )
    graph = replace(schedule.graph, buffers=(*schedule.graph.buffers, buffer))
    return replace(schedule, graph=graph, placements=(*schedule.placements, *placements))


POLICIES: dict[str, Policy] = {"none": _none, "one-ahead": _one_ahead, "staging": _staging}
