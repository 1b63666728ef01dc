"""Whole models on a GPU that Numba simulates: the CPU's logits, and the recorded ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from nano import model_path, prove, recorded, tiny_llama, tokens
from splitproof.devices import cuda_ops, gpu_numbers, read_devices
from splitproof.exec.cuda.opening import open_gpus
from splitproof.exec.generate import Generator
from splitproof.exec.programs import Policy
from splitproof.main import invoke
from splitproof.model.read.gguf import read_gguf

sys.path.insert(0, str(Path(__file__).parents[1] / "exec"))
from cuda_launches import held
from cuda_simulator import late, quicken

Captured = pytest.CaptureFixture[str]
CACHED = Policy(cache=128 << 10, prefetch="one-ahead")
STAGED = Policy(prefetch="staging", slots=2)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A KV cache of 16 cells: the simulator computes each attention score by itself."""
    quicken(monkeypatch)
    monkeypatch.setattr("splitproof.exec.generate.CELLS", 16)
    yield


@pytest.mark.parametrize(
    ("name", "policy"), [("qwen3moe-A-q8_0", CACHED), ("olmoe-A-q4_0", STAGED)]
)
def test_a_model_gives_the_recorded_logits(
    monkeypatch: pytest.MonkeyPatch, name: str, policy: Policy
) -> None:
    """All layers, experts cached or brought ahead, each stream as late as it may be."""
    model, prompt = read_gguf(model_path(name)), tokens(name)["prompt"][:2]
    with Generator(model, prove, context=16) as generator:
        due = np.concatenate([generator.feed([token]) for token in prompt])
    setting = read_devices("cuda0,cpu")
    with late(monkeypatch, seed=4), held(monkeypatch) as launches:
        hardware = open_gpus(gpu_numbers(setting))
        with Generator(
            model, prove, context=16, setting=setting, policy=policy, hardware=hardware
        ) as generator:
            got = np.concatenate([generator.feed([token]) for token in prompt])
            results = [session.result() for session in generator.sessions]
            assert generator.idle[next(iter(generator.idle))] == ()
    np.testing.assert_allclose(got, due, atol=1e-5)
    np.testing.assert_allclose(got, np.load(recorded("logits", f"{name}.npy"))[:2], atol=1e-4)
    assert launches.faults == [] and launches.count > 100
    kind = name.rpartition("-")[2]
    assert {f"mul_mat {kind}", f"mul_mat_id {kind}"} <= launches.names
    assert any(entry.startswith("quantise") for entry in launches.names)
    ops = {use.op for result in results for use in result.kernels}
    assert "mul_mat_id" in ops and not any(result.fallbacks for result in results)
    devices = {split.device for result in results for split in result.schedule.splits or ()}
    assert devices == {"cuda0"}
    if policy.cache:
        uses = [use for result in results for use in result.banks.values()]
        assert sum(use.misses for use in uses) > 0
    else:
        assert sum(result.prefetches for result in results) > 0


# -- the command ----------------------------------------------------------------------------------


def run(capsys: Captured, *arguments: str | Path) -> tuple[int, str, str]:
    code = invoke(["run", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_runs_a_prompt_on_a_gpu(capsys: Captured, tmp_path: Path) -> None:
    path, trace = tiny_llama(tmp_path, 4), tmp_path / "trace.json"
    asked = ("--tokens", "5", "--decode", "1")
    _, plain, _ = run(capsys, path, *asked)
    code, out, err = run(
        capsys, path, *asked, "--devices", "cuda0,cpu", "--moe-cache", "64MiB", "--trace", trace,
        "--programs", tmp_path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == plain.splitlines()[0]
    assert "0 by the NumPy reference" in out and "cache     cuda0.0: 8 slots" in out
    (program,) = tmp_path.glob("llama*.json")
    assert invoke(["check", "--trace", str(trace), str(program)]) == 0
    assert capsys.readouterr().out.startswith("FOLLOWED")


@pytest.mark.parametrize(
    ("devices", "more", "message"),
    [
        ("cuda1,cpu", (), "cuda1: there is no such GPU; the last is cuda0"),
        ("cuda0,cuda1,cpu", (), "one GPU and the CPU were due, as cuda0,cpu"),
        ("cpu,cuda0", (), "one GPU and the CPU were due, as cuda0,cpu"),
        ("cuda0,gpu", (), "cuda0,gpu: $: cannot be read: No such file"),
        ("cuda0,cpu", ("--sanitize",), "--sanitize follows bytes of host memory"),
    ],
)
def test_wrong_usage(
    capsys: Captured, tmp_path: Path, devices: str, more: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, tiny_llama(tmp_path), "--tokens", "1", "--devices", devices, *more)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err


def test_too_little_memory_is_one_line(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "numba.cuda.simulator.cudadrv.devices.FakeCUDAContext.get_memory_info",
        lambda self: type("Info", (), {"free": 10_000, "total": 20_000}),
    )
    code, out, err = run(capsys, tiny_llama(tmp_path), "--tokens", "1", "--devices", "cuda0,cpu")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "AL003: cuda0 needs " in err and "10,000 are free" in err and "weights:vram0" in err


def test_without_a_driver_the_simulator_is_named(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path)
    there = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0"}
    code = "from numba import cuda; import sys; sys.exit(cuda.is_available())"
    if subprocess.run([sys.executable, "-c", code], env=there).returncode:
        pytest.skip("there is a GPU here")
    arguments = ["run", str(path), "--tokens", "1", "--devices", "cuda0,cpu"]
    code = f"from splitproof.main import invoke; import sys; sys.exit(invoke({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("splitproof: cuda0: ") and done.stderr.count("\n") == 1
    assert "NUMBA_ENABLE_CUDASIM=1" in done.stderr


def test_a_file_may_name_gpus(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "devices" / "one-device.json").read_text()
    path = tmp_path / "devices.json"
    path.write_text(text.replace("gpu0", "cuda3"))
    setting = read_devices(str(path))
    assert gpu_numbers(setting) == {"cuda3": 3}
    assert setting.devices[0].ops == cuda_ops() and setting.devices[1].ops is None
    value = json.loads(path.read_text())
    value["devices"][0]["ops"] = [{"op": "mul_mat"}]
    path.write_text(json.dumps(value))
    (own,) = read_devices(str(path)).devices[0].ops or ()
    assert own.op == "mul_mat" and gpu_numbers(read_devices(None)) == {}
    assert gpu_numbers(read_devices("cpu")) == {}
