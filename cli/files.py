"""Documents and reports from files, with errors of one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from .model.certificate import Certificate
from .model.codec import load_certificate, report_from_dict
from .model.document import DocumentError, load, loads
from .model.plan.lower import lower
from .model.plan.planner import plan
from .model.report import Report
from .model.schedule import Schedule
from .output import CliError, read_input


def read_schedule(path: str) -> Schedule:
    """The program-level schedule of a file (``-``: standard input); a graph is planned first."""
    try:
        schedule = loads(read_input(path)) if path == "-" else load(path)
    except DocumentError as error:
        raise CliError(str(error)) from None
    try:
        return lower(plan(schedule))
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None


def read_json(path: str, what: str) -> Any:
    """A JSON value; ``what`` was due."""
    data = read_input(path)
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise CliError(
            f"{path}:{error.lineno}:{error.colno}: not JSON ({error.msg}); {what} was due"
        ) from None
    except (UnicodeDecodeError, OSError, EOFError, RecursionError) as error:
        raise CliError(f"{path}: not JSON ({type(error).__name__}); {what} was due") from None


def read_reports(path: str) -> list[tuple[Report, Schedule]]:
    """The reports in a file that ``check --format json`` wrote: one, or a list of them."""
    value = read_json(path, "a report of 'splitproof check --format json'")
    entries = value if isinstance(value, list) else [value]
    reports = []
    for index, entry in enumerate(entries):
        where = f"{path}: $[{index}]" if isinstance(value, list) else path
        if isinstance(entry, dict) and "error" in entry:
            raise CliError(f"{where}: the file could not be checked: {entry['error']}")
        try:
            reports.append(report_from_dict(entry, where))
        except DocumentError as error:
            raise CliError(str(error)) from None
    return reports


def read_certificate(path: str) -> Certificate:
    """A certificate that ``check --certificate`` wrote."""
    try:
        return load_certificate(path)
    except DocumentError as error:
        raise CliError(str(error)) from None


def writable(path: str) -> None:
    """Fail before the work, not after it, if ``path`` cannot be written."""
    parent = Path(path).parent
    if not parent.is_dir():
        raise CliError(f"{path}: there is no directory {parent}")
    if Path(path).is_dir():
        raise CliError(f"{path}: is a directory")
