"""Theorems about every schedule: why the rules are right, and each assumption that is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...model.theorem import TheoremReport, TheoremResult, worst
from .outline import Query, Second, Step, Theorem, prove_step, queries
from .smt import DEFAULT_EFFORT, smt_text

#: name → module, in the order in which they are proved
MODULES = {
    "T1": "t1_prefetch",
    "T2": "t2_placement",
    "T3": "t3_fill",
    "T4": "t4_pipeline",
    "T5": "t5_runs",
    "T6": "t6_lifetimes",
    "T7": "t7_locality",
    "T8": "t8_flooding",
}

#: called with (steps done, steps in all, what comes next)
Progress = Callable[[int, int, str], None]


def theorem(name: str) -> Theorem:
    """The theorem of that name (T1) or title (prefetch); ``KeyError`` says which there are."""
    for key, module in MODULES.items():
        found: Theorem = import_module(f".{module}", __name__).THEOREM
        if name.upper() == key or name.lower() == found.title:
            return found
    raise KeyError(f"there is no theorem {name}; there are {', '.join(MODULES)}")


def prove(
    names: Sequence[str] = (),
    *,
    effort: int = DEFAULT_EFFORT,
    recheck: bool = False,
    smt2: Path | None = None,
    progress: Progress | None = None,
) -> TheoremReport:
    """Prove the theorems named, or all of them.

    ``effort``: Z3 resource units for one question; what needs more is undecided.  ``recheck``:
    ask cvc5 each question too (``ImportError`` without it).  ``smt2``: a directory, which must
    exist, for all questions as SMT-LIB.
    """
    started = time.monotonic()
    chosen = [theorem(name) for name in names or MODULES]
    second = _second_solver() if recheck else None
    total = sum(len(each.steps) for each in chosen)
    results: list[TheoremResult] = []
    done = 0
    for each in chosen:
        if smt2 is not None:
            write_queries(each, smt2)
        began = time.monotonic()
        steps = []
        for step in each.steps:
            if progress is not None:
                progress(done, total, f"{each.name} {step.name}")
            steps.append(prove_step(step, effort, second))
            done += 1
        results.append(
            TheoremResult(
                each.name, each.title, each.statement, each.argument, each.limits,
                worst(tuple(step.outcome for step in steps)), tuple(steps),
                time.monotonic() - began,
            )
        )  # fmt: skip
    outcome = worst(tuple(result.outcome for result in results))
    packages = ("splitproof", "z3-solver", *(("cvc5",) if recheck else ()))
    return TheoremReport(
        outcome, tuple(results), time.monotonic() - started,
        tuple((name, _version(name)) for name in packages),
    )  # fmt: skip


def _second_solver() -> Second:
    from .second import cvc5_opinion

    return cvc5_opinion()


def write_queries(each: Theorem, directory: Path) -> list[Path]:
    """Write all questions of a theorem as ``T1-STEP-QUESTION.smt2``; returns the paths."""
    written = []
    for step in each.steps:
        for query in queries(step):
            words = f"{each.name} {step.name} {query.label}"
            name = "-".join("".join(c if c.isalnum() else " " for c in words).split())
            path = directory / f"{name}.smt2"
            path.write_text(smt_text(query.assertions, _comment(each, step, query)))
            written.append(path)
    return written


def _comment(each: Theorem, step: Step, query: Query) -> str:
    answer = "sat" if query.expected else "unsat"
    return f"{each.name} {each.title}: {step.name}: {query.label}\nexpected: {answer}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


__all__ = ["DEFAULT_EFFORT", "MODULES", "prove", "theorem", "write_queries"]
