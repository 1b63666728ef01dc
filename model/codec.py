"""Reports, certificates and counterexamples as JSON, and strictly back.

A report embeds its document, so that it can be replayed without a second file.  What does not
have the form of one raises ``DocumentError`` with its place, as a document does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from .certificate import Certificate
from .counterexample import Counterexample
from .document import DocumentError, digest, read_value, to_dict
from .fault import Fault, Path, quote
from .form_fault import find_fault
from .json_place import decode, parse, placed, read_text, without_comments
from .report import Report
from .schedule import Schedule

__all__ = [
    "CERTIFICATE", "REPORT", "DocumentError", "certificate_from_dict", "certificate_to_dict",
    "counterexample_from_dict", "counterexample_to_dict", "dumps", "load_certificate",
    "load_report", "loads_report", "report_from_dict", "report_to_dict",
]  # fmt: skip

REPORT = "splitproof-report/1"
CERTIFICATE = "splitproof-certificate/1"

Plain = TypeVar("Plain", Report, Certificate, Counterexample)


# -- reports ----------------------------------------------------------------------------------


def report_to_dict(report: Report, schedule: Schedule) -> dict[str, Any]:
    """The report with the document of the schedule that it is about."""
    return {"format": REPORT, **msgspec.to_builtins(report), "document": to_dict(schedule)}


def report_from_dict(value: Mapping[str, Any], source: str = "<report>") -> tuple[Report, Schedule]:
    """The report and its schedule; ``DocumentError`` if the one is not about the other."""
    with placed(None, source):
        return _report(without_comments(value))


def loads_report(data: bytes | str, source: str = "<stdin>") -> tuple[Report, Schedule]:
    """As :func:`report_from_dict`, from a JSON text; errors have line and column."""
    text = data if isinstance(data, str) else decode(data, source)
    with placed(text, source):
        return _report(parse(text, source))


def load_report(source: str | os.PathLike[str]) -> tuple[Report, Schedule]:
    """As :func:`loads_report`, from a file."""
    return loads_report(read_text(source), os.fspath(source))


def _report(value: Any) -> tuple[Report, Schedule]:
    entries = _entries(value, REPORT)
    if "document" not in entries:
        raise Fault((), 'the key "document" is missing')
    document = entries.pop("document")
    report = _plain(entries, Report, ())
    try:
        schedule = read_value(document)
    except Fault as fault:
        path = ("document", *fault.path)
        raise Fault(path, fault.message, at_key=fault.at_key) from None
    if report.digest and report.digest != digest(schedule):
        raise Fault(("digest",), "the report is about another document than the one it holds")
    _check_steps(report, schedule)
    return report, schedule


def _check_steps(report: Report, schedule: Schedule) -> None:
    """The steps of each counterexample are of commands and passes that exist."""
    count = len(schedule.program) if schedule.program is not None else None
    for i, finding in enumerate(report.findings):
        steps = finding.counterexample.order if finding.counterexample is not None else ()
        for j, step in enumerate(steps):
            at: Path = ("findings", i, "counterexample", "order", j)
            if step.command < 0 or (count is not None and step.command >= count):
                raise Fault((*at, "command"), f"there is no command {step.command}")
            if not 0 <= step.iteration < schedule.repeat:
                raise Fault((*at, "iteration"), f"there is no pass {step.iteration}")


# -- certificates and counterexamples -----------------------------------------------------------


def certificate_to_dict(certificate: Certificate) -> dict[str, Any]:
    return {"format": CERTIFICATE, **msgspec.to_builtins(certificate)}


def certificate_from_dict(value: Mapping[str, Any], source: str = "<certificate>") -> Certificate:
    with placed(None, source):
        return _plain(_entries(value, CERTIFICATE), Certificate, ())


def load_certificate(source: str | os.PathLike[str]) -> Certificate:
    """The certificate in a file; errors have line and column."""
    text, name = read_text(source), os.fspath(source)
    with placed(text, name):
        return _plain(_entries(parse(text, name), CERTIFICATE), Certificate, ())


def counterexample_to_dict(counterexample: Counterexample) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(counterexample)
    return found


def counterexample_from_dict(
    value: Mapping[str, Any], source: str = "<counterexample>"
) -> Counterexample:
    with placed(None, source):
        return _plain(value, Counterexample, ())


def dumps(value: Mapping[str, Any]) -> str:
    """JSON text of any of these; a line feed ends it."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# -- both -------------------------------------------------------------------------------------


def _entries(value: Any, due: str) -> dict[str, Any]:
    """The keys of an object of a format, without the key that names the format."""
    if not isinstance(value, Mapping):
        raise Fault((), f'an object with "format": {quote(due)} was due')
    found = value.get("format")
    if found != due:
        if found is None:
            raise Fault((), f'the key "format" is missing; {quote(due)} was due')
        shown = quote(found) if isinstance(found, str) else "no string"
        raise Fault(("format",), f"found {shown}; {quote(due)} was due")
    return {key: item for key, item in value.items() if key != "format"}


def _plain(value: Any, kind: type[Plain], path: Path) -> Plain:
    find_fault(value, kind, path)  # first: msgspec takes unknown keys of a dataclass
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Fault(path, str(error)) from None
