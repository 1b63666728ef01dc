"""``splitproof run MODEL.gguf``: prove the programs of a model, run them, say what came out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .exec.generate import GenerateError, Generation, Generator, greedy
from .exec.runtime import RunError, RunResult
from .files import writable
from .model.certificate import Certificate
from .model.read.gguf import ModelError, ModelFile, read_gguf
from .model.schedule import Schedule
from .output import CliError, emit, emit_json, progress, reason
from .proving import prove
from .text import render
from .words import count, size_text


def run_model(
    file: str,
    tokens: Sequence[int],
    decode: int,
    logits: str | None,
    threads: int,
    time_limit: float | None,
    form: str,
    quiet: bool,
) -> None:
    """Run a prompt and greedy decoding; print the tokens, write the logits.

    ``CliError`` (exit 2) for a model that cannot be read or built, and for wrong tokens.
    """
    if logits is not None:
        writable(logits)

    def certificate(schedule: Schedule) -> Certificate:
        return prove(f"{file}: {schedule.name}", schedule, time_limit, form, quiet)

    try:
        model = read_gguf(file)
        context = _context(model, len(tokens) + decode)
        with Generator(model, certificate, context=context, threads=threads) as generator:
            with progress(f"running {file}", quiet) as step:
                made = greedy(
                    generator, tokens, decode, all_logits=logits is not None, progress=step
                )
            results = [session.result() for session in generator.sessions]
            seconds = dict(generator.timing.seconds)
    except (GenerateError, ModelError) as error:
        text = str(error)
        raise CliError(text if text.startswith(file) else f"{file}: {text}") from None
    except RunError as error:
        raise CliError(f"{file}: {error}") from None
    except OSError as error:
        raise CliError(reason(error)) from None
    if logits is not None:
        _save(logits, made)
    if form == "json":
        emit_json(_to_dict(model, tokens, made, results, seconds))
    else:
        emit(render(list(_items(model, tokens, made, results, seconds, quiet)), sys.stdout))


def _context(model: ModelFile, due: int) -> int:
    most = model.keys.get(f"{model.architecture}.context_length", due)
    if isinstance(most, int) and due > most:
        raise GenerateError(f"{due} tokens, prompt and decoded; the model's context has {most}")
    return due


def _save(path: str, made: Generation) -> None:
    try:
        with Path(path).open("wb") as target:
            np.save(target, made.logits)
    except OSError as error:
        raise CliError(reason(error)) from None


def _moved(results: Sequence[RunResult]) -> dict[tuple[str, str], tuple[int, int]]:
    """Bytes and transfers between different memories."""
    total: dict[tuple[str, str], tuple[int, int]] = {}
    for result in results:
        for move in result.traffic:
            if move.source != move.target:
                moved, times = total.get((move.source, move.target), (0, 0))
                total[move.source, move.target] = moved + move.bytes, times + move.transfers
    return total


def _computes(results: Sequence[RunResult]) -> tuple[int, int]:
    """How many ran on compiled kernels, and on the NumPy reference."""
    compiled = sum(use.count for result in results for use in result.kernels if use.compiled)
    return compiled, sum(result.fallbacks for result in results)


def _items(
    model: ModelFile,
    tokens: Sequence[int],
    made: Generation,
    results: Sequence[RunResult],
    seconds: dict[str, float],
    quiet: bool,
) -> Iterator[RenderableType]:
    yield Text(" ".join(map(str, made.tokens)))
    if quiet:
        return
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    kinds = ", ".join(dict.fromkeys(tensor.dtype for tensor in model.tensors.values()))
    weights = sum(tensor.nbytes for tensor in model.tensors.values())
    table.add_row("model", f"{model.architecture}, {size_text(weights)} of weights ({kinds})")
    table.add_row("proved", count(len(results), "program"))
    compiled, fallbacks = _computes(results)
    table.add_row(
        "computed", f"{compiled:,} by compiled kernels, {fallbacks:,} by the NumPy reference"
    )
    for (source, target), (moved, times) in _moved(results).items():
        text = f"{source} → {target}: {size_text(moved)} in {count(times, 'transfer')}"
        table.add_row("moved", text)
    for phase, taken in seconds.items():
        fed = {"prompt": len(tokens), "decode": made.steps}.get(phase, 0)
        table.add_row(phase, _speed(taken, fed))
    yield Text("")
    yield Padding(table, (0, 0, 0, 2))


def _speed(seconds: float, tokens: int) -> str:
    text = f"{seconds:.3f} s"
    if tokens > 0 and seconds > 0:
        text += f", {count(tokens, 'token')}, {tokens / seconds:.1f} a second"
    return text


def _to_dict(
    model: ModelFile,
    tokens: Sequence[int],
    made: Generation,
    results: Sequence[RunResult],
    seconds: dict[str, float],
) -> dict[str, Any]:
    compiled, fallbacks = _computes(results)
    return {
        "format": "splitproof-generation/1",
        "architecture": model.architecture,
        "prompt": list(tokens),
        "tokens": list(made.tokens),
        "programs": len(results),
        "computed": {"compiled": compiled, "reference": fallbacks},
        "traffic": [
            {"from": source, "to": target, "bytes": moved, "transfers": times}
            for (source, target), (moved, times) in _moved(results).items()
        ],
        "seconds": {phase: round(taken, 6) for phase, taken in seconds.items()},
    }
