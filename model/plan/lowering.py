"""From splits to a program, by the protocol and the policies that a person chose."""

from __future__ import annotations

from dataclasses import dataclass

from ..schedule import Schedule
from .allocate import allocate
from .error import PlanError
from .expert_copy import selections
from .ggml_protocol import lower_ggml
from .lower import lower
from .overlap import lower_overlapped
from .prefetch import ahead

PROTOCOLS = "plain", "overlapped", "ggml", "ggml-before-26040"


@dataclass(frozen=True, slots=True)
class Lowering:
    """``protocol``: one of :data:`PROTOCOLS`.  ``prefetch``, ``slots``: a policy of
    :mod:`.prefetch`.  ``copy_experts``: selective copies.  ``place``: ``own`` bytes for each
    tensor, bytes used again by the program's ``order``, or by the ``list`` of nodes."""

    protocol: str = "plain"
    prefetch: str = "none"
    slots: int = 0
    copy_experts: bool = False
    place: str = "own"


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program, and what was asked for that has no effect in it."""

    schedule: Schedule
    idle: tuple[str, ...] = ()


def lower_as(schedule: Schedule, choice: Lowering) -> Lowered:
    """Lower a split-level schedule.  ``PlanError`` for choices that do not go together."""
    idle: list[str] = []
    if choice.protocol not in PROTOCOLS:
        raise PlanError(f"protocol {choice.protocol!r}: one of {', '.join(PROTOCOLS)} was due")
    if choice.protocol != "overlapped" and (choice.prefetch != "none" or choice.copy_experts):
        raise PlanError(
            f"protocol {choice.protocol} makes its own copies; prefetch and copy_experts need "
            "overlapped"
        )
    if choice.protocol == "overlapped":
        program = _overlapped(schedule, choice, idle)
    elif choice.protocol == "plain":
        program = lower(schedule)
    else:
        program = lower_ggml(schedule, bare_splits_wait=choice.protocol == "ggml")
    if choice.place != "own":
        program = allocate(program, list_order=choice.place == "list")
    return Lowered(program, tuple(idle))


def _overlapped(schedule: Schedule, choice: Lowering, idle: list[str]) -> Schedule:
    moves = ahead(schedule, choice.prefetch, choice.slots)
    if moves.idle:
        idle.append(f"prefetch {choice.prefetch} moves nothing: {moves.idle}")
    chosen = selections(moves.schedule) if choice.copy_experts else {}
    early = {(split, name) for _, split, name in moves.moves}
    if choice.copy_experts and not chosen.keys() - early:
        idle.append(
            "copy_experts copies nothing: no expert weight is brought from host memory whose ids "
            "an earlier split computes"
        )
    return lower_overlapped(schedule, moves=moves, chosen=chosen)
