"""Graphs whose plan hangs on a symbol: each part of the range is proved for itself."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import splitproof
from cli_case import Run, run

__all__ = ["run"]  # a fixture


def graph(pin: bool) -> dict[str, object]:
    """A product with a weight of the host, which the device takes from 32 tokens on; ``pin``: and
    a node that is bound to a device which supports up to 39 tokens only."""
    deny = [{"op": "silu", "ne": {"dst": [None, ">= 40"]}}]
    more = {"pin": "gpu0"} if pin else {}
    return {
        "format": "splitproof/1",
        "symbols": {"n_tokens": [1, 64]},
        "memories": {"host": {"host": True}, "v0": {}},
        "buffers": {"weights": {"memory": "host", "usage": "weights", "bytes": 4096}},
        "devices": [
            {"name": "gpu0", "memory": "v0", "reads": ["v0"], "async": True, "copy": "stream",
             "deny": deny},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "tensors": {
            "x": {"dtype": "f32", "shape": [32, "n_tokens"], "input": True},
            "w": {"dtype": "f32", "shape": [32, 32], "buffer": "weights", "offset": 0},
            "y": {"dtype": "f32", "shape": [32, "n_tokens"]},
            "z": {"dtype": "f32", "shape": [32, "n_tokens"], "output": True, **more},
        },
        "nodes": [
            {"op": "mul_mat", "dst": "y", "src": ["w", "x"]},
            {"op": "silu", "dst": "z", "src": ["y"]},
        ],
    }  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> str:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph(False)))
    return str(path)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(graph(True)))
    return str(path)


def test_each_part_is_proved(run: Run, written: str) -> None:
    code, out, err = run("check", "-q", written)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"PROVED  {written} [n_tokens = 1..31]"
    last = out.splitlines()[-1]
    assert last.startswith(f"PROVED  {written}: proved for n_tokens = 1..31, proved for n_tokens =")


def test_a_finding_names_its_part(run: Run, wrong: str) -> None:
    code, out, _ = run("check", "-q", wrong)
    assert code == 1
    lines = out.splitlines()
    assert f"PROVED  {wrong} [n_tokens = 1..31]" in lines
    (bad,) = (i for i, line in enumerate(lines) if line.startswith("VIOLATED") and "[" in line)
    assert "[n_tokens = 32..64]" in lines[bad] and "PL001" in lines[bad + 1]
    assert lines[-1].startswith(f"VIOLATED  {wrong}: ")
    assert "violated for n_tokens = 32..64" in lines[-1]


def test_a_part_of_the_range_needs_its_plans_only(run: Run, wrong: str) -> None:
    code, out, _ = run("check", "-q", "--symbol", "n_tokens=2..8", wrong)
    assert code == 0 and out.splitlines() == [f"PROVED  {wrong} [n_tokens = 1..31]"]
    assert run("check", "-q", "--symbol", "n_tokens=35..50", wrong)[0] == 1


def test_each_part_has_a_report_that_can_be_replayed(run: Run, wrong: str, tmp_path: Path) -> None:
    code, out, _ = run("check", "--format", "json", wrong)
    reports = json.loads(out)
    assert code == 1 and [r["verdict"] for r in reports][-1] == "violated"
    (tmp_path / "reports.json").write_text(out)
    code, out, _ = run("replay", str(tmp_path / "reports.json"))
    assert code == 1 and "CONFIRMED  PL001" in out


def test_what_is_about_one_program_wants_one(run: Run, written: str, tmp_path: Path) -> None:
    for options in (["--certificate", str(tmp_path / "c.json")], ["--syncs"]):
        code, _, err = run("check", *options, written)
        assert code == 2 and "splitproof plan" in err
    assert run("run", written)[0] == 2


def test_plan_writes_a_document_for_each_part(run: Run, written: str, tmp_path: Path) -> None:
    assert run("plan", written, "-o", str(tmp_path / "p.json"))[0] == 0
    files = sorted(tmp_path.glob("p.*.json"))
    ranges = [splitproof.load(file).graph.ranges["n_tokens"] for file in files]
    assert ranges[0] == (1, 31) and ranges[-1][1] == 64
    assert all(low == before + 1 for (_, before), (low, _) in pairwise(ranges))
    assert [part for part, _ in splitproof.programs(written)] == [
        f"n_tokens = {low}..{high}" for low, high in ranges
    ]
    assert run("check", "-q", *map(str, files))[0] == 0
