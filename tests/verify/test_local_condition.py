"""The local condition against every order of the starts and ends of a few events.

The judge below knows nothing of the condition: it lets time pass, one start or end after the
other, in each way that the partial order allows, and looks at the byte.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from splitproof.verify.local import reads_version

READER = "r"
DUE = 0


@dataclass(frozen=True)
class Order:
    """Writers ``0 … n-1`` with versions, a reader, pairs (a, b): a ends before b starts."""

    versions: tuple[int, ...]
    before: frozenset[tuple[object, object]]

    @property
    def events(self) -> tuple[object, ...]:
        return (*range(len(self.versions)), READER)


def random_order(rng: random.Random) -> Order:
    """Five to seven events; a random sequence of them thinned out and closed transitively."""
    count = rng.randint(4, 6)
    versions = tuple(rng.choice((DUE, DUE, 1, 2)) for _ in range(count))
    # The reader comes late in most, or hardly any read would have a version at all.
    line: list[object] = rng.sample(range(count), count)
    line.insert(rng.choice((count, count, count - 1, rng.randint(0, count))), READER)
    density = rng.choice((0.2, 0.4, 0.6, 0.8))
    pairs = {(a, b) for i, a in enumerate(line) for b in line[i + 1 :] if rng.random() < density}
    if rng.random() < 0.5:  # an initial content: before everything else
        pairs |= {(line[0], b) for b in line[1:]}
    for middle in line:
        pairs |= {(a, b) for a, m in pairs if m == middle for n, b in pairs if n == middle}
    return Order(versions, frozenset(pairs))


def always_right(order: Order) -> bool:
    """Whether the reader finds ``DUE`` complete and undisturbed, in each linearisation.

    A state is what has started, what has ended, whether the byte holds ``DUE`` for certain, and
    which writers of ``DUE`` that run now have been alone with it (a write that overlaps one of
    another version leaves nobody knows what).  Linearisations that meet in a state go on together.
    """
    needs = {b: {a for a, x in order.before if x == b} for b in order.events}
    todo = [(frozenset[object](), frozenset[object](), False, frozenset[object]())]
    seen = set(todo)
    while todo:
        started, ended, holds, alone = todo.pop()
        running = started - ended
        foreign = any(e != READER and order.versions[e] != DUE for e in running)
        for event in order.events:
            state = None
            if event not in started and needs[event] <= ended:
                if event == READER:
                    if foreign or not holds:
                        return False
                    state = (started | {event}, ended, holds, alone)
                elif order.versions[event] != DUE:
                    if READER in running:
                        return False
                    state = (started | {event}, ended, False, frozenset())
                else:
                    clean = alone if foreign else alone | {event}
                    state = (started | {event}, ended, holds, clean)
            elif event in running:
                state = (started, ended | {event}, holds or event in alone, alone - {event})
            if state is not None and state not in seen:
                seen.add(state)
                todo.append(state)
    return True


def locally_right(order: Order) -> bool:
    writers = range(len(order.versions))
    return reads_version(order.before, writers, dict(enumerate(order.versions)), READER, DUE)


def test_condition_agrees_with_every_linearisation() -> None:
    rng = random.Random(20)
    right = 0
    for number in range(2000):
        order = random_order(rng)
        judged = always_right(order)
        assert locally_right(order) == judged, f"order {number}: {order}"
        right += judged
    # Both answers must be common, or agreement would say little.
    assert 300 < right < 1700


@pytest.mark.parametrize(
    ("versions", "before", "right"),
    [
        ((0,), {(0, READER)}, True),
        ((0,), set(), False),  # (ii): the write may come late
        ((0, 1), {(0, READER)}, False),  # (i): another write at any time
        ((0, 1), {(0, READER), (READER, 1)}, True),
        ((0, 1), {(0, 1), (1, READER), (0, READER)}, False),  # (iii): destroyed before the read
        ((1, 0), {(0, 1), (1, READER), (0, READER)}, True),
        ((0, 1), {(0, READER), (1, READER)}, False),  # (iii): either write may be the last
        ((0, 0), {(0, READER)}, True),  # the same bytes once more, at any time
    ],
)
def test_small_orders(
    versions: tuple[int, ...], before: set[tuple[object, object]], right: bool
) -> None:
    order = Order(versions, frozenset(before))
    assert always_right(order) is right
    assert locally_right(order) is right


@pytest.mark.parametrize("dropped", ["ordered", "in time", "replaced"])
def test_each_part_of_the_condition_is_needed(dropped: str) -> None:
    """Without one of its parts the condition accepts an order that the judge refutes."""
    rng = random.Random(21)
    for _ in range(2000):
        order = random_order(rng)
        if _weakened(order, dropped) and not always_right(order):
            return
    pytest.fail(f"no order tells the condition from the one without {dropped!r}")


def _weakened(order: Order, dropped: str) -> bool:
    before = order.before
    same = [w for w, v in enumerate(order.versions) if v == DUE]
    other = [w for w, v in enumerate(order.versions) if v != DUE]
    parts = {
        "ordered": all((w, READER) in before or (READER, w) in before for w in other),
        "in time": any((w, READER) in before for w in same),
        "replaced": all(
            any((o, w) in before and (w, READER) in before for w in same)
            for o in other
            if (o, READER) in before
        ),
    }
    return all(holds for name, holds in parts.items() if name != dropped)
