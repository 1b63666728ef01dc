"""The logic: printing, the decidable fragment, and what formulas mean in a structure."""

from __future__ import annotations

from itertools import product

import pytest
from splitproof.verify.theorems.fragment import OutsideFragment, fragment
from splitproof.verify.theorems.logic import (
    INT,
    Sort,
    Symbol,
    Term,
    conj,
    equal,
    exists,
    forall,
    number,
)
from splitproof.verify.theorems.outline import Step, prove_step
from splitproof.verify.theorems.smt import decide
from splitproof.verify.theorems.structure import from_tables

A, B = Sort("A"), Sort("B")
x, y, z = A.variables("x y z")
u, v = B.variables("u v")
r = Symbol("r", (A, A))
s = Symbol("s", (A, B))
to_b, to_a = Symbol("to_b", (A,), B), Symbol("to_a", (B,), A)
i = Term("var", INT, name="i")

OUTSIDE = {
    "a function from a sort to itself": [forall(x, r(x, Symbol("f", (A,), A)(x)))],
    "an ∃ of the same sort under a ∀": [forall(x, exists(y, r(x, y)))],
    "a negated ∀ under a ∀": [forall(x, ~forall(y, r(x, y)))],
    "a ∀ in the premise": [forall(x, forall(y, r(x, y)) >> r(x, x))],
    "an equivalence, whose other half has it": [forall(x, equal(r(x, x), forall(y, r(x, y))))],
    "a circle of two functions": [forall(x, s(x, to_b(x))), forall(u, s(to_a(u), u))],
    "a function and an ∃": [forall(u, s(to_a(u), u)), forall(x, exists(u, s(x, u)))],
    "a quantified integer": [forall(i, i <= 3)],
    "a function of integers": [equal(Symbol("g", (INT,), A)(number(1)), A.constants("k")[0])],
}
INSIDE = {
    "an ∃ before all": [exists(x, forall(y, r(x, y)))],
    "an ∃ of a later sort": [forall(x, exists(u, s(x, u)))],
    "a function to a later sort": [forall(x, s(x, to_b(x)))],
    "an ∀ in a negated premise": [forall(x, (~forall(y, r(x, y))) >> r(x, x))],
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_what_need_not_have_an_answer_is_rejected(case: str) -> None:
    with pytest.raises(OutsideFragment):
        fragment(OUTSIDE[case])


@pytest.mark.parametrize("case", INSIDE)
def test_what_is_decidable_is_let_through(case: str) -> None:
    assert fragment(INSIDE[case]).name == "EPR"


def test_a_step_outside_is_not_asked() -> None:
    step = Step("circle", "", (forall(x, exists(y, r(x, y))),), (), forall(x, r(x, x)))
    with pytest.raises(OutsideFragment, match="A → A"):
        prove_step(step)


def test_formulas_read_as_mathematics() -> None:
    formula = forall(x, y, (r(x, y) & ~equal(x, y)) >> exists(u, s(x, u) | s(y, u)))
    assert str(formula) == "∀x y: A. r(x, y) ∧ x ≠ y ⇒ (∃u: B. s(x, u) ∨ s(y, u))"
    assert str((r(x, y) | r(y, x)) & r(x, x)) == "(r(x, y) ∨ r(y, x)) ∧ r(x, x)"
    assert str(~(r(x, y) & r(y, x))) == "¬(r(x, y) ∧ r(y, x))"


def test_sorts_are_checked() -> None:
    with pytest.raises(TypeError, match="takes"):
        s(x, y)
    with pytest.raises(TypeError, match="is a"):
        equal(x, u)


#: closed formulas, and whether they hold of the strict order of three things
ORDER_OF_THREE = [
    (forall(x, ~r(x, x)), True),
    (forall(x, y, r(x, y) >> ~r(y, x)), True),
    (forall(x, exists(y, r(x, y))), False),
    (exists(x, forall(y, ~r(y, x))), True),
    (exists(x, y, z, conj(r(x, y), r(y, z))), True),
    (forall(x, y, equal(x, y) | r(x, y)), False),
    (equal(exists(x, r(x, x)), forall(x, r(x, x))), True),
]


@pytest.mark.parametrize(("formula", "holds"), ORDER_OF_THREE)
def test_python_and_z3_mean_the_same(formula: Term, holds: bool) -> None:
    things = ("a", "b", "c")
    structure = from_tables(
        {"A": things}, {"r": {(p, q): p < q for p, q in product(things, things)}}
    )
    assert structure.holds(formula) is holds
    named = dict(zip(things, A.constants("a b c"), strict=True))
    diagram = [
        r(named[p], named[q]) if p < q else ~r(named[p], named[q])
        for p, q in product(things, things)
    ]
    closed = forall(x, equal(x, named["a"]) | equal(x, named["b"]) | equal(x, named["c"]))
    apart = conj(*(~equal(named[p], named[q]) for p, q in product(things, things) if p < q))
    assert decide([*diagram, closed, apart, formula]).satisfiable is holds
