"""``splitproof check``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..api import check as check_schedule
from ..brief import brief_lines, plain
from ..checked import Checked
from ..files import Document, read_document, read_reports, read_schedule, writable
from ..model.certificate import certify
from ..model.codec import certificate_to_dict, report_to_dict
from ..model.document import dumps
from ..model.report import Rule, Verdict
from ..model.schedule import Schedule
from ..options import (
    EFFORTS,
    FORMATS,
    Ignored,
    RuleCode,
    SymbolRange,
    check_format_option,
    effort_option,
    option,
    quiet_option,
    time_limit_option,
)
from ..output import CliError, emit, emit_json, error_line, progress, reason, write_file
from ..suppress import exit_code, known_findings, suppress, worst

if TYPE_CHECKING:
    from ..minimized import Minimized
    from ..model.minimal import Minimal


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@check_format_option
@option(
    "--symbol",
    "symbols",
    type=SymbolRange(),
    multiple=True,
    help="Check a part of a symbol's range only: n_tokens=1..8.  Repeatable.",
)
@option(
    "--rule",
    "only",
    type=RuleCode(),
    multiple=True,
    help="Check this rule only.  Repeatable.",
)
@option(
    "--ignore",
    type=Ignored(),
    multiple=True,
    help='Findings under this rule do not count; the reason, as in BK001="why", is reported.',
)
@option(
    "--baseline",
    type=click.Path(),
    metavar="REPORT",
    help="Findings that this earlier JSON report has (rule and message) do not count.",
)
@time_limit_option
@effort_option
@option(
    "--recheck",
    is_flag=True,
    help="Let a second solver, cvc5, decide every question again; exit 4 if it disagrees.",
)
@click.option(
    "--smt2",
    type=click.Path(),
    metavar="DIR",
    help="Write every question as SMT-LIB 2 into this folder (one FILE).",
)
@click.option(
    "--no-theorems",
    "theorems",
    flag_value=False,
    default=True,
    help="Decide by itself what an instance of a theorem would discharge.",
)
@option("--strict-cost", is_flag=True, help="Findings of kind cost fail the check.")
@click.option(
    "--certificate",
    "certificate_path",
    type=click.Path(),
    metavar="OUT",
    help="Write the certificate that 'run --certificate' takes (one FILE, all of it).",
)
@option(
    "--syncs",
    is_flag=True,
    help="Prove of each wait that it is needed or redundant, and find the fewest that do.",
)
@option("--contract", is_flag=True, help="Try every copy contract in the place of each declared.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OUT",
    help="With --syncs: write the document without the waits that can go (one FILE).",
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="TRACE",
    help="Hold what 'run --trace' recorded against the order that is proved (one FILE).",
)
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    form: str,
    symbols: tuple[tuple[str, int, int], ...],
    only: tuple[str, ...],
    ignore: tuple[tuple[str, str], ...],
    baseline: str | None,
    time_limit: float | None,
    effort: str,
    recheck: bool,
    smt2: str | None,
    theorems: bool,
    strict_cost: bool,
    certificate_path: str | None,
    syncs: bool,
    contract: bool,
    output: str | None,
    trace: str | None,
    quiet: bool,
) -> None:
    """Prove each schedule right, or show how it goes wrong.

    FILE is a document of any level; - is standard input.  A graph is planned first, and where
    its plan hangs on a symbol each part of the range is planned and proved for itself.  With
    --format json there is one report, or a list of them in order where there are several; with
    --format sarif there is one log for all.
    """
    from ..verify.rules.table import RULES

    _require_known((*only, *(code for code, _ in ignore)), RULES)
    if certificate_path is not None:
        if len(files) != 1 or symbols or only or syncs or contract:
            raise click.UsageError(
                "a certificate is for one whole document: --certificate takes one FILE, "
                "without --symbol, --rule, --syncs and --contract"
            )
        writable(certificate_path)
    _require_whole(files, bool(symbols or only), syncs or contract, output, syncs)
    if trace is not None:
        if len(files) != 1 or symbols or only or syncs or contract or form not in FORMATS:
            raise click.UsageError(
                "--trace takes one whole FILE, as text or json: without --symbol, --rule, --syncs "
                "and --contract"
            )
        from ..traced import check_trace

        ctx.exit(check_trace(trace, files[0], time_limit, form, quiet))
    if smt2 is not None and len(files) != 1:
        raise click.UsageError("--smt2 takes one FILE")
    known = known_findings(r for r, _ in read_reports(baseline)) if baseline else frozenset()

    if syncs or contract:
        from ..minimized import minimized

        one = partial(
            minimized, syncs=syncs, contracts=contract, time_limit=time_limit,
            ignore=dict(ignore), known=known, baseline=baseline or "",
        )  # fmt: skip
        ctx.exit(_check_many_times(files, form, one, output, quiet, strict_cost))

    def judge(path: str) -> Iterator[Checked]:
        document = read_document(path)
        ranges = _ranges(path, document.schedule, symbols)
        _require_one_plan(path, document, certificate_path, smt2)
        for part, schedule in document.programs:
            clipped = _clipped(ranges, schedule)
            if clipped is None:
                continue
            with progress(f"checking {path}", quiet) as step, _one_line():
                report = check_schedule(
                    schedule, only=only, symbols=clipped, time_limit=time_limit, progress=step,
                    effort=EFFORTS[effort], recheck=recheck, smt2=smt2, theorems=theorems,
                )  # fmt: skip
            report = suppress(report, dict(ignore), known, baseline or "")
            yield Checked(path, document.text, schedule, report, part=part)

    codes: list[int] = []
    checked: list[Checked] = []
    for path in files:
        found: list[Checked] = []
        try:
            found += judge(path)
        except CliError as error:
            error_line(error.format_message())
            codes.append(error.exit_code)
            found.append(Checked(path, error=error.format_message()))
        for file in found:
            if file.report is not None:
                codes.append(exit_code(file.report, strict_cost))
                if certificate_path is not None:
                    text = json.dumps(certificate_to_dict(certify(file.report)), indent=2)
                    write_file(certificate_path, text + "\n")
            if form == "text":
                _print(file, RULES, quiet, strict_cost, first=not checked)
            elif form == "github":
                _annotate(file, RULES, strict_cost)
            checked.append(file)
        if form == "text" and len(found) > 1 and not any(file.error for file in found):
            emit(("" if quiet else "\n") + _joined(path, found))
    if form == "json":
        entries = [_entry(file) for file in checked]
        emit_json(entries if len(entries) > 1 or len(files) > 1 else entries[0])
    elif form == "sarif":
        from ..sarif import sarif_log

        code = worst(codes)
        emit_json(sarif_log(checked, RULES, exit_code=code, strict_cost=strict_cost))
    ctx.exit(worst(codes))


def _check_many_times(
    files: tuple[str, ...],
    form: str,
    one: Callable[[Schedule], Minimized],
    output: str | None,
    quiet: bool,
    strict_cost: bool,
) -> int:
    """The check with waits left out, or with other contracts, file by file; the exit code."""
    from ..minimized import minimized_text, minimized_to_dict
    from ..verify.rules.table import RULES

    if form not in ("text", "json"):
        raise click.UsageError("--syncs and --contract are shown as text or json")
    codes: list[int] = []
    entries: list[Any] = []
    for path in files:
        try:
            schedule = read_schedule(path)
            with progress(f"checking {path} many times", quiet):
                result = one(schedule)
        except CliError as error:
            error_line(error.format_message())
            codes.append(error.exit_code)
            entries.append({"source": path, "error": error.format_message()})
            continue
        codes.append(result.code(strict_cost))
        entries.append(minimized_to_dict(result))
        if form == "text":
            text = minimized_text(result, path, RULES, quiet, strict_cost)
            emit(text if path == files[0] or quiet else "\n" + text)
        if output is not None and result.syncs is not None:
            _write_reduced(output, result.syncs)
    if form == "json":
        emit_json(entries if len(files) > 1 else entries[0])
    return worst(codes)


def _require_whole(
    files: tuple[str, ...], part: bool, many: bool, output: str | None, syncs: bool
) -> None:
    if many and part:
        raise click.UsageError(
            "--syncs and --contract are about the whole document: without --symbol and --rule"
        )
    if output is None:
        return
    if not syncs or len(files) != 1:
        raise click.UsageError("--output takes the reduced document of --syncs, for one FILE")
    if output != "-":
        writable(output)


def _write_reduced(path: str, found: Minimal) -> None:
    if found.reduced is None:
        error_line(f"{path}: not written: a schedule that is not proved is not reduced")
    else:
        write_file(path, dumps(found.reduced))


def _require_one_plan(
    path: str, document: Document, certificate: str | None, smt2: str | None
) -> None:
    if len(document.programs) > 1 and (certificate is not None or smt2 is not None):
        raise CliError(
            f"{path}: needs {len(document.programs)} plans, and --certificate and --smt2 are about "
            f"one; write them with 'splitproof plan {path} -o OUT'"
        )


def _clipped(
    ranges: dict[str, tuple[int, int]], schedule: Schedule
) -> dict[str, tuple[int, int]] | None:
    """The ranges within those of one plan; ``None`` if it has no value of them."""
    there = schedule.graph.ranges
    found = {n: (max(a, there[n][0]), min(b, there[n][1])) for n, (a, b) in ranges.items()}
    return None if any(low > high for low, high in found.values()) else found


def _joined(path: str, parts: list[Checked]) -> str:
    """The verdict of a file that needed several plans, and that of each."""
    verdicts = [part.report.verdict for part in parts if part.report is not None]
    order = Verdict.VIOLATED, Verdict.UNSUPPORTED, Verdict.UNKNOWN, Verdict.PROVED
    worst_one = next(verdict for verdict in order if verdict in verdicts)
    told = (f"{part.report.verdict} for {part.part}" for part in parts if part.report is not None)
    return f"{worst_one.value.upper()}  {path}: {', '.join(told)}"


def _require_known(codes: tuple[str, ...], rules: dict[str, Rule]) -> None:
    for code in codes:
        if code not in rules:
            near = get_close_matches(code, rules, n=3, cutoff=0.5) or sorted(rules)
            raise click.UsageError(f"there is no rule {code}; there are {', '.join(near)}")


def _ranges(
    path: str, schedule: Schedule, symbols: tuple[tuple[str, int, int], ...]
) -> dict[str, tuple[int, int]]:
    declared = schedule.graph.ranges
    ranges = {}
    for name, low, high in symbols:
        if name not in declared:
            there = ", ".join(declared) or "none"
            raise CliError(f"{path}: --symbol {name}: no such symbol; there are: {there}")
        least, most = declared[name]
        if low < least or high > most:
            raise CliError(f"{path}: --symbol {name}={low}..{high}: outside of {least}..{most}")
        ranges[name] = (low, high)
    return ranges


@contextmanager
def _one_line() -> Iterator[None]:
    """What may go wrong around a second solver, as one line."""
    try:
        yield
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise CliError(reason(error)) from None


def _entry(file: Checked) -> dict[str, Any]:
    if file.report is None or file.schedule is None:
        return {"source": file.source, "error": file.error}
    return report_to_dict(file.report, file.schedule)


def _annotate(file: Checked, rules: dict[str, Rule], strict_cost: bool) -> None:
    from ..github import workflow_commands

    emit("\n".join(workflow_commands(file, rules, strict_cost=strict_cost)))


def _print(
    file: Checked, rules: dict[str, Rule], quiet: bool, strict_cost: bool, first: bool
) -> None:
    if file.report is None or file.schedule is None:
        return  # told on standard error
    if quiet and not sys.stdout.isatty():
        lines = brief_lines(file.report, file.title, rules, strict_cost)
        emit("\n".join(plain(line) for line in lines))
        return
    from ..text import render, report_items

    items = report_items(
        file.report, file.schedule, source=file.title, rules=rules, quiet=quiet,
        strict_cost=strict_cost,
    )  # fmt: skip
    text = render(list(items), sys.stdout)
    emit(text if first or quiet else "\n" + text)
