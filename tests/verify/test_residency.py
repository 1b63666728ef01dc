"""Which ids make two fills meet: the checker's own run of the policy, held against the others."""

from __future__ import annotations

from collections import OrderedDict

import oracle
from hypothesis import given
from hypothesis import strategies as st
from splitproof.exec.replay import replay
from splitproof.model.cache import empty_slots, lru_slots
from splitproof.model.report import Verdict
from splitproof.verify import residency
from splitproof.verify.check import check
from splitproof.verify.explore_banks import Slots

FILLS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(-1, 5), min_size=1, max_size=3)), max_size=12
)


@given(slots=st.integers(3, 5), fills=FILLS)
def test_three_runs_of_the_policy_agree(slots: int, fills: list[tuple[int, list[int]]]) -> None:
    group: OrderedDict[int, tuple[int, int] | None] = OrderedDict.fromkeys(range(slots))
    state, explored = empty_slots(slots), Slots([None] * slots, list(range(slots)))
    for layer, ids in fills:
        loaded = residency._serve(group, layer, list(dict.fromkeys(ids)))
        step = lru_slots(state, layer, ids)
        state = step.state
        assert loaded == {slot for _, slot in step.uploads}
        assert explored.serve(layer, ids) == dict(step.uploads)
        assert [group[slot] for slot in range(slots)] == list(state.owners) == explored.owners
        assert list(group) == list(state.recency) == explored.recency


def test_a_fill_that_only_finds_hits_races_with_nobody() -> None:
    """It is for the same ids as the one before it, which loaded them; it leaves out a bank."""
    schedule = oracle.schedule_of(11465)
    assert schedule is not None
    races = [f.counterexample for f in check(schedule).findings if "races" in f.message]
    writers = {c.writer.command for c in races if c is not None and c.writer is not None}
    assert writers == {8}


def test_a_race_that_no_ids_show_is_unknown_and_is_no_finding() -> None:
    """The layers take turns in two slots: a late upload of the one never meets the other's."""
    schedule = oracle.schedule_of(16856)
    assert schedule is not None
    report = check(schedule)
    (gap,) = report.gaps
    assert (gap.verdict, gap.place) == (Verdict.UNKNOWN, "$.program[11]")
    assert "none were found" in gap.reason
    assert "$.program[11]" not in {finding.place for finding in report.findings}
    for finding in report.findings:
        assert finding.counterexample is not None
        assert replay(schedule, finding.counterexample).reproduced
