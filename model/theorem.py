"""What proving a theorem gave: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """``CONTRADICTED``: the provers disagree, a countermodel does not hold up, or the hypotheses
    contradict each other."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Countermodel:
    """A finite structure.  ``universes``: the things of each sort; ``facts``: one line a symbol.

    ``confirmed``: plain Python, without the solver, found all that should hold to hold.
    """

    universes: tuple[tuple[str, tuple[str, ...]], ...]
    facts: tuple[str, ...]
    confirmed: bool


@dataclass(frozen=True, slots=True)
class DroppedHypothesis:
    """What appears without one hypothesis: a structure in which all the others hold and the goal
    does not.  ``countermodel`` is ``None`` if none was found: then the hypothesis is not needed
    (``outcome`` ``PROVED``) or it is not known whether it is.  ``document``: a schedule that shows
    it, in ``docs/theorems``; ``unshown``: why no schedule does."""

    name: str
    words: str
    logic: str
    outcome: Outcome
    countermodel: Countermodel | None
    document: str | None = None
    unshown: str = ""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of a proof.

    ``logic``: the goal; ``setting``: the definitions that it stands on; ``fragment``: the
    decidable fragment of the question; ``scenario``: whether the hypotheses can hold together
    with something for the goal to speak about; ``disagreements``: questions that the second
    solver answers otherwise; ``queries``: how many were asked.
    """

    name: str
    words: str
    logic: str
    setting: tuple[str, ...]
    fragment: str
    outcome: Outcome
    hypotheses: tuple[DroppedHypothesis, ...]
    scenario: bool | None
    countermodel: Countermodel | None = None
    disagreements: tuple[str, ...] = ()
    queries: int = 0
    rechecked: int = 0


@dataclass(frozen=True, slots=True)
class TheoremResult:
    """``statement``: in words; ``argument``: how the steps make the theorem, and what is used
    beside them (an induction, finiteness); ``limits``: what is not covered; ``seconds``: wall
    time."""

    name: str
    title: str
    statement: str
    argument: str
    limits: str
    outcome: Outcome
    steps: tuple[StepReport, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class TheoremReport:
    """All theorems that were asked for."""

    outcome: Outcome
    theorems: tuple[TheoremResult, ...]
    seconds: float
    versions: tuple[tuple[str, str], ...] = ()


def worst(outcomes: tuple[Outcome, ...]) -> Outcome:
    """The outcome of a whole: a contradiction, else a refutation, else something undecided."""
    for outcome in (Outcome.CONTRADICTED, Outcome.REFUTED, Outcome.UNDECIDED):
        if outcome in outcomes:
            return outcome
    return Outcome.PROVED
