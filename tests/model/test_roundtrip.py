"""Schedules out as documents and back: equal, stable, and with a digest of the meaning alone."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splitproof.model import codec, document
from splitproof.model.certificate import Certificate
from splitproof.model.counterexample import Counterexample, Party, Step
from splitproof.model.report import Finding, Gap, Kind, Report, Verdict
from splitproof.model.schedule import Schedule

CASES = sorted((Path(__file__).parents[1] / "data" / "cases").glob("*.json"))

odd_names = st.text('abz.#@ "\\/é→_-1[', min_size=1, max_size=6).filter(
    lambda name: name != "//"  # that key is a comment
)
guards = st.sampled_from(["n <= 3", "pass % 2 == 1 and m >= 1", "2*n - m != 4", "(n + m) % 3 == 1"])
footprints = st.lists(st.sampled_from(["t0", "usage:any", "usage:weights", "g#t1"]), max_size=2)


def maybe(draw: st.DrawFn, entry: dict[str, Any], key: str, values: st.SearchStrategy[Any]) -> None:
    if draw(st.booleans()):
        entry[key] = draw(values)


@st.composite
def devices(draw: st.DrawFn) -> list[dict[str, Any]]:
    gpu: dict[str, Any] = {"name": "g", "memory": "v", "reads": ["v"], "async": True}
    gpu["queues"] = draw(st.sampled_from([["compute"], ["compute", "copy"], ["q"]]))
    pairs = [{"from": "v", "is": "sync"}, {"to": "v", "is": "staged"}, {"is": "unordered"}]
    gpu["copy"] = draw(st.sampled_from(["stream", "unordered", pairs, pairs[2:]]))
    pattern = st.fixed_dictionaries(
        {"op": st.sampled_from(["*", "add", "mul_mat"])},
        optional={
            "dst": st.just("f32"),
            "src1": st.sampled_from(["q8_0", "q4_K"]),
            "ne": st.just({"src0": [None, "<= 256", ">= 2 and <= 8"], "dst": [7, "> 3"]}),
        },
    )
    maybe(draw, gpu, "ops", st.lists(pattern, max_size=2))
    maybe(draw, gpu, "deny", st.lists(pattern, max_size=2))
    maybe(draw, gpu, "over_read", st.just({"mul_mat_id": {"q8_0": 512, "f16": 64}}))
    maybe(draw, gpu, "waits_for", st.just(["c"]))
    maybe(draw, gpu, "in_place", st.just([{"op": "add", "src": 0}]))
    maybe(draw, gpu, "offload_min_tokens", st.integers(0, 64))
    return [gpu, {"name": "c", "memory": "h", "reads": ["h"]}]


@st.composite
def commands(draw: st.DrawFn, queue: str, node: str) -> dict[str, Any]:
    copies: dict[str, Any] = {"src": "t0", "dst": "g#t0", "queue": queue, "split": 0}
    command: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"do": "compute", "node": node, "split": 0},
                {"do": "compute", "node": node, "split": 0, "queue": queue, "copy": 1},
                {"do": "compute", "node": node, "split": 0, "bind": {"t0": "g#t0"}},
                {"do": "copy", **copies},
                {"do": "copy", **copies, "for_split": 0},
                {"do": "prefetch", **copies, "for_split": 0},
                {"do": "copy_experts", **copies, "ids": "ids", "padding": 512},
                {"do": "callback", "name": "call", "split": 0},
                {"do": "set_input", "tensor": "t0"},
                {"do": "get_output", "tensor": "g#t0"},
                {"do": "record", "event": "e", "queue": queue},
                {"do": "wait", "event": "e", "queue": queue},
                {"do": "sync_event", "event": "e"},
                {"do": "sync_queue", "queue": queue},
            ]
        )
    )
    command = copy.deepcopy(command)
    maybe(draw, command, "when", guards)
    if command["do"] == "callback":
        maybe(draw, command, "reads", footprints)
        maybe(draw, command, "writes", footprints)
    return command


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document of any level in which most keys occur."""
    names = draw(st.lists(odd_names, min_size=1, max_size=3, unique=True))
    tensors: dict[str, Any] = {
        "t0": {"dtype": "f32", "shape": [8, "n"], "buffer": "b", "offset": "4*m + 16"},
        "t1": {"dtype": "q8_0", "shape": [32, 2], "pin": "g"},
        "ids": {"dtype": "i32", "shape": [2, "n"], "values": [0, 8], "input": True},
        "part": {"view_of": "t0", "shape": [4, "n"], "strides": [4, 32], "offset": 16},
        "known": {"bytes": 64, "about": True},
    }
    nodes: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        tensors[name] = {"dtype": "f32", "shape": [8, "n"]}
        maybe(draw, tensors[name], "output", st.booleans())
        node = {"op": "custom", "dst": name, "src": ["t0", *names[:i]]}
        maybe(draw, node, "when", guards)
        maybe(draw, node, "reads", st.just(["part"]))
        maybe(draw, node, "writes", st.just([name, "t0"]))
        maybe(draw, node, "supported_by", st.just(["c"]))
        maybe(draw, node, "wanted_by", st.just([]))
        params = {"a": 1, "b": -0.25, "c": "text", "d": [1, 2.5, "x"], "e": True}
        maybe(draw, node, "params", st.sampled_from([{}, params]))
        nodes.append(node)
    value: dict[str, Any] = {
        "format": "splitproof/1",
        "name": draw(st.text(max_size=5)),
        "symbols": {"n": [1, 9], "m": [0, 4]},
        "memories": {"h": {"host": True}, "v": {"bytes": 100}},
        "devices": draw(devices()),
        "buffers": {"b": {"memory": "v", "usage": "any", "bytes": 1000}},
        "tensors": tensors,
        "nodes": nodes,
        "n_copies": 2,
    }
    maybe(draw, value, "op_offload", st.booleans())
    maybe(draw, value, "repeat", st.integers(2, 5))
    value.setdefault("repeat", 2)
    level = draw(st.sampled_from(["graph", "split", "program"]))
    if level == "graph":
        return value
    call = st.fixed_dictionaries(
        {"name": odd_names}, optional={"when": guards, "reads": footprints}
    )
    value["splits"] = [{"device": "g", "nodes": [0, len(names)], "inputs": ["t0"]}]
    maybe(draw, value["splits"][0], "callbacks", st.lists(call, max_size=2))
    maybe(draw, value, "assignment", st.just(dict.fromkeys(names, "g")))
    maybe(draw, value, "placements", st.just({"g#t0": ["b", "8*n"], names[0]: ["b", 0]}))
    if level == "program":
        queue = "g." + value["devices"][0]["queues"][0]
        value["program"] = [
            {"do": "record", "event": "e", "queue": queue},
            *draw(st.lists(commands(queue, names[0]), max_size=6)),
        ]
    return value


@settings(max_examples=60, deadline=None, derandomize=True)
@given(documents())
def test_out_and_back(value: dict[str, Any]) -> None:
    schedule = document.from_dict(value)
    written = document.to_dict(schedule)
    assert document.from_dict(written) == schedule
    assert document.to_dict(document.from_dict(written)) == written
    text = document.dumps(schedule)
    assert document.loads(text) == schedule
    assert json.loads(text) == written
    assert document.loads(document.canonical(schedule)) == _unnamed(schedule)
    assert eval(repr(schedule), _namespace()) == schedule


def _unnamed(schedule: Schedule) -> Schedule:
    """As the canonical form orders it: maps by their keys, and without a name."""
    value = json.loads(document.dumps(schedule))
    value.pop("name", None)
    return document.loads(json.dumps(value, sort_keys=True))


def _namespace() -> dict[str, Any]:
    """What the printed form of a schedule is made of."""
    from splitproof.model import command, device, graph, schedule, symbol, tensor

    space: dict[str, Any] = {}
    for module in (command, device, graph, schedule, symbol, tensor):
        space.update(vars(module))
    return space


def _load(name: str) -> dict[str, Any]:
    path = next(p for p in CASES if p.stem == name)
    value: dict[str, Any] = json.loads(path.read_text())
    return value


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_the_cases(path: Path) -> None:
    schedule = document.load(path)
    assert document.from_dict(document.to_dict(schedule)) == schedule
    text = document.dumps(schedule)
    assert document.dumps(document.loads(text)) == text
    assert all(len(line) <= 100 for line in text.split("\n") if '"name": "' not in line)


def test_the_digest_is_of_the_meaning() -> None:
    value = _load("pf001")
    due = document.digest(document.from_dict(value))
    assert len(due) == 64

    def same(**changed: Any) -> bool:
        return document.digest(document.from_dict({**value, **changed})) == due

    assert same(name="another name")
    assert same(banks={}, op_offload=True, n_copies=1, placements={})
    assert same(tensors=dict(reversed(value["tensors"].items())))
    shape = {**value["tensors"]["x"], "shape": ["60 + 4", "2*n_tokens - n_tokens"]}
    assert same(tensors={**value["tensors"], "x": shape})
    assert document.digest(document.loads(json.dumps(value, indent=7))) == due
    assert not same(repeat=3)
    assert not same(program=value["program"][:-1])
    assert not same(program=[*value["program"][1:], value["program"][0]])
    assert not same(devices=[{**value["devices"][0], "events": True, "deny": []},
                             value["devices"][1]])  # fmt: skip


def test_the_digest_does_not_drift() -> None:
    """A certificate of one release is for the same document in the next."""
    found = document.digest(document.loads(document.example()))
    assert found == "69b2b9351c24f58ff7b74239a00025481e4601fee4a503ba4514c8e0b9a3f691"


# -- reports ------------------------------------------------------------------------------------


def report_of(schedule: Schedule) -> Report:
    counterexample = Counterexample(
        symbols=(("n_tokens", 2),),
        reader=Party(1, 0, "main", "prefetch w", "w", "w_host", (0, 2176)),
        writer=None,
        due="the version of the callback",
        missing="callback before prefetch",
        order=(Step(0, 0, "main", "start"), Step(0, 0, "main", "end"), Step(1, 1, "read", "start")),
        integers=(("ids", 1, (1, 2, 3)),),
        banks=(("g0", ((0, 0, 5), (1, 0, 2))),),
        unique=True,
    )
    finding = Finding(
        "PF001", Kind.VALUE, "message", "$.program[1]", ("PF002",), (("bytes", 7), ("at", "w")),
        counterexample, None,
    )  # fmt: skip
    return Report(
        Verdict.VIOLATED, (finding,), (Gap(Verdict.UNKNOWN, "limit", "$.program[2]"),), ("one",),
        obligations=3, solved=1, passes=2, seconds=0.5, digest=document.digest(schedule),
        crossing=((1, "host", "vram0", 2176),), versions=(("z3", "4.13"),),
    )  # fmt: skip


def test_reports() -> None:
    schedule = document.from_dict(_load("pf001"))
    report = report_of(schedule)
    value = codec.report_to_dict(report, schedule)
    assert value["verdict"] == "violated"
    assert value["document"] == document.to_dict(schedule)
    assert codec.report_from_dict(value) == (report, schedule)
    assert codec.loads_report(codec.dumps(value)) == (report, schedule)
    counterexample = report.findings[0].counterexample
    assert counterexample is not None
    plain = json.loads(json.dumps(codec.counterexample_to_dict(counterexample)))
    assert codec.counterexample_from_dict(plain) == counterexample


def test_certificates(tmp_path: Path) -> None:
    certificate = Certificate("ab" * 32, Verdict.PROVED, ("one",), (("z3", "4.13"),), 2)
    value = codec.certificate_to_dict(certificate)
    assert codec.certificate_from_dict(value) == certificate
    path = tmp_path / "certificate.json"
    path.write_text(codec.dumps(value))
    assert codec.load_certificate(path) == certificate
    path.write_text(codec.dumps({**value, "passes": "two"}))
    with pytest.raises(document.DocumentError, match=r"certificate\.json:\d+:12: \$\.passes: "):
        codec.load_certificate(path)


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ('"violated"', '"maybe"', "$.verdict", 'one of "proved", "violated"'),
        ('"reader"', '"read"', "$.findings[0].counterexample.read", 'did you mean "reader"?'),
        ('"start"', '"begin"', "$.findings[0].counterexample.order[0].phase", '"end", "start"'),
        ('"iteration": 1', '"iteration": 2', "$.findings[0].counterexample.order[2].iteration",
         "there is no pass 2"),
        ('"command": 0', '"command": 10', "$.findings[0].counterexample.order[0].command",
         "there is no command 10"),
        ('"usage": "weights"', '"usage": "weight"', "$.document.buffers.w_host.usage", "weights"),
        ('"buffer": "w_host"', '"buffer": "w"', "$.document.tensors.w.buffer", "no buffer"),
        ('"bytes": 2176', '"bytes": 2177', "$.digest", "about another document"),
        ('"splitproof-report/1"', '"splitproof/1"', "$.format", '"splitproof-report/1" was due'),
        ('"document"', '"documents"', "$", 'the key "document" is missing'),
        ('"obligations": 3', '"obligations": true', "$.obligations", "found true"),
    ],
)  # fmt: skip
def test_bad_reports(old: str, new: str, path: str, words: str) -> None:
    schedule = document.from_dict(_load("pf001"))
    text = codec.dumps(codec.report_to_dict(report_of(schedule), schedule))
    broken = text.replace(old, new, 1)
    assert broken != text
    with pytest.raises(document.DocumentError) as caught:
        codec.loads_report(broken, "REPORT")
    assert caught.value.path == path
    assert words in caught.value.message
    assert str(caught.value).startswith("REPORT:")


@pytest.mark.parametrize("text", ["", "garbage", "[]", "{}", "null", '{"format": 1}', "[" * 10**5])
def test_reports_that_are_none(text: str) -> None:
    with pytest.raises(document.DocumentError) as caught:
        codec.loads_report(text)
    assert "\n" not in str(caught.value)
