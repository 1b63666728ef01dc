"""``splitproof plan`` on the example and on a small dump."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from splitproof.main import invoke
from splitproof.model.document import dumps, example, load, loads
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import declared, unplanned
from splitproof.model.read.model_config import ModelShape, model_schedule

#: One graph: an input, a weight that the device holds, a product; all of it on the device.
ROW = {
    "tensors": [
        {"name": "x", "op": "NONE", "type": "f32", "ne": [4, 2], "nbytes": 32, "flags": 1,
         "src": []},
        {"name": "w", "op": "NONE", "type": "f32", "ne": [4, 4], "nbytes": 64, "flags": 0,
         "src": [], "buf": 0, "usage": "w"},
        {"name": "y", "op": "MUL_MAT", "type": "f32", "ne": [4, 2], "nbytes": 32, "flags": 18,
         "src": [1, 0]},
    ],
    "nodes": [2],
    "leafs": [0, 1],
    "backends": [
        {"name": "G0", "buft": 0, "supports": "111", "offload": "001"},
        {"name": "CPU", "buft": 1, "supports": "111", "offload": "000"},
    ],
    "bufts": [
        {"name": "G0", "host": 0, "supported_by": "10"},
        {"name": "CPU", "host": 1, "supported_by": "01"},
    ],
    "result": {
        "backend": [1, 0, 0], "cause": ["1.inp", "1.dst", "1.wgt0"],
        "splits": [{"backend": 0, "start": 0, "end": 1, "inputs": [0]}],
    },
}  # fmt: skip


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "two.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(ROW) + "\n").encode() * 2))
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(dumps(unplanned(loads(example()))))
    return path


def test_a_graph_becomes_a_program_that_check_proves(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert invoke(["plan", str(graph), "-o", str(out)]) == 0
    assert load(out).level == "program"
    assert invoke(["check", "-q", str(out)]) == 0


def test_stop_at_splits(graph: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert invoke(["plan", str(graph), "-o", str(out), "--stop", "splits"]) == 0
    assert load(out).level == "split"


def test_what_has_splits_is_planned_anew_only_if_told(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    invoke(["plan", str(graph), "-o", str(out)])
    again = tmp_path / "again.json"
    assert invoke(["plan", str(out), "-o", str(again)]) == 2
    assert "--anew forgets them" in capsys.readouterr().err
    assert invoke(["plan", str(out), "-o", str(again), "--anew"]) == 0
    assert load(again) == load(out)


def test_a_dump_agrees(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", str(dump), "--compare"]) == 0
    out = capsys.readouterr().out
    assert "AGREES" in out and "of 2 graphs" in out and "6 of 6 tensors" in out


def test_a_dump_that_differs_is_exit_1_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**ROW, "result": {**ROW["result"], "backend": [1, 0, 1]}}
    path = tmp_path / "wrong.jsonl"
    path.write_text(json.dumps(wrong))
    assert invoke(["plan", str(path), "--compare"]) == 1
    assert "'y' is recorded on CPU, and planned on G0" in capsys.readouterr().out
    assert invoke(["plan", str(path), "--compare", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["agrees"], found["assignment"], found["inputs"]) == (False, 0, 1)


def test_several_graphs_are_numbered(dump: Path, tmp_path: Path) -> None:
    assert invoke(["plan", str(dump), "-o", str(tmp_path / "p.json")]) == 0
    assert sorted(p.name for p in tmp_path.glob("p*")) == ["p.0.json", "p.1.json"]
    assert invoke(["plan", str(dump), "-o", str(tmp_path / "one.json"), "--graph", "1"]) == 0
    assert (tmp_path / "one.json").exists()


def test_reasons_in_words_and_as_json(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", str(dump), "--why", "--graph", "0"]) == 0
    out = capsys.readouterr().out
    assert "1 split, 32 B cross per pass" in out
    assert "w lies there" in out
    assert invoke(["plan", str(dump), "--why", "--graph", "0", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == 32
    assert found["nodes"][0]["recorded"] == "1.wgt0"
    assert found["splits"][0]["crossing"][0]["tensor"] == "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to do with the plan"),
        (["--compare", "--why"], "--compare stands alone"),
        (["--why", "--pin", "shared"], "TENSOR=DEVICE was due"),
        (["--why", "--at", "n_tokens=x"], "n_tokens=64 was due"),
        (["--why", "-ot", "w=nowhere"], "there is no memory"),
        (["--why", "--graph", "0"], "--graph is for dumps"),
    ],
)
def test_mistakes_are_exit_2(
    graph: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["plan", str(graph), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_what_has_no_effect_is_said(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", str(graph), "--why", "-ot", "nothing=host"]) == 0
    assert "PL006: override nothing=host moves nothing" in capsys.readouterr().err


def test_the_program_follows_the_protocol(tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    shape = ModelShape("tiny", layers=2, dense=0, hidden=64, experts=8, top_k=2, ffn=64)
    graph.write_text(dumps(model_schedule(shape, tokens=(1, 2))))
    out = tmp_path / "out.json"
    found = {}
    for name, options in {
        "plain": [],
        "staged": ["--protocol", "overlapped", "--prefetch", "staging:2"],
        "chosen": ["--protocol", "overlapped", "--copy-experts", "--place", "order"],
        "cached": ["--protocol", "overlapped", "--moe-cache", "128KiB"],
        "ggml": ["--protocol", "ggml", "--place", "list"],
    }.items():
        assert invoke(["plan", str(graph), "-o", str(out), *options]) == 0
        found[name] = {command.do for command in load(out).program or ()}
    assert "sync_queue" in found["plain"] and "wait" not in found["plain"]
    assert "prefetch" in found["staged"] and "prefetch" not in found["plain"]
    assert "copy_experts" in found["chosen"] and "fill_bank" in found["cached"]
    assert "wait" not in found["ggml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prefetch", "staging:2"], "need overlapped"),
        (["--protocol", "ggml", "--copy-experts"], "need overlapped"),
        (["--prefetch", "staging"], "one of none, one-ahead, staging:N, used-experts was due"),
        (["--moe-cache", "much"], "512MiB was due"),
        (["--moe-cache", "1B"], "less than one token's experts"),
        (["--force-cache"], "are about --moe-cache"),
        (["--slot-ids"], "are about --moe-cache"),
        (["--protocol", "ggml", "--stop", "splits"], "without --stop splits"),
    ],
)
def test_choices_that_do_not_fit(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "graph.json"
    shape = ModelShape("tiny", layers=2, dense=0, hidden=64, experts=8, top_k=2, ffn=64)
    graph.write_text(dumps(model_schedule(shape, tokens=(1, 2))))
    assert invoke(["plan", str(graph), "-o", str(tmp_path / "out.json"), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_cache_serves_the_experts_that_other_options_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ModelShape("tiny", layers=2, dense=0, hidden=64, experts=8, top_k=2, ffn=64)
    source = model_schedule(shape, tokens=(1, 64))
    on_device, _, _ = declared(source, PlanOptions(overrides=(("exps", "vram0"),)))
    graph, out = tmp_path / "graph.json", tmp_path / "out.json"
    graph.write_text(dumps(on_device))
    call = ["plan", str(graph), "-o", str(out), "--moe-cache", "128KiB", "--at", "n_tokens=1"]
    assert invoke(call) == 0
    assert "PL006: moe-cache caches nothing" in capsys.readouterr().err
    for options in (["--cpu-moe"], ["-ncmoe", "2", "--slot-ids"], ["-ot", "exps=host"]):
        assert invoke([*call, *options]) == 0
        assert "PL006" not in capsys.readouterr().err
        program = load(out)
        assert {bank.slot_ids is None for bank in program.graph.banks} == {
            "--slot-ids" not in options
        }
        assert program.graph.symbols == (("n_tokens", 1, 1),)
        assert "fill_bank" in {command.do for command in program.program or ()}


#: The CPU waits for gpu0, and gpu1 still reads the host bytes of `b`, over which `d` lies.
TWO_DEVICES = {
    "format": "splitproof/1",
    "memories": {"host": {"host": True}, "v0": {}, "v1": {}},
    "devices": [
        *({"name": f"gpu{k}", "memory": f"v{k}", "reads": [f"v{k}"], "async": True,
           "copy": "stream"} for k in (0, 1)),
        {"name": "cpu", "memory": "host", "reads": ["host"]},
    ],
    "tensors": {
        name: {"dtype": "f32", "shape": [64], **more}
        for name, more in {
            "x": {"input": True}, "a": {"pin": "gpu0"}, "b": {"pin": "cpu"},
            "c": {"pin": "gpu1", "output": True}, "d": {"pin": "cpu"},
            "e": {"pin": "cpu", "output": True},
        }.items()
    },
    "nodes": [
        {"op": "silu", "dst": dst, "src": [src]}
        for dst, src in (("a", "x"), ("b", "x"), ("c", "b"), ("d", "a"), ("e", "d"))
    ],
    "repeat": 2,
}  # fmt: skip


def planned(tmp_path: Path, *options: str) -> tuple[int, Path]:
    graph, out = tmp_path / "graph.json", tmp_path / "out.json"
    shape = ModelShape("tiny", layers=1, dense=0, hidden=32, experts=4, top_k=2, ffn=32)
    graph.write_text(dumps(model_schedule(shape, tokens=(1, 1))))
    return invoke(["plan", str(graph), "-o", str(out), *options]), out


def test_waits_that_the_plan_does_not_need_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = planned(tmp_path)
    whole = load(out)
    capsys.readouterr()
    code, out = planned(tmp_path, "--fewest-waits")
    err = capsys.readouterr().err
    less = load(out)
    assert code == 0
    assert whole.program is not None and less.program is not None
    kept = list(less.program)
    gone = [c for c in whole.program if not (c in kept and not kept.remove(c))]
    assert gone and {c.do for c in gone} <= {"sync_queue", "wait", "sync_event", "record"}
    assert err.count(": without wait for") == len(gone)
    assert "can go together: proved again" in err
    assert invoke(["check", "-q", str(out)]) == 0


def test_a_plan_that_is_wrong_keeps_its_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "graph.json", tmp_path / "out.json"
    source.write_text(json.dumps(TWO_DEVICES))
    options = ["--protocol", "ggml", "--place", "list", "--fewest-waits"]
    assert invoke(["plan", str(source), "-o", str(out), *options]) == 1
    assert "not tried, as the plan is violated: AL001" in capsys.readouterr().err
    assert not out.exists()
