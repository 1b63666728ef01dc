"""What the commands do, as functions: model, verifier and runtime put together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from .model.certificate import Certificate, certify
from .model.document import from_dict, load
from .model.plan.lower import lower
from .model.read.ggml_dump import read_dump
from .model.report import Finding, Report, Rule
from .model.schedule import Schedule

if TYPE_CHECKING:
    from .exec.replay import Replay
    from .exec.runtime import RunResult

#: A schedule, or what one can be read from: a path, a parsed document, or its bytes.
Source = Schedule | str | PathLike[str] | bytes | Mapping[str, Any]


def as_schedule(source: Source) -> Schedule:
    """The schedule that ``source`` holds.

    A ``str`` is a path (``splitproof.loads`` reads a document's text).  Raises ``DocumentError``
    with line, column and JSON path, or ``OSError`` if the file cannot be read.
    """
    if isinstance(source, Schedule):
        return source
    if isinstance(source, Mapping):
        return from_dict(dict(source))
    return load(source)


def check(
    source: Source,
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    symbols: Mapping[str, tuple[int, int]] | None = None,
    time_limit: float | None = None,
) -> Report:
    """Prove the schedule right, or find out how it goes wrong.

    ``only``/``ignore``: codes of rules.  ``symbols``: narrower ranges, both ends included.
    ``time_limit``: seconds for the whole check; what is undecided by then makes the verdict
    ``unknown``.  A split-level document is lowered first.
    """
    from .verify.check import check as check_program

    limits = {} if time_limit is None else {"seconds": time_limit}
    return check_program(
        lower(as_schedule(source)),
        only=tuple(only),
        ignore=tuple(ignore),
        symbols=dict(symbols) if symbols else None,
        **limits,
    )


def run(
    source: Source,
    *,
    certificate: Certificate | None = None,
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    callbacks: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> RunResult:
    """Execute the schedule's program with Numba, after a check unless a certificate is given.

    ``symbols``: a value for each symbol (default: its upper bound).  ``inputs``: arrays by name
    of the input; inputs that are not given, and all weights, are made from ``seed``.  Raises
    ``CertificateError`` if the schedule is not proved, or is not the one that was.
    """
    from .exec.runtime import run as run_program

    schedule = lower(as_schedule(source))
    if certificate is None:
        certificate = certify(check(schedule))
    return run_program(
        schedule, certificate, symbols=symbols, seed=seed, callbacks=callbacks, inputs=inputs
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """What a replay showed for one finding.

    ``replay``: the executed counterexample (kind *value*); ``evidence``: facts evaluated on the
    concrete values (other kinds).  ``holds``: the finding is confirmed.
    """

    finding: Finding
    replay: Replay | None
    evidence: tuple[tuple[str, str | int], ...]
    holds: bool


def replay(
    report: Report, schedule: Source, *, seed: int = 0, rules: Collection[str] = ()
) -> list[Shown]:
    """Execute the counterexamples of a report, by code that shares nothing with the checker.

    ``schedule``: the one that was checked.  ``rules``: only findings under these codes.
    Findings of kind *cost* are left out: they show no fault.
    """
    program = lower(as_schedule(schedule))
    chosen = [f for f in report.findings if f.kind != "cost" and (not rules or f.rule in rules)]
    return [_show(program, finding, seed) for finding in chosen]


def _show(program: Schedule, finding: Finding, seed: int) -> Shown:
    if finding.counterexample is not None and finding.kind == "value":
        from .exec.replay import replay as execute

        result = execute(program, finding.counterexample, seed=seed)
        return Shown(finding, result, (), result.reproduced)
    from .exec.evidence import evidence

    symbols = {name: high for name, (_, high) in program.graph.ranges.items()}
    if finding.counterexample is not None:
        symbols |= dict(finding.counterexample.symbols)
    facts = evidence(program, finding, symbols)
    return Shown(finding, None, facts, bool(facts))


def explain(code: str) -> Rule:
    """The rule with that code or slug (``"PF001"``); ``KeyError`` names the nearest ones."""
    from difflib import get_close_matches

    from .verify.rules import RULES

    for rule in RULES.values():
        if code.upper() == rule.code or code.lower() == rule.slug:
            return rule
    near = get_close_matches(code.upper(), RULES, n=3, cutoff=0.5) or sorted(RULES)
    raise KeyError(f"there is no rule {code!r}; there are {', '.join(near)}")


def import_dump(source: str | PathLike[str] | Sequence[str]) -> list[Schedule]:
    """The graphs of a recorded ggml dump (JSON lines, also ``.gz``) with the recorded splits."""
    return list(read_dump(source))
