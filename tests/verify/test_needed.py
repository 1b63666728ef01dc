"""Counterexamples are small: what is left out changes nothing; what is unique is told."""

from __future__ import annotations

from pathlib import Path

import oracle
import pytest
from splitproof.model.command import Compute
from splitproof.model.document import from_dict, load
from splitproof.model.plan.lower import lower
from splitproof.verify.check import check
from splitproof.verify.explore import follow
from test_check import changed

RULES = Path(__file__).parents[1] / "rules"


def test_the_fault_shows_without_the_commands_that_play_no_part() -> None:
    """By the oracle's memory: only the commands that are needed happen."""
    shown = left_out = 0
    for number in range(120):
        schedule = oracle.schedule_of(number)
        if schedule is None or schedule.graph.banks:
            continue
        for finding in check(schedule).findings:
            fault = finding.counterexample
            if fault is None or any(t.values is not None for t in schedule.graph.tensors):
                continue
            assert set(fault.needed) <= {(step.command, step.iteration) for step in fault.order}
            order = [s for s in fault.order if (s.command, s.iteration) in set(fault.needed)]
            read = finding.affected[0]
            whole, part = (
                {
                    (w.command, w.iteration, w.tensor)
                    for w in follow(schedule, steps, dict(fault.symbols), partial=partial)
                }
                for steps, partial in ((fault.order, False), (order, True))
            )
            key = (read.command, read.iteration, read.tensor)
            if key in whole:
                assert key in part, (number, finding.message)
                shown += 1
                left_out += len(order) < len(fault.order)
    assert shown >= 60 and left_out >= 60


@pytest.mark.parametrize(
    ("code", "kept"),
    [("PF001", {"prefetch", "callback", "compute"}), ("PF004", {"compute", "prefetch"})],
)
def test_only_the_parties_are_needed(code: str, kept: set[str]) -> None:
    schedule = lower(load(RULES / code / "violating.json"))
    assert schedule.program is not None
    shown = check(schedule).findings[0].counterexample
    assert shown is not None
    assert {schedule.program[command].do for command, _ in shown.needed} == kept
    assert len(shown.needed) == 3 and len(shown.order) > 30


def test_a_fault_at_one_size_is_told_to_be_the_only_one() -> None:
    """Without its wait at one size, or at more of them."""
    for guard, unique in (("n != 3", True), ("n > 2", False), ("n < 8", True)):
        document = changed()
        document["program"][3]["when"] = guard
        shown = check(from_dict(document)).findings[0].counterexample
        assert shown is not None and shown.unique is unique, guard


def test_without_symbols_nothing_is_called_unique() -> None:
    schedule = lower(load(RULES / "OR001" / "violating.json"))
    assert schedule.graph.symbols == () and isinstance(schedule.program, tuple)
    assert any(isinstance(command, Compute) for command in schedule.program)
    shown = check(schedule).findings[0].counterexample
    assert shown is not None and not shown.unique
