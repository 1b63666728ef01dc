"""``splitproof import``."""

from __future__ import annotations

from pathlib import Path

import click

from ..api import import_dump
from ..files import writable
from ..model.document import dumps
from ..model.schedule import Schedule
from ..output import CliError, error_line, read_input, reason, write_file


@click.command("import")
@click.argument("dump")
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
def command(dump: str, output: str, graph: int | None) -> None:
    """Turn a recorded ggml dump into split-level documents, with the recorded splits.

    DUMP holds a graph a line as JSON, also compressed (.gz); - is standard input.
    """
    if output != "-":
        writable(output)
    schedules = _read(dump)
    if graph is not None:
        if graph >= len(schedules):
            last = len(schedules) - 1
            raise CliError(f"{dump}: there is no graph {graph}; the last one is {last}")
        schedules = [schedules[graph]]
    if output == "-" and len(schedules) > 1:
        raise CliError(f"{dump}: has {len(schedules)} graphs: choose one by --graph, or name OUT")
    for path, schedule in zip(_names(output, len(schedules)), schedules, strict=True):
        write_file(path, dumps(schedule))
        if output != "-":
            error_line(f"wrote {path}")


def _read(dump: str) -> list[Schedule]:
    try:
        if dump == "-":
            schedules = import_dump(read_input("-").decode("utf-8").splitlines())
        else:
            schedules = import_dump(dump)
    except OSError as error:
        raise CliError(reason(error) if error.filename else f"{dump}: {error}") from None
    except (ValueError, EOFError) as error:
        raise CliError(str(error) if dump in str(error) else f"{dump}: {error}") from None
    if not schedules:
        raise CliError(f"{dump}: holds no graph; one JSON object a line was due")
    return schedules


def _names(output: str, number: int) -> list[str]:
    if number == 1:
        return [output]
    path = Path(output)
    return [str(path.with_name(f"{path.stem}.{i}{path.suffix}")) for i in range(number)]
