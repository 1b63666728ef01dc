"""Folding against evaluation, and the Z3 table against both."""

from __future__ import annotations

import z3
from hypothesis import given, settings
from hypothesis import strategies as st
from splitproof.model.symbol import Condition, Expr
from splitproof.verify.encode import Encoder, Solver
from splitproof.verify.term import (
    Bool,
    Int,
    Scope,
    Values,
    conj,
    disj,
    neg,
    number,
    quotient,
    remainder,
    size,
    used,
    variable,
)

SYMBOLS = {"n": (1, 5), "m": (0, 3)}
VARIABLES = {"byte": (0, 40)}
SCOPE = Scope(SYMBOLS, VARIABLES)

ATOMS = st.sampled_from([size(Expr.of("n")), size(Expr.of("m")), variable("byte")])


def extend(inner: st.SearchStrategy[Int]) -> st.SearchStrategy[Int]:
    return st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, st.integers(-3, 3)).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 7)).map(lambda p: quotient(p[0], p[1])),
        st.tuples(inner, st.integers(1, 7)).map(lambda p: remainder(p[0], p[1])),
    )


INTS = st.recursive(ATOMS | st.integers(-9, 9).map(number), extend, max_leaves=5)
COMPARISONS = st.one_of(
    st.tuples(INTS, INTS).map(lambda p: SCOPE.le(*p)),
    st.tuples(INTS, INTS).map(lambda p: SCOPE.lt(*p)),
    st.tuples(INTS, INTS).map(lambda p: SCOPE.eq(*p)),
    INTS.map(lambda e: used("ids", e)),
)
BOOLS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map(neg), st.lists(inner, max_size=3).map(conj), st.lists(inner, max_size=3).map(disj)
    ),
    max_leaves=5,
)
POINTS = st.builds(
    lambda n, m, byte, members: Values({"n": n, "m": m}, {"byte": byte}, {"ids": members}),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(0, 40),
    st.frozensets(st.integers(-5, 40), max_size=4),
)


@given(INTS, INTS, POINTS)
def test_comparisons_keep_their_meaning(a: Int, b: Int, at: Values) -> None:
    left, right = at.value(a), at.value(b)
    assert at.holds(SCOPE.le(a, b)) == (left <= right)
    assert at.holds(SCOPE.lt(a, b)) == (left < right)
    assert at.holds(SCOPE.eq(a, b)) == (left == right)
    low, high = SCOPE.bounds(a)
    assert low <= left <= high


@given(INTS, st.integers(1, 9), POINTS)
def test_quotients_round_down(a: Int, divisor: int, at: Values) -> None:
    value = at.value(a)
    assert at.value(quotient(a, divisor)) == value // divisor
    assert at.value(remainder(a, divisor)) == value % divisor


@given(st.lists(BOOLS, max_size=4), POINTS)
def test_connectives_keep_their_meaning(parts: list[Bool], at: Values) -> None:
    assert at.holds(conj(parts)) == all(at.holds(p) for p in parts)
    assert at.holds(disj(parts)) == any(at.holds(p) for p in parts)
    assert [at.holds(neg(p)) for p in parts] == [not at.holds(p) for p in parts]


@given(INTS, INTS, POINTS)
def test_a_fact_folds_only_what_it_implies(a: Int, b: Int, at: Values) -> None:
    fact = SCOPE.le(a, b)
    if isinstance(fact, bool) or not at.holds(fact):
        return
    scope = Scope(SYMBOLS, VARIABLES, frozenset({fact}))
    assert scope.le(a, b) is True
    assert scope.lt(b, a) is False
    assert at.holds(scope.le(b, a)) == (at.value(b) <= at.value(a))


@settings(max_examples=60, deadline=None)
@given(BOOLS, POINTS)
def test_z3_gives_terms_the_same_meaning(term: Bool, at: Values) -> None:
    context = z3.Context()
    encoder = Encoder(context)
    solver = z3.Solver(ctx=context)
    encoded = encoder.truth(term)
    for kind, values in (("sym", at.symbols), ("var", at.variables)):
        for name, value in values.items():
            solver.add(encoder.constant(kind, name) == value)
    for name, asked in encoder.asked.items():
        for expression in asked:
            named = [expression == e for e in sorted(at.sets[name])]
            member = z3.Or([*named, z3.BoolVal(False, context)])
            solver.add(encoder.sets[name](expression) == member)
    solver.add(encoded != at.holds(term))
    assert solver.check() == z3.unsat


def test_models_are_small_and_hold() -> None:
    solver = Solver()
    byte, n = variable("byte"), size(Expr.of("n"))
    term = conj([SCOPE.le(number(7), byte), SCOPE.le(byte, n * 4)])
    values = solver.model(term, SYMBOLS, VARIABLES).values
    assert values is not None
    assert values.symbols == {"n": 2, "m": 0}
    assert values.variables == {"byte": 7}
    assert values.holds(term)


def test_equal_questions_are_asked_once() -> None:
    solver = Solver()
    term = SCOPE.le(variable("byte"), size(Expr.of("n")))
    assert solver.model(term, SYMBOLS, VARIABLES) == solver.model(term, SYMBOLS, VARIABLES)
    assert solver.questions == 1


def test_the_solver_gives_up_at_its_limit() -> None:
    ranges = dict.fromkeys(("a", "b", "c"), (2, 10**6))
    scope = Scope(ranges, {})
    a, b, c = (Expr.of(name) for name in "abc")
    fermat = scope.eq(size(a * a * a) + size(b * b * b), size(c * c * c))
    answer = Solver(effort=2000).model(fermat, ranges)
    assert answer.found is None
    assert answer.reason


def test_conditions_with_a_modulus() -> None:
    solver = Solver()
    term = SCOPE.condition(Condition.of("n % 3 == 2 and n >= 3"))
    values = solver.model(term, SYMBOLS).values
    assert values is not None
    assert values.symbols["n"] == 5
