"""What a document means, once it is read."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from splitproof.model import document
from splitproof.model.command import Callback, Compute, Prefetch
from splitproof.model.device import Contract, CopyRule, OpPattern, SizeRange, Usage
from splitproof.model.symbol import Condition, Expr

CASES = Path(__file__).parents[1] / "data" / "cases"
SHARED = Path(__file__).parents[3] / "shared" / "cases"


def case(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    return value


def test_program_level() -> None:
    schedule = document.load(CASES / "pf001.json")
    assert schedule.level == "program"
    assert schedule.repeat == 2
    assert schedule.graph.ranges == {"n_tokens": (1, 32)}
    gpu0, cpu = schedule.graph.devices
    assert gpu0.asynchronous and not cpu.asynchronous
    assert gpu0.copy == (CopyRule(None, None, Contract.STREAM),)
    assert cpu.queues == ("compute",)
    assert schedule.graph.buffer("w_host").usage is Usage.WEIGHTS
    assert schedule.graph.tensor("y").shape == (Expr.of(32), Expr.of("n_tokens"))
    assert schedule.graph.node("h").param("eps") == 1e-6
    assert schedule.splits is not None and schedule.program is not None
    assert [(s.device, s.start, s.end, s.inputs) for s in schedule.splits] == [
        ("cpu", 0, 1, ()),
        ("gpu0", 1, 2, ("w", "h")),
    ]
    assert schedule.program[1] == Prefetch(
        src="w", dst="gpu0#w", queue="gpu0.copy", split=0, for_split=1
    )
    assert schedule.program[3] == Callback(name="moe_cache", reads=(), writes=("w",), split=0)
    assert schedule.program[4] == Compute(node="h", split=0)


def test_split_level() -> None:
    schedule = document.load(CASES / "bk001.json")
    assert schedule.level == "split"
    (bank,) = schedule.graph.banks
    assert (bank.name, bank.caches, bank.slots, bank.slot_ids) == (
        "up_bank", "up_exps", 4, "slot_ids",
    )  # fmt: skip
    assert bank.when == Condition.of("2*n_tokens <= 4")


def test_graph_level() -> None:
    value = case("bk001")
    for key in ("assignment", "splits"):
        del value[key]
    assert document.from_dict(value).level == "graph"


def test_the_shared_cases_are_the_projects_own() -> None:
    if not SHARED.is_dir():
        pytest.skip("the folder ../shared is not beside this checkout")
    paths = sorted(SHARED.glob("*[0-9]*.json"))
    assert {path.name for path in paths} == {path.name for path in CASES.glob("*.json")}
    for path in paths:
        assert document.load(path) == document.load(CASES / path.name)


def test_every_source_of_a_document() -> None:
    text = (CASES / "pf001.json").read_text()
    due = document.load(CASES / "pf001.json")
    assert document.load(str(CASES / "pf001.json")) == due
    assert document.load(text.encode()) == due
    assert document.load(json.loads(text)) == due
    assert document.loads(text) == due
    assert document.loads("\ufeff".encode() + text.encode()) == due


def test_reading_leaves_its_input_alone() -> None:
    value = case("pf001")
    value["//"] = "a comment"
    before = json.dumps(value)
    document.from_dict(value)
    assert json.dumps(value) == before


def test_capabilities() -> None:
    value = case("bk001")
    gpu0 = value["devices"][0]
    gpu0["ops"] = [{"op": "*", "dst": "f32", "src1": "q4_K"}]
    gpu0["deny"] = [{"op": "mul_mat", "ne": {"src0": [None, "<= 256", ">= 2 and < 9", 4]}}]
    gpu0["over_read"] = {"mul_mat_id": {"q8_0": 512}}
    gpu0["in_place"] = [{"op": "add", "src": 1}]
    gpu0["copy"] = [{"from": "host", "to": "vram0", "is": "staged"}, {"is": "sync"}]
    gpu0["waits_for"] = ["cpu"]
    device = document.from_dict(value).graph.device("gpu0")
    assert device.ops == (OpPattern("*", (("dst", "f32"), ("src1", "q4_k"))),)
    assert device.deny[0].ne == (
        ("src0", 1, SizeRange(None, 256)),
        ("src0", 2, SizeRange(2, 8)),
        ("src0", 3, SizeRange(4, 4)),
    )
    assert device.over_read_bytes("mul_mat_id", "q8_0") == 512
    assert (device.in_place[0].op, device.in_place[0].source) == ("add", 1)
    assert device.contract("host", "vram0") is Contract.STAGED
    assert device.contract("vram0", "host") is Contract.SYNC
    assert device.may_wait_for("cpu")


def test_views_take_their_bases_dtype_and_start_at_it() -> None:
    value = case("pf001")
    value["tensors"]["rows"] = {"view_of": "w", "shape": [64, 8], "offset": 136}
    value["tensors"]["same"] = {"view_of": "rows", "shape": [64, 8]}
    graph = document.from_dict(value).graph
    assert graph.tensor("rows").dtype == graph.tensor("same").dtype == "q8_0"
    assert graph.tensor("same").offset == Expr.of(0)


def test_tensors_known_by_size_alone() -> None:
    value = case("pf001")
    value["tensors"]["kv"] = {"bytes": 4096, "about": True}
    value["tensors"]["part"] = {"view_of": "kv", "shape": [16], "dtype": "f16", "about": True}
    graph = document.from_dict(value).graph
    assert graph.tensor("kv").extent == Expr.of(4096)
    assert graph.tensor("part").offset is None


def test_callbacks_of_splits() -> None:
    value = case("pf001")
    del value["program"]
    value["splits"][1]["callbacks"] = [{"name": "cache", "writes": ["usage:weights"]}]
    schedule = document.from_dict(value)
    assert schedule.splits is not None
    assert schedule.splits[1].callbacks == (
        Callback(name="cache", writes=("usage:weights",), split=1),
    )
    assert document.from_dict(document.to_dict(schedule)) == schedule


def test_comments_are_dropped_everywhere() -> None:
    due = document.from_dict(case("pf001"))
    value = case("pf001")
    places = [value, value["tensors"], value["tensors"]["x"], value["symbols"], value["buffers"]]
    places += [value["devices"][0], value["nodes"][0]["params"], value["program"][2]]
    for place in places:
        place["//"] = ["any", {"value": 1}]
    assert document.from_dict(value) == document.loads(json.dumps(value)) == due


def test_the_example_is_a_split_level_document_with_a_bank() -> None:
    schedule = document.loads(document.example())
    assert schedule.level == "split" and len(schedule.graph.banks) == 1
    assert "//" in document.example()
    for name in ("gpu0#h", "gpu0#slot_ids", *(t.name for t in schedule.graph.tensors)):
        assert not schedule.location(name).space.startswith("own:"), name


# What the checker judges must load: it is a verdict, not an input error.


def _outside_its_buffer(value: dict[str, Any]) -> None:
    value["tensors"]["w"]["offset"] = 10**6


def _over_capacity(value: dict[str, Any]) -> None:
    value["memories"]["vram0"]["bytes"] = 1


def _unsupported(value: dict[str, Any]) -> None:
    value["devices"][0]["ops"] = []


def _unassigned(value: dict[str, Any]) -> None:
    value["assignment"] = {}


def _no_partition(value: dict[str, Any]) -> None:
    value["splits"][0]["nodes"] = [0, 2]


def _input_missing(value: dict[str, Any]) -> None:
    value["splits"][1]["inputs"] = []


def _unreadable(value: dict[str, Any]) -> None:
    value["devices"][0]["reads"] = []


def _never_computed(value: dict[str, Any]) -> None:
    del value["program"][4]


def _wait_before_record(value: dict[str, Any]) -> None:
    value["program"].insert(0, value["program"].pop(6))


def _empty_batch(value: dict[str, Any]) -> None:
    value["symbols"]["n_tokens"] = [0, 32]


@pytest.mark.parametrize(
    "change",
    [
        _outside_its_buffer, _over_capacity, _unsupported, _unassigned, _no_partition,
        _input_missing, _unreadable, _never_computed, _wait_before_record, _empty_batch,
    ],
    ids=lambda f: f.__name__.strip("_"),
)  # fmt: skip
def test_what_rules_judge_loads(change: Any) -> None:
    value = case("pf001")
    change(value)
    document.from_dict(value)


def test_a_working_set_beyond_the_slots_loads() -> None:
    value = case("bk001")
    value["banks"]["up_bank"]["when"] = "n_tokens >= 1"
    document.from_dict(value)


def test_a_copy_lies_in_its_devices_memory_with_or_without_an_entry() -> None:
    value = case("pf001")
    for key in ("buffer", "offset"):
        del value["tensors"]["gpu0#w"][key]
    del value["tensors"]["gpu0#h"]
    schedule = document.from_dict(value)
    for name in ("gpu0#w", "gpu0#h"):
        location = schedule.location(name)
        assert (location.space, location.memory) == (f"own:{name}", "vram0")
        assert schedule.copy_of(name) == ("gpu0", name.removeprefix("gpu0#"))
    assert schedule.copy_of("gpu0#w#1") == ("gpu0", "w")
    assert schedule.copy_of("gpu0#w#²") is None


def test_a_synchronous_device_needs_no_copy_contract() -> None:
    value = case("pf001")
    value["devices"][0]["async"] = False
    value["devices"][0]["copy"] = []
    document.from_dict(value)


def test_twenty_thousand_commands_load_in_little_time() -> None:
    value = case("pf001")
    tensors, program = value["tensors"], value["program"]
    del program[1:]
    value["splits"] = [{"device": "gpu0", "nodes": [0, 10000], "inputs": ["x"]}]
    value["buffers"]["big"] = {"memory": "vram0", "usage": "compute", "bytes": 10**8}
    value["nodes"], before = [], "x"
    for i in range(10000):
        name = f"blk.{i}"
        tensors[name] = {
            "dtype": "f32", "shape": [64, "n_tokens"], "buffer": "big", "offset": i * 8192,
        }  # fmt: skip
        tensors[name + ".part"] = {
            "view_of": name, "shape": [32, "n_tokens"], "strides": [4, 256], "offset": 128,
        }  # fmt: skip
        value["nodes"].append({"op": "silu", "dst": name, "src": [before]})
        program.append({"do": "copy", "src": before, "dst": f"gpu0#{before}",
                        "queue": "gpu0.compute", "split": 0})  # fmt: skip
        program.append({"do": "compute", "node": name, "split": 0, "when": "n_tokens <= 9"})
        before = name
    value["assignment"] = {}
    text = json.dumps(value)
    start = time.process_time()
    schedule = document.loads(text)
    assert time.process_time() - start < 6  # about 1.2 s on an idle core
    assert schedule.program is not None and len(schedule.program) == 20001
