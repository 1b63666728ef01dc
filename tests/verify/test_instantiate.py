"""Theorems put to use on schedules: they never change a verdict, and refuse what they must."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import oracle
import pytest
from read_instances import missing
from splitproof.api import as_program
from splitproof.model.document import DocumentError, from_dict
from splitproof.model.report import Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import Options, check
from splitproof.verify.region import Unsupported
from splitproof.verify.theorems import theorem

ROOT = Path(__file__).parents[2]
Document = dict[str, Any]


def bare(report: Report) -> Report:
    """What a report says, without how it came about."""
    return replace(report, seconds=0.0, solved=0, theorems=())


def same_without(schedule: Schedule) -> Report:
    """The report; with and without theorems it must be the same."""
    found = check(schedule)
    alone = check(schedule, Options(theorems=False))
    assert bare(found) == bare(alone) and alone.theorems == ()
    return found


@pytest.mark.parametrize(
    "folder", ["tests/rules", "tests/incidents", "docs/examples", "docs/theorems", "docs/soundness"]
)
def test_the_corpus_has_the_same_reports_without_theorems(folder: str) -> None:
    used: set[str] = set()
    for path in sorted((ROOT / folder).rglob("*.json")):
        try:
            schedule = as_program(path)
        except DocumentError:
            continue  # a table of expectations
        used |= {name for name, _ in same_without(schedule).theorems}
    assert "T7 locality" in used


def test_random_schedules_have_the_same_reports_without_theorems() -> None:
    compared = 0
    for number in range(90):
        schedule = oracle.schedule_of(number)
        if schedule is not None:
            compared += bool(same_without(schedule).theorems)
    assert compared >= 60


def test_each_is_named_by_its_number_and_title() -> None:
    for path in ("docs/examples/moe-layer", "docs/theorems/t5-other-ids-repaired"):
        used = check(as_program(ROOT / f"{path}.json")).theorems
        assert used
        for name, obligations in used:
            number, _, title = name.partition(" ")
            assert theorem(number).title == title and obligations > 0


# -- each hypothesis, dropped --------------------------------------------------------------------


def loaded(name: str) -> Document:
    text = (ROOT / "docs" / "theorems" / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def first(document: Document, do: str, **keys: Any) -> int:
    """The place of the first such command."""
    program = document["program"]
    return next(
        i
        for i, c in enumerate(program)
        if c["do"] == do and all(c.get(key) == value for key, value in keys.items())
    )


def source_in_weights(d: Document) -> None:
    d["buffers"]["w"] = {"memory": "host", "usage": "weights", "bytes": 64}
    d["tensors"]["h"] |= {"buffer": "w", "offset": 0}


def callback_writes_compute(d: Document) -> None:
    place = first(d, "prefetch") + 1
    d["program"].insert(
        place, {"do": "callback", "name": "user", "reads": [], "writes": ["z"], "split": 1}
    )


def issued_with_the_node(d: Document) -> None:
    """The prefetch is issued in the split that computes its source."""
    d["program"][first(d, "prefetch")]["split"] = 0


def source_through_a_view(d: Document) -> None:
    d["tensors"]["whole"] = {"dtype": "f32", "shape": [4]}
    d["tensors"]["h"] |= {"view_of": "whole", "offset": 0}
    issued_with_the_node(d)


def earlier_on_another_queue(d: Document) -> None:
    d["assignment"]["h"] = d["splits"][0]["device"] = "gpu1"
    d["memories"]["vram1"] = {"bytes": 4096}
    d["devices"].insert(1, d["devices"][0] | {"name": "gpu1", "memory": "vram1",
                                              "reads": ["vram1", "host"]})  # fmt: skip


def read_when_issued(d: Document) -> None:
    """The host reads the source of a staged copy at issue; only the upload waits for the queue."""
    earlier_on_another_queue(d)
    d["devices"][1]["copy"] = "staged"
    d["devices"][0]["waits_for"] = ["gpu1"]
    for command in d["program"]:
        if command["do"] in ("prefetch", "record"):
            command["queue"] = "gpu1.compute"


def writer_issued_too_early(d: Document) -> None:
    """What belongs to the consuming split writes the source before the prefetch is issued."""
    write = {"do": "callback", "name": "late", "reads": [], "writes": ["h"], "split": 2}
    d["program"].insert(first(d, "prefetch"), write)


def not_awaited(d: Document) -> None:
    del d["program"][first(d, "wait")]


def target_written_by_another(d: Document) -> None:
    again = d["program"][first(d, "prefetch")] | {"do": "copy", "split": 2}
    d["program"].insert(first(d, "compute", node="y"), again | {"queue": "gpu0.compute"})


def stale_source(d: Document) -> None:
    """User code that belongs before the node overwrites its result."""
    write = {"do": "callback", "name": "late", "reads": [], "writes": ["h"], "split": 0}
    d["program"].insert(first(d, "compute", node="h") + 1, write)


def policy(d: Document) -> None:
    for bank in d["banks"].values():
        bank["policy"] = "lru-bytes"


def more_ids(d: Document) -> None:
    for name in ("ids0", "slots0"):
        d["tensors"][name]["shape"] = [4, 1]
    d["tensors"]["y0"]["shape"] = [2, 4, 1]


def fill_on_the_copy_queue(d: Document) -> None:
    d["program"][first(d, "fill_bank")]["queue"] = "gpu0.copy"


def fill_for_the_last_pass(d: Document) -> None:
    d["program"][first(d, "fill_bank")]["when"] = "pass == 0"


def slots_of_another_role(d: Document) -> None:
    """The banks lie on the same bytes, but no slot is the same in both."""
    d["banks"]["bank1"]["role"] = "down"


def cached_tensor_written(d: Document) -> None:
    write = {"do": "callback", "name": "user", "reads": [], "writes": ["w0"], "split": 0}
    d["program"].insert(first(d, "fill_bank"), write)


def other_set(d: Document) -> None:
    d["tensors"]["ids_b"] = dict(d["tensors"]["ids"])
    d["program"].insert(0, {"do": "set_input", "tensor": "ids_b"})
    d["program"][first(d, "copy_experts")]["ids"] = "ids_b"


def ids_out_of_range(d: Document) -> None:
    d["tensors"]["ids"]["values"] = [0, 9]


def over_read(d: Document) -> None:
    d["devices"][0]["over_read"] = {"mul_mat_id": {"f32": 8}}


def two_copies_race(d: Document) -> None:
    d["devices"][0]["queues"].append("copy")
    again = d["program"][first(d, "copy_experts")] | {"queue": "gpu0.copy"}
    d["program"].insert(first(d, "compute"), again)


def weight_written_meanwhile(d: Document) -> None:
    write = {"do": "callback", "name": "user", "reads": [], "writes": ["w"], "split": 0}
    d["program"].insert(first(d, "compute"), write)


def copied_again(d: Document) -> None:
    """A second queue has copied experts before; the wait for it comes after the other copy."""
    d["devices"][0]["queues"].append("copy")
    place = first(d, "copy_experts")
    again = d["program"][place] | {"queue": "gpu0.copy"}
    d["program"].insert(place, again)
    d["program"].insert(first(d, "compute"), {"do": "sync_queue", "queue": "gpu0.copy"})


Change = Callable[[Document], None]
T1, T3, T5 = "t1-without-await-repaired", "t3-other-queue-repaired", "t5-other-ids-repaired"
#: theorem, its hypothesis, a document in which all hold, and what takes this one away
DROPPED: list[tuple[str, str, str, Change]] = [
    ("T1", "usage-guard", T1, source_in_weights),
    ("T1", "callbacks-write-no-compute-buffer", T1, callback_writes_compute),
    ("T1", "written-guard", T1, issued_with_the_node),
    ("T1", "views-resolved", T1, source_through_a_view),
    ("T1", "one-ahead", T1, issued_with_the_node),
    ("T1", "earlier-writers-awaited", T1, earlier_on_another_queue),
    ("T1", "earlier-writers-awaited", T1, read_when_issued),
    ("T1", "later-writers-after-copy", T1, writer_issued_too_early),
    ("T1", "waits-moved", T1, not_awaited),
    ("T1", "prefetch-awaited", T1, not_awaited),
    ("T1", "target-live", T1, target_written_by_another),
    ("T1", "due-before-prefetch", T1, stale_source),
    ("T3", "only-misses-are-loaded", T3, policy),
    ("T3", "victim-entry-cleared", T3, policy),
    ("T3", "victim-outside-ids", T3, policy),
    ("T3", "working-set-fits", T3, more_ids),
    ("T3", "same-queue", T3, fill_on_the_copy_queue),
    ("T3", "ids-of-the-reader", T3, fill_for_the_last_pass),
    ("T3", "only-fills-write-slots", T3, slots_of_another_role),
    ("T3", "cached-tensor-stays", T3, cached_tensor_written),
    ("T5", "same-ids", T5, other_set),
    ("T5", "ids-in-range", T5, ids_out_of_range),
    ("T5", "padding-covers-over-read", T5, over_read),
    ("T5", "i-writers-ordered", T5, two_copies_race),
    ("T5", "ii-due-writer-before", T5, weight_written_meanwhile),
    ("T5", "iii-due-writer-between", T5, copied_again),
]


@pytest.mark.parametrize(("name", "hypothesis", "right", "change"), DROPPED)
def test_without_a_hypothesis_it_refuses(
    name: str, hypothesis: str, right: str, change: Change
) -> None:
    document = loaded(right)
    before = missing(from_dict(document))
    assert any(found.startswith(name) and not lacks for found, lacks in before)
    assert not any(found.startswith(name) and hypothesis in lacks for found, lacks in before)
    broken = copy.deepcopy(document)
    change(broken)
    if change is policy:  # there is no fill to speak of before the theorem is asked
        with pytest.raises(Unsupported, match="lru-bytes"):
            missing(from_dict(broken))
        return
    after = missing(from_dict(broken))
    assert any(found.startswith(name) and hypothesis in lacks for found, lacks in after), after
    same_without(from_dict(broken))


#: hypotheses of a command's meaning, of counting, or of slots that are skipped while they are busy
MEANT = {
    "T3": {"busy-slots-are-full", "busy-skipped", "busy-means-not-ended", "injective",
           "slots-start-empty", "map-starts-empty", "hits-are-served", "fill-serves-all",
           "no-hole", "each-has-a-seat", "holds-with-one-less"},
    "T5": {"only-neighbours-extend", "others-start", "unused-are-skipped", "last-run-copied",
           "neighbours-stay-neighbours", "nothing-copied-yet", "no-run-open-yet"},
}  # fmt: skip


@pytest.mark.parametrize("name", ["T1", "T3", "T5"])
def test_every_hypothesis_of_the_theorem_is_asked_for(name: str) -> None:
    steps = theorem(name).steps[:2] if name == "T1" else theorem(name).steps
    named = {h.name for step in steps for h in step.hypotheses} - MEANT.get(name, set())
    assert named <= {hypothesis for owner, hypothesis, _, _ in DROPPED if owner == name}


def test_what_the_rules_call_violated_is_never_discharged_away() -> None:
    """With all but one hypothesis, the plain judgement finds the fault."""
    for name in ("t1-without-await", "t1-two-ahead", "t3-other-queue"):
        report = check(as_program(ROOT / "docs" / "theorems" / f"{name}.json"))
        assert report.verdict is Verdict.VIOLATED
