"""What other projects use in their tests."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import find, given, settings
from splitproof import testing
from splitproof.api import as_program
from splitproof.exec.interleave import random_order
from splitproof.exec.replay import run_interleaving
from splitproof.model.document import dumps, loads
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check
from splitproof.verify.testing import Level, assert_proved, schedules

SLOW = settings(max_examples=30, deadline=None)


@given(schedules())
@SLOW
def test_drawn_schedules_are_documents(schedule: Schedule) -> None:
    assert loads(dumps(schedule)) == schedule


@pytest.mark.parametrize("level", ["graph", "split"])
def test_lower_levels_are_planned_and_proved(level: Level) -> None:
    @given(schedules(level=level))
    @settings(max_examples=10, deadline=None)
    def holds(schedule: Schedule) -> None:
        assert schedule.program is None and (schedule.splits is None) is (level == "graph")
        testing.assert_proved(schedule)
        assert_proved(schedule, lower=as_program)

    holds()


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
    with pytest.raises(AssertionError, match=r"reads[\s\S]*missing"):
        testing.assert_proved(wrong)


# -- the plug-in ----------------------------------------------------------------------------------

SUITE = """
import sys

def test_nothing_heavy_is_loaded_by_pytest_itself():
    assert "z3" not in sys.modules and "numba" not in sys.modules

def test_right(assert_proved):
    assert assert_proved({right!r}).verdict == "proved"

def test_wrong(assert_proved):
    assert_proved({wrong!r})
"""


def test_another_project_uses_the_fixture(tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "docs" / "examples"
    suite = SUITE.format(right=str(examples / "moe-layer.json"), wrong=str(examples / "pf001.json"))
    (tmp_path / "test_theirs.py").write_text(suite, encoding="utf-8")
    plugin = [] if _installed() else ["-p", "splitproof.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_theirs.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout, done.stdout
    assert "AssertionError: a weight is prefetched" in done.stdout
    assert "PF001 prefetch-source-not-compute" in done.stdout
    assert "missing  callback moe_cache must end before prefetch" in done.stdout
    assert "raise AssertionError" not in done.stdout  # the trace ends in their test


def _installed() -> bool:
    """Whether pytest finds the plug-in itself; an older editable install has no entry for it."""
    return any(
        point.value == "splitproof.pytest_plugin" for point in entry_points(group="pytest11")
    )


def test_the_package_names_the_plug_in() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    points = tomllib.loads(text)["project"]["entry-points"]["pytest11"]
    assert points == {"splitproof": "splitproof.pytest_plugin"}
