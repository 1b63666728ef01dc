"""The instances of theorems at the reads of a schedule, with what they lack."""

from __future__ import annotations

from splitproof.model.schedule import Schedule
from splitproof.verify.encode import Solver
from splitproof.verify.footprint import Footprints
from splitproof.verify.instantiate import Theorems
from splitproof.verify.obligation import Judge
from splitproof.verify.order import build_order
from splitproof.verify.regime import regimes
from splitproof.verify.sequential import Sequential


def missing(schedule: Schedule) -> set[tuple[str, tuple[str, ...]]]:
    """``(theorem, hypotheses that do not hold)`` of each read that has a theorem's form, in each
    regime of a schedule."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    solver = Solver()
    for regime in regimes(schedule, solver):

        def exists(command: int, iteration: int, regime: object = regime) -> bool:
            what = schedule.program[command]  # type: ignore[index]
            return regime.holds(what.when, iteration)  # type: ignore[attr-defined,no-any-return]

        order = build_order(schedule, exists)
        sequential = Sequential(
            schedule,
            lambda c, i, order=order: (c, i) in order.by_command,  # type: ignore[misc]
            lambda node, i, regime=regime: regime.holds(node.when, i),  # type: ignore[misc]
        )
        judge = Judge(
            schedule, sequential, Footprints(schedule, order, sequential), solver,
            regime.ranges, regime.condition,
        )  # fmt: skip
        theorems = Theorems(judge)
        for read in judge.footprints.reads:
            found |= {(each.theorem, each.missing) for each in theorems.instances(read)}
    return found
