from __future__ import annotations

import numpy as np
import pytest
from exec_documents import shared
from hypothesis import given, settings
from hypothesis import strategies as st
from route_traces import as_arrays, read_trace
from splitproof.exec.cpu.policies import lru_bytes_trace
from splitproof.model.cache import (
    CacheError,
    SlotState,
    empty_slots,
    filled_slots,
    lru_bytes,
    lru_slots,
)

CALLS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(-1, 5), max_size=6)), max_size=12
)


class TimeStamps:
    """The same policy told with a clock: each slot knows when it was last touched."""

    def __init__(self, slots: int) -> None:
        self.owner: list[tuple[int, int] | None] = [None] * slots
        self.time = list(range(-slots, 0))
        self.clock = 0

    def touch(self, slot: int) -> None:
        self.time[slot] = self.clock
        self.clock += 1

    def call(self, layer: int, ids: list[int]) -> list[int]:
        asked = [i for n, i in enumerate(ids) if i >= 0 and i not in ids[:n]]
        if len(asked) > len(self.owner):
            raise CacheError
        missing = []
        for expert in asked:
            if (layer, expert) in self.owner:
                self.touch(self.owner.index((layer, expert)))
            else:
                missing.append(expert)
        for expert in sorted(missing):
            slot = self.time.index(min(self.time))
            self.owner[slot] = (layer, expert)
            self.touch(slot)
        return [self.owner.index((layer, i)) if i >= 0 else -1 for i in ids]


@given(st.integers(1, 6), CALLS)
def test_slots_follow_a_model_with_time_stamps(
    slots: int, calls: list[tuple[int, list[int]]]
) -> None:
    state, model = empty_slots(slots), TimeStamps(slots)
    for layer, ids in calls:
        try:
            due = model.call(layer, ids)
        except CacheError:
            with pytest.raises(CacheError, match=f"there are {slots}"):
                lru_slots(state, layer, ids)
            continue
        step = lru_slots(state, layer, ids)
        assert list(step.slot_ids) == due
        assert list(step.state.owners) == model.owner
        for expert, slot in step.uploads:
            assert step.state.owners[slot] == (layer, expert)
            assert (layer, expert) not in state.owners
        assert set(step.victims) == set(state.owners) - set(step.state.owners) - {None}
        assert not {(layer, i) for i in ids} & set(step.victims)
        state = step.state


def test_misses_take_slots_in_ascending_order_and_hits_are_touched_first() -> None:
    state = SlotState(((0, 9), (0, 3), None, (1, 3)), (2, 0, 3, 1))
    step = lru_slots(state, 0, [7, 9, 5, 7])
    assert step.uploads == ((5, 2), (7, 3))
    assert step.victims == ((1, 3),)
    assert step.slot_ids == (3, 0, 2, 3)
    assert step.state.recency == (1, 0, 2, 3)
    assert step.hits == 1
    assert state.owners[2] is None


def test_given_contents() -> None:
    state = filled_slots(3, [(2, 0, 5), (0, 1, 5)])
    assert state.owners == ((1, 5), None, (0, 5)) and state.recency == (1, 2, 0)
    with pytest.raises(CacheError, match="given twice"):
        filled_slots(3, [(0, 0, 5), (1, 0, 5)])
    with pytest.raises(CacheError, match="no slot 3"):
        filled_slots(3, [(3, 0, 5)])


@given(st.integers(0, 60), CALLS)
def test_bytes_keep_the_newest_that_fit(budget: int, calls: list[tuple[int, list[int]]]) -> None:
    size = {0: 4, 1: 7, 2: 9}
    held: tuple[tuple[int, int], ...] = ()
    for layer, ids in calls:
        step = lru_bytes(held, layer, ids, size, budget)
        used = {(layer, i) for i in ids if i >= 0}
        assert used <= set(step.held)
        assert set(step.hits) == used & set(held) and set(step.misses) == used - set(held)
        last = {(layer, i): place for place, i in enumerate(ids) if i >= 0}
        everything = [e for e in held if e not in used] + sorted(used, key=last.__getitem__)
        # The longest tail that fits, and at least what the batch used.
        tails = [everything[n:] for n in range(len(everything) + 1)]
        due = next(
            t for t in tails
            if len(t) == len(used) or sum(size[owner] for owner, _ in t) <= budget
        )  # fmt: skip
        assert list(step.held) == due
        held = step.held


@pytest.mark.parametrize(("model", "mebibytes"), [("gptoss", 3000), ("qwen", 4000)])
def test_a_recorded_cache_is_reproduced(model: str, mebibytes: int) -> None:
    batches, size = read_trace(shared("data", "traces", f"{model}.route.csv.gz"))
    held: tuple[tuple[int, int], ...] = ()
    checked = 0
    for layer, rows in batches:
        step = lru_bytes(held, layer, [e for e, _ in rows], size, mebibytes << 20)
        recorded: dict[int, bool] = {}
        for expert, resident in rows:
            recorded.setdefault(expert, resident)
        assert {expert for _, expert in step.hits} == {e for e, hit in recorded.items() if hit}
        checked += len(recorded)
        held = step.held
    assert checked == {"gptoss": 6375, "qwen": 39526}[model]


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 60), CALLS)
def test_the_compiled_twin_is_the_same(budget: int, calls: list[tuple[int, list[int]]]) -> None:
    size = {0: 4, 1: 7, 2: 9}
    batches = [(layer, [(i, False) for i in ids if i >= 0]) for layer, ids in calls]
    arrays = as_arrays(batches, size)
    hits = np.zeros(len(arrays.ids), bool)
    number = lru_bytes_trace(*arrays.inputs, 6, budget, hits)
    held: tuple[tuple[int, int], ...] = ()
    due = []
    for layer, rows in batches:
        step = lru_bytes(held, layer, [i for i, _ in rows], size, budget)
        due += [(layer, i) in step.hits for i, _ in rows]
        held = step.held
    assert hits.tolist() == due and number == sum(due)


@pytest.mark.parametrize(("model", "mebibytes"), [("gptoss", 3000), ("qwen", 4000)])
def test_the_compiled_twin_reproduces_the_recorded_caches(model: str, mebibytes: int) -> None:
    arrays = as_arrays(*read_trace(shared("data", "traces", f"{model}.route.csv.gz")))
    hits = np.zeros(len(arrays.ids), bool)
    lru_bytes_trace(*arrays.inputs, 128, mebibytes << 20, hits)
    assert (hits == arrays.recorded)[arrays.first].all()
    assert arrays.first.sum() == {"gptoss": 6375, "qwen": 39526}[model]
