"""Reports as SARIF 2.1.0 (OASIS Standard, errata 01), which code hosts and editors show.

One run for all files.  A counterexample is a code flow with a thread flow a queue; the
``executionOrder`` of its moments, counted over all queues, is the interleaving.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import __version__
from .checked import Checked
from .model.counterexample import Counterexample, Party, Step
from .model.describe import command_text
from .model.report import Finding, Gap, Kind, Report, Rule, Verdict
from .model.schedule import Schedule
from .places import Locator
from .rule_page import rule_page
from .timeline import queue_of_step, role_of

Object = dict[str, Any]

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
#: Moments of one counterexample that are written; code hosts show about as many.
MOST_MOMENTS = 1000
#: Descriptors of notifications, by id.
_NOTIFICATIONS = {
    "not-checked": "A file could not be read or checked",
    Verdict.UNKNOWN.value: "Something was not decided within the limits of effort",
    Verdict.UNSUPPORTED.value: "The document has a construct that the checker does not know",
}
_NOTIFICATION_INDEX = {name: index for index, name in enumerate(_NOTIFICATIONS)}


def sarif_log(
    files: Sequence[Checked],
    rules: Mapping[str, Rule],
    *,
    exit_code: int = 0,
    strict_cost: bool = False,
) -> Object:
    """The log of one check.  ``rules``: the rule table, all of which is described."""
    index = {code: number for number, code in enumerate(rules)}
    results, notes, broken = [], [], []
    for file in files:
        if file.report is None or file.schedule is None:
            broken.append(_notification("not-checked", file.error, "error", _at(file.source)))
            continue
        writer = _File(file, file.schedule, Locator(file.text, file.schedule))
        results += [writer.result(f, index, strict_cost) for f in file.report.findings]
        notes += [writer.gap(gap) for gap in file.report.gaps]
    run = {
        "tool": {"driver": _driver(rules)},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": exit_code not in (2, 4),
                "exitCode": exit_code,
                "toolExecutionNotifications": notes,
                "toolConfigurationNotifications": broken,
            }
        ],
        "artifacts": [_artifact(file) for file in files],
        "results": results,
        "properties": {"verdicts": [_verdict(file) for file in files]},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _driver(rules: Mapping[str, Rule]) -> Object:
    return {
        "name": "splitproof",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_descriptor(rule) for rule in rules.values()],
        "notifications": [
            {"id": name, "shortDescription": _text(words)} for name, words in _NOTIFICATIONS.items()
        ],
    }


def _descriptor(rule: Rule) -> Object:
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.slug.split("-")),
        "shortDescription": _text(rule.summary),
        "fullDescription": _text(rule.summary),
        "help": {"text": f"{rule.summary}. {rule.hint}.", "markdown": rule_page(rule.code)},
        "defaultConfiguration": {"level": _level(rule.kind, False)},
        "properties": {"kind": rule.kind.value, "tags": [rule.slug, rule.kind.value]},
    }


def _level(kind: Kind, strict_cost: bool) -> str:
    if kind is not Kind.COST:
        return "error"
    return "warning" if strict_cost else "note"


class _File:
    """What is written about one file."""

    def __init__(self, file: Checked, schedule: Schedule, places: Locator) -> None:
        self.file, self.schedule, self.places = file, schedule, places

    def result(self, finding: Finding, index: Mapping[str, int], strict_cost: bool) -> Object:
        found: Object = {
            "ruleId": finding.rule,
            "kind": "fail",
            "level": _level(finding.kind, strict_cost),
            "message": _text(_message(finding)),
            "locations": [self._path(finding.place)],
            "partialFingerprints": {"ruleAndMessage/v1": _fingerprint(finding)},
            "properties": _properties(finding),
        }
        if finding.rule in index:
            found["ruleIndex"] = index[finding.rule]
        example = finding.counterexample
        if example is not None:
            if example.writer is not None and example.writer.command is not None:
                found["relatedLocations"] = [self._party(example.writer)]
            if example.order:
                found["codeFlows"] = [self._flow(example)]
        if finding.suppressed is not None:
            found["suppressions"] = [
                {"kind": "external", "status": "accepted", "justification": finding.suppressed}
            ]
        return found

    def gap(self, gap: Gap) -> Object:
        return _notification(gap.verdict.value, gap.reason, "warning", self._path(gap.place))

    # -- where ------------------------------------------------------------------------------------

    def _path(self, path: str) -> Object:
        return _at(self.file.source, self.places.path(path), path)

    def _command(self, index: int) -> Object:
        return _at(self.file.source, self.places.command(index), f"$.program[{index}]")

    def _party(self, party: Party) -> Object:
        assert party.command is not None
        return {"id": 1, **self._command(party.command), "message": _text(party.text)}

    # -- in which order ---------------------------------------------------------------------------

    def _flow(self, example: Counterexample) -> Object:
        """Thread flows in the order in which their queues first act."""
        moments = list(enumerate(example.order, 1))
        first, last = _window(example)
        flows: dict[str, list[Object]] = {}
        for number, step in moments[first:last]:
            queue = queue_of_step(self.schedule, step)
            flows.setdefault(queue, []).append(self._moment(example, step, number))
        start = {name: _text(str(value)) for name, value in example.symbols}
        words = f"Due: {example.due}."
        if last - first < len(moments):
            words += f" Moments {first + 1} to {last} of {len(moments)} are shown."
        return {
            "message": _text(words),
            "threadFlows": [
                {
                    "id": queue, "message": _text(queue), "immutableState": start,
                    "locations": locations,
                }
                for queue, locations in flows.items()
            ],
        }  # fmt: skip

    def _moment(self, example: Counterexample, step: Step, number: int) -> Object:
        program = self.schedule.program or ()
        words = f"{command_text(program[step.command])} {step.phase}s"
        if step.part != "main":
            words += f" ({'host part' if step.part == 'read' else 'transfer'})"
        if step.iteration:
            words += f", pass {step.iteration}"
        role = role_of(example, step)
        if role:
            words += f" ({role})"
        return {
            "location": {**self._command(step.command), "message": _text(words)},
            "executionOrder": number,
            "importance": "essential" if role else "important",
        }


def _window(example: Counterexample) -> tuple[int, int]:
    """The moments that are written: all, or those up to the last party's if there are many."""
    count = len(example.order)
    if count <= MOST_MOMENTS:
        return 0, count
    acting = [i for i, step in enumerate(example.order) if role_of(example, step)]
    last = min(count, (acting[-1] if acting else 0) + MOST_MOMENTS // 10)
    return max(0, last - MOST_MOMENTS), max(last, MOST_MOMENTS)


def _at(source: str, place: tuple[int, int] | None = None, path: str = "") -> Object:
    physical: Object = {"artifactLocation": {"uri": uri(source)}}
    if place is not None:
        physical["region"] = {"startLine": place[0], "startColumn": place[1]}
    found: Object = {"physicalLocation": physical}
    if path:
        found["logicalLocations"] = [{"fullyQualifiedName": path, "kind": "member"}]
    return found


def uri(source: str) -> str:
    """A file's name as a URI reference: relative ones stay so, for the host to resolve."""
    if source == "-":
        return "stdin"
    path = Path(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _artifact(file: Checked) -> Object:
    data = file.text.encode("utf-8", "surrogatepass")
    found: Object = {"location": {"uri": uri(file.source)}, "mimeType": "application/json"}
    if file.text:
        found |= {
            "length": len(data), "encoding": "utf-8",
            "hashes": {"sha-256": hashlib.sha256(data).hexdigest()},
        }  # fmt: skip
    return found


def _verdict(file: Checked) -> Object:
    if file.report is None:
        return {"source": file.title, "error": file.error}
    report: Report = file.report
    return {
        "source": file.title, "verdict": report.verdict.value, "digest": report.digest,
        "obligations": report.obligations, "passes": report.passes,
        "assumptions": list(report.assumptions),
    }  # fmt: skip


def _message(finding: Finding) -> str:
    example = finding.counterexample
    parts = [finding.message]
    if example is not None and example.missing:
        parts.append(example.missing)
    return _sentences(parts)


def _sentences(parts: Iterable[str]) -> str:
    return " ".join(part if part.endswith((".", "!", "?")) else f"{part}." for part in parts)


def _properties(finding: Finding) -> Object:
    found: Object = {"also": list(finding.also), "evidence": dict(finding.evidence)}
    example = finding.counterexample
    if example is not None:
        found |= {
            "symbols": dict(example.symbols),
            "ids": [{"tensor": t, "pass": i, "values": list(v)} for t, i, v in example.integers],
            "banks": [{"group": g, "content": [list(c) for c in s]} for g, s in example.banks],
            "missing": example.missing, "unique": example.unique,
        }  # fmt: skip
    return found


def _fingerprint(finding: Finding) -> str:
    """Known again after an edit elsewhere in the file: as a baseline knows a finding."""
    return hashlib.sha256(f"{finding.rule}\n{finding.message}".encode()).hexdigest()


def _notification(name: str, words: str, level: str, location: Object) -> Object:
    return {
        "descriptor": {"id": name, "index": _NOTIFICATION_INDEX[name]},
        "level": level,
        "message": _text(words),
        "locations": [location],
    }


def _text(words: str) -> dict[str, str]:
    return {"text": words}
