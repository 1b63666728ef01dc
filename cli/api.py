"""What the commands do, as functions: model, verifier and runtime put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .model.certificate import Certificate, certify
from .model.document import from_dict, load
from .model.report import Finding, Kind, Report, Rule
from .model.schedule import Schedule
from .suppress import suppress

if TYPE_CHECKING:
    from .exec.replay import Replay
    from .exec.runtime import RunResult
    from .exec.watch import Watcher
    from .model.minimal import Contracts, Minimal
    from .model.read.llama_log import LogImport
    from .verify.check import Options

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


def as_program(source: Source) -> Schedule:
    """The same at the program level: a graph is planned, and splits are lowered.

    Raises ``PlanError`` where a graph has no plan, or needs one for each part of its symbols'
    ranges, and ``LowerError`` for splits that cannot be lowered.
    """
    schedule = as_schedule(source)
    if schedule.program is not None:
        return schedule
    from .model.plan.lower import lower
    from .model.plan.planner import plan

    return lower(plan(schedule))


def programs(source: Source) -> tuple[tuple[str, Schedule], ...]:
    """All programs that ``source`` means: one for each part of the symbols' ranges in which the
    planner's decisions are the same, with that part in words (``""``: there is one program).

    Raises as :func:`as_program`, but for a graph that needs several plans.
    """
    schedule = as_schedule(source)
    if schedule.program is not None:
        return (("", schedule),)
    from .model.plan.lower import lower
    from .model.plan.planner import part_text, plan_regimes

    if schedule.splits is not None:
        return (("", lower(schedule)),)
    found = [planned.schedule for planned in plan_regimes(schedule)]
    if len(found) == 1:
        return (("", lower(found[0])),)
    ranges = schedule.graph.ranges
    return tuple((part_text(one.graph.ranges, ranges), lower(one)) for one in found)


def check(
    source: Source,
    *,
    only: Collection[str] = (),
    ignore: Mapping[str, str] | None = None,
    symbols: Mapping[str, tuple[int, int]] | None = None,
    time_limit: float | None = None,
    effort: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    recheck: bool = False,
    smt2: str | PathLike[str] | None = None,
    theorems: bool = True,
) -> Report:
    """Prove the schedule right, or find out how it goes wrong.

    ``only``: codes of rules.  ``ignore``: code → why its findings do not count; the verdict
    stays what it is.  ``symbols``: narrower ranges, both ends included.  ``time_limit``: seconds
    for the whole check, ``effort``: Z3 resource units per obligation; what is undecided then
    makes the verdict ``unknown``.  ``progress`` is called with (done, total).  A document of a
    lower level is planned and lowered first.

    ``recheck``: let cvc5 decide every question again, into the report's ledger
    (``ImportError`` without cvc5).  ``smt2``: a folder that the questions are written to, as
    SMT-LIB 2.  ``theorems``: discharge what instances of the theorems cover (a recheck never
    does); the verdict is the same without them.

    A check of a part (``only``, ``symbols``) has a report without a digest, from which no
    certificate for a run can be made.
    """
    from .verify.check import Options
    from .verify.check import check as check_program
    from .verify.encode import DEFAULT_EFFORT

    options = Options(
        effort=effort or DEFAULT_EFFORT, seconds=time_limit, only=tuple(only),
        symbols=dict(symbols or {}), progress=progress, theorems=theorems,
    )  # fmt: skip
    program = as_program(source)
    if recheck or smt2 is not None:
        report = _checked_twice(program, options, recheck, smt2)
    else:
        report = check_program(program, options)
    if only or symbols:
        report = replace(report, digest="")
    return suppress(report, ignore or {})


def minimize(
    source: Source, *, time_limit: float | None = None, effort: int | None = None
) -> Minimal:
    """Which waits of a proved schedule are needed, and the schedule without a largest set of
    those that are not, proved again.  Options as for :func:`check`; ``time_limit`` is for all."""
    from .verify.minimize import minimize_syncs

    return minimize_syncs(_lowered(source), _options(time_limit, effort))


def contracts(
    source: Source, *, time_limit: float | None = None, effort: int | None = None
) -> Contracts:
    """Under which copy contracts a proved schedule still holds.  Options as for
    :func:`minimize`."""
    from .verify.minimize import weakest_contracts

    return weakest_contracts(_lowered(source), _options(time_limit, effort))


def _lowered(source: Source) -> Schedule:
    from .model.plan.lower import lower

    return lower(as_schedule(source))


def _options(time_limit: float | None, effort: int | None) -> Options:
    from .verify.check import Options

    options = Options(seconds=time_limit)
    if effort is not None:
        options.effort = effort
    return options


def _checked_twice(
    program: Schedule, options: Options, again: bool, smt2: str | PathLike[str] | None
) -> Report:
    from .verify.recheck import Second, gather, recheck

    second = Second() if again else None  # fails before the work
    questions = gather(program, options)
    if smt2 is not None:
        folder = Path(smt2)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in questions.scripts():
            (folder / f"{name}.smt2").write_text(text, encoding="utf-8")
    return recheck(questions, second) if second is not None else questions.report


def run(
    source: Source,
    *,
    certificate: Certificate | None = None,
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    callbacks: Mapping[str, Any] | None = None,
    inputs: Mapping[tuple[str, int], Any] | None = None,
    watcher: Watcher | None = None,
) -> RunResult:
    """Execute the schedule's program with Numba, after a check unless a certificate is given.

    ``symbols``: a value for each symbol (default: its upper bound).  ``inputs``: arrays by
    (input, pass), of shape ``ne`` (innermost first); inputs that are not given, and all weights,
    are made from ``seed``.  ``callbacks``: functions by name, as for ``run_reference``.
    ``watcher``: a trace (``exec.trace.Trace``) or a sanitizer (``exec.monitor.Monitor``).  Raises
    ``CertificateError`` if the schedule is not proved, or is not the one that was.
    """
    from .exec.runtime import run as run_program
    from .exec.watch import NOBODY

    schedule = as_program(source)
    if certificate is None:
        certificate = certify(check(schedule))
    return run_program(
        schedule, certificate, symbols=symbols, seed=seed, callbacks=callbacks, inputs=inputs,
        watcher=watcher or NOBODY,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """What a replay showed for one finding.

    ``holds``: it is confirmed; ``None`` if it cannot be executed here.  ``executed``: the run of
    the counterexample (kind *value*).
    ``facts``: the rule evaluated on concrete values (kind *static*).  ``problem``: why it is not
    confirmed: an order that cannot happen (which the checker must never give), or an op that has
    no reference.
    """

    finding: Finding
    holds: bool | None
    executed: Replay | None = None
    facts: tuple[tuple[str, str | int], ...] = ()
    problem: str = ""


def replay(
    report: Report, schedule: Source, *, seed: int = 0, rules: Collection[str] = ()
) -> list[Shown]:
    """Execute the counterexamples of a report, by code that shares nothing with the checker.

    ``schedule``: the one that was checked.  ``rules``: only findings under these codes.
    Findings of kind *cost* are left out: they show no fault.
    """
    program = as_program(schedule)
    chosen = [
        f for f in report.findings if f.kind is not Kind.COST and (not rules or f.rule in rules)
    ]
    return [execute_finding(program, finding, seed) for finding in chosen]


def execute_finding(program: Schedule, finding: Finding, seed: int = 0) -> Shown:
    """One finding of a program shown again: executed, or its facts examined if it has no
    counterexample (kind *static*, and CE006: an id that is no expert has no meaning to execute)."""
    if finding.counterexample is not None:
        return _execute(program, finding, seed)
    from .exec.evidence import RULES, examine

    ranges = program.graph.ranges
    found = {n: v for n, v in finding.evidence if n in ranges and isinstance(v, int)}
    least = {name: low for name, (low, _) in ranges.items()} | found
    most = {name: high for name, (_, high) in ranges.items()} | found
    if finding.rule not in RULES:
        return Shown(finding, False, problem="the report has no counterexample for it")
    facts = examine(program, finding, most)
    if not facts.confirmed and least != most:
        facts = examine(program, finding, least)
    return Shown(finding, facts.confirmed, facts=facts.facts)


def _execute(program: Schedule, finding: Finding, seed: int) -> Shown:
    from .exec.functions import UnsupportedOp
    from .exec.interleave import IllegalOrder
    from .exec.replay import replay as execute

    assert finding.counterexample is not None
    try:
        executed = execute(program, finding.counterexample, seed=seed)
    except IllegalOrder as error:
        return Shown(finding, False, problem=f"its order cannot happen: {error}")
    except UnsupportedOp as error:
        return Shown(finding, None, problem=str(error))
    return Shown(finding, executed.reproduced, executed)


def explain(code: str) -> Rule:
    """The rule with that code or slug (``"PF001"``); ``KeyError`` names the nearest ones."""
    from difflib import get_close_matches

    from .verify.rules.table import RULES

    for rule in RULES.values():
        if code.upper() == rule.code or code.lower() == rule.slug:
            return rule
    near = get_close_matches(code.upper(), RULES, n=3, cutoff=0.5) or sorted(RULES)
    raise KeyError(f"there is no rule {code!r}; there are {', '.join(near)}")


def import_dump(source: str | PathLike[str] | Sequence[str]) -> list[Schedule]:
    """The graphs of a recorded ggml dump (JSON lines, also ``.gz``) with the recorded splits."""
    from .model.read.ggml_dump import read_dump

    return list(read_dump(source))


def import_log(
    source: str | PathLike[str] | bytes | Sequence[str], *, graph: int | None = None
) -> LogImport:
    """The graphs of a llama.cpp debug log, with a summary of what could not be read.

    ``graph``: the number of one graph; without it the last complete prompt and the last decode.
    """
    from .model.read.llama_log import read_log

    return read_log(source, graph=graph)
