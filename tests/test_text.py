"""Reports in words: snapshots of reports made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import splitproof
from splitproof.brief import brief_lines, plain
from splitproof.model.counterexample import Counterexample, Party, Step
from splitproof.model.report import Finding, Gap, Kind, Report, Rule, Verdict
from splitproof.model.schedule import Schedule
from splitproof.suppress import exit_code, known_findings, suppress, worst
from splitproof.text import render, report_items
from splitproof.timeline import rows, window
from splitproof.words import count, listing, size_text

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
RULE = Rule("PF001", "prefetch-source-not-compute", Kind.VALUE, "…", "Copy w in its own split.")


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return splitproof.load(EXAMPLES / "pf001.json")


def steps(*moments: tuple[int, int, str]) -> tuple[Step, ...]:
    """``(command, pass, "start" | "end" | "both")``, the main parts."""
    out: list[Step] = []
    for command, iteration, phase in moments:
        if phase in ("start", "both"):
            out.append(Step(command, iteration, "main", "start"))
        if phase in ("end", "both"):
            out.append(Step(command, iteration, "main", "end"))
    return tuple(out)


def example(order: tuple[Step, ...]) -> Counterexample:
    return Counterexample(
        symbols=(("n_tokens", 1),),
        reader=Party(1, 0, "main", "prefetch w → gpu0#w", "w", "w_host", (0, 1)),
        writer=Party(3, 0, "main", "callback moe_cache", "w", "w_host", (0, 1)),
        due="what callback moe_cache of pass 0 writes",
        missing="end of callback moe_cache → start of prefetch w",
        order=order,
        integers=(("ids", 0, (3, 1)),),
        banks=(("g0", ((0, 1, 5),)),),
    )


def violated(finding: Finding, **more: object) -> Report:
    return Report(
        Verdict.VIOLATED, (finding,), obligations=1200, solved=4, passes=2, commands=10,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


FINDING = Finding(
    "PF001", Kind.VALUE, "the prefetch reads w while the callback may write it", "$.program[1]",
    also=("PF003", "OR001"),
    counterexample=example(
        steps((0, 0, "both"), (1, 0, "start"), (3, 0, "both"), (1, 0, "end"), (2, 0, "both"))
    ),
)  # fmt: skip
COST = Finding(
    "CO001", Kind.COST, "up_bank crosses memories each pass", "$.splits[0]",
    evidence=(("bytes each pass", 10880), ("capability", "gpu0 denies mul_mat_id, src0 q8_0")),
)  # fmt: skip

GAP = Gap(Verdict.UNKNOWN, "the effort limit was hit", "$.program[7]")

VIOLATED = """\
VIOLATED  pf001.json: 1 violation
  10 commands, 2 passes, 1,200 obligations (4 by the solver), 1 regime

1. PF001 prefetch-source-not-compute: the prefetch reads w while the callback may write it
   at       $.program[1], also PF003 OR001
   with     n_tokens = 1
   ids      ids = [3, 1] in pass 0
   bank     g0 starts with 0: layer 1 expert 5

               host                 gpu0.copy
   ──────────────────────────────────────────────────────
               set input x
      reads                         ┌ prefetch w → gpu0#w
      writes   callback moe_cache   │
      reads                         └ prefetch w → gpu0#w
               … 1 later

   due      what callback moe_cache of pass 0 writes
   missing  end of callback moe_cache → start of prefetch w
   hint     Copy w in its own split.
"""

COSTLY = """\
PROVED  bank.json: 1 cost note
  0 commands, 2 passes, 7 obligations (0 by the solver), 3 regimes

1. CO001 [cost]: up_bank crosses memories each pass
   at       $.splits[0]
   bytes each pass  10,880
   capability       gpu0 denies mul_mat_id, src0 q8_0

   unknown  the effort limit was hit ($.program[7])

  split   device   from → to      bytes that cross
  ────────────────────────────────────────────────
      0   cpu      vram0 → host           10.6 KiB
      1   gpu0     host → vram0            2,176 B
                   in all                 12.8 KiB

   assumed  a callback writes no compute buffer
"""


def test_a_violation(schedule: Schedule) -> None:
    items = report_items(violated(FINDING), schedule, source="pf001.json", rules={"PF001": RULE})
    assert render(list(items)) == VIOLATED


def test_costs_gaps_bytes_and_assumptions(schedule: Schedule) -> None:
    report = Report(
        Verdict.PROVED, (COST,), (GAP,),
        ("a callback writes no compute buffer",), obligations=7, passes=2, regimes=3,
        crossing=((0, "vram0", "host", 10880), (1, "host", "vram0", 2176)),
    )  # fmt: skip
    # Counts of what is undecided stand in the first line.
    text = render(list(report_items(report, schedule, source="bank.json")))
    assert text == COSTLY.replace("1 cost note\n", "1 cost note, 1 undecided\n", 1)


def test_a_rule_is_explained_once(schedule: Schedule) -> None:
    other = Finding("CO001", Kind.COST, "gate_bank too", "$.splits[1]", evidence=(("bytes", 1),))
    report = Report(Verdict.PROVED, (COST, other))
    text = render(list(report_items(report, schedule, source="a.json")))
    assert text.count("bytes each pass") == 1
    assert text.endswith("2. CO001 [cost]: gate_bank too\n")


def test_quiet_is_a_line_each(schedule: Schedule) -> None:
    long = Finding("OR001", Kind.VALUE, "word " * 60, "$.program[1]")
    report = Report(Verdict.VIOLATED, (FINDING, long))
    lines = render(list(report_items(report, schedule, source="a.json", quiet=True))).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("PF001: the prefetch")
    assert lines[2].startswith("OR001: word word") and len(lines[2]) > 250
    assert [plain(line).rstrip() for line in brief_lines(report, "a.json", {})] == lines


def test_a_long_order_is_cut_around_the_fault(schedule: Schedule) -> None:
    before = [(0, 0, "both")] * 40
    order = steps(*before, (1, 0, "start"), (3, 0, "both"), (1, 0, "end"), (2, 0, "both"))
    moments = rows(schedule, example(order))
    first, last = window(moments)
    assert len(moments) == 44 and (first, last) == (37, 43)
    finding = Finding("PF001", Kind.VALUE, "m", "$", counterexample=example(order))
    text = render(list(report_items(violated(finding), schedule)))
    assert "… 37 earlier" in text and "… 1 later" in text


def test_passes_are_numbered_where_there_are_several(schedule: Schedule) -> None:
    order = steps((3, 0, "both"), (1, 1, "both"))
    moments = rows(schedule, example(order))
    assert [(row.iteration, row.role) for row in moments] == [(0, "writes"), (1, "")]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 passes"), (1, "1 pass"), (2, "2 passes"), (1234, "1,234 passes")],
)
def test_counts(number: int, text: str) -> None:
    assert count(number, "pass") == text


def test_sizes_and_listings() -> None:
    assert [size_text(n) for n in (0, 2176, 10880, 3 << 20, 5 << 40)] == [
        "0 B", "2,176 B", "10.6 KiB", "3.0 MiB", "5,120 GiB",
    ]  # fmt: skip
    assert listing([1, 2]) == "[1, 2]"
    assert listing(range(20), most=2) == "[0, 1, …]"


def test_a_suppressed_finding_does_not_count_but_is_not_proved() -> None:
    report = violated(FINDING)
    assert exit_code(report) == 1
    ignored = suppress(report, {"PF001": "known to be slow"})
    assert exit_code(ignored) == 0
    assert ignored.verdict is Verdict.VIOLATED
    assert ignored.findings[0].suppressed == "known to be slow"
    assert exit_code(suppress(report, {"PF002": "another rule"})) == 1


def test_a_baseline_knows_rule_and_message() -> None:
    known = known_findings([violated(FINDING)])
    assert exit_code(suppress(violated(FINDING), {}, known, "old.json")) == 0
    other = Finding("PF001", Kind.VALUE, "another message", "$.program[1]")
    assert exit_code(suppress(violated(other), {}, known, "old.json")) == 1


def test_exit_codes() -> None:
    gap = Gap(Verdict.UNKNOWN, "limit", "$")
    costly = Report(Verdict.PROVED, (COST,))
    assert exit_code(costly) == 0
    assert exit_code(costly, strict_cost=True) == 1
    assert exit_code(Report(Verdict.UNKNOWN, (), (gap,))) == 3
    assert exit_code(Report(Verdict.VIOLATED, (FINDING,), (gap,))) == 1
    assert exit_code(suppress(Report(Verdict.VIOLATED, (FINDING,), (gap,)), {"PF001": "x"})) == 3


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 2, 3], 2), ([2, 4, 1], 4)],
)
def test_the_worst_of_several_files(codes: list[int], code: int) -> None:
    assert worst(codes) == code
