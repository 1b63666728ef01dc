"""Models on the GPU against recorded logits, and against the CPU, by the command line.

Every model runs in a process of its own: ``splitproof run MODEL --devices cuda0,cpu``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
sys.path.append(str(TESTS / "models"))

from nano import FEW, SHARED, tiny_llama  # noqa: E402

DEVICES = "cuda0,cpu"
#: As for the CPU (``tests/models``).
TOLERANCE = 1e-4
#: Tokens decoded, and what the model is asked that is written here.
DECODED, ASKED = 8, (1, 5, 17)

#: The exit code of what took too long.
TIMED_OUT = 124

#: Arguments of the command → exit code, standard output, standard error.
Run = Callable[[Sequence[str]], tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class Model:
    """``status``: ``right``, ``wrong``, or ``not available``; ``why``: what differs, or is absent;
    ``largest``: the greatest difference of a logit, ``None`` where none was compared."""

    name: str
    status: str
    why: str = ""
    largest: float | None = None


def command(simulated: bool, limit: float) -> Run:
    """``splitproof run`` in a process of its own, for at most ``limit`` seconds."""
    there = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1" if simulated else "0"}

    def run(arguments: Sequence[str]) -> tuple[int, str, str]:
        full = [sys.executable, "-m", "splitproof", "run", *arguments]
        try:
            done = subprocess.run(full, env=there, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return TIMED_OUT, "", f"it took more than {limit:.0f} seconds"
        return done.returncode, done.stdout, done.stderr

    return run


def all_models(run: Run, names: Sequence[str] = FEW, folder: Path = SHARED) -> list[Model]:
    """One that is written here, and recorded ones."""
    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(made_here, run)]
        tasks += [pool.submit(recorded, run, name, folder) for name in names]
        return [task.result() for task in tasks]


def recorded(run: Run, name: str, folder: Path) -> Model:
    """Tokens and logits of llama.cpp."""
    path, logits = folder / "models" / f"{name}.gguf", folder / "logits" / f"{name}.npy"
    if not path.exists():
        return Model(name, "not available", "the recorded data is absent")
    due = json.loads((folder / "logits" / "tokens.json").read_text())[name]
    return _compared(run, name, path, due["prompt"], due["greedy"][:DECODED], np.load(logits))


def made_here(run: Run) -> Model:
    """A small mixture of experts: the GPU against the CPU."""
    name = "made here"
    with tempfile.TemporaryDirectory() as place:
        path, target = tiny_llama(Path(place), 4), Path(place) / "cpu.npy"
        code, out, err = run([*_arguments(path, ASKED, target)])
        if code:
            return Model(name, "wrong", f"on the CPU: {_line(err)}")
        due = json.loads(out)["tokens"]
        return _compared(run, name, path, ASKED, due, np.load(target))


def _compared(
    run: Run, name: str, path: Path, prompt: Sequence[int], due: Sequence[int], logits: np.ndarray
) -> Model:
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "gpu.npy"
        code, out, err = run([*_arguments(path, prompt, target), "--devices", DEVICES])
        if code == TIMED_OUT:
            return Model(name, "not available", _line(err))
        if code:
            return Model(name, "wrong", f"exit code {code}: {_line(err)}")
        found, got = json.loads(out)["tokens"], np.load(target)
    if found != list(due):
        return Model(name, "wrong", f"tokens {found}; {list(due)} was due")
    largest = float(np.abs(got - logits).max())
    if not largest <= TOLERANCE:  # a NaN is not
        why = f"a logit differs by {largest:.3g}; at most {TOLERANCE:g} was due"
        return Model(name, "wrong", why, largest)
    return Model(name, "right", "", largest)


def _arguments(path: Path, prompt: Sequence[int], target: Path) -> list[str]:
    return [
        str(path), "--tokens", ",".join(map(str, prompt)), "--decode", str(DECODED),
        "--logits", str(target), "--format", "json",
    ]  # fmt: skip


def _line(text: str) -> str:
    """The last line of an error: of a traceback, what was raised."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "without a word"
