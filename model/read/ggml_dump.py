"""Recorded ggml graphs (JSON lines) as split-level schedules.

One line holds one graph with what ggml's scheduler was given (tensors, backends, buffer types,
what each backend supports and wants) and what it answered (a backend per tensor, the splits).
Buffer types become memories and backends become devices.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator

import msgspec

from ..document_check import check_document
from ..fault import Fault, show_path
from ..schedule import Schedule
from .ggml_graph import graph_schedule
from .ggml_rows import DumpError, GraphRow
from .source import read_bytes

__all__ = ["DumpError", "read_dump", "read_recorded"]


def read_dump(
    source: str | os.PathLike[str] | Iterable[str | bytes], *, name: str | None = None
) -> list[Schedule]:
    """The graphs of a dump, one per line, each as a split-level schedule.

    ``source``: a path (plain or gzip, told by its content), ``"-"`` for standard input, or the
    lines themselves; ``name``: what messages call it.  A view whose place is not recorded and
    does not follow from its op is ``about``; so is a result whose shape its op does not give
    (synthetic recordings have such): only its size in bytes is believed.  ``DumpError`` for
    everything that cannot be read, and for a graph or an answer that no document may hold.
    """
    label, lines = _open(source)
    name = name or label
    schedules = []
    for number, row in _rows(lines, name):
        schedule = graph_schedule(row, source=name, line=number)
        _check(schedule, name, number)
        schedules.append(schedule)
    return schedules


def read_recorded(
    source: str | os.PathLike[str] | Iterable[str | bytes], *, name: str | None = None
) -> list[tuple[Schedule, tuple[str, ...]]]:
    """The same, each with the causes of its tensors' devices (``"1.wgt0"``, ``"2.sup"``…), in
    the order of ``graph.tensors``; none where they are not recorded.  For a comparison with what
    was recorded, whatever that is: it is not held against the rules of a document."""
    label, lines = _open(source)
    name = name or label
    return [
        (graph_schedule(row, source=name, line=number), tuple(row.result.cause))
        for number, row in _rows(lines, name)
    ]


def _rows(lines: Iterable[str | bytes], name: str) -> Iterator[tuple[int, GraphRow]]:
    found = False
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found = True
            yield number, _decode(line, name, number)
    if not found:
        raise DumpError("no graph in it; one JSON object per line was due", "$", 1, 1, name)


def _check(schedule: Schedule, source: str, number: int) -> None:
    """What is read here must be writable as a document that can be read."""
    try:
        check_document(schedule)
    except Fault as fault:
        message = f"as a schedule it is wrong at {show_path(fault.path)}: {fault.message}"
        raise DumpError(message, "$", number, 1, source) from None


def _open(
    source: str | os.PathLike[str] | Iterable[str | bytes],
) -> tuple[str, Iterator[str | bytes]]:
    if not isinstance(source, str | os.PathLike):
        return "<lines>", iter(source)
    label, data = read_bytes(source)
    return label, iter(io.BytesIO(data))


def _decode(line: str | bytes, source: str, number: int) -> GraphRow:
    try:
        return msgspec.json.decode(line, type=GraphRow)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        raise DumpError(message, path.rstrip("`") or "$", number, 1, source) from None
    except msgspec.DecodeError as error:
        message = str(error).removeprefix("JSON is malformed: ")
        raise DumpError(f"not JSON: {message}", "$", number, 1, source) from None
    except (UnicodeDecodeError, RecursionError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "nested too deeply"
        raise DumpError(reason, "$", number, 1, source) from None
