"""Work that threads share: every unit once, whoever sleeps, and no thread left behind."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from numba import carray, cfunc
from splitproof.exec import parallel
from splitproof.exec.cpu.jobs import KERNEL, Job, look
from splitproof.exec.cpu.native import address, pointer
from splitproof.exec.parallel import Team

UNITS = 40
#: How often a unit looks for another before it gives up: some seconds.
LOOKS = 2_000_000_000


@cfunc(KERNEL)
def count(arguments: Any, unit: Any, thread: Any) -> None:
    times = carray(pointer(arguments), UNITS, np.int64)
    times[unit] += 1


@cfunc(KERNEL)
def meet(arguments: Any, unit: Any, thread: Any) -> None:
    """Say that one is there, with the number of the thread, and wait for the other unit."""
    there = carray(pointer(arguments), 2, np.int64)
    there[unit] = thread + 1
    looks = 0
    while look(arguments + 8 * (1 - unit)) == 0 and looks < LOOKS:
        looks += 1
    if looks == LOOKS:
        there[unit] = -1


def shared(team: Team, kernel: Any, units: int) -> np.ndarray:
    seen = np.zeros(units, np.int64)
    team.share(Job(kernel.address, address(seen), units))
    return seen


@pytest.fixture
def team() -> Any:
    made = Team(3)
    yield made
    made.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("splitproof-worker")]


def test_every_unit_is_done_once(team: Team) -> None:
    for _ in range(300):
        assert (shared(team, count, UNITS) == 1).all()


def test_workers_that_sleep_are_woken(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without patience they sleep after every job, some while the next is posted."""
    monkeypatch.setattr(parallel, "PATIENCE", 1)
    for pause in [0.0] * 100 + [1e-4] * 100 + [0.01] * 3:
        time.sleep(pause)
        assert (shared(team, count, UNITS) == 1).all()
    assert sorted(shared(team, meet, 2)) != [1, 1]


def test_units_run_beside_each_other(team: Team) -> None:
    first, second = shared(team, meet, 2)
    assert first > 0 and second > 0 and first != second


def test_who_asks_while_a_job_is_shared_works_alone(team: Team) -> None:
    found: list[np.ndarray] = []

    def ask() -> None:
        found.extend(shared(team, count, UNITS) for _ in range(200))

    others = [threading.Thread(target=ask) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert len(found) == 400 and all((times == 1).all() for times in found)


def test_a_closed_team_begins_again(team: Team) -> None:
    for _ in range(3):
        assert (shared(team, count, UNITS) == 1).all()
        team.close()
