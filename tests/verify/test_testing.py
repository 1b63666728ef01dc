"""What other projects use in their tests."""

from __future__ import annotations

import random

import pytest
from hypothesis import find, given, settings
from splitproof.exec.interleave import random_order
from splitproof.exec.replay import run_interleaving
from splitproof.model.document import dumps, loads
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check
from splitproof.verify.testing import assert_proved, schedules

SLOW = settings(max_examples=30, deadline=None)


@given(schedules())
@SLOW
def test_drawn_schedules_are_documents(schedule: Schedule) -> None:
    assert loads(dumps(schedule)) == schedule


@given(schedules())
@SLOW
def test_what_is_proved_runs_right_in_any_order(schedule: Schedule) -> None:
    if check(schedule).verdict is Verdict.PROVED:
        order = random_order(schedule, {}, random.Random(0))
        assert run_interleaving(schedule, order, {}).wrong == ()


def test_right_and_wrong_ones_are_drawn() -> None:
    assert_proved(find(schedules(), lambda s: check(s).verdict is Verdict.PROVED, settings=SLOW))
    wrong = find(schedules(), lambda s: check(s).verdict is Verdict.VIOLATED, settings=SLOW)
    with pytest.raises(AssertionError, match=r"is violated:\n  \w+ at \$\.program"):
        assert_proved(wrong)
