"""The running code against the theorems: their own formulas, evaluated on its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from splitproof.exec.experts import runs
from splitproof.model.cache import CacheError, Expert, SlotState, empty_slots, lru_slots
from splitproof.verify.theorems import t3_fill, t5_runs, t8_flooding
from splitproof.verify.theorems.logic import Term, conj
from splitproof.verify.theorems.structure import Structure

LAYERS, EXPERTS = 2, 5
ALL_EXPERTS = tuple((layer, number) for layer in range(LAYERS) for number in range(EXPERTS))


def bank(before: SlotState, after: SlotState, **more: Any) -> Structure:
    """Two states of a bank as a structure for T3.  The map is the state's own, not derived."""
    maps = before.slot_of, after.slot_of
    meaning: dict[str, Callable[..., Any]] = {
        "content": lambda s, x: before.owners[s] == x,
        "content_after": lambda s, x: after.owners[s] == x,
        "slot_of": lambda x, s: maps[0].get(x) == s,
        "slot_of_after": lambda x, s: maps[1].get(x) == s,
    }
    meaning |= {name: value if callable(value) else constant(value) for name, value in more.items()}
    universes = {"Slot": tuple(range(len(before.owners))), "Expert": ALL_EXPERTS}
    return Structure(universes, meaning)


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


BANK_INVARIANT = t3_fill.invariant(t3_fill.content, t3_fill.slot_of)
ALL_SERVED = t3_fill.SERVED_BEFORE


class Bank(RuleBasedStateMachine):
    """The policy ``lru-slots``: each upload is an upload in the sense of T3."""

    @initialize(slots=st.integers(1, 6))
    def start(self, slots: int) -> None:
        self.state = empty_slots(slots)

    @rule(
        layer=st.integers(0, LAYERS - 1),
        ids=st.lists(st.integers(-1, EXPERTS - 1), max_size=6),
    )
    def fill(self, layer: int, ids: list[int]) -> None:
        used = {(layer, number) for number in ids if number >= 0}
        if len(used) > len(self.state.owners):
            with pytest.raises(CacheError):
                lru_slots(self.state, layer, ids)
            return
        step = lru_slots(self.state, layer, ids)
        state, served = self.state, {x for x in used if x in self.state.slot_of}
        for number, slot in step.uploads:
            following = uploaded(state, (layer, number), slot)
            facts = {
                "incoming": (layer, number), "victim": slot,
                "used": used.__contains__, "served": served.__contains__,
            }  # fmt: skip
            assert bank(state, following, **facts).holds(conj(*t3_fill.RELATION, ALL_SERVED))
            state, served = following, served | {(layer, number)}
        assert state.owners == step.state.owners
        done = bank(state, state, used=used.__contains__, served=used.__contains__)
        assert done.holds(ALL_SERVED)
        self.state = step.state

    @invariant()
    def inverse(self) -> None:
        if hasattr(self, "state"):
            assert bank(self.state, self.state).holds(BANK_INVARIANT)


def uploaded(state: SlotState, expert: Expert, slot: int) -> SlotState:
    """The state with one slot's owner replaced."""
    owners = list(state.owners)
    owners[slot] = expert
    return SlotState(tuple(owners), state.recency)


TestBank = Bank.TestCase
TestBank.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)


def test_the_relation_rejects_a_policy_that_evicts_what_it_needs() -> None:
    before = SlotState(((0, 1), (0, 2)), (0, 1))
    after = uploaded(before, (0, 3), 0)
    facts: dict[str, Any] = {"incoming": (0, 3), "victim": 0, "served": lambda x: x == (0, 1)}
    relation = conj(*t3_fill.RELATION)
    assert bank(before, after, used=lambda x: x == (0, 3), **facts).holds(relation)
    assert not bank(before, after, used=lambda x: x in {(0, 1), (0, 3)}, **facts).holds(relation)


# -- T5: runs of experts --------------------------------------------------------------------------


def merging(number: int, used: set[int], current: int) -> Structure:
    """What exec merges of the experts before ``current``, and with it, as a structure for T5."""

    def state(end: int) -> tuple[bool, int, int, set[int]]:
        found = runs([x for x in range(end) if x in used])
        closed = {x for low, high in found[:-1] for x in range(low, high + 1)}
        low, high = found[-1] if found else (0, 0)
        return bool(found), low, high, closed

    is_open, first, last, copied = state(current)
    open_after, first_after, last_after, copied_after = state(current + 1)
    return Structure(
        {"Expert": tuple(range(number))},
        {
            "less": lambda x, y: x < y,
            "visited": lambda x: x < current,
            "used": used.__contains__,
            "current": lambda: current,
            "run_open": lambda: is_open,
            "first": lambda: first,
            "last": lambda: last,
            "copied": copied.__contains__,
            "run_open_after": lambda: open_after,
            "first_after": lambda: first_after,
            "last_after": lambda: last_after,
            "copied_after": copied_after.__contains__,
        },
    )


LOOP_STEP = conj(
    *t5_runs.LOOP, t5_runs.EXTENDS.formula, t5_runs.STARTS.formula, t5_runs.SKIPS.formula
)


@given(st.integers(1, 8), st.data())
@settings(max_examples=60, deadline=None)
def test_merging_runs_is_the_loop_of_the_theorem(number: int, data: st.DataObject) -> None:
    used = data.draw(st.sets(st.integers(0, number - 1)))
    for current in range(number):
        assert merging(number, used, current).holds(LOOP_STEP)


@given(st.sets(st.integers(0, 40)))
def test_runs_cover_exactly_the_used_experts(used: set[int]) -> None:
    covered = [x for low, high in runs(sorted(used)) for x in range(low, high + 1)]
    assert covered == sorted(used)


def test_the_loop_rejects_merging_over_a_gap() -> None:
    good = merging(3, {0, 2}, 2)
    wrong = dict(good.meaning) | {"first_after": lambda: 0, "copied_after": lambda x: False}
    assert good.holds(LOOP_STEP)
    assert not Structure(good.universes, wrong).holds(LOOP_STEP)


# -- T8: flooding ---------------------------------------------------------------------------------


def decode(slots: int, tokens: list[list[list[int]]]) -> list[list[int]]:
    """Hits of each layer in each token: the running policy on one shared list."""
    state, hits = empty_slots(slots), []
    for token in tokens:
        row = []
        for layer, ids in enumerate(token):
            step = lru_slots(state, layer, ids)
            state = step.state
            row.append(step.hits)
        hits.append(row)
    return hits


@given(st.integers(2, 4), st.integers(1, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_too_few_slots_never_hit(layers: int, k: int, data: st.DataObject) -> None:
    """Any routing of exactly k distinct experts, and any slots up to the bound."""
    slots = data.draw(st.integers(k, k * (layers - 1)))
    ids = st.lists(st.integers(0, k + 2), min_size=k, max_size=k, unique=True)
    tokens = data.draw(st.lists(st.lists(ids, min_size=layers, max_size=layers), max_size=5))
    assert all(hit == 0 for row in decode(slots, tokens)[1:] for hit in row)


@pytest.mark.parametrize("layers", [2, 3, 7])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_one_slot_more_hits_in_every_layer(layers: int, k: int) -> None:
    tokens = [[list(range(k))] * layers] * 6
    bound = k * (layers - 1)
    if bound >= k:
        assert all(hit == 0 for row in decode(bound, tokens)[1:] for hit in row)
    assert all(hit >= 1 for row in decode(bound + 1, tokens)[1:] for hit in row)


def list_of(before: SlotState, after: SlotState, **more: Any) -> Structure:
    """Two states of the shared list as a structure for T8."""

    def older(state: SlotState) -> Callable[[int, int], bool]:
        return lambda s, t: state.recency.index(s) < state.recency.index(t)

    found = bank(before, after, **more)
    meaning = dict(found.meaning) | {
        "holds": found.meaning["content"], "holds_after": found.meaning["content_after"],
        "older": older(before), "older_after": older(after),
    }  # fmt: skip
    return Structure(found.universes, meaning)


TOUCH: Term = conj(*t8_flooding.LIST, t8_flooding.NEWEST.formula, t8_flooding.OLDEST_GOES.formula)
KEPT: Term = conj(t8_flooding.SINCE_ARE_NEWER, t8_flooding.NEWER_ARE_SINCE)


@given(st.integers(2, 4), st.lists(st.sampled_from(ALL_EXPERTS), max_size=10))
@settings(max_examples=60, deadline=None)
def test_each_touch_is_a_touch_of_the_theorem(slots: int, touches: list[Expert]) -> None:
    """One id a call; the watched expert is the one that is touched first."""
    watched = (0, 0)
    state = lru_slots(empty_slots(slots), 0, [0]).state
    since: set[Expert] = set()
    for touched in touches:
        step = lru_slots(state, touched[0], [touched[1]])
        if touched == watched:
            since = set()
        else:
            structure = list_of(
                state, step.state, watched=watched, slot_of_watched=state.slot_of[watched],
                touched=touched, taken=step.slot_ids[0], is_hit=step.hits == 1,
                touched_since=since.__contains__,
            )  # fmt: skip
            assert structure.holds(TOUCH) and structure.holds(KEPT)
            since = since | {touched}
        state = step.state
        if watched not in state.slot_of:
            assert len(since) >= slots
            return
