"""Random split-level graphs through every lowering, to the checker and to random orders."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_splits import split_schedule
from splitproof.exec.replay import fuzz, replay
from splitproof.model.document import dumps, from_dict, loads
from splitproof.model.plan.conflict import Conflicts
from splitproof.model.plan.lifetime import Concurrent, Life
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check

SETTINGS = settings(
    max_examples=50, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


def unordered_without_events() -> Schedule:
    return from_dict({
        "format": "splitproof/1",
        "memories": {"host": {"host": True}, "v0": {}},
        "buffers": {"weights": {"memory": "host", "usage": "weights", "bytes": 64}},
        "devices": [
            {"name": "gpu0", "memory": "v0", "reads": ["v0"], "copy": "unordered",
             "async": True, "events": False},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "tensors": {
            "w": {"dtype": "f32", "shape": [4], "buffer": "weights", "offset": 0},
            "c": {"dtype": "f32", "shape": [4], "output": True},
        },
        "nodes": [{"op": "custom", "dst": "c", "src": ["w"]}],
        "assignment": {"c": "gpu0"},
        "splits": [{"device": "gpu0", "nodes": [0, 1], "inputs": ["w"]}],
    })  # fmt: skip


SPLITS = st.randoms(use_true_random=False).map(split_schedule)
PREFETCH = ("none", 0), ("one-ahead", 0), ("staging", 2), ("staging", 3)


def of(schedule: Schedule, choice: Lowering) -> Schedule:
    return loads(dumps(lower_as(schedule, choice).schedule))


@SETTINGS
@given(SPLITS, st.sampled_from(PREFETCH), st.booleans(), st.sampled_from(("own", "order")))
def test_what_only_waits_for_dependences_is_right(
    schedule: Schedule, prefetch: tuple[str, int], chosen: bool, place: str
) -> None:
    if schedule.graph.n_copies > 1 and prefetch[0] == "staging":
        prefetch = "none", 0  # a ring keeps one copy of a weight
    program = of(schedule, Lowering("overlapped", *prefetch, chosen, place))
    report = check(program)
    assert report.verdict is Verdict.PROVED, [*report.failures, *report.gaps]
    sizes = {name: high for name, _, high in program.graph.symbols}
    assert fuzz(program, sizes, runs=3).replay is None


@SETTINGS
@given(SPLITS, st.sampled_from(("own", "order")))
def test_what_waits_for_everything_is_right(schedule: Schedule, place: str) -> None:
    report = check(of(schedule, Lowering("plain", place=place)))
    assert report.verdict is Verdict.PROVED, [*report.failures, *report.gaps]


@SETTINGS
@given(SPLITS, st.sampled_from(("own", "order", "list")))
def test_what_ggml_issues_is_right_or_shown_wrong(schedule: Schedule, place: str) -> None:
    program = of(schedule, Lowering("ggml", place=place))
    report = check(program)
    assert report.verdict in (Verdict.PROVED, Verdict.VIOLATED), report.gaps
    for finding in report.failures:
        assert finding.counterexample is not None, finding
        assert replay(program, finding.counterexample).reproduced, finding


def test_a_host_wait_tells_nothing_of_the_command_that_it_is_for() -> None:
    # The host waits for the copy of w before it issues c, which itself runs on the queue that it
    # waited for; the output is read after a wait of its own.
    schedule = unordered_without_events()
    program = of(schedule, Lowering("overlapped"))
    last = [command.do for command in program.program or ()][-3:]
    assert last == ["compute", "sync_queue", "get_output"]
    assert check(program).verdict is Verdict.PROVED


def in_turn(one: Life, other: Life) -> bool:
    """Whether one life's uses have ended when the other's begin, in each pass, and the other's
    before the first's of the next; from the definition, pass by pass."""

    def ended(life: Life, turn: int) -> list[int]:
        clocks = [clock for p, clock in life.ends.items() if p <= turn]
        return [max(counts) for counts in zip(*clocks, strict=True)]

    def after(late: Life, late_turn: int, early: Life, early_turn: int) -> bool:
        begins = late.starts.get(late_turn)
        return begins is None or all(
            a >= b
            for a, b in zip(begins, ended(early, early_turn) or [0] * len(begins), strict=True)
        )

    turns = sorted({*one.starts, *other.starts, *one.ends, *other.ends})
    return all(after(other, p, one, p) for p in turns) and all(
        after(one, q, other, p) for p, q in pairwise(turns)
    )


@SETTINGS
@given(SPLITS, st.sampled_from(PREFETCH))
def test_conflicts_are_those_of_every_two(schedule: Schedule, prefetch: tuple[str, int]) -> None:
    if schedule.graph.n_copies > 1 and prefetch[0] == "staging":
        prefetch = "none", 0
    program = of(schedule, Lowering("overlapped", *prefetch))
    lives = [life for life in Concurrent(program).lives() if not life.forever]
    lives.sort(key=lambda life: (life.order, life.name))
    conflicts = Conflicts(lives)
    for k, life in enumerate(lives):
        others = np.array([j for j in range(len(lives)) if j != k], np.int64)
        due = [j for j in others if not (in_turn(life, lives[j]) or in_turn(lives[j], life))]
        assert conflicts.of(k, others).tolist() == due
