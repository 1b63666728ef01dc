"""``splitproof run MODEL.gguf``: prove the programs of a model and run them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .devices import gpu_numbers, read_devices
from .exec.cpu.table import NoKernelError
from .exec.generate import MOST_TOKENS, GenerateError, Generation, Generator, greedy
from .exec.hardware import THREADS, Hardware, HardwareError, MemoryShortError
from .exec.programs import Policy
from .exec.runtime import RunError
from .exec.watch import Watcher
from .files import writable
from .model.certificate import Certificate
from .model.decoder.site import Setting
from .model.document import dumps
from .model.plan.error import PlanError
from .model.read.gguf import ModelError, ModelFile, read_gguf
from .model.schedule import Schedule
from .model_result import Outcome, outcome_items, outcome_to_dict
from .output import CliError, emit, emit_json, error_line, progress, reason, write_file
from .proving import prove
from .text import render


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks of a model.  ``decode``: tokens after the prompt ``tokens``.

    ``logits``: where they are written.  ``devices``: a file of them, or their names.  ``cache``:
    bytes of an expert cache on each device, ``force_cache``: even a useless one; ``prefetch``: a
    policy and its slots; ``programs``: a folder for the documents that were proved; ``ubatch``:
    the most tokens of a pass; ``sanitize``: whether each byte is watched.
    """

    file: str
    tokens: Sequence[int]
    decode: int
    logits: str | None = None
    threads: int = 1
    devices: str | None = None
    cache: int | None = None
    force_cache: bool = False
    prefetch: tuple[str, int] = ("none", 0)
    programs: str | None = None
    ubatch: int = MOST_TOKENS
    time_limit: float | None = None
    sanitize: bool = False

    @property
    def setting(self) -> Setting | None:
        """The devices; ``None`` for the CPU alone."""
        needed = self.cache is not None or self.prefetch[0] != "none"
        return read_devices(self.devices) if self.devices is not None or needed else None

    @property
    def policy(self) -> Policy:
        policy, slots = self.prefetch
        return Policy(self.cache or 0, self.force_cache, policy, slots)


def run_model(request: Request, watcher: Watcher, form: str, quiet: bool) -> None:
    """Run a prompt and greedy decoding; print the tokens, write the logits.

    ``CliError`` (exit 2) for a model that cannot be read or built, for wrong tokens and devices.
    """
    file = request.file
    if request.logits is not None:
        writable(request.logits)
    if request.programs is not None and not Path(request.programs).is_dir():
        raise CliError(f"{request.programs}: there is no such folder")
    setting = request.setting
    hardware = _hardware(setting)
    if request.sanitize and hardware.gpus:
        raise CliError("--sanitize follows bytes of host memory, which a GPU's are not")

    def certificate(schedule: Schedule) -> Certificate:
        found = prove(f"{file}: {schedule.name}", schedule, request.time_limit, form, quiet)
        if request.programs is not None:
            write_file(str(Path(request.programs) / _file_name(schedule)), dumps(schedule))
        return found

    try:
        model = read_gguf(file)
        context = _context(model, len(request.tokens) + request.decode)
        with Generator(
            model, certificate, context=context, setting=setting, policy=request.policy,
            ubatch=request.ubatch, threads=request.threads, watcher=watcher,
            hardware=hardware,
        ) as generator:  # fmt: skip
            outcome = _generate(generator, model, request, quiet)
    except (GenerateError, ModelError, PlanError, HardwareError, MemoryShortError) as error:
        text = str(error)
        raise CliError(text if text.startswith(file) else f"{file}: {text}") from None
    except (RunError, NoKernelError) as error:
        raise CliError(f"{file}: {error}") from None
    except OSError as error:
        raise CliError(reason(error)) from None
    if request.logits is not None:
        _save(request.logits, outcome.made)
    for line in dict.fromkeys(line for lines in generator.idle.values() for line in lines):
        error_line(f"PL006: {line}")
    if form == "json":
        emit_json(outcome_to_dict(outcome))
    else:
        emit(render(list(outcome_items(outcome, quiet)), sys.stdout))


def _hardware(setting: Setting | None) -> Hardware:
    numbers = gpu_numbers(setting) if setting is not None else {}
    if not numbers:
        return THREADS
    from .exec.cuda.opening import NoGpuError, open_gpus  # Numba takes a third of a second

    try:
        return open_gpus(numbers)
    except NoGpuError as error:
        raise CliError(str(error)) from None


def _generate(generator: Generator, model: ModelFile, request: Request, quiet: bool) -> Outcome:
    every = request.logits is not None
    with progress(f"running {request.file}", quiet) as step:
        made = greedy(generator, request.tokens, request.decode, all_logits=every, progress=step)
    results = tuple(session.result() for session in generator.sessions)
    return Outcome(model, request.tokens, made, results, dict(generator.timing.seconds))


def _file_name(schedule: Schedule) -> str:
    """``olmoe, 1 tokens over 256 cells`` → ``olmoe-1-tokens-over-256-cells.json``."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", schedule.name) + ".json"


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
