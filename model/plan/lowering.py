"""From splits to a program, by the protocol and the policies that a person chose."""

from __future__ import annotations

from dataclasses import dataclass

from ..schedule import Schedule
from .allocate import allocate
from .error import PlanError
from .ggml_protocol import lower_ggml
from .guard import NONE_OFF, Guard, Off
from .lower import lower
from .overlap import lower_overlapped
from .policy import apply
from .transfer import Transfers

PROTOCOLS = "plain", "overlapped", "ggml", "ggml-before-26040"


@dataclass(frozen=True, slots=True)
class Lowering:
    """``protocol``: one of :data:`PROTOCOLS`.  ``prefetch``, ``slots``: a policy of
    :mod:`.policy`.  ``copy_experts``: selective copies.  ``place``: ``own`` bytes for each
    tensor, bytes used again by the program's ``order``, or by the ``list`` of nodes.
    ``off``: guards that are switched off, for tests."""

    protocol: str = "plain"
    prefetch: str = "none"
    slots: int = 0
    copy_experts: bool = False
    place: str = "own"
    off: Off = NONE_OFF


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
        in_list = choice.place == "list" or Guard.LIFETIMES in choice.off
        program = allocate(program, list_order=in_list)
    return Lowered(program, tuple(idle))


def _overlapped(schedule: Schedule, choice: Lowering, idle: list[str]) -> Schedule:
    transfers = apply(Transfers(schedule), choice.prefetch, choice.slots, choice.off)
    if choice.copy_experts:
        transfers = apply(transfers, "used-experts", off=choice.off)
    idle += transfers.idle
    return lower_overlapped(transfers, off=choice.off)
