from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exec_documents import (
    CPU,
    GPU,
    Document,
    bank,
    on_cpu,
    prefetch_under_callback,
    shared,
    tensor,
)
from exec_documents import document as make
from splitproof.exec.data import initial_bytes
from splitproof.exec.interleave import IllegalOrder, issue_order, random_order
from splitproof.exec.judge import WrongRead, WrongValue
from splitproof.exec.layout import Layouts
from splitproof.exec.replay import fuzz, replay, run_interleaving
from splitproof.model import document
from splitproof.model.counterexample import Counterexample, Party, Step

TWO = {"n_tokens": 2}


def flat(*commands: Any) -> tuple[Step, ...]:
    """An order of whole commands: a number is ``main``, a pair ``(number, part)``."""
    order = []
    for item in commands:
        command, part = item if isinstance(item, tuple) else (item, "main")
        order += [Step(command, 0, part, "start"), Step(command, 0, part, "end")]
    return tuple(order)


def once(parts: Document) -> Document:
    return {**copy.deepcopy(parts), "repeat": 1}


# -- the prefetch that meets a callback -----------------------------------------------------------

PREFETCH_FIRST = (0, 1, 3, 4, 5, 7, 9)
PREFETCH_AFTER = (0, 3, 1, 4, 5, 7, 9)


def test_a_prefetch_before_the_callback_gives_wrong_numbers() -> None:
    schedule = document.from_dict(once(prefetch_under_callback(repaired=False)))
    result = run_interleaving(schedule, flat(*PREFETCH_FIRST), TWO)
    assert result.reproduced
    read, value = result.wrong[0], result.wrong[1]
    assert isinstance(read, WrongRead) and isinstance(value, WrongValue)
    assert (read.command, read.tensor, read.count) == (7, "gpu0#w", 64 * 32 // 32 * 34)
    assert read.got == "initial w_host, byte 0" and not read.poison and read.differs
    assert read.due == "callback moe_cache (command 3) of w, pass 0, byte 0"
    assert value.tensor == "y" and value.got != value.expected and value.count == 64
    assert "y[0] = " in result.summary and "was due" in result.summary
    assert not run_interleaving(schedule, flat(*PREFETCH_AFTER), TWO).wrong


def test_a_callback_during_the_transfer_gives_poison() -> None:
    schedule = document.from_dict(once(prefetch_under_callback(repaired=False)))
    order = list(flat(*PREFETCH_AFTER))
    order.insert(2, order.pop(4))  # the transfer starts before the callback, and ends after it
    result = run_interleaving(schedule, order, TWO)
    assert isinstance(result.wrong[0], WrongRead) and result.wrong[0].poison
    value = next(item for item in result.wrong if isinstance(item, WrongValue))
    assert np.isnan(value.got) and value.largest == "poison"


def test_an_illegal_order_is_refused() -> None:
    schedule = document.from_dict(once(prefetch_under_callback(repaired=True)))
    with pytest.raises(IllegalOrder, match="step 2"):
        run_interleaving(schedule, flat(0, 4, 1, 2, 3, 5, 7), TWO)


def test_a_callback_that_writes_what_was_there_is_no_wrong_number() -> None:
    """A wrong version with the right bytes is reported, but nothing is reproduced by it."""
    schedule = document.from_dict(once(prefetch_under_callback(repaired=False)))
    ones: dict[str, Any] = {"w": np.ones((64, 32, 1, 1), np.float32)}
    functions = {"moe_cache": lambda pass_, reads: ones}
    wrong = run_interleaving(schedule, flat(*PREFETCH_FIRST), TWO, callbacks=functions)
    assert wrong.reproduced
    ones["w"] = initial_bytes(0, Layouts(schedule, TWO).placed("w"))
    same = run_interleaving(schedule, flat(*PREFETCH_FIRST), TWO, callbacks=functions)
    assert [type(item) for item in same.wrong] == [WrongRead] and not same.reproduced


@pytest.mark.parametrize("name", ["pf001", "own"])
def test_random_orders_find_the_fault_and_never_blame_the_twin(name: str) -> None:
    if name == "pf001":
        bad, good = (
            document.load(shared("cases", f"pf001{suffix}.json")) for suffix in ("", "-repaired")
        )
    else:
        bad, good = (
            document.from_dict(prefetch_under_callback(repaired)) for repaired in (False, True)
        )
    found = fuzz(bad, TWO, runs=50)
    assert found.replay is not None and found.replay.reproduced
    again = run_interleaving(bad, found.replay.order, TWO)
    assert list(map(str, again.wrong)) == list(map(str, found.replay.wrong))
    assert fuzz(good, TWO, runs=1000).replay is None


def test_a_counterexample_is_executed_with_its_sizes() -> None:
    schedule = document.from_dict(once(prefetch_under_callback(repaired=False)))
    party = Party(7, 0, "main", "compute y")
    example = Counterexample((("n_tokens", 5),), party, None, "", "", flat(*PREFETCH_FIRST))
    result = replay(schedule, example)
    assert result.reproduced
    assert isinstance(result.wrong[1], WrongValue) and result.wrong[1].count == 32 * 5


def test_a_callback_without_footprints_may_write_every_weight() -> None:
    parts = once(prefetch_under_callback(repaired=False))
    callback = next(c for c in parts["program"] if c["do"] == "callback")
    callback.pop("writes")
    callback.pop("reads")
    schedule = document.from_dict(parts)
    assert run_interleaving(schedule, flat(*PREFETCH_FIRST), TWO).reproduced
    assert not run_interleaving(schedule, flat(*PREFETCH_AFTER), TWO).wrong


def test_a_callback_without_footprints_touches_what_the_counterexample_names() -> None:
    """It writes ``x`` too: then the order that sets ``h`` before the callback shows it."""
    parts = once(prefetch_under_callback(repaired=True))
    callback = next(c for c in parts["program"] if c["do"] == "callback")
    callback.pop("writes")
    callback.pop("reads")
    parts["program"].remove(callback)
    parts["program"].insert(2, callback)
    schedule = document.from_dict(parts)
    reader, writer = Party(1, 0, "main", "compute h"), Party(2, 0, "main", "callback", "x")
    order = issue_order(schedule, TWO)
    example = Counterexample((("n_tokens", 2),), reader, writer, "", "", order)
    first = replay(schedule, example).wrong[0]
    assert isinstance(first, WrongRead) and first.tensor == "x" and first.differs
    assert not replay(schedule, replace(example, writer=None)).wrong


# -- banks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts", [bank(True), bank(False), bank(True, uses_map=True)], ids=["on", "off", "map"]
)
def test_a_bank_serves_what_its_ids_mean(parts: Document) -> None:
    schedule = document.from_dict(parts)
    assert fuzz(schedule, TWO, runs=200).replay is None


def test_resident_experts_are_used_as_they_are() -> None:
    schedule = document.from_dict(once(bank(True)))
    order = issue_order(schedule, TWO)
    full = (("g0", ((0, 0, 3), (2, 0, 1), (3, 0, 6), (1, 0, 7))),)
    for ids in ((3, 1, 6, 7), (0, 2, 4, 5), (3, 0, 3, 2)):
        integers = (("ids", 0, ids),)
        assert not run_interleaving(schedule, order, TWO, integers=integers, banks=full).wrong


def test_a_host_tensor_that_is_rewritten_makes_its_residents_stale() -> None:
    parts = once(bank(True))
    parts["program"].insert(
        2, {"do": "callback", "name": "adapt", "reads": [], "writes": ["up_exps"], "split": 0}
    )
    schedule = document.from_dict(parts)
    order = issue_order(schedule, TWO)
    integers = (("ids", 0, (3, 1, 3, 1)),)
    assert not run_interleaving(schedule, order, TWO, integers=integers).wrong
    resident = (("g0", ((0, 0, 3),)),)
    stale = run_interleaving(schedule, order, TWO, integers=integers, banks=resident)
    assert isinstance(stale.wrong[0], WrongRead) and stale.reproduced
    assert stale.wrong[0].got.startswith("initial w_host")
    assert stale.wrong[0].due.startswith("callback adapt (command 2) of up_exps")


def test_ids_beyond_the_slots_are_a_fault() -> None:
    parts = once(bank(True))
    parts["symbols"] = {"n_tokens": [1, 3]}
    parts["banks"]["up_bank"]["when"] = "n_tokens <= 3"
    schedule = document.from_dict(parts)
    integers = (("ids", 0, (0, 1, 2, 3, 4, 0)),)
    symbols = {"n_tokens": 3}
    result = run_interleaving(schedule, issue_order(schedule, symbols), symbols, integers=integers)
    assert result.reproduced
    assert "needs 5 slots" in str(result.wrong[0]) and "there are 4" in str(result.wrong[0])


def test_an_upload_beside_the_matmul_is_seen() -> None:
    parts = bank(True)
    fill = next(c for c in parts["program"] if c["do"] == "fill_bank")
    fill["queue"] = "gpu0.copy"
    parts["program"].remove({"do": "sync_queue", "queue": "gpu0.compute"})
    found = fuzz(document.from_dict(parts), TWO, runs=100)
    assert found.replay is not None and found.replay.reproduced
    assert any(isinstance(w, WrongRead) and w.tensor == "up_bank" for w in found.replay.wrong)


# -- selective copies -----------------------------------------------------------------------------


def selective(**change: Any) -> Document:
    """Gate and up experts of one layer are copied by their ids, then used on the GPU."""
    experts = {"dtype": "q8_0"}
    pick = {"do": "copy_experts", "queue": "gpu0.compute", "padding": 34, "split": 0}
    sources = [("gate", 0), ("up", 20480)]
    tensors = {
        "x": tensor([64, 1, 3], "c_host", 0, input=True),
        "ids": tensor([2, 3], "c_host", 1024, dtype="i32", input=True, values=[0, 6]),
    }
    for name, offset in sources:
        tensors[name] = tensor([64, 32, 6], "w_host", offset, **experts)
        tensors[f"gpu0#{name}"] = tensor([64, 32, 6], "c_gpu", offset, **experts)
        tensors[f"y_{name}"] = tensor([32, 2, 3], output=True)
    return make(
        devices=[{**GPU, **change.pop("gpu", {})}, CPU],
        tensors=tensors,
        nodes=[{"op": "mul_mat_id", "dst": f"y_{n}", "src": [n, "x", "ids"]} for n, _ in sources],
        assignment={"y_gate": "gpu0", "y_up": "gpu0"},
        splits=[{"device": "gpu0", "nodes": [0, 2], "inputs": ["x", "ids", "gate", "up"]}],
        program=[
            {"do": "set_input", "tensor": "x"},
            {"do": "set_input", "tensor": "ids"},
            {"do": "copy", "src": "x", "dst": "gpu0#x", "queue": "gpu0.compute", "split": 0},
            {"do": "copy", "src": "ids", "dst": "gpu0#ids", "queue": "gpu0.compute", "split": 0},
            {**pick, "src": "gate", "dst": "gpu0#gate", "ids": "ids", **change},
            {**pick, "src": "up", "dst": "gpu0#up", "used_from": "gpu0#gate"},
            {"do": "compute", "node": "y_gate", "split": 0},
            {"do": "compute", "node": "y_up", "split": 0},
            {"do": "sync_queue", "queue": "gpu0.compute"},
            {"do": "get_output", "tensor": "y_gate"},
            {"do": "get_output", "tensor": "y_up"},
        ],
    )


@pytest.mark.parametrize("contract", ["stream", "sync", "staged"])
def test_selective_copies_bring_what_is_used(contract: str) -> None:
    schedule = document.from_dict(selective(gpu={"copy": contract}))
    assert fuzz(schedule, {}, runs=150).replay is None


def test_unordered_uploads_need_to_be_awaited() -> None:
    found = fuzz(document.from_dict(selective(gpu={"copy": "unordered"})), {}, runs=100)
    assert found.replay is not None and found.replay.reproduced


def test_what_a_kernel_reads_past_an_expert_must_be_defined() -> None:
    over = {"over_read": {"mul_mat_id": {"q8_0": 34}}}
    integers = [("ids", 0, (0, 2, 0, 2, 0, 2)), ("ids", 1, (0, 2, 0, 2, 0, 2))]
    padded = document.from_dict(selective(gpu=over))
    order = issue_order(padded, {})
    assert not run_interleaving(padded, order, {}, integers=integers).wrong
    bare = document.from_dict(selective(gpu=over, padding=0))
    result = run_interleaving(bare, order, {}, integers=integers)
    assert result.wrong and "34 past expert 0" in str(result.wrong[0])


def test_ids_that_are_read_before_they_are_there() -> None:
    parts = selective()
    parts["program"].insert(1, parts["program"].pop(4))
    found = fuzz(document.from_dict(parts), {}, runs=3)
    assert found.replay is not None
    first = found.replay.wrong[0]
    assert isinstance(first, WrongRead) and first.poison and (first.command, first.tensor) == (
        1, "ids"
    )  # fmt: skip


# -- in place, partial writes, aliasing -----------------------------------------------------------


def rows_on_cpu(second: Document, tensors: Document) -> Document:
    return on_cpu(
        [{"op": "silu", "dst": "a", "src": ["x"]}, second],
        {
            "x": tensor([32, 2], "c_host", 0, input=True),
            "a": tensor([32, 2], "c_host", 1024),
            **tensors,
        },
    )


def test_a_result_over_its_own_source_is_computed_from_what_was_there() -> None:
    second = {"op": "scale", "dst": "y", "src": ["a"], "params": {"scale": 3.0}}
    lying = {"y": tensor([32, 2], view_of="a", offset=0, output=True)}
    assert fuzz(document.from_dict(rows_on_cpu(second, lying)), {}, runs=5).replay is None


def test_a_tensor_placed_over_a_live_one_is_a_fault_in_list_order() -> None:
    parts = rows_on_cpu(
        {"op": "add", "dst": "y", "src": ["a", "x"]},
        {"y": tensor([32, 2], "c_host", 2048, output=True)},
    )
    assert fuzz(document.from_dict(parts), {}, runs=3).replay is None
    parts["tensors"]["a"]["offset"] = 128
    found = fuzz(document.from_dict(parts), {}, runs=3)
    assert found.replay is not None and found.replay.reproduced


def test_rows_that_are_not_set_keep_their_version() -> None:
    parts = rows_on_cpu(
        {"op": "set_rows", "dst": "kept", "src": ["a", "row"]},
        {
            "row": tensor([2], "c_host", 512, dtype="i64", input=True, values=[0, 5]),
            "cache": tensor([32, 5], "any_host", 0, dtype="f16", output=True),
            "kept": tensor([32, 5], view_of="cache", offset=0, dtype="f16"),
        },
    )
    parts["tensors"]["total"] = tensor([1, 5], "c_host", 4096, output=True)
    parts["nodes"].append({"op": "sum_rows", "dst": "total", "src": ["kept"]})
    parts["assignment"]["total"] = "cpu"
    parts["splits"][0]["nodes"] = [0, 3]
    parts["program"][-1:-1] = [{"do": "compute", "node": "total", "split": 0}]
    parts["program"].append({"do": "get_output", "tensor": "total"})
    assert fuzz(document.from_dict({**parts, "repeat": 3}), {}, runs=10).replay is None


def test_of_two_settings_in_a_pass_the_first_is_the_wrong_one() -> None:
    parts = once(on_cpu(
        [{"op": "silu", "dst": "y", "src": ["x"]}],
        {"x": tensor([8], "c_host", 0, input=True), "y": tensor([8], "c_host", 64, output=True)},
    ))  # fmt: skip
    parts["program"].insert(2, parts["program"].pop(0))
    parts["program"].insert(0, {"do": "set_input", "tensor": "x"})
    schedule = document.from_dict(parts)
    result = run_interleaving(schedule, flat(0, 1, 2, 3), {})
    first = result.wrong[0]
    assert isinstance(first, WrongRead) and result.reproduced
    assert first.got == "input x (set 1 before the last), pass 0, byte 0"
    assert first.due == "input x, pass 0, byte 0"


def test_custom_ops_show_a_single_wrong_byte() -> None:
    parts = make(
        tensors={
            "w": tensor([1], "w_host", 0, dtype="i8"),
            "big": tensor([4096], "w_host", 64),
            "y": tensor([4], "c_host", 0, output=True),
            "n": tensor([4], "c_host", 64, dtype="i32", values=[2, 9], output=True),
        },
        nodes=[
            {"op": "custom", "dst": "y", "src": ["w", "big"]},
            {"op": "custom", "dst": "n", "src": ["w"]},
        ],
        assignment={"y": "cpu", "n": "cpu"},
        splits=[{"device": "cpu", "nodes": [0, 2], "inputs": []}],
        program=[
            {"do": "compute", "node": "y", "split": 0},
            {"do": "callback", "name": "u", "reads": [], "writes": ["w"], "split": 0},
            {"do": "compute", "node": "n", "split": 0},
            {"do": "get_output", "tensor": "y"},
            {"do": "get_output", "tensor": "n"},
        ],
        repeat=1,
    )
    result = run_interleaving(document.from_dict(parts), flat(0, 1, 2, 3, 4), {})
    wrong = [item.tensor for item in result.wrong if isinstance(item, WrongValue)]
    assert wrong == ["y", "y"]  # the node, and the output


def test_orders_are_the_same_for_the_same_seed() -> None:
    schedule = document.from_dict(prefetch_under_callback(repaired=False))
    orders = [random_order(schedule, TWO, random.Random(4)) for _ in range(2)]
    assert orders[0] == orders[1]
    assert json.dumps(fuzz(schedule, TWO).runs) == json.dumps(fuzz(schedule, TWO).runs)
