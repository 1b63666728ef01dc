"""The stream incidents on streams that are played, and the code for real ones in the simulator."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import stream_incidents
from deeds import Check, Plan, Region, plan
from played import Deadlock, Played
from rounds import Pace, one_round, timetable
from splitproof.exec.cuda import driver
from splitproof.exec.interleave import issue_order
from splitproof.exec.script import Await, Drain
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from stream_incidents import CASES, HERE, Row, run_document, stream_documents, summary
from streams import Streams

pytestmark = pytest.mark.skipif(
    not driver.simulated(), reason="the script itself is tested in the simulator"
)

DOCUMENTS = dict(stream_documents())
VIOLATED = [name for name, verdict in DOCUMENTS.items() if verdict == "violated"]
PROVED = [name for name, verdict in DOCUMENTS.items() if verdict != "violated"]


def made(name: str, end: int = 1) -> Plan:
    schedule = lower(load(HERE / f"{name}.json"))
    return plan(schedule, {symbol[0]: symbol[end] for symbol in schedule.graph.symbols})


def test_there_are_incidents_of_both_kinds() -> None:
    assert len(VIOLATED) >= 20 and len(PROVED) >= 20
    for name in VIOLATED:
        repaired = CASES[name].get("twin")
        assert repaired is None or f"{name.partition('/')[0]}/{repaired}" in PROVED


@pytest.mark.parametrize("name", VIOLATED)
def test_a_violated_one_shows_its_fault(name: str) -> None:
    row = run_document(name, Played, violated=2, repaired=0)
    assert row.due and row.done == row.faulty == 2 and row.first, row


def test_most_faults_need_the_delay() -> None:
    """Else the timetable would not be what shows them."""
    rows = [run_document(name, Played, violated=1, repaired=0) for name in VIOLATED[:12]]
    assert summary(rows)["without_delays"] <= len(rows) // 3


@pytest.mark.parametrize("name", PROVED)
def test_a_repaired_one_survives(name: str) -> None:
    row = run_document(name, Played, violated=0, repaired=20)
    assert row.due and row.done == 20 and row.faulty == 0, row


# -- the harness itself -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["B06/repaired", "B11/repaired", "B12/repaired", "B35/repaired"])
def test_a_wait_that_is_left_out_is_found(name: str) -> None:
    """Random delays find it for at least one of the waits of each program."""
    whole = made(name)
    actions = whole.script.actions
    waits = [k for k, action in enumerate(actions) if isinstance(action, Await | Drain)]
    found = 0
    for left_out in waits:
        kept = (*actions[:left_out], *actions[left_out + 1 :])
        less = replace(whole, script=replace(whole.script, actions=kept))
        on, random = Played(less), Random(0)
        found += any(one_round(less, on, Pace(random=random)) for _ in range(20))
    assert found > 0, waits


def test_the_issue_order_as_a_timetable_has_no_fault() -> None:
    """Of a violated document too: it is the order in which the fault does not happen."""
    schedule = lower(load(HERE / "B12/violating.json"))
    low = {symbol: least for symbol, least, _ in schedule.graph.symbols}
    whole = plan(schedule, low)
    pace = Pace(timetable(whole, issue_order(schedule, low)))
    assert one_round(whole, Played(whole), pace) == {}


def test_a_wait_for_nothing_is_a_deadlock() -> None:
    on = Played(made("B12/repaired"))
    on.wait("gpu0.compute", 99)
    with pytest.raises(Deadlock, match="no queue goes on"):
        on.drain("gpu0.compute")


def test_time_passes_by_delays_alone() -> None:
    on = Played(made("B12/repaired"))
    on.hold_until("a", 5)
    on.hold_for("b", 2)
    on.hold_for("b", 1)
    on.record("b", 1)
    on.sync_event(1)
    assert on.now == 3
    on.host_until(4)
    assert on.now == 4 and on.queues["a"]
    on.finish()
    assert on.now == 5


def test_a_region_knows_whether_it_is_a_run() -> None:
    assert Region("s", np.array([3, 4, 5])).run == slice(3, 6)
    assert Region("s", np.array([3, 5])).run is None
    assert Region("s", np.array([], int)).run is None


# -- real streams, in the simulator -------------------------------------------------------------

#: Small ones, with events, several queues and devices, transfers in flight, a bank's fill.
FEW = ["B11/repaired", "B10/repaired", "B52/repaired", "B13/repaired"]


@pytest.mark.parametrize("name", FEW)
def test_real_streams_without_a_fault(name: str) -> None:
    row = run_document(name, Streams, violated=0, repaired=2)
    assert row.due and row.done == 2, row


def test_real_streams_find_a_wrong_version() -> None:
    """The simulator hides what is late, not what is never written: a write that is left out."""
    whole = made("B11/repaired")
    for name in ("gpu", "host"):
        deeds = list(whole.deeds)
        on_host = [whole.script.parts[k].queue == "host" for k in range(len(deeds))]
        part = next(
            k for k, one in enumerate(deeds)
            if on_host[k] == (name == "host") and not all(isinstance(d, Check) for d in one.end)
        )  # fmt: skip
        deeds[part] = replace(deeds[part], end=())
        less = replace(whole, deeds=tuple(deeds))
        wrong = one_round(less, Streams(less), Pace())
        assert wrong == one_round(less, Played(less), Pace()) != {}


def test_real_streams_by_a_timetable() -> None:
    """A violated one runs to its end; each step waits for its time."""
    row = run_document("B11/violating", Streams, violated=1, repaired=0)
    assert row.done + row.void >= 1 and row.free == 0


def test_rounds_stop_in_time() -> None:
    row = run_document("B12/repaired", Played, violated=0, repaired=5, until=0.0)
    assert (row.done, row.due) == (0, False)


def test_a_round_that_is_late_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_incidents, "LATE", -1.0)
    row = run_document("B12/violating", Played, violated=1, repaired=0)
    assert (row.done, row.void, row.due) == (0, stream_incidents.TRIES, False)


def test_the_summary_is_right_only_if_every_row_is() -> None:
    good = Row("a", "violated", "OR001", 1, 1, 0, 1, 0, "x", True)
    bad = Row("b", "proved", "", 2, 2, 0, 1, 0, "y", False)
    assert summary([good])["right"] and not summary([])["right"]
    both = summary([good, bad])
    assert (both["right"], both["shown"], both["survived"]) == (False, 1, 0)
