"""``splitproof run``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..api import run as run_schedule
from ..exec.compare import Comparison, compare
from ..exec.cpu.table import NoKernelError
from ..exec.reference import OutOfRange, UnsupportedOp, run_reference
from ..exec.runtime import RunError
from ..files import apart, read_certificate, read_schedule
from ..model.certificate import CertificateError
from ..model.read.gguf import is_gguf
from ..model.schedule import Schedule
from ..options import (
    Prefetching,
    Size,
    SymbolRange,
    Tokens,
    format_option,
    on_command_line,
    option,
    quiet_option,
    seed_option,
    time_limit_option,
)
from ..output import CliError, emit, emit_json, progress
from ..proving import prove
from ..result import run_items, run_to_dict
from ..text import render
from ..watched import watching

#: More than any machine has cores for; so many are started.
MOST_THREADS = 1024
#: An op that nobody here can compute.
NO_CODE = (NoKernelError, UnsupportedOp)
#: Parameters that say nothing about a document.
FOR_MODELS = (
    "tokens", "decode", "logits", "threads", "devices", "cache", "force_cache", "prefetch",
    "programs", "ubatch",
)  # fmt: skip


@click.command("run")
@click.argument("file")
@option(
    "--tokens",
    type=Tokens(),
    help="GGUF: the prompt, as numbers of tokens.",
)
@option(
    "--decode",
    type=click.IntRange(0),
    default=8,
    show_default=True,
    metavar="N",
    help="GGUF: how many tokens to decode after the prompt.",
)
@option(
    "--logits",
    type=click.Path(),
    metavar="NPY",
    help="GGUF: write the logits of each position, [positions, vocabulary].",
)
@option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    default=1,
    show_default=True,
    metavar="N",
    help="GGUF: threads that share large products.",
)
@option(
    "--devices",
    type=click.Path(),
    metavar="NAMES|FILE",
    help="GGUF: a GPU and the CPU, as cuda0,cpu; or a file of devices, and where weights and cache "
    "lie.  Default: the CPU; with --moe-cache and --prefetch one more device with a memory of its "
    "own, which a thread stands for.",
)
@option(
    "--moe-cache",
    "cache",
    type=Size(),
    metavar="SIZE",
    help="GGUF: an expert cache of so many bytes on each device, as 64MiB.",
)
@click.option("--force-cache", is_flag=True, help="Even one that never finds an expert (BK011).")
@option(
    "--prefetch",
    type=Prefetching(),
    default="none",
    metavar="POLICY",
    help="GGUF: none, one-ahead, or staging:N, a ring of N slots for weights.",
)
@click.option(
    "--programs",
    type=click.Path(),
    metavar="DIR",
    help="GGUF: write each program that was proved into this folder, as a document.",
)
@option(
    "--ubatch",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    metavar="N",
    help="GGUF: the most tokens of the prompt in one pass.",
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="OUT",
    help="Write what ran when, as Chrome trace events (for Perfetto, and for check --trace).",
)
@option("--sanitize", is_flag=True, help="Hold each read and write to its order while it runs.")
@click.option(
    "--certificate",
    "certificate_path",
    type=click.Path(),
    metavar="C",
    help="What 'check --certificate' wrote; then nothing is checked again.",
)
@click.option(
    "--symbol",
    "symbols",
    type=SymbolRange(),
    multiple=True,
    help="The value of a symbol: n_tokens=4.  Default: its upper bound.  Repeatable.",
)
@seed_option
@time_limit_option
@format_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    tokens: tuple[int, ...] | None,
    decode: int,
    logits: str | None,
    threads: int,
    devices: str | None,
    cache: int | None,
    force_cache: bool,
    prefetch: tuple[str, int],
    programs: str | None,
    ubatch: int,
    trace: str | None,
    sanitize: bool,
    certificate_path: str | None,
    symbols: tuple[tuple[str, int, int], ...],
    seed: int,
    time_limit: float | None,
    form: str,
    quiet: bool,
) -> None:
    """Execute FILE with compiled kernels, and compare its outputs with the reference.

    Of a GGUF model the graph is built, planned, proved and run on its weights: the prompt, then
    greedy decoding with a KV cache; the tokens are printed.

    The schedule is checked first; what is not proved is not run: then the report is shown, with
    the exit code of check.  Exit 1 too if an output differs from the sequential NumPy run by
    more than rounding explains; 3 if rounding can explain any difference.
    """
    apart((logits, trace), (file, devices, certificate_path))
    if is_gguf(file):
        if wrong := on_command_line(ctx, "certificate_path", "symbols", "seed"):
            raise click.UsageError(f"for documents, not for a GGUF: {', '.join(wrong)}")
        if tokens is None:
            raise click.UsageError(f"{file}: a GGUF model needs --tokens, such as --tokens 1,2,3")
        from ..model_run import Request, run_model

        request = Request(
            file, tokens, decode, logits=logits, threads=threads, devices=devices, cache=cache,
            force_cache=force_cache, prefetch=prefetch, programs=programs, ubatch=ubatch,
            time_limit=time_limit, sanitize=sanitize,
        )  # fmt: skip
        with watching(trace, sanitize) as watcher:
            run_model(request, watcher, form, quiet)
        return
    wrong = on_command_line(ctx, *FOR_MODELS)
    if wrong and (file == "-" or Path(file).exists()):
        raise click.UsageError(f"for GGUF models, and {file} is none: {', '.join(wrong)}")
    schedule = read_schedule(file)
    values = _values(file, schedule, symbols)
    if certificate_path is not None:
        certificate = read_certificate(certificate_path)
    else:
        certificate = prove(file, schedule, time_limit, form, quiet)
    with (
        progress(f"running {file}", quiet),
        _one_line(certificate_path or file),
        watching(trace, sanitize) as watcher,
    ):
        result = run_schedule(
            schedule, certificate=certificate, symbols=values, seed=seed, watcher=watcher
        )
        reference = run_reference(schedule, result.symbols, seed=seed)
    comparison = compare(result, reference)
    if form == "json":
        emit_json(run_to_dict(result, comparison))
    else:
        emit(render(list(run_items(result, comparison, quiet)), sys.stdout))
    ctx.exit(_exit_code(comparison))


class Unsupported(CliError):
    """Something that cannot be executed here."""

    exit_code = 3


@contextmanager
def _one_line(source: str) -> Iterator[None]:
    """What may go wrong in a run, as one line: an op without a kernel or reference is exit 3."""
    try:
        yield
    except CertificateError as error:
        raise CliError(f"{source}: {error}") from None
    except UnsupportedOp as error:
        raise Unsupported(f"{source}: cannot be executed: {error}") from None
    except RunError as error:
        kind = Unsupported if isinstance(error.__cause__, NO_CODE) else CliError
        raise kind(f"{source}: {error}") from None
    except OutOfRange as error:
        raise CliError(f"{source}: {error}") from None


def _exit_code(comparison: Comparison) -> int:
    """1 for a difference, 3 where rounding alone may give any difference, else 0."""
    if not comparison.agrees:
        return 1
    return 3 if comparison.undecided else 0


def _values(
    file: str, schedule: Schedule, symbols: tuple[tuple[str, int, int], ...]
) -> dict[str, int]:
    ranges = schedule.graph.ranges
    values = {}
    for name, low, high in symbols:
        if name not in ranges:
            there = ", ".join(ranges) or "none"
            raise CliError(f"{file}: --symbol {name}: no such symbol; there are: {there}")
        least, most = ranges[name]
        if name in values:
            raise CliError(f"{file}: --symbol {name}: given twice; one value was due")
        if low != high or not least <= low <= most:
            raise CliError(f"{file}: --symbol {name}: one value in {least}..{most} was due")
        values[name] = low
    return values
