"""What is remembered from one question to the next, and that nothing else is taken for it."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.document import load
from splitproof.model.plan.lower import lower
from splitproof.model.plan.planner import plan
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor
from splitproof.verify.check import Options, check
from splitproof.verify.encode import Solver
from splitproof.verify.region import Region
from splitproof.verify.term import Bool, Scope, conj, neg, number, size, used, variable

RULES = sorted(Path(__file__).parent.parent.glob("rules/*/*.json"))
BYTE = variable("byte")


class Forgetful(dict[Any, Any]):
    """A cache in which nothing is ever found again."""

    def __contains__(self, key: object) -> bool:
        return False


def question(
    sets: tuple[str, str] = ("a", "b"),
    expert: int = 3,
    factor: int = 2,
    symbol: str = "n",
    symbols: tuple[int, int] = (1, 8),
    bytes_: tuple[int, int] = (0, 40),
    denied: bool = True,
) -> tuple[Bool, dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """One set has an expert, another has not the one that is so many bytes further."""
    first, second = used(sets[0], number(expert)), used(sets[1], BYTE + expert)
    within = ("le", BYTE * factor - size(Expr.symbol(symbol)))
    term = conj([first, neg(second) if denied else second, within])
    return term, {"n": symbols, "m": (1, 8)}, {"byte": bytes_}


def test_other_names_of_used_sets_are_no_other_question() -> None:
    solver = Solver()
    first, again = solver.model(*question()), solver.model(*question(("c", "d")))
    assert solver.questions == 1
    assert first.values is not None and again.values is not None
    assert first.values.sets == {"a": frozenset([3]), "b": frozenset()}
    assert again.values.sets == {"c": frozenset([3]), "d": frozenset()}


@pytest.mark.parametrize(
    "change",
    [
        {"sets": ("a", "a")},  # then the byte must not be the first
        {"expert": 4},
        {"factor": 3},
        {"symbol": "m"},
        {"symbols": (1, 9)},
        {"bytes_": (0, 41)},
        {"denied": False},
    ],
)
def test_each_other_difference_is_another_question(change: dict[str, Any]) -> None:
    solver, alone = Solver(), Solver()
    solver.model(*question())
    found = solver.model(*question(**change))
    assert solver.questions == 2
    assert found == alone.model(*question(**change))


def test_one_set_and_two_have_different_answers() -> None:
    two, one = Solver().model(*question()), Solver().model(*question(("a", "a")))
    assert two.values is not None and two.values.variables == {"byte": 0}
    assert one.values is not None and one.values.variables == {"byte": 1}


@pytest.mark.parametrize("path", RULES[::2], ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_checker_that_forgets_says_the_same(path: Path) -> None:
    schedule = lower(plan(load(path)))
    remembers = check(schedule)
    forgets = check(schedule, Options(solver=Solver(cache=Forgetful())))
    assert replace(forgets, seconds=0, solved=0) == replace(remembers, seconds=0, solved=0)


def test_what_a_scope_remembers_of_one_region_is_not_told_of_another() -> None:
    def sizes(*values: int | str) -> tuple[Expr, ...]:
        return tuple(map(Expr.of, values))

    tensors = [
        Tensor("a", shape=sizes(4, "n")),
        Tensor("b", shape=sizes(4, "m")),
        Tensor("c", shape=sizes(3, 4), strides=sizes(4, 16)),
        Tensor("d", shape=sizes(2, 4), strides=sizes(4, 16)),
        Tensor("e", shape=sizes(3, 4), strides=sizes(4, 20)),
        Tensor("f", "f16", shape=sizes(3, 4), strides=sizes(2, 16)),
        Tensor("g", shape=sizes(3, 4)),
    ]
    symbols, variables = {"n": (1, 8), "m": (1, 9)}, {"byte": (0, 100)}
    shared, seen = Scope(symbols, variables), set()
    for tensor in tensors:
        for start in (0, 8):
            for length in (None, Expr.of(24)):
                region = Region("s", Expr.of(start), tensor, (0, 400), length)
                found = region.contains(BYTE, shared)
                assert found == region.contains(BYTE, Scope(symbols, variables))
                assert found == region.contains(BYTE, shared)
                seen.add(found)
    assert len(seen) == 2 * len(tensors) + 2


@pytest.mark.parametrize("enabled", [True, False])
def test_a_check_leaves_the_collector_as_it_was(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        check(lower(plan(load(RULES[0]))))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
