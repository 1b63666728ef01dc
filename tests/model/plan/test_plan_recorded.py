"""Graphs of real llama.cpp runs, and random ones, with the real scheduler's answers."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from splitproof.model.plan.compare import compare, compare_dump
from splitproof.model.read.ggml_dump import read_dump

DATA = Path(__file__).parents[4] / "shared" / "data"
DUMPS = sorted([*DATA.glob("ggml-graphs/*.jsonl.gz"), *DATA.glob("nano/graphs/*.jsonl.gz")])
needs_data = pytest.mark.skipif(not DUMPS, reason="../shared/data is absent: no recorded graphs")


@needs_data
@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_the_plan_is_the_recorded_one(dump: Path) -> None:
    found = compare_dump(dump)
    assert [g.first_difference for g in found.graphs if not g.agrees] == []
    agree, recorded = found.causes
    assert agree == recorded > 0


@needs_data
def test_the_recordings_are_all_there() -> None:
    graphs = dict.fromkeys(("random", "real", "nano"), 0)
    for dump in DUMPS:
        kind = "nano" if dump.parent.name == "graphs" else "real"
        with gzip.open(dump) as lines:
            graphs["random" if dump.name == "random.jsonl.gz" else kind] += sum(1 for _ in lines)
    assert graphs == {"random": 400, "real": 264, "nano": 72}


@needs_data
@pytest.mark.parametrize("compiled", [False, True])
def test_both_twins(compiled: bool) -> None:
    dump = DATA / "ggml-graphs" / "random.jsonl.gz"
    with gzip.open(dump, "rt") as lines:
        some = [line for _, line in zip(range(40), lines, strict=False)]
    assert compare_dump(some, compiled=compiled).agrees


@needs_data
def test_a_difference_is_named() -> None:
    with gzip.open(DATA / "ggml-graphs" / "random.jsonl.gz", "rt") as lines:
        line = lines.readline()
    row = json.loads(line)
    (recorded,) = read_dump([line])
    cause = tuple(row["result"]["cause"])

    first = recorded.assignment[-1]
    other = next(d.name for d in recorded.graph.devices if d.name != first[1])
    moved = replace(recorded, assignment=(*recorded.assignment[:-1], (first[0], other)))
    found = compare(moved, cause)
    assert (found.assignment, found.ranges, found.inputs) == (False, True, True)
    assert (
        found.first_difference == f"{first[0]!r} is recorded on {other}, and planned on {first[1]}"
    )

    one, *rest = recorded.splits or ()
    cut = compare(replace(recorded, splits=(replace(one, end=one.end - 1), *rest)), cause)
    assert (cut.assignment, cut.ranges, cut.inputs) == (True, False, False)
    assert cut.first_difference is not None and cut.first_difference.startswith("split 0 is")

    blind = compare(replace(recorded, splits=(replace(one, inputs=()), *rest)), cause)
    assert (blind.assignment, blind.ranges, blind.inputs) == (True, True, False)
    wrong = compare(recorded, ("", *cause[1:]))
    assert wrong.agrees and wrong.causes == wrong.causes_recorded - 1
