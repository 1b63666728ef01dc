"""A proof before a run: the certificate, or the report of what is wrong."""

from __future__ import annotations

import sys

import click

from .api import check as check_schedule
from .model.certificate import Certificate, certify
from .model.codec import report_to_dict
from .model.report import Verdict
from .model.schedule import Schedule
from .output import emit, emit_json, progress
from .suppress import exit_code
from .text import render, report_items


def prove(
    file: str,
    schedule: Schedule,
    time_limit: float | None,
    form: str,
    quiet: bool,
) -> Certificate:
    """The certificate of a check; if it is no proof, show the report and leave."""
    with progress(f"checking {file}", quiet) as step:
        report = check_schedule(schedule, time_limit=time_limit, progress=step)
    if report.verdict is Verdict.PROVED:
        return certify(report)
    if form == "json":
        emit_json(report_to_dict(report, schedule))
    else:
        from .verify.rules.table import RULES

        items = report_items(report, schedule, source=file, rules=RULES, quiet=quiet)
        emit(render([*items, "", "Not proved, so not run."], sys.stdout))
    raise click.exceptions.Exit(exit_code(report) or 1)
