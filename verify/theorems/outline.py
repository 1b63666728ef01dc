"""Proof outlines: a theorem is a few steps, each a question that the solver decides.

A step is proved if its setting, its hypotheses and the negated goal are unsatisfiable together.
Two more kinds of questions guard it.  The *twin*: setting, hypotheses and scenario must be
satisfiable, else the step would hold of nothing.  The *dropped twins*: without any one hypothesis
there must be a structure that satisfies all else and breaks the goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...model.theorem import Countermodel, DroppedHypothesis, Outcome, StepReport, worst
from .fragment import fragment
from .logic import TRUE, Term
from .smt import DEFAULT_EFFORT, Answer, decide
from .structure import Structure, facts


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A named assumption.  ``document``: name of a schedule that shows what happens without;
    ``unshown``: why no schedule does."""

    name: str
    words: str
    formula: Term
    document: str | None = None
    unshown: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One question.  ``setting``: definitions and order rules; ``scenario``: what must be
    possible together with the hypotheses, so that the goal is about something."""

    name: str
    words: str
    setting: tuple[Term, ...]
    hypotheses: tuple[Hypothesis, ...]
    goal: Term
    scenario: Term = TRUE


@dataclass(frozen=True, slots=True)
class Theorem:
    """Steps that make a theorem together; ``argument`` says how, ``limits`` what is left out."""

    name: str
    title: str
    statement: str
    argument: str
    steps: tuple[Step, ...]
    limits: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """One question of a step.  ``expected``: whether it should be satisfiable."""

    label: str
    assertions: tuple[Term, ...]
    expected: bool
    dropped: Hypothesis | None = None


#: a second opinion: whether a query is satisfiable, ``None`` if not known
Second = Callable[[Query], bool | None]


def queries(step: Step) -> Iterator[Query]:
    """The questions of a step: the proof, its twin, and one for each hypothesis."""
    held = tuple(h.formula for h in step.hypotheses)
    yield Query("proof", (*step.setting, *held, ~step.goal), False)
    yield Query("twin", (*step.setting, *held, step.scenario), True)
    for dropped in step.hypotheses:
        others = tuple(h.formula for h in step.hypotheses if h is not dropped)
        label = f"without {dropped.name}"
        yield Query(label, (*step.setting, *others, ~step.goal), True, dropped)


def prove_step(
    step: Step, effort: int = DEFAULT_EFFORT, second: Second | None = None
) -> StepReport:
    """Decide all questions of a step.  ``OutsideFragment`` if one of them is not decidable."""
    asked = tuple(queries(step))
    fragments = [fragment(query.assertions) for query in asked]
    answers = [decide(query.assertions, effort) for query in asked]
    opinions = [second(query) if second is not None else None for query in asked]
    differing = tuple(
        query.label
        for query, answer, opinion in zip(asked, answers, opinions, strict=True)
        if None not in (opinion, answer.satisfiable) and opinion != answer.satisfiable
    )
    proof, twin, *drops = answers
    dropped = tuple(_dropped(query, answer) for query, answer in zip(asked[2:], drops, strict=True))
    countermodel = _countermodel(proof.structure, asked[0].assertions)
    return StepReport(
        step.name,
        step.words,
        str(step.goal),
        tuple(str(formula) for formula in step.setting),
        fragments[0].name,
        worst((_of_proof(proof, countermodel), _of_twin(twin, asked[1]), *map(_of_drop, dropped),
               *([Outcome.CONTRADICTED] if differing else []))),
        dropped,
        twin.satisfiable,
        countermodel,
        differing,
        len(asked),
        sum(opinion is not None for opinion in opinions),
    )  # fmt: skip


def _of_proof(answer: Answer, countermodel: Countermodel | None) -> Outcome:
    if answer.satisfiable is None:
        return Outcome.UNDECIDED
    if not answer.satisfiable:
        return Outcome.PROVED
    assert countermodel is not None
    return Outcome.REFUTED if countermodel.confirmed else Outcome.CONTRADICTED


def _of_twin(answer: Answer, query: Query) -> Outcome:
    """Hypotheses that contradict each other prove everything: that is never a proof."""
    if answer.satisfiable is None:
        return Outcome.UNDECIDED
    found = _countermodel(answer.structure, query.assertions)
    return Outcome.PROVED if found is not None and found.confirmed else Outcome.CONTRADICTED


def _of_drop(dropped: DroppedHypothesis) -> Outcome:
    """A hypothesis that is not needed is no error of the theorem, but one of its statement."""
    if dropped.countermodel is not None:
        return Outcome.PROVED if dropped.countermodel.confirmed else Outcome.CONTRADICTED
    return Outcome.CONTRADICTED if dropped.outcome is Outcome.PROVED else Outcome.UNDECIDED


def _dropped(query: Query, answer: Answer) -> DroppedHypothesis:
    assert query.dropped is not None
    outcome = {True: Outcome.REFUTED, False: Outcome.PROVED, None: Outcome.UNDECIDED}
    found = _countermodel(answer.structure, query.assertions)
    h = query.dropped
    return DroppedHypothesis(
        h.name,
        h.words,
        str(h.formula),
        outcome[answer.satisfiable],
        found,
        h.document,
        h.unshown,
    )


def _countermodel(structure: Structure | None, assertions: tuple[Term, ...]) -> Countermodel | None:
    if structure is None:
        return None
    return Countermodel(
        tuple(structure.universes.items()),
        facts(structure, assertions),
        all(structure.holds(assertion) for assertion in assertions),
    )
