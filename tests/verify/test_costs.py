"""Costs: told where the better schedule exists, and nowhere else."""

from __future__ import annotations

import json
from itertools import combinations, product
from math import comb, isclose
from pathlib import Path
from typing import Any

import pytest
from splitproof.model.document import from_dict
from splitproof.model.plan.lower import lower
from splitproof.model.report import Finding, Verdict
from splitproof.model.symbol import Expr
from splitproof.verify.check import check
from splitproof.verify.rules.routing import LEAST_SAVING, Routing

RULES = Path(__file__).parents[1] / "rules"
INCIDENTS = Path(__file__).parents[1] / "incidents"
Document = dict[str, Any]


def document(path: Path) -> Document:
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def case(code: str, kind: str = "violating") -> Document:
    return document(RULES / code / f"{kind}.json")


def costs(parts: Document) -> list[Finding]:
    report = check(lower(from_dict(parts)))
    assert report.verdict is Verdict.PROVED, report.findings
    return list(report.findings)


def codes(parts: Document) -> list[str]:
    return [finding.rule for finding in costs(parts)]


# -- CO003 -----------------------------------------------------------------------------------------


def test_work_between_stays_if_it_is_pinned_or_the_device_cannot() -> None:
    pinned = case("CO003")
    pinned["tensors"]["b"]["pin"] = "cpu"
    assert codes(pinned) == []
    unable = case("CO003")
    unable["devices"][0]["deny"] = [{"op": "rms_norm", "ne": {"src0": [None, ">= 4"]}}]
    assert codes(unable) == []  # not at all sizes
    unable["symbols"]["n_tokens"] = [1, 3]
    assert codes(unable) == ["CO003"]


def test_what_an_accelerator_does_is_not_sent_back() -> None:
    parts = case("CO003")
    parts["assignment"] = {"a": "cpu", "b": "gpu0", "y": "cpu"}
    for split, device, inputs in zip(
        parts["splits"], ("cpu", "gpu0", "cpu"), ([], ["a"], ["b"]), strict=True
    ):
        split |= {"device": device, "inputs": inputs}
    assert codes(parts) == []


@pytest.mark.parametrize(("room", "found"), [(96, ["CO003"]), (95, []), (None, [])])
def test_state_moves_along_if_there_is_known_to_be_room(room: int | None, found: list[str]) -> None:
    """64 bytes of weights lie there, 32 bytes of state would have to come."""
    parts = document(INCIDENTS / "B70" / "safe.json")
    parts["memories"]["vram1"] = {} if room is None else {"bytes": room}
    assert codes(parts) == found


def test_weights_of_the_host_are_left_there() -> None:
    parts = case("CO003")
    parts["buffers"] = {"w_host": {"memory": "host", "usage": "weights", "bytes": 64}}
    parts["tensors"]["w"] = {"dtype": "f32", "shape": [4, 4], "buffer": "w_host", "offset": 0}
    parts["nodes"][1] = {"op": "mul_mat", "dst": "b", "src": ["w", "a"]}
    assert codes(parts) == []


def test_the_schedule_without_the_detour_is_proved() -> None:
    """What the finding asks for, made of the document that has it."""
    parts = case("CO003")
    (found,) = costs(parts)
    assert dict(found.evidence)["could run on"] == "gpu0"
    parts["assignment"]["b"] = "gpu0"
    parts["splits"] = [{"device": "gpu0", "nodes": [0, 3], "inputs": ["x"]}]
    assert codes(parts) == []


# -- CO004 -----------------------------------------------------------------------------------------


def test_an_upload_without_a_second_queue_or_into_bytes_in_use_has_no_better_place() -> None:
    alone = case("CO004")
    alone["devices"][0]["queues"] = ["compute"]
    alone["program"] = [c for c in alone["program"] if c.get("event") != "fetched"]
    assert codes(alone) == []
    shared = case("CO004")
    shared["buffers"]["staging"] = {"memory": "vram0", "usage": "compute", "bytes": 64}
    for name in ("gpu0#w0", "gpu0#w1"):
        shared["tensors"][name] = {
            "dtype": "f32", "shape": [4, 4], "buffer": "staging", "offset": 0
        }  # fmt: skip
    assert codes(shared) == []
    shared["tensors"]["gpu0#w1"]["offset"] = 64
    shared["buffers"]["staging"]["bytes"] = 128
    assert codes(shared) == ["CO004"]


def test_an_upload_of_what_the_split_before_computes_is_no_early_one() -> None:
    """The source is written on the way, by a callback after the matmul."""
    parts = case("CO004")
    write = {"do": "callback", "name": "loads w1", "reads": [], "writes": ["w1"], "split": 1}
    parts["program"].insert(5, write)
    parts["program"].insert(5, {"do": "sync_queue", "queue": "gpu0.compute"})
    assert codes(parts) == []


# -- CO005, CO006 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "words"), [(2, "n_tokens 1..2"), (3, "n_tokens 1..2"), (1, "n_tokens = 1")]
)
def test_a_prefetch_of_a_whole_weight_says_for_which_sizes(most: int, words: str) -> None:
    parts = case("CO005")
    parts["symbols"]["n_tokens"] = [1, most]
    (found,) = costs(parts)
    evidence = dict(found.evidence)
    assert evidence["sizes"] == words
    assert evidence["bytes moved"] == 8 * 4 * 2 * 4
    assert evidence["bytes of the used experts"] == 2 * min(most, 2) * 4 * 2 * 4


def test_a_prefetch_for_batches_that_use_more_than_half_is_none() -> None:
    parts = case("CO005")
    parts["symbols"]["n_tokens"] = [3, 4]
    assert codes(parts) == []


@pytest.mark.parametrize(
    ("experts", "per_token", "tokens"), [(4, 2, 3), (5, 1, 4), (3, 2, 4), (4, 3, 2)]
)
def test_the_expected_share_is_that_of_all_choices_counted(
    experts: int, per_token: int, tokens: int
) -> None:
    choices = list(combinations(range(experts), per_token))
    assert len(choices) == comb(experts, per_token)
    unused = [experts - len(set().union(*batch)) for batch in product(choices, repeat=tokens)]
    share = sum(unused) / len(unused) / experts
    routing = Routing(experts, per_token, Expr.of(per_token * tokens), "ids")
    assert isclose(routing.share_unused(per_token * tokens), share)


def test_a_selective_copy_says_from_which_size_on_it_saves_nothing() -> None:
    parts = case("CO006")
    (found,) = costs(parts)
    assert dict(found.evidence)["sizes"] == "n_tokens 5..8"
    assert 0.5**5 < LEAST_SAVING < 0.5**4
    parts["program"][5]["when"] = "n_tokens <= 4"
    rest = {**parts["program"][5], "do": "copy", "when": "n_tokens >= 5"}
    parts["program"].insert(6, {key: rest[key] for key in rest if key != "ids"})
    assert codes(parts) == []


def test_ids_that_the_host_has_cost_no_round_trip() -> None:
    parts = case("CO006")
    parts["buffers"]["router"]["memory"] = "host"
    parts["splits"][0]["inputs"].append("ids")
    parts["program"][3]["dst"] = "gpu0#ids"
    parts["program"][5]["ids"] = "ids"
    assert codes(parts) == []


# -- PL006 -----------------------------------------------------------------------------------------


def test_what_has_an_effect_at_some_size_is_not_without() -> None:
    """The bank is read where the batch fits, and only there."""
    parts = document(RULES / "extra" / "bk004-small-range.json")
    assert "PL006" not in codes(parts)
    parts = document(INCIDENTS / "B43" / "safe.json")
    assert codes(parts) == ["PL006"]


def test_a_copy_that_nobody_reads() -> None:
    parts = case("PL006", "repaired")
    parts["program"].insert(3, {
        "do": "copy", "src": "x", "dst": "gpu0#x#1", "queue": "gpu0.compute", "split": 0,
    })  # fmt: skip
    assert [f.place for f in costs(parts)] == ["$.program[3]"]
