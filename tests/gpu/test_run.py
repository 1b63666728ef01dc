"""The script for a GPU, as far as it can run without one: tiny sizes, in the simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_models
import run
import speed
from recorded_models import Model, all_models, made_here, recorded
from splitproof.exec.cuda import driver

pytestmark = pytest.mark.skipif(
    not driver.simulated(), reason="the script itself is tested in the simulator"
)

SCRIPT = Path(__file__).with_name("run.py")
NO_NVVM = 77
RIGHT = (0, json.dumps({"tokens": [7]}), "")


def all_of_it(tmp_path: Path, *more: str) -> tuple[int, dict[str, Any]]:
    target = tmp_path / "gpu.json"
    code = run.main(["--tiny", "--rounds", "2", "-o", str(target), *more])
    return code, json.loads(target.read_text())


def test_everything_in_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def answer(arguments: Sequence[str]) -> tuple[int, str, str]:
        asked.append(arguments)
        np.save(arguments[arguments.index("--logits") + 1], np.zeros((1, 4)))
        return RIGHT

    monkeypatch.setattr(run, "command", lambda simulated, limit: answer)
    code, value = all_of_it(tmp_path)
    assert (code, value["wrong"], value["missing"]) == (0, [], [])
    assert value["format"] == "splitproof-gpu/1" and value["simulated"]
    assert value["device"]["name"] == "Numba's simulator"
    assert {row["row"] for row in value["speed"]["rows"]} == {"GPU decode", "GPU overlap"}
    assert {row["type"] for row in value["speed"]["rows"]} == {"q8_0", "q4_0"}
    assert all(row["met"] is None for row in value["speed"]["rows"])
    told = value["incidents"]["summary"]
    assert told["right"] and told["violated"] == told["shown"] >= 20
    assert told["survived"] == told["repaired"] >= 20 and told["rounds"] == 2 * told["repaired"]
    assert value["kernels"] == {"cases": 2, "failed": [], "finished": True}
    assert value["models"] == [{"name": "made here", "status": "right", "why": "", "largest": 0.0}]
    assert "cuda0,cpu" in asked[1] and "--devices" not in asked[0]
    assert set(value["seconds"]) == {"device", "speed", "incidents", "kernels", "models", "all"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that take no time and find nothing."""
    monkeypatch.setattr(run, "facts", lambda tiny: {})
    monkeypatch.setattr(run, "measure", lambda sizes: {"rows": []})
    monkeypatch.setattr(run, "stream_documents", lambda: iter(()))
    monkeypatch.setattr(run, "models", lambda *_: [])
    good = {"cases": 1, "failed": [], "finished": True}
    monkeypatch.setattr(run, "kernels", lambda tiny, limit: good)


def test_a_stage_that_breaks_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    def broken(sizes: object) -> None:
        raise RuntimeError("illegal address")

    monkeypatch.setattr(run, "measure", broken)
    code, value = all_of_it(tmp_path)
    assert (code, value["wrong"]) == (1, ["speed: RuntimeError: illegal address"])
    assert value["speed"] is None and value["kernels"]["cases"] == 1


def test_what_is_wrong_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    found = {"cases": 2, "failed": ["test_silu: 1 differs"], "finished": True}
    monkeypatch.setattr(run, "kernels", lambda tiny, limit: found)
    absent = {"name": "m", "status": "not available", "why": "no such devices"}
    monkeypatch.setattr(run, "models", lambda *_: [absent])
    code, value = all_of_it(tmp_path)
    assert (code, value["wrong"]) == (1, ["kernel test_silu: 1 differs"])
    assert value["missing"] == ["model m: not available: no such devices"]
    monkeypatch.setattr(run, "kernels", lambda tiny, limit: {**found, "failed": [], "cases": 0})
    code, value = all_of_it(tmp_path)
    assert code == 3 and value["wrong"] == [] and len(value["missing"]) == 2


@pytest.mark.parametrize("name", ["B12/violating", "B12/repaired"])
def test_incidents_for_which_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, name: str
) -> None:
    monkeypatch.setattr(run, "stream_documents", lambda: iter([(name, "")]))
    code, value = all_of_it(tmp_path, "--seconds", "0")
    assert code == 3 and value["wrong"] == []
    assert value["missing"][0].startswith(f"{name}: 0 of 0 rounds faulty (2 asked)")


def test_without_a_gpu_it_says_so_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.main([]) == 3
    assert "NUMBA_ENABLE_CUDASIM is set" in capsys.readouterr().err
    monkeypatch.setattr(driver, "why_not", lambda: "no GPU here")
    monkeypatch.setattr(driver, "simulated", lambda: False)
    assert run.main([]) == 3
    assert capsys.readouterr().err == "no GPU here\n"


def test_a_report_of_pytest_is_read() -> None:
    report = """<testsuites><testsuite><testcase name="a"/><testcase name="b">
    <failure message="assert 1 == 2&#10;more">x</failure></testcase><testcase name="c">
    <skipped/></testcase><testcase name="d"><error message="boom"/></testcase>
    </testsuite></testsuites>"""
    found = run.outcomes(report)
    assert found["cases"] == 3
    assert [line.split(":")[0] for line in found["failed"]] == ["b", "d"]


def test_the_tests_of_kernels_are_found() -> None:
    assert "test_cuda_kernels" in {path.stem for path in run.KERNEL_TESTS}


# -- models -------------------------------------------------------------------------------------


def player(*answers: tuple[int, str, str], logits: float = 0.0) -> recorded_models.Run:
    """A command that gives one answer after the other."""
    left = list(answers)

    def run_it(arguments: Sequence[str]) -> tuple[int, str, str]:
        np.save(arguments[arguments.index("--logits") + 1], np.full((1, 4), logits * len(left)))
        return left.pop(0)

    return run_it


@pytest.mark.parametrize(
    ("answers", "logits", "status", "why"),
    [
        ((RIGHT, RIGHT), 0.0, "right", ""),
        ((RIGHT, (0, '{"tokens": [8]}', "")), 0.0, "wrong", "tokens [8]; [7] was due"),
        ((RIGHT, RIGHT), 0.5, "wrong", "a logit differs by 0.5"),
        ((RIGHT, RIGHT), float("nan"), "wrong", "a logit differs by nan"),
        (
            (RIGHT, (2, "", "splitproof: cuda0: no GPU\n")),
            0.0,
            "wrong",
            "exit code 2: splitproof: cuda0: no GPU",
        ),
        ((RIGHT, (124, "", "it took more than 5 seconds")), 0.0, "not available", "more than 5"),
        ((RIGHT, (4, "", "Traceback\nValueError: x\n")), 0.0, "wrong", "exit code 4: ValueError"),
        (((1, "", "no\n"),), 0.0, "wrong", "on the CPU: no"),
    ],
)
def test_what_becomes_of_a_model(
    answers: tuple[tuple[int, str, str], ...], logits: float, status: str, why: str
) -> None:
    found = made_here(player(*answers, logits=logits))
    assert found.status == status and why in found.why


def test_recorded_models(tmp_path: Path) -> None:
    assert recorded(player(), "m", tmp_path) == Model(
        "m", "not available", "the recorded data is absent"
    )
    for folder in ("models", "logits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "models" / "m.gguf").touch()
    np.save(tmp_path / "logits" / "m.npy", np.ones((1, 4)))
    (tmp_path / "logits" / "tokens.json").write_text('{"m": {"prompt": [1], "greedy": [7]}}')
    assert recorded(player(RIGHT, logits=1.0), "m", tmp_path).status == "right"
    assert recorded(player(RIGHT, logits=2.0), "m", tmp_path).largest == 1.0
    assert [m.name for m in all_models(player(RIGHT, RIGHT), (), tmp_path)] == ["made here"]


# -- speed --------------------------------------------------------------------------------------


def test_a_target_that_is_missed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    share = {"row": "GPU decode", "share": 0.6, "target": 0.7}
    ratio = {"row": "GPU overlap", "ratio": 1.04, "target": 1.05}
    monkeypatch.setattr(speed, "decode", lambda *_: [{**share}, {**share, "share": 0.71}])
    monkeypatch.setattr(speed, "overlap", lambda *_: {**ratio})
    monkeypatch.setattr(speed, "simulated", lambda: False)
    rows = speed.measure(speed.TINY)["rows"]
    assert [row["met"] for row in rows] == [False, True, True] * 2


# -- kernels of the harness ---------------------------------------------------------------------

OFFLINE = """
import json, sys
from types import SimpleNamespace
sys.path.insert(0, {here!r})
from numba import cuda, types
from numba.cuda.cudadrv.error import NvvmSupportError
from numba.cuda.cudadrv.nvvm import NVVM
import streams
try:
    NVVM()
except NvvmSupportError:
    raise SystemExit({no_nvvm})
words, places = (types.Array(kind, 1, "C") for kind in (types.int32, types.int64))
found = {{}}
for name, signature in (
    ("check", (words, places, words, words, types.int64)),
    ("stamp", (words, places, words)), ("move", (words, places, words, places)),
):
    found[name], _ = cuda.compile_ptx(getattr(streams, name).py_func, signature, cc=(9, 0))
print(json.dumps(found))
"""


def test_the_kernels_of_deeds_compile() -> None:
    there = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    code = OFFLINE.format(here=str(SCRIPT.parent), no_nvvm=NO_NVVM)
    done = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True)
    if done.returncode == NO_NVVM:
        pytest.skip("there is no NVVM here")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: "atom" in ptx or "red." in ptx for name, ptx in found.items()} == {
        "check": True, "stamp": False, "move": False,
    }  # fmt: skip
