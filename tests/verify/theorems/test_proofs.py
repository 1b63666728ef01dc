"""Every theorem is proved, needs each of its hypotheses, and a broken encoding is noticed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from splitproof.model.theorem import Outcome, TheoremResult
from splitproof.verify.theorems import MODULES, prove, theorem, write_queries
from splitproof.verify.theorems.logic import TRUE, symbols_of
from splitproof.verify.theorems.outline import Step, prove_step, queries
from splitproof.verify.theorems.smt import decide

NAMES = tuple(MODULES)
STEPS = [
    pytest.param(step, id=f"{name}-{step.name}") for name in NAMES for step in theorem(name).steps
]
HYPOTHESES = [
    pytest.param(step, hypothesis.name, id=f"{name}-{step.name}-{hypothesis.name}")
    for name in NAMES
    for step in theorem(name).steps
    for hypothesis in step.hypotheses
]


@cache
def proved(name: str) -> TheoremResult:
    return prove([name]).theorems[0]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_proved(name: str) -> None:
    result = proved(name)
    assert result.outcome is Outcome.PROVED
    for step in result.steps:
        assert step.countermodel is None and step.scenario is True


@pytest.mark.parametrize(("step", "name"), HYPOTHESES)
def test_a_dropped_hypothesis_is_what_breaks(step: Step, name: str) -> None:
    """The countermodel satisfies all else, by plain Python; the one dropped is false in it."""
    query = next(q for q in queries(step) if q.dropped is not None and q.dropped.name == name)
    structure = decide(query.assertions).structure
    assert structure is not None and query.dropped is not None
    assert all(structure.holds(formula) for formula in step.setting)
    others = [h.formula for h in step.hypotheses if h.name != name]
    assert all(structure.holds(formula) for formula in others)
    assert not structure.holds(step.goal)
    # The goal follows from the hypotheses, so what was left out cannot hold here.
    if set(symbols_of([query.dropped.formula])) <= set(symbols_of(query.assertions)):
        assert not structure.holds(query.dropped.formula)


# -- broken on purpose ----------------------------------------------------------------------------


def flattened(step: Step) -> Step:
    """The step with its hypotheses in its setting: fewer questions, the same proof."""
    setting = (*step.setting, *(h.formula for h in step.hypotheses))
    return replace(step, setting=setting, hypotheses=())


@pytest.mark.parametrize("step", STEPS)
def test_a_negated_goal_is_noticed(step: Step) -> None:
    report = prove_step(replace(flattened(step), goal=~step.goal))
    assert report.outcome is Outcome.REFUTED


@pytest.mark.parametrize("step", STEPS)
def test_contradictory_hypotheses_prove_nothing(step: Step) -> None:
    first = step.hypotheses[0]
    against = replace(flattened(step), setting=(first.formula, ~first.formula))
    report = prove_step(against)
    assert report.outcome is Outcome.CONTRADICTED and report.scenario is False


@pytest.mark.parametrize("step", STEPS)
def test_an_idle_hypothesis_is_noticed(step: Step) -> None:
    idle = replace(step.hypotheses[0], name="idle", formula=TRUE)
    report = prove_step(replace(flattened(step), hypotheses=(idle,)))
    assert report.outcome is Outcome.CONTRADICTED


#: theorem, step, and how the axiom of its setting begins that is taken away
BROKEN_SETTINGS = [
    ("T1", 0, "∀w: Command, base: Base. writes(w, base) ∧ is_node(w)"),
    ("T1", 2, "∀w: Command, base: Base. writes(w, base) ⇒ is_node(w)"),
    ("T2", 0, "∀m: Matmul. assigned_by_pass_1(m) ⇒ after_pass_5"),
    ("T2", 1, "∀m: Matmul, d: Device. reads(d, bank_in(m))"),
    ("T3", 0, "∀s: Slot, x: Expert. content_after(s, x)"),
    ("T3", 2, "∀p: Pigeon. seat(p) = closed"),
    ("T3", 3, "kept_in_slots + 1"),
    ("T4", 1, "∀a b: Command, q: Queue. on_queue(a, q)"),
    ("T4", 2, "∀a w: Command, e: Event. records(a, e) ∧ queue_waits(w, e)"),
    ("T4", 3, "∀w: Command, e: Event. host_waits(w, e)"),
    ("T5", 0, "∀x: Expert. visited(x) ⇔ less(x, current)"),
    ("T5", 2, "∀x y: Expert, s t: Slot"),
    ("T6", 0, "earlier(first_split, later_split) ∧ device(first_split) ≠ cpu"),
    ("T6", 0, "∀a b: Command, d: Device. on_queue_of(a, d) ∧ host_waits_for(b, d)"),
    ("T6", 1, "∀c: Command, s: Split, x: Input. moves(c, x) ∧ input_of(x, s) ∧ device(s) = cpu"),
    ("T7", 0, "other_version_before ⇒"),
    ("T7", 1, "∀a b: Command. built(a, b)"),
    ("T7", 4, "∀a b: Command. built(a, b)"),
    ("T8", 0, "∀s: Slot, x: Expert. holds_after(s, x)"),
    ("T8", 2, "touched_after ="),
    ("T8", 4, "resident"),
]


@pytest.mark.parametrize(("name", "number", "start"), BROKEN_SETTINGS)
def test_a_missing_axiom_is_noticed(name: str, number: int, start: str) -> None:
    step = theorem(name).steps[number]
    kept = tuple(a for a in step.setting if not str(a).lstrip("(").startswith(start.lstrip("(")))
    assert len(kept) == len(step.setting) - 1, [str(a) for a in step.setting]
    report = prove_step(flattened(replace(step, setting=kept)))
    assert report.outcome is Outcome.REFUTED
    assert report.countermodel is not None and report.countermodel.confirmed


def test_every_theorem_is_broken_somewhere() -> None:
    assert {name for name, _, _ in BROKEN_SETTINGS} == set(NAMES)


# -- the rest -------------------------------------------------------------------------------------


def test_too_little_effort_decides_nothing() -> None:
    assert prove(["T6"], effort=10).outcome is Outcome.UNDECIDED


def test_theorems_are_found_by_name_and_title() -> None:
    assert theorem("t6") is theorem("lifetimes")
    with pytest.raises(KeyError, match="T1, T2"):
        theorem("T9")


def test_all_questions_are_written(tmp_path: Path) -> None:
    paths = write_queries(theorem("T5"), tmp_path)
    assert len(set(paths)) == sum(step.queries for step in proved("T5").steps)
    for path in paths:
        text = path.read_text()
        assert "expected: " in text and text.rstrip().endswith("(check-sat)")


def test_cvc5_agrees() -> None:
    pytest.importorskip("cvc5", reason="cvc5 (the extra 'recheck') is not installed")
    result = prove(["T3", "T5"], recheck=True)
    assert result.outcome is Outcome.PROVED
    for each in result.theorems:
        for step in each.steps:
            assert step.disagreements == () and step.rechecked == step.queries


def test_a_disagreement_is_told() -> None:
    step = theorem("T3").steps[0]
    report = prove_step(step, second=lambda query: not query.expected)
    assert report.outcome is Outcome.CONTRADICTED
    assert set(report.disagreements) == {query.label for query in queries(step)}
