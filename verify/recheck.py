"""Every question that decided a check, decided again by a second solver.

A check asks Z3 only what plain arithmetic does not answer.  So the check is done once more with
that arithmetic left out: then each obligation is a question as it stands.  Both lots are written
as SMT-LIB 2 from the terms and given to cvc5, which shares nothing with Z3 or ``encode``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.report import Finding, Gap, Rechecked, Report, Ruling, Verdict
from ..model.schedule import Schedule
from .check import Options, check
from .encode import Answer, Asked, z3_version
from .smtlib import Question, script

#: cvc5 resource units per question: about a second on a current core.
SECOND_EFFORT = 30_000
_WORDS = {True: "sat", False: "unsat", None: "unknown"}


class NoSecondSolver(ImportError):
    """cvc5 is not installed."""


@dataclass(slots=True)
class Recorder:
    """Keeps each question that went to Z3, with its answer."""

    unfolded: bool = False
    kept: list[tuple[Question, Ruling]] = field(default_factory=list)

    def __call__(self, asked: Asked, answer: Answer, seconds: float) -> None:
        question = Question(asked.term, asked.symbols, asked.variables, self.unfolded)
        ruling = Ruling("z3", z3_version(), _WORDS[answer.found], seconds)
        self.kept.append((question, ruling))


@dataclass(frozen=True, slots=True)
class Questions:
    """A report, and every question that it and its unfolded twin put to Z3."""

    report: Report
    plain: Report
    asked: tuple[tuple[Question, Ruling], ...]

    def scripts(self) -> list[tuple[str, str]]:
        """``(name, SMT-LIB 2)`` of each question."""
        return [
            (name, script(question, f"splitproof {self.report.digest or 'part'} {name}\n{told}"))
            for name, question, told in self._named()
        ]

    def _named(self) -> list[tuple[str, Question, str]]:
        return [
            (_name(number), question, f"{_form(question)}; {ruling.solver} says {ruling.answer}")
            for number, (question, ruling) in enumerate(self.asked)
        ]


def gather(schedule: Schedule, options: Options | None = None) -> Questions:
    """Check twice, folded and unfolded, and keep the questions of both."""
    options = options or Options()
    folded, plain = Recorder(), Recorder(unfolded=True)
    report = check(schedule, replace(options, observer=folded, theorems=False))
    unfolded = check(schedule, replace(options, observer=plain, fold=False, theorems=False))
    return Questions(report, unfolded, (*folded.kept, *plain.kept))


def recheck(questions: Questions, second: Second) -> Report:
    """The report with a ledger.  Where the solvers, or the check and its unfolded twin, differ,
    it gets a gap and is proved no more."""
    ledger = []
    for number, (question, first) in enumerate(questions.asked):
        other = second.decide(script(question))
        outcome = _outcome(first.answer, other.answer)
        ledger.append(Rechecked(_name(number), _form(question), first, other, outcome))
    gaps = [
        Gap(Verdict.UNKNOWN, f"{r.first.solver} and {r.second.solver} disagree on {r.name}", "$")
        for r in ledger
        if r.outcome == "disagrees"
    ]
    if not _same(questions.report, questions.plain):
        gaps.append(Gap(Verdict.UNKNOWN, "without folding the check finds something else", "$"))
    return _with(questions.report, ledger, gaps)


def _with(report: Report, ledger: Sequence[Rechecked], gaps: Sequence[Gap]) -> Report:
    verdict = report.verdict
    if gaps and verdict is not Verdict.VIOLATED:
        verdict = Verdict.UNKNOWN
    return replace(
        report, verdict=verdict, gaps=(*report.gaps, *gaps), ledger=tuple(ledger),
        contradicted=bool(gaps),
    )  # fmt: skip


def _outcome(first: str, second: str) -> str:
    if "unknown" in (first, second):
        return "not rechecked"
    return "agrees" if first == second else "disagrees"


def _same(report: Report, plain: Report) -> bool:
    """Whether the twin found the same; what it could not decide contradicts nothing."""
    if plain.gaps:
        return True
    return sorted(map(_key, report.findings)) == sorted(map(_key, plain.findings))


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.place


def _name(number: int) -> str:
    return f"q{number:05}"


def _form(question: Question) -> str:
    return "unfolded" if question.unfolded else "as asked"


class Second:
    """cvc5, with bounded effort that does not depend on the clock.  Raises ``NoSecondSolver``."""

    def __init__(self, effort: int = SECOND_EFFORT) -> None:
        try:
            import cvc5
        except ImportError:
            raise NoSecondSolver(
                "a second solver was asked for, and cvc5 is not installed: "
                "pip install 'splitproof[recheck]'"
            ) from None
        self._cvc5: Any = cvc5
        self.version: str = cvc5.__version__
        self.effort = effort

    def decide(self, text: str) -> Ruling:
        """The answer to one SMT-LIB 2 script with one ``check-sat``."""
        started = time.monotonic()
        solver = self._cvc5.Solver()
        solver.setOption("rlimit-per", str(self.effort))
        parser = self._cvc5.InputParser(solver)
        parser.setStringInput(self._cvc5.InputLanguage.SMT_LIB_2_6, text, "question")
        printed = ""
        while not (command := parser.nextCommand()).isNull():
            printed += command.invoke(solver, parser.getSymbolManager())
        word = printed.split()[0] if printed.split() else "nothing"
        answer = word if word in ("sat", "unsat") else "unknown"
        return Ruling("cvc5", self.version, answer, time.monotonic() - started)
