"""``splitproof import``."""

from __future__ import annotations

from pathlib import Path

import click

from ..files import apart, writable
from ..model.document import DocumentError, dumps
from ..model.read.ggml_dump import read_dump
from ..model.read.llama_log import LoggedGraph, LogSummary, read_log
from ..model.read.source import inflate, is_dump
from ..model.schedule import Schedule
from ..output import CliError, error_line, read_input, write_file

#: Unreadable lines that are shown one by one.
_SHOWN = 10


@click.command("import")
@click.argument("log")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="The document; several graphs get .0, .1, … before its suffix.  - is standard output.",
)
@click.option(
    "--graph", type=click.IntRange(0), metavar="N", help="Only the graph with this number, from 0."
)
def command(log: str, output: str, graph: int | None) -> None:
    """Turn a debug log or a recorded dump into split-level documents, with the splits in it.

    LOG is what llama.cpp prints with GGML_SCHED_DEBUG=2, or a dump that holds a graph a line as
    JSON; also compressed (.gz); - is standard input.  Of a log, the last complete prompt and the
    last decode are taken; what could not be read is listed on standard error.
    """
    if output != "-":
        writable(output)
        apart((output,), (log,))
    try:
        schedules, summary = _read(log, graph)
    except DocumentError as error:
        raise CliError(str(error)) from None
    if summary is not None:
        _tell(log, summary)
    if output == "-" and len(schedules) > 1:
        raise CliError(f"{log}: gives {len(schedules)} graphs: choose one by --graph, or name OUT")
    for path, schedule in zip(_names(output, len(schedules)), schedules, strict=True):
        write_file(path, dumps(schedule))
        if output != "-":
            error_line(f"wrote {path}")


def _read(log: str, graph: int | None) -> tuple[list[Schedule], LogSummary | None]:
    label = "<stdin>" if log == "-" else log
    data = inflate(read_input(log), label)
    if not is_dump(data):
        found = read_log(data, graph=graph, name=label)
        return list(found.schedules), found.summary
    schedules = read_dump(data.splitlines(), name=label)
    if graph is not None:
        if graph >= len(schedules):
            last = len(schedules) - 1
            raise CliError(f"{log}: there is no graph {graph}; the last one is {last}")
        schedules = [schedules[graph]]
    return schedules, None


def _names(output: str, number: int) -> list[str]:
    if number == 1:
        return [output]
    path = Path(output)
    return [str(path.with_name(f"{path.stem}.{i}{path.suffix}")) for i in range(number)]


# -- what is said about a log -------------------------------------------------------------------


def _tell(log: str, summary: LogSummary) -> None:
    unreadable = len(summary.unreadable)
    error_line(
        f"{log}: {summary.lines} lines: {summary.graph_lines} of graphs, "
        f"{summary.other_lines} of other messages, {unreadable} unreadable"
    )
    for number, why in summary.unreadable[:_SHOWN]:
        error_line(f"{log}:{number}: unreadable: {why}")
    if unreadable > _SHOWN:
        error_line(f"{log}: and {unreadable - _SHOWN} more unreadable lines")
    if summary.mixed:
        number, text = summary.mixed[0]
        error_line(
            f"{log}:{number}: another message stands in a line of a graph: {text} "
            f"({len(summary.mixed)} such lines; the operands were read)"
        )
    reserved = sum(graph.phase == "reserved" for graph in summary.graphs)
    error_line(f"{log}: {len(summary.graphs)} graphs, {reserved} of them reserved, not executed")
    for graph in summary.graphs:
        if graph.imported:
            error_line(f"{log}:{graph.line}: {_described(graph)}")


def _described(graph: LoggedGraph) -> str:
    phase = f" ({graph.phase})" if graph.phase else ""
    text = f"graph {graph.number}{phase}: {graph.splits} split(s), {graph.nodes} nodes"
    if not graph.complete:
        text += "; not complete: lines of it are missing"
    if graph.unread:
        text += f"; {graph.unread} split(s) list inputs that no line reads"
    if graph.assumed:
        text += f"; {graph.assumed} source(s) fit several tensors; the likeliest was taken"
    if graph.lost:
        text += f"; of {graph.lost} copies the log does not tell the original"
    if graph.placed:
        text += f"; the device of {graph.placed} tensor(s) is not told and was assumed"
    return text
