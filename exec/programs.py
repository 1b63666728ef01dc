"""From the graph of a model to the program of one pass: caches and prefetches as chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..model.plan.allocate import result_bytes
from ..model.plan.guard import NONE_OFF, Guard
from ..model.plan.lowering import Lowering, lower_as
from ..model.plan.planner import plan
from ..model.plan.policy.expert_cache import MOST_TOKENS, cache_experts
from ..model.schedule import Schedule

#: From the graph level to the split level.
Plan = Callable[[Schedule], Schedule]

#: Results that take more bytes than this share bytes; a proof of that takes longer.
COMPACT_FROM = 256 << 20


@dataclass(frozen=True, slots=True)
class Policy:
    """``cache``: bytes of an expert cache on each device, 0 for none; ``force``: even one that
    never finds an expert.  ``prefetch``, ``slots``: of :mod:`..model.plan.policy`.
    ``copy_experts``: of experts in host memory, only those that are used are copied."""

    cache: int = 0
    force: bool = False
    prefetch: str = "none"
    slots: int = 0
    copy_experts: bool = False


@dataclass(frozen=True, slots=True)
class Programmed:
    """A program of one pass, and what was asked for that has no effect in it."""

    schedule: Schedule
    idle: tuple[str, ...] = ()


def program(
    schedule: Schedule, policy: Policy, tokens: int, *, plan: Plan = plan,
    compact_from: int = COMPACT_FROM,
) -> Programmed:  # fmt: skip
    """Plan and lower a graph of fixed sizes, in which a pass has ``tokens`` tokens.

    Without an asynchronous device there is nothing to overlap: the plain program.  ``PlanError``
    for a policy that cannot be followed.
    """
    idle: list[str] = []
    if policy.cache:
        schedule = _cached(schedule, policy, tokens, idle)
    planned = plan(schedule)
    place = "order" if result_bytes(planned) > compact_from else "own"
    if not any(device.asynchronous for device in planned.graph.devices):
        if policy.prefetch != "none" or policy.copy_experts:
            idle.append("there is no asynchronous device to bring anything to")
        return Programmed(lower_as(planned, Lowering(place=place)).schedule, tuple(idle))
    lowered = lower_as(
        planned, Lowering("overlapped", policy.prefetch, policy.slots, policy.copy_experts, place)
    )
    # The host waits for its outputs, and whoever runs the program for all the rest.
    return Programmed(replace(lowered.schedule, repeat=1), (*idle, *lowered.idle))


def _cached(schedule: Schedule, policy: Policy, tokens: int, idle: list[str]) -> Schedule:
    off = frozenset({Guard.FLOODING}) if policy.force else NONE_OFF
    found = cache_experts(schedule, policy.cache, off)
    if found.idle:
        idle.append(f"moe-cache caches nothing: {found.idle}")
        return schedule
    (cached,) = found.schedules
    fits = all(bank.when.holds({}) for bank in cached.graph.banks)
    # A large batch uses most experts anyway, and goes the plain way.
    return cached if fits and tokens <= MOST_TOKENS else schedule
