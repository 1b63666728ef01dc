"""``splitproof plan``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..files import writable
from ..model.document import DocumentError, dumps, load, loads
from ..model.document_form import MOST_COPIES
from ..model.plan.compare import compare_dump
from ..model.plan.error import PlanError
from ..model.plan.guard import NONE_OFF, Guard
from ..model.plan.lowering import PROTOCOLS, Lowered, Lowering, lower_as
from ..model.plan.options import SPLIT_INPUTS, PlanOptions
from ..model.plan.planner import Planned, declared, plan_regimes, unplanned
from ..model.plan.policy.expert_cache import cache_experts
from ..model.plan.why import Why, why
from ..model.read.ggml_dump import read_dump
from ..model.schedule import Schedule
from ..options import Prefetching, Size, format_option
from ..output import CliError, emit, emit_json, error_line, progress, read_input, write_file
from ..planned import comparison_data, comparison_items, plan_data, plan_items
from ..suppress import worst
from ..text import render

DUMPS = (".jsonl", ".jsonl.gz")


def _pairs(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """``LEFT=RIGHT`` → ``(left, right)``, split at the last ``=``: names may hold one."""
    found = []
    for value in values:
        left, _, right = value.rpartition("=")
        if not (left.strip() and right.strip()):
            raise click.BadParameter(f"{value!r}: {param.metavar} was due", ctx, param)
        found.append((left.strip(), right.strip()))
    return tuple(found)


def _numbers(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, int], ...]:
    found = []
    for (symbol, number), value in zip(_pairs(ctx, param, values), values, strict=True):
        if not number.isdecimal():
            raise click.BadParameter(f"{value!r}: n_tokens=64 was due", ctx, param)
        found.append((symbol, int(number)))
    return tuple(found)


@click.command("plan")
@click.argument("file", metavar="FILE")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="The document; several plans get .0, .1, … before its suffix.  - is standard output.",
)
@click.option(
    "--stop",
    type=click.Choice(("splits", "program")),
    default="program",
    show_default=True,
    help="The level that OUT has.",
)
@click.option(
    "--at",
    metavar="SYMBOL=VALUE",
    callback=_numbers,
    multiple=True,
    help="Plan for one value of a symbol.  Repeatable.",
)
@click.option(
    "--moe-cache",
    "cache",
    type=Size(),
    metavar="SIZE",
    help="An expert cache of so many bytes on each device, as 4GiB; larger batches get a plan "
    "of their own without it.",
)
@click.option(
    "--slot-ids",
    is_flag=True,
    help="With --moe-cache: fills tell the device the slots, and no map is looked up.",
)
@click.option("--force-cache", is_flag=True, help="Even one that never finds an expert (BK011).")
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="plain",
    show_default=True,
    help="Who waits for whom: the host for everything, only dependences, or as ggml does it "
    "(now, or before it mended splits without inputs).",
)
@click.option(
    "--prefetch",
    type=Prefetching(),
    default="none",
    metavar="POLICY",
    help="With overlapped: none, one-ahead, or staging:N, a ring of N slots for weights.",
)
@click.option(
    "--copy-experts",
    is_flag=True,
    help="With overlapped: copy only the experts that the router chose.",
)
@click.option(
    "--place",
    type=click.Choice(("own", "order", "list")),
    default="own",
    show_default=True,
    help="Compute memory: bytes of its own for each tensor, used again where the program's order "
    "allows it, or, as ggml does, in list order.",
)
@click.option(
    "--fewest-waits",
    "fewest",
    is_flag=True,
    help="Leave out the waits that the program does not need, and prove what is left.",
)
@click.option("--why", "explain", is_flag=True, help="Say why, for each node and each split.")
@click.option(
    "--compare", is_flag=True, help="Hold the plan of each graph of a dump against the recorded."
)
@click.option("--anew", is_flag=True, help="Forget the splits that FILE has.")
@click.option("--graph", type=click.IntRange(0), metavar="N", help="Only this graph of a dump.")
@click.option(
    "-ot",
    "--override-tensor",
    "overrides",
    metavar="PATTERN=MEMORY",
    callback=_pairs,
    multiple=True,
    help="Weights in whose names the regular expression is found lie in that memory.  "
    "Repeatable; the first that is found counts.",
)
@click.option(
    "-ncmoe",
    "--n-cpu-moe",
    "cpu_moe",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="The experts of the first N layers lie in the memory of the CPU.",
)
@click.option("-cmoe", "--cpu-moe", "all_cpu_moe", is_flag=True, help="Those of all layers.")
@click.option("--op-offload/--no-op-offload", default=None, help="In place of FILE's choice.")
@click.option(
    "--offload-min-tokens",
    type=click.IntRange(0),
    metavar="N",
    help="The batch from which devices take ops with weights in host memory.",
)
@click.option(
    "--n-copies", type=click.IntRange(1, MOST_COPIES), metavar="N", help="Copies of each input."
)
@click.option(
    "--pin",
    "pins",
    metavar="TENSOR=DEVICE",
    callback=_pairs,
    multiple=True,
    help="A node's device.  Repeatable.",
)
@click.option(
    "--split-inputs",
    type=click.IntRange(1),
    default=SPLIT_INPUTS,
    show_default=True,
    help="Places of a split's input list.",
)
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: str,
    output: str | None,
    stop: str,
    explain: bool,
    compare: bool,
    anew: bool,
    graph: int | None,
    form: str,
    cache: int | None,
    slot_ids: bool,
    force_cache: bool,
    all_cpu_moe: bool,
    protocol: str,
    prefetch: tuple[str, int],
    copy_experts: bool,
    place: str,
    fewest: bool,
    **options: Any,
) -> None:
    """Decide devices and splits as ggml's scheduler does.

    FILE is a document, or a recorded dump (.jsonl, .jsonl.gz), whose recorded splits are
    forgotten.  Where a decision hangs on a symbol there is one plan for each part of its range.
    Exit code 1: with --compare, a plan differs from the recorded one; with --fewest-waits, a plan
    is not right as it is, and nothing is written (3: undecided).
    """
    choices = PlanOptions(**options)
    if all_cpu_moe:
        choices = replace(choices, cpu_moe=None)
    lowering = Lowering(protocol, *prefetch, copy_experts, place)
    if (lowering != Lowering() or fewest) and (stop == "splits" or output is None):
        raise click.UsageError(
            "--protocol, --prefetch, --copy-experts, --place and --fewest-waits are about the "
            "program: they need -o OUT without --stop splits"
        )
    if compare:
        if output is not None or explain or choices != PlanOptions() or cache is not None:
            raise click.UsageError("--compare stands alone: the recorded options decide")
        ctx.exit(_compare(file, form))
    if output is None and not explain:
        raise click.UsageError("say what to do with the plan: -o OUT, --why, or --compare")
    if output is not None and output != "-":
        writable(output)
    if cache is None and (force_cache or slot_ids):
        raise click.UsageError("--force-cache and --slot-ids are about --moe-cache")
    found = _schedules(file, graph, anew)
    if cache is None:
        planned = [p for s in found for p in _plan(file, s, choices)]
    else:
        prepare = partial(_cached, file, cache, slot_ids, force_cache, choices)
        planned = [p for s in found for c, rest in prepare(s) for p in _plan(file, c, rest)]
    for finding in planned[0].findings:
        error_line(f"{finding.rule}: {finding.message}")
    if output is not None:
        raised = [_raised(file, p.schedule, stop, lowering) for p in planned]
        for line in dict.fromkeys(line for one in raised for line in one.idle):
            error_line(f"PL006: {line}")
        programs = [one.schedule for one in raised]
        if fewest:
            programs = _with_fewest_waits(ctx, file, programs)
        _write(output, programs)
    if explain:
        _explain([(p, why(p, choices)) for p in planned], form)
    elif output != "-":
        emit(render([item for p in planned for item in plan_items(p)], sys.stdout))


def _compare(file: str, form: str) -> int:
    try:
        source = file if file != "-" else read_input("-").splitlines()
        found = compare_dump(source)
    except DocumentError as error:
        raise CliError(str(error)) from None
    if form == "json":
        emit_json(comparison_data(found))
    else:
        emit(render(list(comparison_items(found)), sys.stdout))
    return 0 if found.agrees else 1


def _schedules(file: str, graph: int | None, anew: bool) -> list[Schedule]:
    try:
        if not file.endswith(DUMPS):
            if graph is not None:
                raise click.UsageError(f"--graph is for dumps ({', '.join(DUMPS)})")
            schedule = loads(read_input(file)) if file == "-" else load(file)
            return [unplanned(schedule) if anew else schedule]
        found = [unplanned(s) for s in read_dump(file)]
    except DocumentError as error:
        raise CliError(str(error)) from None
    if graph is None:
        return found
    if graph >= len(found):
        raise CliError(f"{file}: there is no graph {graph}; the last one is {len(found) - 1}")
    return [found[graph]]


def _cached(
    file: str, cache: int, slot_ids: bool, force: bool, options: PlanOptions, schedule: Schedule
) -> Iterator[tuple[Schedule, PlanOptions]]:
    """The schedule with a cache, in parts, and what is still to be decided about them."""
    if schedule.splits is not None:
        yield schedule, options
        return
    off = frozenset({Guard.FLOODING}) if force else NONE_OFF
    try:
        schedule, rest, findings = declared(schedule, options)
        found = cache_experts(schedule, cache, off, slot_ids=slot_ids)
    except PlanError as error:
        raise CliError(f"{file}: {error}") from None
    for finding in findings:
        error_line(f"{finding.rule}: {finding.message}")
    if found.idle:
        error_line(f"PL006: moe-cache caches nothing: {found.idle}")
    yield from ((part, rest) for part in found.schedules)


def _plan(file: str, schedule: Schedule, options: PlanOptions) -> tuple[Planned, ...]:
    if schedule.splits is not None:
        raise CliError(
            f"{file}: has splits already (it is at the {schedule.level} level); --anew forgets them"
        )
    try:
        return plan_regimes(schedule, options)
    except PlanError as error:
        raise CliError(f"{file}: {error}") from None


def _raised(file: str, schedule: Schedule, stop: str, lowering: Lowering) -> Lowered:
    if stop == "splits":
        return Lowered(schedule)
    try:
        return lower_as(schedule, lowering)
    except ValueError as error:
        raise CliError(f"{file}: {error}") from None


def _with_fewest_waits(ctx: click.Context, file: str, programs: list[Schedule]) -> list[Schedule]:
    """The programs reduced; what went is told, and if one is not proved the command ends."""
    from ..fewest import fewest_waits  # the verifier, for this alone

    with progress(f"leaving waits out of the plan of {file}"):
        found = [fewest_waits(program) for program in programs]
    for program, one in zip(programs, found, strict=True):
        for line in one.lines:
            error_line(f"{program.name or file}: {line}")
    reduced = [one.schedule for one in found if one.schedule is not None]
    if len(reduced) < len(found):
        ctx.exit(worst(one.code for one in found))
    return reduced


def _write(output: str, schedules: list[Schedule]) -> None:
    if output == "-" and len(schedules) > 1:
        raise CliError(
            f"there are {len(schedules)} plans: name OUT, or choose one by --graph or --at"
        )
    path = Path(output)
    for number, schedule in enumerate(schedules):
        name = output
        if len(schedules) > 1:
            name = str(path.with_name(f"{path.stem}.{number}{path.suffix}"))
        write_file(name, dumps(schedule))
        if output != "-":
            error_line(f"wrote {name}")


def _explain(plans: list[tuple[Planned, Why]], form: str) -> None:
    if form == "json":
        data = [plan_data(planned, reasons) for planned, reasons in plans]
        emit_json(data if len(data) > 1 else data[0])
        return
    items = [item for planned, reasons in plans for item in plan_items(planned, reasons)]
    emit(render(items, sys.stdout))
