"""Every way in which a document can be wrong: one line that names the place and what was due."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from splitproof.model import document
from splitproof.model.document import DocumentError

CASES = Path(__file__).parents[1] / "data" / "cases"
PROGRAM: dict[str, Any] = json.loads((CASES / "pf001.json").read_text())
BANK: dict[str, Any] = json.loads((CASES / "bk001.json").read_text())
GONE = object()

Change = Callable[[dict[str, Any]], None]


def put(*path: str | int, to: Any) -> Change:
    """Set, or with ``GONE`` delete, one value."""

    def change(value: dict[str, Any]) -> None:
        place: Any = value
        for key in path[:-1]:
            place = place[key]
        if to is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = to

    return change


def both(*changes: Change) -> Change:
    def change(value: dict[str, Any]) -> None:
        for one in changes:
            one(value)

    return change


def add(command: dict[str, Any]) -> Change:
    """Append a command; the program had ten, so that it is ``$.program[10]``."""
    return lambda value: value["program"].append(command)


def view(**entry: Any) -> Change:
    return put("tensors", "v", to=entry)


def refused(base: dict[str, Any], change: Change) -> tuple[str, DocumentError]:
    value = copy.deepcopy(base)
    document.from_dict(value)  # right before the change
    change(value)
    text = json.dumps(value, indent=2)
    with pytest.raises(DocumentError) as caught:
        document.loads(text, source="FILE")
    error = caught.value
    assert str(error) == f"FILE:{error.line}:{error.column}: {error.path}: {error.message}"
    assert "\n" not in str(error)
    with pytest.raises(DocumentError) as again:  # the same without a text
        document.from_dict(value)
    assert (again.value.path, again.value.message) == (error.path, error.message)
    assert again.value.line is None
    check_place(text, value, error)
    return text, error


def check_place(text: str, value: Any, error: DocumentError) -> None:
    """Line and column lead to the value at the path, or to its key: by another decoder."""
    assert error.line is not None and error.column is not None
    lines = text.split("\n")
    at = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
    found, _ = json.JSONDecoder().raw_decode(text, at)
    key: str | int = ""
    for key in keys(error.path):
        value = value[key]
    assert found in (value, key)


def keys(path: str) -> list[str | int]:
    """The steps of a JSON path, read back."""
    steps: list[str | int] = []
    rest = path.removeprefix("$")
    while rest:
        if rest.startswith("["):
            inner, _, rest = rest[1:].partition("]")
            steps.append(json.loads(inner))
        else:
            name = rest[1:].split(".")[0].split("[")[0]
            steps.append(name)
            rest = rest[1 + len(name) :]
    return steps


COPY = {"do": "copy", "src": "h", "dst": "gpu0#h", "queue": "gpu0.compute", "split": 1}
EXPERTS = {**COPY, "do": "copy_experts", "ids": "x"}
FILL = {"do": "fill_bank", "banks": ["up_bank"], "ids": "ids", "slot_ids": "slot_ids",
        "queue": "gpu0.compute", "split": 0}  # fmt: skip
BANK_PROGRAM: dict[str, Any] = {**BANK, "program": [{"do": "set_input", "tensor": "x"}]}
SECOND_GPU = {**PROGRAM["devices"][0], "name": "gpu1"}

IN_PROGRAM: list[tuple[Change, str, str]] = [
    # form
    (put("format", to="splitproof/2"), "$.format", '"splitproof/1" was due'),
    (put("format", to=GONE), "$", 'the key "format" is missing'),
    (put("colour", to=1), "$.colour", 'unknown key "colour"'),
    (put("tensors", "x", "shpe", to=1), "$.tensors.x.shpe", 'did you mean "shape"?'),
    (put("program", 4, "nod", to=1), "$.program[4].nod", 'did you mean "node"?'),
    (put("tensors", to=[]), "$.tensors", "found an array of 0; an object was due"),
    (put("nodes", to=None), "$.nodes", "found null; an array was due"),
    (put("tensors", "x", "input", to=1), "$.tensors.x.input", "true or false was due"),
    (put("tensors", "x", "dtype", to=GONE), "$.tensors.x", 'the key "dtype" is missing'),
    (put("tensors", "x", "shape", to=GONE), "$.tensors.x", 'the key "shape" is missing'),
    (put("tensors", "x", "shape", to=[]), "$.tensors.x.shape", "1 to 4 was due"),
    (put("tensors", "x", "shape", 0, to=True), "$.tensors.x.shape[0]", "found true"),
    (put("tensors", "x", "shape", 0, to=6.5), "$.tensors.x.shape[0]", "found the number 6.5"),
    (put("tensors", "x", "shape", 0, to=2**70), "$.tensors.x.shape[0]", "71 bits"),
    (put("repeat", to=True), "$.repeat", "found true; an integer of 1 or more was due"),
    (put("repeat", to=0), "$.repeat", "1 or more was due"),
    (put("n_copies", to=0), "$.n_copies", "1 or more was due"),
    (put("memories", "", to={}), '$.memories[""]', "a name is empty"),
    (put("program", 0, "do", to="jump"), "$.program[0].do", "one of compute, copy"),
    (put("program", 0, "do", to="set_inputs"), "$.program[0].do", 'did you mean "set_input"?'),
    (put("program", 0, "do", to=GONE), "$.program[0]", 'the key "do" is missing'),
    (put("program", 0, to="compute"), "$.program[0]", "an object was due"),
    # sizes
    (put("buffers", "w_host", "bytes", to=-1), "$.buffers.w_host.bytes", "0 or more was due"),
    (put("tensors", "x", "shape", 0, to=-64), "$.tensors.x.shape[0]", "the size -64 is -64"),
    (
        put("tensors", "x", "shape", 1, to="n_tokens - 4"),
        "$.tensors.x.shape[1]",
        "can be -3; 0 or more was due",
    ),
    (put("tensors", "x", "shape", 1, to="n_toks"), "$.tensors.x.shape[1]", 'mean "n_tokens"?'),
    (put("tensors", "x", "shape", 1, to="pass"), "$.tensors.x.shape[1]", "no 'pass' here"),
    (put("tensors", "x", "shape", 1, to="8*"), "$.tensors.x.shape[1]", "not the end"),
    (
        put("tensors", "x", "shape", to=[2**40, 2**40]),
        "$.tensors.x.shape",
        "which no machine holds",
    ),
    (put("tensors", "w", "shape", 0, to=65), "$.tensors.w.shape[0]", "a multiple of 32 was due"),
    (put("tensors", "w", "shape", 0, to="n_tokens"), "$.tensors.w.shape[0]", "multiple of 32"),
    (put("tensors", "x", "strides", to=[4]), "$.tensors.x.strides", "1 stride(s) for 2 dim"),
    (put("tensors", "x", "strides", to=[4, -256]), "$.tensors.x.strides[1]", "0 or more"),
    (put("tensors", "x", "bytes", to=4), "$.tensors.x.bytes", "the shape says the size"),
    (put("tensors", "t", to={"about": True}), "$.tensors.t", "nothing says its size"),
    (put("tensors", "x", "dtype", to="q8"), "$.tensors.x.dtype", 'unknown dtype "q8" (did you'),
    (put("tensors", "x", "values", to=[0, 4]), "$.tensors.x.values", '"x" is f32'),
    (
        both(put("tensors", "x", "dtype", to="i32"), put("tensors", "x", "values", to=[4, 4])),
        "$.tensors.x.values",
        "[4, 4) holds no value",
    ),
    # symbols and guards
    (put("symbols", "n_tokens", to=[3, 2]), "$.symbols.n_tokens", "3 is greater than 2"),
    (put("symbols", "n_tokens", to=[-1, 2]), "$.symbols.n_tokens[0]", "0 or more was due"),
    (put("symbols", "n_tokens", to=[1]), "$.symbols.n_tokens", "found 1 element(s); 2 was due"),
    (put("symbols", "pass", to=[0, 1]), "$.symbols.pass", "is no name of a symbol"),
    (put("symbols", "n-tokens", to=[0, 1]), '$.symbols["n-tokens"]', "is no name of a symbol"),
    (
        put("program", 3, "when", to="n_tokens > 32"),
        "$.program[3].when",
        "holds for no value (n_tokens in 1..32)",
    ),
    (put("program", 3, "when", to="pass == 2"), "$.program[3].when", "(pass in 0..1)"),
    (put("program", 3, "when", to="2*n_tokens == 7"), "$.program[3].when", "for no value"),
    (put("program", 3, "when", to="1 > 2"), "$.program[3].when", "for no value"),
    (
        put("program", 3, "when", to="n_tokens % 4 == 1 and n_tokens % 6 == 2"),
        "$.program[3].when",
        "for no value",
    ),
    (put("program", 3, "when", to="tokens > 3"), "$.program[3].when", 'no symbol "tokens"'),
    (put("nodes", 0, "when", to="n_tokens == 0"), "$.nodes[0].when", "for no value"),
    (put("nodes", 0, "when", to="n_tokens"), "$.nodes[0].when", "is not a condition"),
    # names
    (put("buffers", "w_host", "memory", to="ram"), "$.buffers.w_host.memory", 'no memory "ram"'),
    (put("devices", 0, "memory", to="vram"), "$.devices[0].memory", 'did you mean "vram0"?'),
    (put("devices", 0, "reads", to=["x"]), "$.devices[0].reads[0]", 'no memory "x"'),
    (put("devices", 0, "waits_for", to=["gpu9"]), "$.devices[0].waits_for[0]", "no device"),
    (put("devices", 1, "name", to="gpu0"), "$.devices[1].name", "two devices"),
    (put("devices", 1, "name", to="host"), "$.devices[1].name", 'not called "host"'),
    (put("devices", 1, "name", to="c#u"), "$.devices[1].name", "has no '#'"),
    (put("devices", 0, "queues", to=["a.b"]), "$.devices[0].queues[0]", "has a dot"),
    (put("devices", 0, "queues", to=["a", "a"]), "$.devices[0].queues[1]", "two queues"),
    (put("devices", 0, "queues", to=[]), "$.devices[0].queues", "1 or more was due"),
    (put("tensors", "x", "buffer", to="c_hots"), "$.tensors.x.buffer", 'mean "c_host"?'),
    (put("tensors", "x", "pin", to="npu"), "$.tensors.x.pin", 'no device "npu"'),
    (put("nodes", 0, "dst", to="hh"), "$.nodes[0].dst", 'no tensor "hh"'),
    (put("nodes", 0, "src", 0, to="xx"), "$.nodes[0].src[0]", 'no tensor "xx"'),
    (put("nodes", 0, "op", to="rmsnorm"), "$.nodes[0].op", 'did you mean "rms_norm"?'),
    (put("nodes", 0, "supported_by", to=["n"]), "$.nodes[0].supported_by[0]", "no device"),
    (put("nodes", 0, "wanted_by", to=["n"]), "$.nodes[0].wanted_by[0]", "no device"),
    (put("assignment", "hh", to="cpu"), "$.assignment.hh", 'no tensor "hh"'),
    (put("assignment", "h", to="npu"), "$.assignment.h", 'no device "npu"'),
    (put("splits", 0, "device", to="npu"), "$.splits[0].device", 'no device "npu"'),
    (put("splits", 1, "inputs", 0, to="gpu0#w2"), "$.splits[1].inputs[0]", "no tensor"),
    (put("program", 0, "tensor", to="xx"), "$.program[0].tensor", 'no tensor "xx"'),
    (put("program", 1, "src", to="w2"), "$.program[1].src", 'no tensor "w2"'),
    (put("program", 1, "dst", to="gpu1#w"), "$.program[1].dst", 'no tensor "gpu1#w"'),
    (put("program", 1, "queue", to="gpu0.dma"), "$.program[1].queue", 'no queue "gpu0.dma"'),
    (put("program", 1, "queue", to="gpu0"), "$.program[1].queue", 'no queue "gpu0"'),
    (put("program", 3, "writes", to=["w2"]), "$.program[3].writes[0]", 'no tensor "w2"'),
    (put("program", 3, "reads", to=["usage:all"]), "$.program[3].reads[0]", "unknown usage"),
    (put("program", 4, "node", to="x"), "$.program[4].node", 'no node "x"'),
    (put("program", 4, "queue", to="cpu.c"), "$.program[4].queue", "no queue"),
    (put("program", 4, "copy", to=1), "$.program[4].copy", '"n_copies" is 1'),
    (put("program", 7, "bind", to={"x": "w"}), "$.program[7].bind.x", 'no source of "y"'),
    (put("program", 7, "bind", to={"w": "ww"}), "$.program[7].bind.w", 'no tensor "ww"'),
    (put("program", 7, "bind", to={"w": "h"}), "$.program[7]", 'it stands for "w", q8_0 [64, 32]'),
    (put("program", 6, "event", to="fetch"), "$.program[6].event", 'did you mean "fetched"?'),
    (put("program", 8, to={"do": "sync_event", "event": "e"}), "$.program[8].event",
     'no command records the event "e"'),
    (put("program", 8, "queue", to="gpu0.x"), "$.program[8].queue", "no queue"),
    (put("program", 9, "tensor", to="z"), "$.program[9].tensor", 'no tensor "z"'),
    # capabilities
    (put("devices", 0, "deny", 0, "op", to="sort"), "$.devices[0].deny[0].op", "unknown op"),
    (put("devices", 0, "deny", 0, "src0", to="f"), "$.devices[0].deny[0].src0", "unknown dtype"),
    (put("devices", 0, "deny", 0, "ne", to={"out": [1]}), "$.devices[0].deny[0].ne.out",
     "dst, src0, src1"),
    (put("devices", 0, "deny", 0, "ne", to={"dst": ["about 3"]}),
     "$.devices[0].deny[0].ne.dst[0]", '"<= 256"'),
    (put("devices", 0, "deny", 0, "ne", to={"dst": ["> 3 and < 4"]}),
     "$.devices[0].deny[0].ne.dst[0]", "holds for no size"),
    (put("devices", 0, "over_read", to={"mul_mat_id": {"q8_0": -1}}),
     "$.devices[0].over_read.mul_mat_id.q8_0", "0 or more was due"),
    (put("devices", 0, "in_place", to=[{"op": "ad", "src": 0}]),
     "$.devices[0].in_place[0].op", "unknown op"),
    (put("devices", 0, "copy", to="fast"), "$.devices[0].copy", '"stream"'),
    (put("devices", 0, "copy", to=[{"from": "ram", "is": "sync"}]),
     "$.devices[0].copy[0].from", "no memory"),
    (put("devices", 0, "copy", to=[{"is": "sync"}, {"is": "sync"}]),
     "$.devices[0].copy[1]", "a second contract"),
    # places of tensors
    (view(view_of="w", shape=[64, 33]), "$.tensors.v", "68 byte(s) after the end"),
    (view(view_of="w", shape=[64, 2], offset=2176 - 68), "$.tensors.v.offset", "68 byte(s) after"),
    (view(view_of="w", shape=[64, 2], offset=-68), "$.tensors.v.offset", "68 byte(s) before"),
    (view(view_of="x", shape=[64, "n_tokens"], offset=4), "$.tensors.v.offset", "4 byte(s) after"),
    (view(view_of="x", shape=[64, 2]), "$.tensors.v", "256 byte(s) after the end"),
    (view(view_of="x", shape=[2, "n_tokens"], strides=[4, 300]), "$.tensors.v", "after the end"),
    (view(view_of="zz", shape=[64]), "$.tensors.v.view_of", 'no tensor "zz"'),
    (view(view_of="zz", shape=[64], dtype="f32"), "$.tensors.v.view_of", 'no tensor "zz"'),
    (view(view_of="v", shape=[64]), "$.tensors.v.view_of", "a view of itself: v → v"),
    (view(view_of="v", shape=[64], dtype="f32"), "$.tensors.v.view_of", "itself: v → v"),
    (both(view(view_of="u", shape=[1], dtype="f32"),
          put("tensors", "u", to={"view_of": "v", "shape": [1], "dtype": "f32"})),
     "$.tensors.v.view_of", "a view of itself: v → u → v"),
    (view(view_of="x", shape=[1], buffer="c_host", offset=0), "$.tensors.v.buffer", "no buffer"),
    (put("tensors", "x", "offset", to=GONE), "$.tensors.x", 'the key "offset"'),
    (put("tensors", "x", "buffer", to=GONE), "$.tensors.x.offset", "an offset into nothing"),
    (put("tensors", "x", "offset", to="m"), "$.tensors.x.offset", 'no symbol "m"'),
    (put("placements", to={"x": ["c_host", 0]}), "$.placements.x", "it is placed twice"),
    (put("placements", to={"q": ["c_host", 0]}), "$.placements.q", 'no tensor "q"'),
    (put("placements", to={"cpu#y": ["c", 0]}), '$.placements["cpu#y"][0]', 'no buffer "c"'),
    (put("placements", to={"cpu#y": ["c_host"]}), '$.placements["cpu#y"]', "2 was due"),
    (both(view(view_of="x", shape=[1]), put("placements", to={"v": ["c_host", 0]})),
     "$.placements.v", "place the base"),
    # the graph
    (put("nodes", 1, "dst", to="h"), "$.nodes[1].dst", 'node 0 computes "h" already'),
    (lambda value: value["nodes"].reverse(), "$.nodes[0].src[1]",
     'node 1 computes "h", after node 0 that reads it'),
    (put("nodes", 0, "src", to=["y"]), "$.nodes[0].src[0]", "a cycle: h reads y reads h"),
    (put("nodes", 0, "src", to=["h"]), "$.nodes[0].src[0]", "a cycle: h reads h"),
    (put("nodes", 0, "src", to=[]), "$.nodes[0]", "rms_norm has 1 source(s), not 0"),
    (put("nodes", 1, "src", to=["h", "w"]), "$.nodes[1]", "the result has shape"),
    (put("tensors", "y", "shape", 0, to=16), "$.nodes[1]", "mul_mat gives [32, n_tokens, 1, 1]"),
    (put("nodes", 0, "reads", to=["x"]), "$.nodes[0].reads", 'only the op "custom"'),
    (put("nodes", 0, to={"op": "reshape", "dst": "h", "src": ["x"]}), "$.nodes[0].dst",
     'needs "view_of"'),
    (put("nodes", 0, "params", to={"eps": {"a": 1}}), "$.nodes[0].params.eps", "found an object"),
    # levels, splits, program
    (put("splits", to=GONE), "$.program", '"program" goes with "splits"'),
    (both(put("splits", to=GONE), put("program", to=GONE)), "$.assignment", 'goes with "splits"'),
    (put("splits", 1, "nodes", to=[1, 3]), "$.splits[1].nodes", "[1, 3) is no range of the 2"),
    (put("splits", 1, "nodes", to=[2, 1]), "$.splits[1].nodes", "[2, 1) is no range"),
    (put("splits", 1, "nodes", to=[-1, 1]), "$.splits[1].nodes[0]", "0 or more was due"),
    (put("splits", 0, "callbacks", to=[{"name": "c", "writes": ["q"]}]),
     "$.splits[0].callbacks[0].writes[0]", 'no tensor "q"'),
    (put("program", 4, "split", to=2), "$.program[4].split", "no split 2; 0 to 1 was due"),
    (put("program", 1, "for_split", to=7), "$.program[1].for_split", "no split 7"),
    (put("program", 1, "for_split", to=GONE), "$.program[1]", 'the key "for_split" is missing'),
    *((put("program", i, "split", to=GONE), f"$.program[{i}]", 'the key "split" is missing')
      for i in (1, 3, 4, 5)),
    (add({k: v for k, v in EXPERTS.items() if k != "split"}), "$.program[10]", '"split" is mis'),
    (put("program", 5, "dst", to="gpu0#w"), "$.program[5].dst", "a copy needs equal sizes"),
    (put("devices", 0, "copy", to=[]), "$.program[1].queue",
     'no copy contract from memory "host" to "vram0"'),
    (put("devices", 0, "events", to=False), "$.program[2].queue", "has no events"),
    (both(lambda value: value["devices"].insert(0, SECOND_GPU),
          add({"do": "record", "event": "fetched", "queue": "gpu1.copy"})),
     "$.program[10].queue", 'recorded on "gpu0" already'),
    (add(EXPERTS), "$.program[10].ids", '"x" is f32'),
    (add({k: v for k, v in EXPERTS.items() if k != "ids"}), "$.program[10]", '"used_from" was'),
    (add({**EXPERTS, "ids": None, "used_from": "gpu0#w"}), "$.program[10].used_from",
     "no earlier copy_experts"),
    (put("nodes", 1, "params", to={"src_slot": [9]}), "$.nodes[1].params.src_slot", "per source"),
]  # fmt: skip

IN_BANKS: list[tuple[Change, str, str]] = [
    (put("banks", "up_bank", "slots", to=0), "$.banks.up_bank.slots", "1 or more was due"),
    (put("banks", "up_bank", "slots", to=6), "$.banks.up_bank.slots", "6 slots in a tensor of 5"),
    (put("banks", "up_bank", "caches", to="gate"), "$.banks.up_bank.caches", "no tensor"),
    (put("banks", "up_bank", "ids", to="x"), "$.banks.up_bank.ids", '"x" is f32'),
    (put("banks", "up_bank", "slot_ids", to=GONE), "$.banks.up_bank", '"slot_map" was due'),
    (put("banks", "up_bank", "slot_map", to="ids"), "$.banks.up_bank", '"slot_map" was due'),
    (put("banks", "up_bank", "slot_ids", to="x"), "$.banks.up_bank.slot_ids", '"x" is f32'),
    (put("banks", "up_bank", "policy", to="lfu"), "$.banks.up_bank.policy", '"lru-slots"'),
    (put("banks", "up_bank", "role", to="side"), "$.banks.up_bank.role", '"gate_up"'),
    (put("banks", "up_bank", "when", to="n_tokens > 2"), "$.banks.up_bank.when", "no value"),
    (put("banks", "up", to=BANK["banks"]["up_bank"]), "$.banks.up", "the bank is no tensor"),
    (put("banks", "cpu#up_bank", to=BANK["banks"]["up_bank"]), '$.banks["cpu#up_bank"].role',
     "has role up of layer 0 already"),
    (put("banks", "cpu#up_bank", to={**BANK["banks"]["up_bank"], "layer": 1}),
     '$.banks["cpu#up_bank"]', 'not the bytes of "up_bank"'),
    (put("banks", "cpu#up_bank", to={**BANK["banks"]["up_bank"], "role": "down", "slots": 3}),
     '$.banks["cpu#up_bank"].slots', "of the same group has 4"),
    (both(put("banks", "up_bank", "slot_ids", to=GONE),
          put("banks", "up_bank", "slot_map", to="ids")),
     "$.banks.up_bank.slot_map", "i32 of [1, 8] was due"),
    (put("tensors", "up_bank", "dtype", to="f16"), "$.banks.up_bank", "need q8_0 of [64, 32, sl"),
    (put("tensors", "slot_ids", "shape", 0, to=1), "$.nodes[0]", "the result has shape"),
    (put("devices", 0, "copy", to=[]), "$.splits[0].inputs[0]", "no copy contract"),
]  # fmt: skip

IN_FILLS: list[tuple[Change, str, str]] = [
    (lambda v: v["program"].append({**FILL, "banks": ["up"]}), "$.program[1].banks[0]", "no bank"),
    (lambda v: v["program"].append({**FILL, "banks": []}), "$.program[1].banks", "1 or more"),
    (lambda v: v["program"].append({**FILL, "ids": "x"}), "$.program[1].ids", "f32"),
    (lambda v: v["program"].append({**FILL, "slot_map": "ids"}), "$.program[1]", "was due"),
    (lambda v: v["program"].append({**FILL, "queue": "npu.q"}), "$.program[1].queue", "no queue"),
    (both(put("devices", 0, "copy", to=[]), lambda v: v["program"].append(FILL)),
     "$.program[1].queue", "no copy contract"),
]  # fmt: skip

ROWS = [
    *((PROGRAM, *row) for row in IN_PROGRAM),
    *((BANK, *row) for row in IN_BANKS),
    *((BANK_PROGRAM, *row) for row in IN_FILLS),
]


@pytest.mark.parametrize(
    ("base", "change", "path", "words"), ROWS, ids=[f"{i}:{row[2]}" for i, row in enumerate(ROWS)]
)
def test_refused(base: dict[str, Any], change: Change, path: str, words: str) -> None:
    _, error = refused(base, change)
    assert error.path == path
    assert words in error.message
