"""Documents and reports from files, with errors of one line."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .api import programs
from .model.certificate import Certificate
from .model.codec import load_certificate, report_from_dict
from .model.document import DocumentError, loads
from .model.json_place import decode, read_text
from .model.report import Report
from .model.schedule import Schedule
from .output import CliError, read_input


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds: its text, its schedule, and the programs that it means, each with the
    part of the symbols' ranges that it is for (``""``: all of them)."""

    text: str
    schedule: Schedule
    programs: tuple[tuple[str, Schedule], ...]


def read_document(path: str) -> Document:
    """A file (``-``: standard input) with its program.

    A graph is planned first, and has a program for each part of its symbols' ranges in which the
    planner's decisions are the same.
    """
    try:
        if path == "-":
            source = "<stdin>"
            text = decode(read_input(path), source)
        else:
            source, text = path, read_text(path)
        schedule = loads(text, source)
    except DocumentError as error:
        raise CliError(str(error)) from None
    try:
        return Document(text, schedule, programs(schedule))
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None


def read_schedule(path: str) -> Schedule:
    """The one program of a file; an error if its graph needs several."""
    found = read_document(path)
    if len(found.programs) > 1:
        parts = "; ".join(part for part, _ in found.programs)
        raise CliError(
            f"{path}: needs a plan for each of {parts}; write them with 'splitproof plan {path} "
            "-o OUT', or plan for one value with --at"
        )
    return found.programs[0][1]


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
    except ValueError:  # an integer of more digits than Python converts
        raise CliError(f"{path}: an integer has thousands of digits; {what} was due") from None


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
    if path == "-":
        raise CliError("-: a file was due; standard output carries the report")
    parent = Path(path).parent
    if not parent.is_dir():
        raise CliError(f"{path}: there is no directory {parent}")
    if Path(path).is_dir():
        raise CliError(f"{path}: is a directory")
    if not os.access(path if Path(path).exists() else parent, os.W_OK):
        raise CliError(f"{path}: Permission denied")


def apart(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Fail if two outputs are one file, or one is a file that is read."""
    taken = {Path(path).resolve(): "is read" for path in inputs if path not in (None, "-")}
    for path in outputs:
        if path is None or (Path(path).exists() and not Path(path).is_file()):
            continue  # a device, such as /dev/null, takes everything
        place = Path(path).resolve()
        if place in taken:
            raise CliError(f"{path}: is to be written, and {taken[place]}; name another file")
        taken[place] = "written by another option"
