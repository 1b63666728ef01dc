"""Each static rule on a document that breaks it, and on one that is one change apart."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exec_documents import Document, bank, on_cpu, prefetch_under_callback, tensor
from splitproof.exec.evidence import RULES, evidence, examine
from splitproof.exec.replay import replay_ids
from splitproof.model import document
from splitproof.model.report import Finding, Kind

Change = Callable[[Document], Any]


def good() -> Document:
    return prefetch_under_callback(repaired=True)


def lean(parts: Document) -> Document:
    """Without the buffers in which nothing lies."""
    used = {t.get("buffer") for t in parts["tensors"].values()}
    parts["buffers"] = {n: b for n, b in parts["buffers"].items() if n in used}
    return parts


def with_events() -> Document:
    return prefetch_under_callback(repaired=False)


def in_place() -> Document:
    parts = on_cpu(
        [
            {"op": "silu", "dst": "a", "src": ["x"]},
            {"op": "scale", "dst": "y", "src": ["a"], "params": {"scale": 2.0}},
        ],
        {
            "x": tensor([8], "c_host", 0, input=True),
            "a": tensor([8], "c_host", 64),
            "y": tensor([8], view_of="a", offset=0, output=True),
        },
    )
    parts["devices"][1]["in_place"] = [{"op": "scale", "src": 0}]
    return parts


def guarded() -> Document:
    parts = bank(True)
    parts["symbols"] = {"n_tokens": [1, 4]}
    parts["tensors"]["slot_ids"]["offset"] = 2048
    parts["nodes"][0]["when"] = "2*n_tokens <= 4"
    return parts


def repaired(code: str) -> Callable[[], Document]:
    """The repaired twin of a rule's smallest violation."""
    path = Path(__file__).parent.parent / "rules" / code / "repaired.json"
    return lambda: json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def experts() -> Document:
    return on_cpu(
        [{"op": "mul_mat_id", "dst": "y", "src": ["w", "x", "ids"]}],
        {
            "w": tensor([32, 4, 6], "w_host"),
            "x": tensor([32, 1, 2], "c_host", 0, input=True),
            "ids": tensor([2, 2], "c_host", 1024, dtype="i32", input=True, values=[0, 6]),
            "y": tensor([4, 2, 2], "c_host", 2048, output=True),
        },
    )


def two_devices() -> Document:
    parts = with_events()
    other = {**copy.deepcopy(parts["devices"][0]), "name": "gpu1", "waits_for": ["gpu0"]}
    parts["devices"].insert(1, other)
    parts["program"][6]["queue"] = "gpu1.compute"
    return parts


def case(code: str, kind: str = "repaired") -> Document:
    """One of the two documents of a rule."""
    path = Path(__file__).parents[1] / "rules" / code / f"{kind}.json"
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def violating(code: str) -> Change:
    """Make of a rule's repaired document the violating one."""

    def change(parts: Document) -> None:
        parts.clear()
        parts.update(case(code, "violating"))

    return change


def edit(*path: str | int, value: Any = None) -> Change:
    """Set (or, without a value, delete) what lies at a path."""

    def change(parts: Any) -> None:
        for key in path[:-1]:
            parts = parts[key]
        if value is None:
            del parts[path[-1]]
        else:
            parts[path[-1]] = value

    return change


DENY = [{"op": "mul_mat", "src0": "q8_0", "ne": {"src1": [None, ">= 2"]}}]
CASES: list[tuple[str, Callable[[], Document], Change, str, tuple[str, object]]] = [
    ("PL001", good, edit("devices", 0, "deny", value=DENY), "$.nodes[1]",
     ("capability row", "deny mul_mat src0=q8_0 2 <= src1.ne[1]")),
    ("PL001", good, edit("devices", 0, "ops", value=[{"op": "add"}]), "$.splits[1]",
     ("capability row", "ops: no row for mul_mat")),
    ("PL001", good, edit("nodes", 1, "supported_by", value=["cpu"]), "$.program[5]",
     ("capability row", "supported_by [cpu]")),
    ("PL002", good, edit("splits", 1, "inputs", value=["h"]), "$.program[5]",
     ("lies in", "host")),
    ("PL003", good, edit("tensors", "y", "buffer", value="c_host"), "$.nodes[1]",
     ("buffer", "c_host")),
    ("PL004", good, edit("splits", 1, "inputs", value=["h"]), "$.splits[1].inputs",
     ("inputs listed", "h")),
    ("PL004", good, edit("splits", 0, "inputs", value=["w"]), "$.splits[0].inputs",
     ("read by nodes of the split", 0)),
    ("PL005", good, edit("assignment", "y"), "$.nodes[1]", ("device", "none")),
    ("PL005", good, edit("splits", 1, "nodes", value=[0, 2]), "$.splits[1]",
     ("range", "[0, 2)")),
    ("PL006", lambda: case("PL006"), violating("PL006"), "$.program[3]",
     ("computes that it may run beside", 0)),
    ("PL006", lambda: lean(good()), edit("buffers", "pinned", value={
        "memory": "host", "usage": "weights", "bytes": 64}), "$.buffers.pinned",
     ("tensors in it", 0)),
    ("PL006", lambda: lean(good()), edit("tensors", "h", "pin", value="gpu0"), "$.tensors.h",
     ("pinned to", "gpu0")),
    ("PL006", lambda: lean(good()), edit("n_copies", value=2), "$.n_copies",
     ("numbered copies that are read", 0)),
    ("PL006", lambda: lean(bank(True)), edit("nodes", 0, "src", 0, value="up_exps"),
     "$.banks.up_bank", ("nodes that read it", 0)),
    ("PL006", lambda: lean(good()), lambda d: d["program"].insert(3, {
        "do": "copy", "src": "x", "dst": "gpu0#x", "queue": "gpu0.compute", "split": 1}),
     "$.program[3]", ("copied", "gpu0#x")),
    ("PL007", good, edit("program", 5, "when", value="pass == 0"), "$.nodes[1]",
     ("pass", 1)),
    ("PL007", good, lambda d: d["program"].insert(5, d["program"][5]), "$.program[5]",
     ("computes", 2)),
    ("AL002", good, edit("buffers", "c_gpu", "bytes", value=10500), "$.tensors.y",
     ("bytes outside", 10496 + 2 * 128 - 10500)),
    ("AL003", good, edit("memories", "vram0", value={"bytes": 131071}), "$.memories.vram0",
     ("too many", 1)),
    ("AL004", in_place, edit("devices", 1, "in_place", value=[{"op": "add", "src": 0}]),
     "$.nodes[1]", ("in_place of the device", "add over source 0")),
    ("BK001", lambda: bank(True), edit("devices", 0, "deny",
     value=[{"op": "mul_mat_id", "src0": "q8_0"}]), "$.banks.up_bank",
     ("capability row of gpu0", "deny mul_mat_id src0=q8_0")),
    ("BK004", lambda: bank(True), edit("banks", "up_bank", "slots", value=3),
     "$.banks.up_bank.when", ("distinct experts at most", 4)),
    ("BK004", lambda: guarded(), edit("banks", "up_bank", "when", value="n_tokens <= 1"),
     "$.nodes[0]", ("read by", "mul_mat_id y")),
    ("BK005", lambda: bank(True), edit("nodes", 0, "src", 2, value="ids"), "$.nodes[0]",
     ("hold", "expert ids")),
    ("BK005", lambda: bank(True), edit("nodes", 0, "src", 0, value="up_exps"), "$.nodes[0]",
     ("hold", "slots of group g0, layer 0")),
    ("BK010", repaired("BK010"), edit("buffers", "bank0", "memory", value="vram0"),
     "$.program[4]", ("bank", "bank (memory vram0)")),
    ("BK010", repaired("BK010"), edit("memories", "vram1", "bytes", value=100),
     "$.memories.vram1", ("bytes of the banks", 160)),
    ("BK011", repaired("BK011"), edit("banks", "bank1", "group", value="g0"), "$.banks.bank0",
     ("hits", 0)),
    ("PF007", repaired("PF007"), edit("tensors", "slot", "buffer", value="slots0"),
     "$.program[9]", ("staged in", "slot (vram0)")),
    ("CE006", experts, edit("tensors", "ids", "values", value=[0, 7]), "$.nodes[0]",
     ("last byte that the greatest id reads", 7 * 4 * 32 * 4 - 1)),
    ("OR005", with_events,
     lambda d: d["program"].append(d["program"].pop(2) | {"when": "pass >= 1"}), "$.program[5]",
     ("records issued before it", 0)),
    ("OR006", two_devices, edit("devices", 1, "waits_for", value=["cpu"]), "$.program[6]",
     ("event recorded on", "gpu0")),
    ("CO001", lambda: bank(True), lambda d: d["program"].insert(4, {
        "do": "copy", "src": "up_exps", "dst": "gpu0#up_exps", "queue": "gpu0.compute",
        "split": 0}) or d["nodes"].append(
        {"op": "mul_mat_id", "dst": "z", "src": ["up_exps", "x", "ids"]}) or d["tensors"].update(
        z=tensor([32, 2, "n_tokens"])) or d["assignment"].update(z="gpu0"),
     "$.program[4]", ("bytes each pass", 64 * 32 * 8 // 32 * 34)),
    ("CO003", lambda: case("CO003"), violating("CO003"), "$.splits[1]",
     ("bytes each pass", 2 * 4 * 4 * 2)),
    ("CO003", lambda: case("CO003", "violating") | {
        "devices": [{**case("CO003")["devices"][0], "deny": [{"op": "rms_norm"}]},
                    case("CO003")["devices"][1]]}, violating("CO003"), "$.splits[1]",
     ("gpu0 runs", "rms_norm")),
    ("CO004", lambda: case("CO004"), violating("CO004"), "$.program[5]", ("bytes", 64)),
    ("CO005", lambda: case("CO005"), violating("CO005"), "$.program[1]",
     ("experts used at most", 4)),
    ("CO006", lambda: case("CO006"), edit("tensors", "w", "shape", value=[4, 2, 2]),
     "$.program[5]", ("experts", "2 of 2 a token")),
]  # fmt: skip


def finding(rule: str, place: str) -> Finding:
    return Finding(rule, Kind.STATIC, "", place)


@pytest.mark.parametrize(
    ("rule", "base", "change", "place", "fact"), CASES,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)],
)  # fmt: skip
def test_a_broken_rule_is_shown_and_a_kept_one_is_not(
    rule: str, base: Callable[[], Document], change: Change, place: str, fact: tuple[str, object]
) -> None:
    symbols = {"n_tokens": 2}
    parts = base()
    kept = examine(document.from_dict(copy.deepcopy(parts)), finding(rule, place), symbols)
    assert not kept.confirmed and kept.facts[0][0] == "not found"
    change(parts)
    broken = document.from_dict(parts)
    shown = examine(broken, finding(rule, place), symbols)
    assert shown.confirmed
    assert fact in shown.facts
    assert evidence(broken, finding(rule, place), symbols) == shown.facts


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(RULES)


def test_a_fault_elsewhere_does_not_confirm_a_finding() -> None:
    parts = good()
    parts["devices"][0]["deny"] = DENY
    schedule = document.from_dict(parts)
    assert examine(schedule, finding("PL001", "$.nodes[1]"), {"n_tokens": 2}).confirmed
    assert not examine(schedule, finding("PL001", "$.nodes[0]"), {"n_tokens": 2}).confirmed
    assert not examine(schedule, finding("PL001", "$.nodes[1]"), {"n_tokens": 1}).confirmed


def test_sizes_that_are_not_given_are_tried() -> None:
    parts = good()
    parts["devices"][0]["deny"] = [{"op": "mul_mat", "ne": {"src1": [None, ">= 7"]}}]
    shown = examine(document.from_dict(parts), finding("PL001", "$.nodes[1]"), {})
    assert shown.confirmed and ("n_tokens", 32) in shown.facts


def test_an_id_without_an_expert_shows_when_executed() -> None:
    parts = experts()
    assert not replay_ids(document.from_dict(parts), "y", {}).wrong
    parts["tensors"]["ids"]["values"] = [0, 7]
    shown = replay_ids(document.from_dict(parts), "y", {})
    assert shown.reproduced and "y" in shown.summary and "poison" in shown.summary


def test_the_bytes_of_a_bank_away_from_its_device() -> None:
    """The bank of 5 experts of 64 x 32 q8_0 weights travels whole; on its device nothing does."""
    size = 5 * 32 * 64 // 32 * 34
    away, at_home = (document.from_dict(bank(on_device)) for on_device in (False, True))
    facts = dict(evidence(away, finding("BK001", "$.nodes[0]"), {}))
    assert facts["bytes of the bank that travel each pass"] == size
    cost = examine(away, finding("CO001", "$.splits[0]"), {})
    assert cost.confirmed and dict(cost.facts)["bytes each pass"] == size
    assert not examine(at_home, finding("CO001", "$.splits[0]"), {}).confirmed
    split_level = bank(False)
    del split_level["program"]
    cost = examine(document.from_dict(split_level), finding("CO001", "$.splits[0]"), {})
    assert dict(cost.facts)["bytes each pass"] == size
