"""Judges every mutant, and writes what became of them.  Run: python tests/mutation/matrix.py

``fates.json`` has a line per operator and schedule, a word per mutant in the operator's order;
``docs/mutation.md`` is made from it.  Names of schedules as arguments judge those alone again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import ROOT, corpus
from judge import EVERY_VALUE, LARGE, RUNS, Bench, Fate, Judgement
from operators import MOST_PAIRED, OPERATORS, mutants
from splitproof.verify.rules.table import RULES

RECORD = Path(__file__).parent / "fates.json"
PAGE = ROOT / "docs" / "mutation.md"
#: Schedule → operator → a word per mutant: its fate, and the rules that name it.
Record = dict[str, dict[str, list[str]]]
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One mutant in the record.  ``detail``: what is said about one that is not settled."""

    schedule: str
    operator: str
    number: int
    fate: Fate
    rules: tuple[str, ...]
    detail: str


def word(judgement: Judgement, change: str) -> str:
    """How a mutant stands in the record; what is open also says which one it is."""
    parts = [judgement.fate.value, " ".join(judgement.rules)]
    if judgement.fate not in (Fate.KILLED, Fate.EQUIVALENT, Fate.REFUSED):
        parts += [change, judgement.detail]
    return "|".join(parts).rstrip("|")


def judged(name: str) -> tuple[str, dict[str, list[str]]]:
    """Every mutant of one schedule."""
    bench, found = Bench(), {}
    for mutant in mutants(corpus()[name]):
        found.setdefault(mutant.operator, []).append(word(bench.judge(mutant), mutant.change))
    return name, found


def rows(record: Record) -> Iterator[Row]:
    for schedule, operators in record.items():
        for operator, words in operators.items():
            for number, text in enumerate(words):
                fate, rules, *detail = [*text.split("|", 2), ""]
                yield Row(
                    schedule, operator, number, Fate(fate), tuple(rules.split()),
                    "".join(detail[:1]).replace("|", ": "),
                )  # fmt: skip


def read_record() -> Record:
    record: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def record_text(record: Record) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


# -- the page -----------------------------------------------------------------------------------

INTRODUCTION = """\
# Mutation

How good is the checker at finding faults?  Each proved schedule below is changed in one small
place at a time, and every changed one is judged.  A mutant is *refused* if it is no document,
*killed* if the checker finds a violation (each counterexample is executed and must go wrong, the
facts of each static finding are evaluated by other code), and *equivalent* if the checker proves it
and the exhaustive oracle finds no wrong read.

That oracle is `verify/explore.py`.  It looks at **every** interleaving and shares no code with the
checker, but at chosen values: all sizes if they are {every} or fewer, else the least and greatest,
and where there are ids, three contents of ids and banks each; of schedules with more than {large:,}
bytes of tensors one size and one content.  Where a mutant has too many states for it, {runs} random
interleavings at each end of the sizes are a weak oracle: they find faults and never rule them out.
Such mutants are *unsettled* and listed at the end, as is what the checker could not decide
(*undecided*).  A mutant that is proved and that an oracle refutes would be a fault of the checker
(*unsound*), and so would be a finding that is not shown again (*contradicted*).

This page is made by `python tests/mutation/matrix.py`; a sample of it is judged again by each run
of the tests, all of it with `SPLITPROOF_MUTATION=all`.
"""


def page(record: Record) -> str:
    """``docs/mutation.md``."""
    found = list(rows(record))
    parts = [
        INTRODUCTION.format(every=EVERY_VALUE, large=LARGE, runs=RUNS),
        f"{len(record)} schedules, {len(found):,} mutants.\n",
        "## What became of them\n", *_fates(found), "",
        "## Rule × operator\n",
        "How many mutants each rule names; a mutant counts under every rule that names a finding.",
        "The columns are the operators by their numbers above.\n",
        *_matrix(found), "",
        "## What an operator does\n", *_operators(), "",
        "## Unsettled\n", *_open(found), "",
        "## Schedules\n", *_schedules(record),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _fates(found: list[Row]) -> Iterator[str]:
    shown = [fate for fate in Fate if fate in (Fate.REFUSED, Fate.KILLED, Fate.EQUIVALENT)
             or any(row.fate is fate for row in found)]  # fmt: skip
    yield "| | operator | mutants | " + " | ".join(fate.value for fate in shown) + " |"
    yield "|" + "--:|---|" + "--:|" * (len(shown) + 1)
    counts = Counter((row.operator, row.fate) for row in found)
    for number, operator in enumerate(OPERATORS, 1):
        numbers = [counts[operator, fate] for fate in shown]
        total = sum(row.operator == operator for row in found)
        yield f"| {number} | {operator} | {total} | " + " | ".join(map(str, numbers)) + " |"
    numbers = [sum(row.fate is fate for row in found) for fate in shown]
    yield f"| | all | {len(found)} | " + " | ".join(map(str, numbers)) + " |"


def _matrix(found: list[Row]) -> Iterator[str]:
    names = list(OPERATORS)
    yield "| rule | " + " | ".join(str(number) for number in range(1, len(names) + 1)) + " | all |"
    yield "|---|" + "--:|" * (len(names) + 1)
    counts = Counter((rule, row.operator) for row in found for rule in row.rules)
    for code in RULES:
        numbers = [counts[code, name] for name in names]
        if sum(numbers):
            cells = [str(number) if number else "" for number in numbers]
            yield f"| [{code}](rules/{code}.md) | " + " | ".join(cells) + f" | {sum(numbers)} |"
    silent = [code for code in RULES if not any(counts[code, name] for name in names)]
    if silent:
        yield ""
        yield "No mutant is named by " + ", ".join(silent) + "."


def _operators() -> Iterator[str]:
    words = {
        "drop-event": "all records and waits of an event go",
        "drop-record": "one record goes",
        "drop-wait": "one wait of a queue goes",
        "drop-sync": "one wait of the host goes",
        "swap-neighbours": "two commands that follow each other are exchanged",
        "other-queue": "a compute, copy or fill goes to another queue of its device",
        "drop-guard": "a command loses its condition",
        "shrink-ring": "of several rotating copies the last becomes the one before it",
        "mix-copy-index": "one command uses another copy of its input",
        "shrink-bank": "the banks of a group have one slot less",
        "alias": "two tensors of a memory begin at the same byte (all pairs up to "
        f"{MOST_PAIRED} tensors, else neighbours in the document)",
        "prefetch-earlier": "a transfer is issued one split earlier, with its record",
        "change-device": "a node is assigned to another device",
        "change-split": "a split and its nodes are assigned to another device",
        "deny-op": "a device cannot run an op that it is given",
        "forget-waits-for": "a device can wait for no other device's events",
        "shrink-buffer": "a buffer ends a byte before its last tensor",
        "widen-ids": "an integer tensor may hold one value more",
        "swap-ids": "a node reads the experts' own ids for slot ids, or the other way round",
        "other-contract": "the copies of a device have another contract",
        "drop-input": "an input is never set",
        "drop-copy": "a copy, prefetch, selective copy or fill goes",
        "drop-compute": "a node is not computed",
        "move-callback": "user code runs first, or last, in its pass",
        "undeclared-callback": "user code no longer says what it touches",
        "output-earlier": "an output is read one, two or three commands earlier",
    }
    return (f"* *{name}*: {words[name]}." for name in OPERATORS)


def _open(found: list[Row]) -> Iterator[str]:
    settled = (Fate.REFUSED, Fate.KILLED, Fate.EQUIVALENT)
    rest = [row for row in found if row.fate not in settled]
    if not rest:
        yield "None."
    for row in rest:
        yield f"* {row.schedule}, {row.operator}, {row.detail} ({row.fate.value})."


def _schedules(record: Record) -> Iterator[str]:
    yield "| schedule | mutants | killed | equivalent |"
    yield "|---|--:|--:|--:|"
    for name, operators in record.items():
        fates = [text.split("|")[0] for words in operators.values() for text in words]
        killed, same = fates.count(Fate.KILLED), fates.count(Fate.EQUIVALENT)
        yield f"| {name} | {len(fates)} | {killed} | {same} |"


def main(names: list[str]) -> None:
    schedules: dict[str, Any] = corpus()
    record = read_record() if names and RECORD.is_file() else {}
    with ProcessPoolExecutor(WORKERS) as pool:
        for name, found in pool.map(judged, names or list(schedules)):
            record[name] = found
            print(name, sum(map(len, found.values())), flush=True)
    record = {name: record[name] for name in schedules if name in record}
    RECORD.write_text(record_text(record), encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
