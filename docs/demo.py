"""``make demo``: a proved and executed layer, two faults with their repairs, a real graph."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import splitproof
from rich.console import RenderableType
from rich.padding import Padding
from rich.rule import Rule as Line
from rich.text import Text
from splitproof.exec.compare import compare
from splitproof.exec.reference import run_reference
from splitproof.model.schedule import Schedule
from splitproof.output import emit, progress
from splitproof.replayed import shown_items
from splitproof.result import run_items
from splitproof.text import render, report_items
from splitproof.verify.rules.table import RULES

EXAMPLES = Path(__file__).parent / "examples"
REAL = "llama-olmoe.jsonl.gz"


def load(name: str) -> Schedule:
    return splitproof.lower(splitproof.load(EXAMPLES / name))


def say(text: str) -> Padding:
    return Padding(Text(" ".join(text.split())), (0, 0, 1, 0))


def verdict(name: str, quiet: bool = False) -> Iterator[RenderableType]:
    """Check one example and show the report."""
    schedule = load(name)
    with progress(f"checking {name}"):
        report = splitproof.check(schedule)
    yield from report_items(report, schedule, source=name, rules=RULES, quiet=quiet)
    yield Text("")


def layer() -> Iterator[RenderableType]:
    yield Line("1. A layer, proved and executed", align="left")
    yield say("""
        A mixture-of-experts layer on a CPU and an accelerator.  Sixteen experts stay in host
        memory; the accelerator has a bank of eight slots, filled on its second queue with what
        the router chose.  The output of a shared expert, computed on the CPU, is fetched one
        split ahead, into bytes that an earlier tensor has left.  The proof covers every
        interleaving of three passes, every batch of one to four tokens, every choice of the
        router and every content of the bank.""")
    yield from verdict("moe-layer.json")
    schedule = load("moe-layer.json")
    with progress("compiling and running"):
        result = splitproof.run(schedule)
        comparison = compare(result, run_reference(schedule, result.symbols))
    yield say("""
        It was proved, so it runs: compiled kernels, one block of bytes per memory, against the
        sequential run in NumPy.""")
    yield from run_items(result, comparison)
    yield Text("")


def fault(title: str, words: str, name: str, repair: str) -> Iterator[RenderableType]:
    yield Line(title, align="left")
    yield say(words)
    schedule = load(name)
    report = splitproof.check(schedule)
    yield from report_items(report, schedule, source=name, rules=RULES)
    yield Text("")
    executed = report.findings[0].counterexample is not None
    how = "Executed" if executed else "Evaluated on numbers"
    yield say(f"{how}, by code that shares nothing with the checker:")
    for shown in splitproof.replay(report, schedule):
        yield from shown_items(shown, schedule, RULES[shown.finding.rule], order=False)
        yield Text("")
    yield say(repair)


def bank_bytes() -> Iterator[RenderableType]:
    """What a bank costs per pass where the device cannot use it, and where it can."""
    yield from verdict("bk001-repaired.json", quiet=True)
    for name in ("bk001.json", "bk001-repaired.json"):
        report = splitproof.check(load(name))
        travelling = sum(
            value
            for finding in report.findings
            if finding.rule == "CO001"
            for fact, value in finding.evidence
            if fact == "bytes each pass" and isinstance(value, int)
        )
        yield Text(f"  {name:<21} {travelling:>7,} bytes of the bank travel in each pass")
    yield Text("")


def real_graph() -> Iterator[RenderableType]:
    yield Line("4. A graph of llama.cpp", align="left")
    yield say("""
        A tiny OLMoE model as llama.cpp built it for a prompt of 64 tokens, with the splits of
        ggml's own scheduler: layers on the accelerator, experts in host memory.  The experts'
        weights travel for such a batch; the cost notes say how many bytes.""")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompt.json"
        path.write_text(splitproof.dumps(splitproof.import_dump(EXAMPLES / REAL)[0]))
        schedule = splitproof.lower(splitproof.load(path))
    with progress("checking a graph of llama.cpp"):
        report = splitproof.check(schedule)
    yield from report_items(report, schedule, source=f"{REAL}, graph 0", rules=RULES)


def main() -> None:
    parts = [
        layer(),
        fault(
            "2. A prefetch that reads too early (PF001)",
            """While the first split runs, its callback fills a weight; the prefetch for the next
            split was issued before.  The transfer may read what the callback has not written
            yet.""",
            "pf001.json",
            "The repair: the second split copies the weight itself.",
        ),
        verdict("pf001-repaired.json", quiet=True),
        fault(
            "3. A bank that nobody can use (BK001)",
            """The bank lies on the accelerator, which cannot run the cached matmul on its type.
            A scheduler then runs it on the CPU, and the whole bank travels in every pass: the
            cache costs more than it saves.""",
            "bk001.json",
            "The repair: a device that supports the op; nothing of the bank travels.",
        ),
        bank_bytes(),
        real_graph(),
    ]
    for part in parts:
        emit(render(list(part), sys.stdout))


if __name__ == "__main__":
    main()
