"""``splitproof devices``, and the blocks of a document that it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import splitproof
from cli_case import Run, one_line, process, run
from splitproof.device_block import block, patterns
from splitproof.exec.cpu.table import TABLE as CPU
from splitproof.exec.cuda import driver
from splitproof.exec.cuda.table import TABLE as CUDA
from splitproof.model.device import Contract
from splitproof.model.document import from_dict
from splitproof.model.plan.planner import plan

__all__ = ["run"]  # a fixture

GRAPH = Path(__file__).parent.parent / "docs" / "examples" / "graph.json"


def graph_on(blocks: dict[str, Any], kind: str, op: str = "silu") -> dict[str, Any]:
    """A product with weights of a type in host memory, and an op after it."""
    size = {"f32": 64 * 32 * 4, "q5_0": 64 * 32 // 32 * 22}[kind]
    return {
        "format": "splitproof/1", "symbols": {"n_tokens": [64, 64]}, **blocks,
        "buffers": {"weights": {"memory": "host", "usage": "weights", "bytes": size}},
        "tensors": {
            "x": {"dtype": "f32", "shape": [64, "n_tokens"], "input": True},
            "w": {"dtype": kind, "shape": [64, 32], "buffer": "weights", "offset": 0},
            "h": {"dtype": "f32", "shape": [32, "n_tokens"]},
            "y": {"dtype": "f32", "shape": [32, "n_tokens"], "output": True},
        },
        "nodes": [
            {"op": "mul_mat", "dst": "h", "src": ["w", "x"]},
            {"op": op, "dst": "y", "src": ["h"]},
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def gpu_blocks() -> dict[str, Any]:
    """Of a machine with one GPU whose copies go in the order of their stream."""
    device = driver.CudaDevice(0, "a GPU", (9, 0), 1 << 30, 1 << 29, 3)
    calls = tuple(
        driver.Call(direction, "pinned", 1, 0.0, 0.1, Contract.STREAM)
        for direction in ("upload", "download")
    )
    blocks = block([device], {0: driver.Copies(calls, 1e9, 1e9)})
    return json.loads(json.dumps(blocks))  # type: ignore[no-any-return]


def test_the_blocks_of_the_simulator_make_a_document_that_is_proved(run: Run) -> None:
    code, text, err = run("devices")
    assert (code, err) == (0, "")
    assert "cuda0 is a simulator" in text and "vram0" in text
    printed = json.loads(text.partition("The blocks of a document:")[2])
    code, out, _ = run("devices", "--format", "json")
    value = json.loads(out)
    assert code == 0 and value["simulated"] and value["why_not"] is None
    assert {key: value[key] for key in printed} == printed
    report = splitproof.check(from_dict(graph_on(printed, "f32")))
    assert report.verdict == "proved", report.gaps


def test_without_a_driver_the_cpu_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "simulated", lambda: False)
    monkeypatch.setattr(driver.cuda, "is_available", lambda: False)
    monkeypatch.setattr(driver.cuda, "cuda_error", lambda: "no\n  driver", raising=False)
    code, text, err = run("devices")
    assert (code, err) == (0, "")
    (line,) = (line for line in text.splitlines() if line.startswith("no GPU: "))
    assert "no driver" in line and "NUMBA_ENABLE_CUDASIM=1" in line
    _, out, _ = run("devices", "--format", "json")
    value = json.loads(out)
    assert value["cuda"] == [] and "no driver" in value["why_not"]
    assert [device["name"] for device in value["devices"]] == ["cpu"]
    blocks = {key: value[key] for key in ("memories", "devices")}
    assert splitproof.check(from_dict(graph_on(blocks, "q5_0"))).verdict == "proved"


def test_in_a_process_of_its_own() -> None:
    there = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    done = process("devices", env=there)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cpu ")


def test_wrong_usage(run: Run) -> None:
    code, out, err = run("devices", "all")
    assert (code, out) == (2, "") and "unexpected extra argument" in one_line(err)


# -- what the tables say ------------------------------------------------------------------------


def placed(document: dict[str, Any]) -> dict[str, str]:
    schedule = plan(from_dict(document))
    assert schedule.assignment is not None
    return dict(schedule.assignment)


def test_a_type_with_a_kernel_goes_to_the_gpu_and_another_does_not(
    gpu_blocks: dict[str, Any],
) -> None:
    assert placed(graph_on(gpu_blocks, "f32"))["h"] == "cuda0"
    assert placed(graph_on(gpu_blocks, "q5_0"))["h"] == "cpu"
    assert splitproof.check(from_dict(graph_on(gpu_blocks, "f32"))).verdict == "proved"


def test_the_blocks_fit_the_example_graph(gpu_blocks: dict[str, Any]) -> None:
    example = json.loads(GRAPH.read_text())
    assert splitproof.check(from_dict(example | gpu_blocks)).verdict == "proved"


def test_each_row_with_types_is_told_with_each_of_them() -> None:
    found = patterns(CUDA)
    assert {"op": "mul_mat", "dst": "f32", "src0": "q4_0", "src1": "f32"} in found
    assert {"op": "soft_max", "dst": "f32", "src0": "f32"} in found
    assert {"op": "view"} in found
    assert {one["op"] for one in found} >= {row.op for row in CUDA}
    assert not any(one == {"op": "mul_mat"} for one in found)


def test_the_cpu_computes_every_type_that_the_reference_does() -> None:
    found = patterns(CPU)
    assert {"op": "mul_mat"} in found and {"op": "custom"} in found
    assert not any(one["op"] == "mul_mat" and len(one) > 1 for one in found)
