"""What ``check --syncs`` and ``check --contract`` say: waits that can go, contracts that hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .api import contracts as weakest_contracts
from .api import execute_finding
from .api import minimize as minimize_syncs
from .model.codec import report_to_dict
from .model.document import to_dict
from .model.minimal import Contracts, Minimal, Need, SyncTrial
from .model.report import Finding, Report, Rule, Verdict
from .model.schedule import Schedule
from .suppress import Known, exit_code, suppress
from .text import render, report_items
from .words import count

FORMAT = "splitproof-minimal/1"
_STYLE = {Need.NEEDED: "", Need.REDUNDANT: "yellow", Need.UNDECIDED: "bold yellow"}
_WORDS = {True: "shown by execution", False: "NOT REPRODUCED", None: "not executed"}
#: What is known of the size of the set that is left out.
_SIZE = {
    "maximum": "a maximum: no larger set of them can go",
    "maximal": "maximal: none of the others can go as well; a larger set was not ruled out",
    "proved": "proved; not every check of the search was decided, so more may be able to go",
}


@dataclass(frozen=True, slots=True)
class Minimized:
    """The results for one file.  ``confirmed``: by ``id`` of a finding, whether its execution
    went wrong as it says (``None``: an op that has no reference)."""

    schedule: Schedule
    syncs: Minimal | None
    contracts: Contracts | None
    confirmed: Mapping[int, bool | None]

    @property
    def report(self) -> Report:
        found = self.syncs or self.contracts
        assert found is not None
        return found.report

    def code(self, strict_cost: bool) -> int:
        """As for ``check``; 4 if a counterexample does not reproduce, 3 if a wait is open."""
        if any(holds is False for holds in self.confirmed.values()):
            return 4
        code = exit_code(self.report, strict_cost)
        opened = self.syncs is not None and any(
            trial.need is Need.UNDECIDED for trial in self.syncs.trials
        )
        return 3 if code == 0 and opened else code


def minimized(
    schedule: Schedule,
    *,
    syncs: bool,
    contracts: bool,
    time_limit: float | None,
    ignore: Mapping[str, str],
    known: Known,
    baseline: str,
) -> Minimized:
    """Try what was asked for, and execute each counterexample that comes of it."""
    fewest = minimize_syncs(schedule, time_limit=time_limit) if syncs else None
    weakest = weakest_contracts(schedule, time_limit=time_limit) if contracts else None
    confirmed: dict[int, bool | None] = {}
    for without, finding in _failures(fewest, weakest):
        confirmed[id(finding)] = execute_finding(without, finding).holds
    if fewest is not None:
        fewest = replace(fewest, report=suppress(fewest.report, ignore, known, baseline))
    if weakest is not None:
        weakest = replace(weakest, report=suppress(weakest.report, ignore, known, baseline))
    return Minimized(schedule, fewest, weakest, confirmed)


def _failures(
    fewest: Minimal | None, weakest: Contracts | None
) -> Iterator[tuple[Schedule, Finding]]:
    for trial in fewest.trials if fewest is not None else ():
        if trial.finding is not None:
            yield trial.without, trial.finding
    for row in weakest.rows if weakest is not None else ():
        for attempt in row.trials:
            if attempt.finding is not None:
                yield attempt.under, attempt.finding


# -- words --------------------------------------------------------------------------------------


def minimized_text(
    result: Minimized, source: str, rules: dict[str, Rule], quiet: bool, strict_cost: bool
) -> str:
    import sys

    # The table says which waits are redundant; as findings they are repeated where they count.
    told = result.report
    if not (quiet or strict_cost):
        told = replace(told, findings=tuple(f for f in told.findings if f.rule != "CO002"))
    items: list[RenderableType] = list(
        report_items(
            told, result.schedule, source=source, rules=rules, quiet=quiet, strict_cost=strict_cost
        )
    )
    proved = result.report.verdict is Verdict.PROVED
    if result.syncs is not None:
        items += _sync_items(result, result.syncs, quiet) if proved else [_untried("waits")]
    if result.contracts is not None:
        items += (
            _contract_items(result, result.contracts, quiet) if proved else [_untried("contracts")]
        )
    return render(items, sys.stdout)


def _untried(what: str) -> Text:
    return _line(what, "not tried: only a proved schedule is reduced")


def _sync_items(result: Minimized, found: Minimal, quiet: bool) -> Iterator[RenderableType]:
    if not quiet and found.trials:
        table = _table("command", "waits", "is", "without it")
        for trial in found.trials:
            table.add_row(
                str(trial.command), trial.text, Text(trial.need.value, style=_STYLE[trial.need]),
                _outcome(result, found, trial),
            )  # fmt: skip
        yield Text("")
        yield Padding(table, (0, 0, 0, 2))
    yield _line("waits", waits_summary(found))


def _outcome(result: Minimized, found: Minimal, trial: SyncTrial) -> str:
    if trial.finding is not None:
        word = _WORDS[result.confirmed[id(trial.finding)]]
        return f"{trial.finding.rule} {trial.finding.message} ({word})"
    if trial.need is Need.UNDECIDED:
        return trial.reason
    return "proved; left out" if trial.command in found.removed else "proved; kept for another"


def waits_summary(found: Minimal) -> str:
    """How many waits can go, and what is known of that number."""
    total, gone = count(len(found.trials), "wait"), len(found.removed)
    if not gone:
        open_ones = sum(trial.need is Need.UNDECIDED for trial in found.trials)
        return f"none of {total} can go" + (f"; {open_ones} undecided" if open_ones else "")
    assert found.proof is not None
    records = f" and {count(len(found.records), 'record')}" if found.records else ""
    return (
        f"{gone} of {total}{records} can go together: {found.proof.verdict.value} again; "
        f"{_SIZE[found.size]}"
    )


def _contract_items(result: Minimized, found: Contracts, quiet: bool) -> Iterator[RenderableType]:
    if not quiet and found.rows:
        table = _table("device", "from → to", "contract", "verdict", "how it fails")
        for row in found.rows:
            place = f"{row.source or 'any'} → {row.target or 'any'}"
            for trial in row.trials:
                notes = [trial.contract.value]
                notes += ["declared"] if trial.contract is row.declared else []
                notes += ["weakest"] if trial.contract in row.weakest else []
                how = ""
                if trial.finding is not None:
                    word = _WORDS[result.confirmed[id(trial.finding)]]
                    how = f"{trial.finding.rule} {trial.finding.message} ({word})"
                table.add_row(row.device, place, ", ".join(notes), trial.verdict.value, how)
        yield Text("")
        yield Padding(table, (0, 0, 0, 2))
    if not found.rows:
        yield _line("contracts", "no copy of the program is under one")
    for row in found.rows:
        names = " or ".join(contract.value for contract in row.weakest)
        yield _line(row.device, f"weakest copy contract: {names}")
    if len(found.rows) > 1:
        yield _line("together", _together(found))


def _together(found: Contracts) -> str:
    if found.together is None:
        return "too many combinations: not tried"
    chosen = [" + ".join(contract.value for contract in choice) for choice in found.together]
    return "; ".join(chosen) or "no combination of the weakest contracts holds"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _line(label: str, text: str) -> Text:
    line = Text(no_wrap=True)
    line.append(f"{label}: ", style="bold")
    line.append(text)
    return line


# -- JSON ---------------------------------------------------------------------------------------


def minimized_to_dict(result: Minimized) -> dict[str, Any]:
    """The report, each wait, the reduced document, and each contract, as one JSON value."""
    value: dict[str, Any] = {
        "format": FORMAT,
        "report": report_to_dict(result.report, result.schedule),
    }
    if result.syncs is not None:
        value["syncs"] = _syncs_to_dict(result, result.syncs)
    if result.contracts is not None:
        value["contracts"] = _contracts_to_dict(result, result.contracts)
    return value


def _syncs_to_dict(result: Minimized, found: Minimal) -> dict[str, Any]:
    return {
        "waits": [
            {
                "place": f"$.program[{trial.command}]", "text": trial.text,
                "need": trial.need.value, "reason": trial.reason,
                "failure": _failure(result, trial.finding),
            }
            for trial in found.trials
        ],
        "removed": list(found.removed),
        "records": list(found.records),
        "set": found.size,
        "verdict": found.proof.verdict.value if found.proof is not None else None,
        "digest": found.proof.digest if found.proof is not None else None,
        "checks": found.checks,
        "reduced": to_dict(found.reduced) if found.reduced is not None else None,
    }  # fmt: skip


def _contracts_to_dict(result: Minimized, found: Contracts) -> dict[str, Any]:
    together = found.together
    return {
        "rows": [
            {
                "device": row.device, "rule": row.rule, "from": row.source, "to": row.target,
                "declared": row.declared.value,
                "holds": [contract.value for contract in row.holds],
                "weakest": [contract.value for contract in row.weakest],
                "tried": [
                    {
                        "contract": trial.contract.value, "verdict": trial.verdict.value,
                        "failure": _failure(result, trial.finding),
                    }
                    for trial in row.trials
                ],
            }
            for row in found.rows
        ],
        "together": None if together is None else [[c.value for c in t] for t in together],
        "checks": found.checks,
    }  # fmt: skip


def _failure(result: Minimized, finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return {
        "rule": finding.rule, "message": finding.message,
        "confirmed": result.confirmed[id(finding)],
    }  # fmt: skip
