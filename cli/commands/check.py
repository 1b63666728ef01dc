"""``splitproof check``."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Any

import click

from ..api import check as check_schedule
from ..files import read_reports, read_schedule, writable
from ..minimized import minimized, minimized_text, minimized_to_dict
from ..model.certificate import certify
from ..model.codec import certificate_to_dict, report_to_dict
from ..model.document import dumps
from ..model.minimal import Minimal
from ..model.report import Report, Rule
from ..model.schedule import Schedule
from ..options import (
    Ignored,
    RuleCode,
    SymbolRange,
    format_option,
    option,
    quiet_option,
    time_limit_option,
)
from ..output import CliError, emit, emit_json, error_line, progress, write_file
from ..suppress import exit_code, known_findings, suppress, worst
from ..text import render, report_items


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@format_option
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
    strict_cost: bool,
    certificate_path: str | None,
    syncs: bool,
    contract: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Prove each schedule right, or show how it goes wrong.

    FILE is a document of the split or the program level; - is standard input.  With
    --format json, one FILE gives a report, several give a list of them in the same order.
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
    known = known_findings(r for r, _ in read_reports(baseline)) if baseline else frozenset()

    codes: list[int] = []
    entries: list[Any] = []
    for path in files:
        try:
            schedule = read_schedule(path)
            if syncs or contract:
                with progress(f"checking {path} many times", quiet):
                    result = minimized(
                        schedule, syncs=syncs, contracts=contract, time_limit=time_limit,
                        ignore=dict(ignore), known=known, baseline=baseline or "",
                    )  # fmt: skip
                codes.append(result.code(strict_cost))
                if form == "json":
                    entries.append(minimized_to_dict(result))
                else:
                    text = minimized_text(result, path, RULES, quiet, strict_cost)
                    emit(text if path == files[0] or quiet else "\n" + text)
                if output is not None and result.syncs is not None:
                    _write_reduced(output, result.syncs)
                continue
            report = _check(path, schedule, symbols, only, time_limit, quiet)
        except CliError as error:
            error_line(error.format_message())
            codes.append(error.exit_code)
            entries.append({"source": path, "error": error.format_message()})
            continue
        report = suppress(report, dict(ignore), known, baseline or "")
        codes.append(exit_code(report, strict_cost))
        if form == "json":
            entries.append(report_to_dict(report, schedule))
        else:
            _print(report, schedule, path, RULES, quiet, strict_cost, first=path == files[0])
        if certificate_path is not None:
            text = json.dumps(certificate_to_dict(certify(report)), indent=2)
            write_file(certificate_path, text + "\n")
    if form == "json":
        emit_json(entries if len(files) > 1 else entries[0])
    ctx.exit(worst(codes))


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


def _require_known(codes: tuple[str, ...], rules: dict[str, Rule]) -> None:
    for code in codes:
        if code not in rules:
            near = get_close_matches(code, rules, n=3, cutoff=0.5) or sorted(rules)
            raise click.UsageError(f"there is no rule {code}; there are {', '.join(near)}")


def _check(
    path: str,
    schedule: Schedule,
    symbols: tuple[tuple[str, int, int], ...],
    only: tuple[str, ...],
    time_limit: float | None,
    quiet: bool,
) -> Report:
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
    with progress(f"checking {path}", quiet) as step:
        return check_schedule(
            schedule, only=only, symbols=ranges, time_limit=time_limit, progress=step
        )


def _print(
    report: Report,
    schedule: Schedule,
    path: str,
    rules: dict[str, Rule],
    quiet: bool,
    strict_cost: bool,
    first: bool,
) -> None:
    import sys

    items = report_items(
        report, schedule, source=path, rules=rules, quiet=quiet, strict_cost=strict_cost
    )
    text = render(list(items), sys.stdout)
    emit(text if first or quiet else "\n" + text)
