"""Checker and oracle agree on random schedules, and a bug in the checker makes them disagree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import oracle
import pytest
from splitproof.exec.replay import replay, run_interleaving
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify import banks, order, region, sequential, tail
from splitproof.verify.access import Write
from splitproof.verify.check import check
from splitproof.verify.encode import Solver
from splitproof.verify.explore import explore, follow
from splitproof.verify.sequential import Event

#: `make differential` tries many more.
SCHEDULES = int(os.environ.get("SPLITPROOF_SCHEDULES", "500"))
#: Schedules of one test: a failure names few numbers.
SLICE = 100


@pytest.mark.parametrize("first", range(0, SCHEDULES, SLICE))
def test_checker_and_oracle_agree(first: int) -> None:
    outcomes: Counter[str] = Counter()
    solver = Solver()  # questions that several schedules share are asked once
    for number in range(first, min(first + SLICE, SCHEDULES)):
        schedule = oracle.schedule_of(number)
        if schedule is None:
            continue
        outcome, difference = oracle.disagreement(schedule, solver)
        assert not difference, f"schedule {number}: {difference}"
        outcomes[outcome] += 1
    assert outcomes["proved"] >= SLICE // 10 and outcomes["fault"] >= SLICE // 10
    assert outcomes["bound"] <= SLICE // 20  # a search that gave up agrees with nothing


@pytest.mark.parametrize("number", [9023, 9050, 12182])
def test_more_experts_than_slots_may_be_told_as_a_remap(number: int) -> None:
    schedule = oracle.schedule_of(number)
    assert schedule is not None
    assert oracle.disagreement(schedule) == ("fault", "")
    assert "BK007" in {finding.rule for finding in check(schedule).findings}


def test_a_fill_that_serves_nobody_has_enough_slots_too() -> None:
    schedule = oracle.schedule_of(16268)
    assert schedule is not None
    assert oracle.disagreement(schedule) == ("fault", "")
    (found,) = [f for f in check(schedule).findings if f.rule == "BK004"]
    assert found.counterexample is not None and found.counterexample.writer is not None
    assert replay(schedule, found.counterexample).reproduced


def test_a_fill_of_a_bank_that_no_node_reads_is_not_proved() -> None:
    schedule = oracle.schedule_of(16268)
    assert schedule is not None
    nodes = tuple(n for n in schedule.graph.nodes if n.dst != "o0up")
    assert len(nodes) < len(schedule.graph.nodes)
    program = tuple(c for c in schedule.program or () if getattr(c, "node", None) != "o0up")
    graph = replace(schedule.graph, nodes=nodes)
    report = check(replace(schedule, graph=graph, splits=None, program=program))
    assert report.verdict is not Verdict.PROVED
    assert any("no node reads them" in gap.reason for gap in report.gaps)


# -- the oracle itself ----------------------------------------------------------------------------


def _schedules(numbers: range) -> Iterator[tuple[int, Schedule]]:
    for number in numbers:
        schedule = oracle.schedule_of(number)
        if schedule is not None:
            yield number, schedule


def _lowest(schedule: Schedule) -> dict[str, int]:
    return {name: low for name, low, _ in schedule.graph.symbols}


def test_leaving_out_what_commutes_loses_no_wrong_read() -> None:
    compared = 0
    for number, schedule in _schedules(range(60)):
        whole = explore(schedule, _lowest(schedule), all_reads=True, reduce=False, bound=3000)
        if not whole.complete:
            continue
        short = explore(schedule, _lowest(schedule), all_reads=True)
        reads = [
            {(w.command, w.iteration, w.tensor) for w in found.wrong} for found in (whole, short)
        ]
        assert short.complete and reads[0] == reads[1], number
        compared += 1
    assert compared >= 10


def test_a_witness_shows_the_wrong_read_when_it_is_executed() -> None:
    shown = 0
    for number, schedule in _schedules(range(0, 60, 3)):
        found = explore(schedule, _lowest(schedule))
        if found.wrong:
            first = found.wrong[0]
            done = run_interleaving(schedule, first.order, _lowest(schedule))
            places = {(wrong.command, wrong.iteration) for wrong in done.wrong}
            assert (first.command, first.iteration) in places, number
            shown += 1
    assert shown >= 5


def test_one_interleaving_is_followed_as_it_was_found() -> None:
    followed = 0
    for number, schedule in _schedules(range(0, 60, 3)):
        for wrong in explore(schedule, _lowest(schedule), all_reads=True).wrong:
            seen = follow(schedule, wrong.order, _lowest(schedule))
            keys = {(w.command, w.iteration, w.tensor) for w in seen}
            assert (wrong.command, wrong.iteration, wrong.tensor) in keys, number
            followed += 1
            with pytest.raises(ValueError, match=r"not possible yet|ends what does not run"):
                follow(schedule, wrong.order[::-1], _lowest(schedule))
    assert followed >= 20


def test_a_search_that_hits_its_bound_says_so() -> None:
    _, schedule = next(_schedules(range(60)))
    found = explore(schedule, _lowest(schedule), all_reads=True, reduce=False, bound=3)
    assert not found.complete and found.states == 3


# -- bugs in the checker ---------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def _unordered_copies_keep_the_queue(patch: pytest.MonkeyPatch) -> None:
    names = order.part_names

    def planted(*of: Any) -> Any:
        return tuple((part, queue, False) for part, queue, _ in names(*of))

    patch.setattr(order, "part_names", planted)


def _last_bytes_are_missed(patch: pytest.MonkeyPatch) -> None:
    """A bound that is one element short."""
    contains = region.Region.contains

    def planted(self: region.Region, address: Any, scope: Any) -> Any:
        short = replace(self, length=self.extent - 4) if self.contiguous else self
        return contains(short, address, scope)

    patch.setattr(region.Region, "contains", planted)


def _callbacks_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequential, "callback_names", lambda *_: iter(()))


def _every_fill_is_told_by_another(patch: pytest.MonkeyPatch) -> None:
    def planted(self: banks.Banks, write: Write, event: Event) -> bool:
        return event.kind == "state" and write.event is not None and write.event.kind == "state"

    patch.setattr(banks.Banks, "told_by_serving", planted)


def _slots_never_run_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(banks.Banks, "exceeds", lambda *_: False)


def _nothing_lies_past_an_expert(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tail.Tails, "wrongs", lambda *_: iter(()))


#: Each with a run of schedules that holds one of the few that tell.
PLANTS: dict[str, tuple[Plant, range]] = {
    "unordered copies keep the queue": (_unordered_copies_keep_the_queue, range(45, 105)),
    "last bytes are missed": (_last_bytes_are_missed, range(20, 80)),
    "callbacks are forgotten": (_callbacks_are_forgotten, range(60)),
    "every fill is told by another": (_every_fill_is_told_by_another, range(71, 131, 3)),
    "slots never run out": (_slots_never_run_out, range(3029, 3035, 3)),
    "nothing lies past an expert": (_nothing_lies_past_an_expert, range(218, 245, 3)),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, numbers = PLANTS[plant]
    put(monkeypatch)
    for _, schedule in _schedules(numbers):
        if oracle.disagreement(schedule)[1]:
            return
    pytest.fail("the oracle agrees with a checker that is wrong")


@pytest.mark.parametrize(
    "number",
    [
        86,
        242,
        326,
        1949,
        3065,
        8828,
        9158,
        9392,
        9647,
        10235,
        11465,
        12605,
        12725,
        15758,
        16856,
        17818,
    ],
)
def test_ids_of_a_counterexample_are_as_many_as_there_are(number: int) -> None:
    """One id names one expert, and a callback's ids are given too: found by larger runs."""
    outcome, difference = oracle.disagreement(oracle.schedule_of(number), Solver())
    assert outcome == "fault" and not difference
