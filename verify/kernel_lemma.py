"""What the symbolic run takes for granted of the helpers in ``exec/cuda/index.py``, proved.

The helpers' own Python is run on symbols whose ``//`` and ``%`` are what integer division means:
``a = q · b + r`` with ``0 <= r < b``, for ``a >= 0`` and ``b >= 1``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

#: Solver effort for one lemma, in Z3's resource units.
EFFORT = 20_000_000

Helper = Callable[..., Any]


@dataclass
class _Divisions:
    """One definition for each quotient that is taken."""

    facts: list[Any] = field(default_factory=list)
    _known: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)

    def of(self, a: Any, b: Any) -> tuple[Any, Any]:
        key = a.get_id(), b.get_id()
        if key not in self._known:
            number = len(self._known)
            quotient, rest = z3.Int(f"quotient{number}"), z3.Int(f"rest{number}")
            self._known[key] = quotient, rest
            self.facts += [a == quotient * b + rest, rest >= 0, rest < b, quotient >= 0]
        return self._known[key]


@dataclass
class _Whole:
    """A non-negative integer."""

    divisions: _Divisions
    term: Any

    def __floordiv__(self, other: _Whole) -> _Whole:
        return _Whole(self.divisions, self.divisions.of(self.term, other.term)[0])

    def __mod__(self, other: _Whole) -> _Whole:
        return _Whole(self.divisions, self.divisions.of(self.term, other.term)[1])


def check_tile(tile_place: Helper, threads: int) -> list[str]:
    """Whether the results of a tile's threads are its elements, each once: all are looked at."""
    found = [
        tile_place(thread, eighth, k)
        for thread in range(threads) for eighth in range(threads // 32) for k in range(4)
    ]  # fmt: skip
    due = [(row, column) for row in range(threads // 2) for column in range(threads // 4)]
    return [] if sorted(found) == due else [f"tile_place: not a tile of {threads} threads"]


def check_lemmas(row_place: Helper, element_place: Helper, group_place: Helper) -> list[str]:
    """Every lemma that does not hold of these helpers, or is not decided; empty if all do."""
    return [
        *_places("row_place", row_place, 2),
        *_places("element_place", element_place, 3),
        *_groups(group_place),
    ]


def _places(name: str, helper: Helper, count: int) -> list[str]:
    """Place n is below size n; the last is below ``bound`` where the number is below the product
    of all sizes and ``bound``; different numbers have different places."""
    divisions = _Divisions()
    sizes, bound = [z3.Int(f"size{n}") for n in range(count)], z3.Int("bound")
    numbers = z3.Ints("number other")
    wrapped = [_Whole(divisions, size) for size in sizes]
    one, two = (
        [place.term for place in helper(_Whole(divisions, number), *wrapped)] for number in numbers
    )
    legal = [size >= 1 for size in (*sizes, bound)] + [number >= 0 for number in numbers]
    facts = [*legal, *divisions.facts]
    claims: list[tuple[str, list[Any], Any]] = [
        (f"{name}: place {n} below its size", [], z3.And(one[n] >= 0, one[n] < size))
        for n, size in enumerate(sizes)
    ]
    below = numbers[0] < z3.Product(*sizes, bound)
    claims += [
        (f"{name}: the last place not negative", [], one[-1] >= 0),
        (f"{name}: the last place below the bound", [below], one[-1] < bound),
        (
            f"{name}: different numbers, different places",
            [a == b for a, b in zip(one, two, strict=True)],
            numbers[0] == numbers[1],
        ),
    ]
    return [fault for text, more, claim in claims if (fault := _refuted(text, facts + more, claim))]


def _groups(helper: Helper) -> list[str]:
    """The group is below ``groups``, where ``groups`` divides ``count``."""
    divisions = _Divisions()
    place, size, groups = z3.Ints("place size groups")
    count = size * groups
    wrapped = [_Whole(divisions, term) for term in (place, count, groups)]
    group = helper(*wrapped).term
    legal = [place >= 0, place < count, size >= 1, groups >= 1]
    claim = z3.And(group >= 0, group < groups)
    fault = _refuted("group_place: a group below groups", [*legal, *divisions.facts], claim)
    return [fault] if fault else []


def _refuted(text: str, facts: list[Any], claim: Any) -> str:
    """Empty if the claim follows from the facts."""
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    solver.add(*facts, z3.Not(claim))
    answer = solver.check()
    if answer == z3.unsat:
        return ""
    return f"{text}: {'not so' if answer == z3.sat else solver.reason_unknown()}"
