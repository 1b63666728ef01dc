"""What a verdict is: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from .counterexample import Counterexample
from .word import Word


class Verdict(Word):
    PROVED = "proved"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"


class Kind(Word):
    """What a finding is about: a wrong value, a document that cannot be realised, or waste."""

    VALUE = "value"
    STATIC = "static"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the rule table.  ``hint`` says what to change."""

    code: str
    slug: str
    kind: Kind
    summary: str
    hint: str


@dataclass(frozen=True, slots=True)
class Affected:
    """A read that gets wrong bytes: of which tensor, by which command in which pass."""

    command: int
    iteration: int
    tensor: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which the schedule is wrong, or wasteful.

    ``also``: codes of other rules that the same fault breaks.  ``place``: JSON path of the
    command, node or bank.  ``evidence``: facts in words and numbers, ``(name, value)``.
    ``suppressed``: why it does not count, if it was ignored or is in the baseline.  ``affected``:
    the reads that get wrong bytes by this fault, by way of copies too; the counterexample shows
    the first.
    """

    rule: str
    kind: Kind
    message: str
    place: str
    also: tuple[str, ...] = ()
    evidence: tuple[tuple[str, str | int], ...] = ()
    counterexample: Counterexample | None = None
    suppressed: str | None = None
    affected: tuple[Affected, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was not decided: an obligation that hit its limit, or a construct
    without a footprint.  ``verdict`` is ``UNKNOWN`` or ``UNSUPPORTED``."""

    verdict: Verdict
    reason: str
    place: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a solver said to one question: ``sat`` (a counterexample exists), ``unsat`` or
    ``unknown``."""

    solver: str
    version: str
    answer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One question, decided twice.

    ``form``: ``as asked``, or ``unfolded`` (before any arithmetic).  ``outcome``: ``agrees``,
    ``disagrees``, or ``not rechecked`` where one of the two gave up.
    """

    name: str
    form: str
    first: Ruling
    second: Ruling
    outcome: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one check.

    ``obligations``: how many there were; ``solved``: of these, how many went to the solver
    (the others are plain arithmetic, or were discharged by a theorem).  ``theorems``: how many
    each theorem discharged, ``(name, obligations)``.  ``crossing``: bytes that cross memories per
    split, at the upper bounds of the symbols.  ``ledger``: what a second solver said, if one was
    asked; ``contradicted``: it said something else.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    gaps: tuple[Gap, ...] = ()
    assumptions: tuple[str, ...] = ()
    obligations: int = 0
    solved: int = 0
    passes: int = 1
    regimes: int = 1
    commands: int = 0
    seconds: float = 0.0
    digest: str = ""
    crossing: tuple[tuple[int, str, str, int], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    ledger: tuple[Rechecked, ...] = ()
    contradicted: bool = False
    theorems: tuple[tuple[str, int], ...] = ()

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Findings that count: not of kind cost, and not suppressed."""
        return tuple(f for f in self.findings if f.kind is not Kind.COST and f.suppressed is None)
