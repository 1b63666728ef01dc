"""Happens-before: the twins of the closure, its edges, and the cut that rests on it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import schedule_of
from splitproof.model.command import Command, CopyExperts, Record, SyncEvent, SyncQueue, Wait
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import PASS
from splitproof.verify import closure as plain
from splitproof.verify import closure_compiled as twin
from splitproof.verify.access import Write
from splitproof.verify.closure import NONE, Clocks, Steps
from splitproof.verify.footprint import Footprints
from splitproof.verify.order import Order, build_order
from splitproof.verify.sequential import Sequential
from splitproof.verify.slice import near
from splitproof.verify.spans import Spans
from splitproof.verify.term import Bool


def exists(schedule: Schedule, index: int, iteration: int) -> bool:
    assert schedule.program is not None
    values = {name: low for name, low, _ in schedule.graph.symbols}
    return schedule.program[index].when.holds({**values, PASS: iteration})


def ordered(schedule: Schedule, compiled: bool | None = None) -> Order:
    return build_order(schedule, lambda c, i: exists(schedule, c, i), compiled)


def denser(schedule: Schedule, rng: random.Random) -> Schedule:
    """The schedule three times over, with more records and waits and host waits strewn in."""
    assert schedule.program is not None
    queues = [
        f"{d.name}.{q}" for d in schedule.graph.devices if d.asynchronous for q in d.queues
    ]  # fmt: skip
    program: list[Command] = []
    for command in schedule.program * 3:
        program.append(command)
        queue, event = rng.choice(queues), f"e{rng.randrange(3)}.{rng.randrange(2)}"
        extra: tuple[Command, ...] = (
            Record(event=event, queue=queue),
            Wait(event=event, queue=queue),
            SyncEvent(event=event),
            SyncQueue(queue=queue),
        )
        program += [c for c in extra if rng.random() < 0.1]
    return replace(schedule, program=tuple(program), repeat=rng.choice([1, 2, 3]))


def programs(numbers: range) -> Iterator[Schedule]:
    for number in numbers:
        schedule = schedule_of(number)
        if schedule is not None and schedule.program is not None:
            yield schedule
            yield denser(schedule, random.Random(number))


def test_the_sample_has_what_orders() -> None:
    contracts, kinds, guarded = set(), set(), False
    for schedule in programs(range(60)):
        contracts |= {str(rule.contract) for d in schedule.graph.devices for rule in d.copy}
        kinds |= {type(c) for c in schedule.program or ()}
        guarded = guarded or any(c.when.parts for c in schedule.program or ())
    assert len(contracts) == 4 and guarded
    assert {Record, Wait, SyncEvent, SyncQueue, CopyExperts} <= kinds


def test_the_twins_are_equal() -> None:
    for schedule in programs(range(200)):
        one, other = ordered(schedule, False), ordered(schedule, True)
        for a, b in zip(one.clocks, other.clocks, strict=True):
            assert list(a) == list(b)
        assert (one.void_waits, one.unmet_waits) == (other.void_waits, other.unmet_waits)
        assert one.edges == other.edges


def test_before_is_what_the_edges_imply() -> None:
    for schedule in programs(range(200, 280)):
        order = ordered(schedule)
        implied: list[int] = []  # a bit per earlier part
        for part, edges in enumerate(order.edges):
            reached = 0
            for earlier in edges:
                reached |= 1 << earlier | implied[earlier]
            implied.append(reached)
            for other in range(len(order.parts)):
                assert order.before(other, part) == bool(reached >> other & 1)


@settings(deadline=None)  # the first call may compile
@given(st.data())
def test_conflicts_are_the_unordered_uses_of_one_place(data: st.DataObject) -> None:
    width, count = 4, data.draw(st.integers(2, 12))
    numbers = lambda low, high: st.lists(  # noqa: E731
        st.integers(low, high), min_size=count, max_size=count
    )
    does = data.draw(numbers(0, 2))
    steps = Steps(
        data.draw(numbers(0, width - 1)), [0] * count, does, data.draw(numbers(0, 1)), [0] * count
    )
    clocks = Clocks(
        [0] * count, [0] * (4 * count + 1) * width, [NONE] * count, [NONE] * count, [NONE] * count
    )
    plain.closure(steps, width, 1, [1], [NONE] * 2, [NONE] * 6 * width, clocks)
    order = Order([], {}, [], [], steps, clocks, width, steps.chain)
    place, writes = data.draw(numbers(0, 1)), data.draw(numbers(0, 1))
    first, last, raced = list(range(count + 1)), [NONE] * 4 * width, [0, 0]
    found = plain.conflicts(steps, width, clocks, first, place, writes, last, raced)
    expected = [0, 0]
    for b in range(count):
        for a in range(b):
            if place[a] == place[b] and (writes[a] or writes[b]) and not order.before(a, b):
                expected[place[a]] = 1
    assert raced == expected and bool(found) == any(expected)
    again = twin.run(steps, width, 1, [1], 2)
    arrays = Steps(*(twin.array(values) for values in steps))
    latest, marked = twin.full(4 * width), twin.full(2, 0)
    assert found == twin.conflicts(
        arrays, width, twin.as_arrays(again), *map(twin.array, (first, place, writes)), latest,
        marked,
    )  # fmt: skip
    assert marked.tolist() == raced


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=40),
    st.tuples(st.integers(0, 35), st.integers(0, 12)),
)
def test_spans_are_found_by_what_they_meet(
    items: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    spans = [(start, start + length) for start, length in items]
    low, high = asked[0], asked[0] + asked[1]
    found = Spans((span, number) for number, span in enumerate(spans)).meeting((low, high))
    wanted = [n for n, (a, b) in enumerate(spans) if a < high and low < b]
    assert sorted(number for group in found for number in group) == wanted
    assert all(group == sorted(group) for group in found)


# -- the cut ---------------------------------------------------------------------------------------


def surveyed(schedule: Schedule) -> Footprints:
    order = ordered(schedule)
    there = lambda c, i: (c, i) in order.by_command  # noqa: E731
    return Footprints(schedule, order, Sequential(schedule, there, lambda node, i: True))


def drawn(covers: dict[int, Bool], write: Write) -> Bool:
    return covers[id(write)]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_cut_leaves_out_only_what_a_later_write_covers(share: float) -> None:
    """``share``: of the writes, how many surely write the byte again."""
    left_out = 0
    for number, schedule in enumerate(programs(range(40, 90))):
        footprints, rng = surveyed(schedule), random.Random(number)
        before = footprints.order.before
        covers = {
            id(w): True if rng.random() < share else rng.choice([False, ("le", id(w))])
            for w in footprints.writes
        }  # fmt: skip
        for read in footprints.reads:
            lines = footprints.lines(read)
            kept = near(footprints.order, read.part, lines, partial(drawn, covers))
            here = [
                w
                for w in footprints.writers(read)
                if not before(read.part, w.part) and covers[id(w)] is not False
            ]
            ended = [w for w in here if before(w.part, read.part)]
            hidden = [
                w
                for w in ended
                if any(covers[id(c)] is True and before(w.part, c.part) for c in ended)
            ]
            assert [n.write for n in kept] == [w for w in here if w not in hidden]
            assert [n.ended for n in kept] == [before(n.write.part, read.part) for n in kept]
            left_out += len(hidden)
    assert bool(left_out) == bool(share)


def test_writers_are_all_that_may_meet_a_read() -> None:
    for schedule in programs(range(90, 120)):
        footprints = surveyed(schedule)
        for read in footprints.reads:
            assert footprints.writers(read) == [
                w
                for w in footprints.writes
                if w.region.space == read.region.space
                and not footprints.moves_nothing(w)
                and w.part != read.part
                and w.region.may_meet(read.region)
            ]
