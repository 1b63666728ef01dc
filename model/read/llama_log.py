"""Debug logs of llama.cpp (``GGML_SCHED_DEBUG=2``) as split-level schedules.

A log tells which splits ran where, what was copied into each, and what each node read; not
shapes, types, addresses, nor views.  Tensors of an imported schedule are ``about``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath

from ..schedule import Schedule
from .ggml_rows import DumpError
from .llama_graph import Imported, log_schedule
from .llama_lines import LogRows, read_rows
from .llama_rows import GraphRows
from .source import read_bytes


class LogError(DumpError):
    """A log without what was asked for."""


@dataclass(frozen=True, slots=True)
class LoggedGraph:
    """One graph of a log.  ``line``: where it begins, from 1.

    ``phase``: ``reserved`` (built to measure memory, never executed), ``prompt``, ``decode``,
    or ``""`` where nothing tells the two apart.  ``tokens``: the batch, where it is told.
    ``complete``: no part of it is known to be missing.  ``assumed``, ``lost``, ``placed``,
    ``unread``: see ``Imported``; 0 for a graph that was not imported.
    """

    number: int
    line: int
    phase: str
    tokens: int | None
    splits: int
    nodes: int
    complete: bool
    imported: bool = False
    assumed: int = 0
    lost: int = 0
    placed: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What was read of a log, and what was not: each line is counted once.

    ``lines`` = ``graph_lines`` + ``other_lines`` + the number of ``unreadable`` ones, which
    look like a part of a graph: ``(line, why)``, in order.  ``mixed``: graph lines in which
    another message stands, ``(line, text)``.
    """

    lines: int
    graph_lines: int
    other_lines: int
    unreadable: tuple[tuple[int, str], ...]
    mixed: tuple[tuple[int, str], ...]
    graphs: tuple[LoggedGraph, ...]


@dataclass(frozen=True, slots=True)
class LogImport:
    """The schedules of a log's graphs, in the order of the log, and the summary."""

    schedules: tuple[Schedule, ...]
    summary: LogSummary


def read_log(
    source: str | os.PathLike[str] | bytes | Iterable[str],
    *,
    graph: int | None = None,
    name: str | None = None,
) -> LogImport:
    """The graphs of a debug log as split-level schedules.

    ``source``: a path (plain or gzip), ``"-"`` for standard input, the bytes, or the lines;
    ``name``: what messages call it.
    ``graph``: the number of one graph, from 0, reservations included.  Without it: the last
    complete prompt and the last complete decode; what is incomplete only where nothing else is
    there.  ``LogError`` if there is no graph, or not that one; lines that cannot be read are no
    error but are counted.
    """
    label, lines = _lines(source)
    name = name or label
    rows = read_rows(lines)
    if not rows.graphs:
        raise LogError(
            f"no graph in {rows.lines} line(s), {len(rows.unreadable)} of them unreadable; lines "
            "'## SPLIT #0: …' and 'node #  0 (…' were due, as GGML_SCHED_DEBUG=2 with debug "
            "output prints them",
            "$", source=name,
        )  # fmt: skip
    _mark_cut_off(rows)
    phases = _phases(rows.graphs)
    if graph is not None and graph >= len(rows.graphs):
        last = len(rows.graphs) - 1
        raise LogError(f"there is no graph {graph}; the last one is {last}", "$", source=name)
    chosen = _chosen(rows.graphs, phases) if graph is None else [graph]
    notes = [_note(i, g, phases[i]) for i, g in enumerate(rows.graphs)]
    schedules = []
    for number in chosen:
        title = _title(name, notes[number])
        found = log_schedule(rows.graphs[number], rows.told, title)
        schedules.append(found.schedule)
        notes[number] = _imported(notes[number], found)
    return LogImport(tuple(schedules), _summary(rows, notes))


def _lines(source: str | os.PathLike[str] | bytes | Iterable[str]) -> tuple[str, Iterable[str]]:
    if not isinstance(source, str | os.PathLike | bytes):
        return "<lines>", source
    name, data = ("<bytes>", source) if isinstance(source, bytes) else read_bytes(source)
    # Not splitlines(): it also breaks at form feeds and the like, and the numbers would differ.
    text = data.decode("utf-8", errors="replace")
    lines = text.replace("\r\n", "\n").split("\n")
    return name, lines[:-1] if lines[-1] == "" else lines


# -- which graphs -------------------------------------------------------------------------------


def _mark_cut_off(rows: LogRows) -> None:
    """A last graph that ends with the file and earlier than one that begins like it."""
    last = rows.graphs[-1]
    ops = [(n.number, n.op) for n in last.nodes]
    if rows.lines not in rows.graph_lines and rows.lines not in rows.unreadable:
        return
    for other in rows.graphs[:-1]:
        begun = [(n.number, n.op) for n in other.nodes]
        if len(begun) > len(ops) and begun[: len(ops)] == ops and not last.traces:
            last.cut_off = True


def _phases(graphs: list[GraphRows]) -> list[str]:
    """Told by a marker, or by the size of the first result: one token has the least."""
    sizes = [g.nodes[0].result.size.bytes if g.nodes else 0 for g in graphs]
    single = {s for s, g in zip(sizes, graphs, strict=True) if g.reserved and g.tokens == 1}
    executed = [s for s, g in zip(sizes, graphs, strict=True) if not g.reserved]
    least = single or ({min(executed)} if len(set(executed)) > 1 else set())
    phases = []
    for size, graph in zip(sizes, graphs, strict=True):
        if graph.reserved:
            phases.append("reserved")
        elif graph.phase in ("prompt", "decode"):
            phases.append(graph.phase)
        else:
            phases.append(("decode" if size in least else "prompt") if least else "")
    return phases


def _chosen(graphs: list[GraphRows], phases: list[str]) -> list[int]:
    """The last prompt and the last decode, complete ones first; a reservation if need be."""
    executed = [i for i, phase in enumerate(phases) if phase != "reserved"]
    among = executed or list(range(len(graphs)))
    whole = [i for i in among if graphs[i].complete]
    last: dict[str, int] = {}
    for i in among:
        if graphs[i].complete or not any(phases[j] == phases[i] for j in whole):
            last[phases[i]] = i
    return sorted(last.values())


# -- what is said about them --------------------------------------------------------------------


def _note(number: int, graph: GraphRows, phase: str) -> LoggedGraph:
    return LoggedGraph(
        number, graph.line, phase, graph.tokens,
        len(graph.splits), len(graph.nodes), graph.complete,
    )  # fmt: skip


def _imported(note: LoggedGraph, found: Imported) -> LoggedGraph:
    return replace(
        note,
        imported=True,
        complete=note.complete and not found.unread,
        assumed=found.assumed,
        lost=found.lost,
        placed=found.placed,
        unread=found.unread,
    )


def _title(source: str, note: LoggedGraph) -> str:
    tokens = "" if note.tokens is None else f", {note.tokens} token(s)"
    phase = f" ({note.phase}{tokens})" if note.phase else ""
    return f"{PurePath(source).name}, graph {note.number}{phase}"


def _summary(rows: LogRows, notes: list[LoggedGraph]) -> LogSummary:
    graph_lines, unreadable = len(rows.graph_lines), tuple(sorted(rows.unreadable.items()))
    other = rows.lines - graph_lines - len(unreadable)
    mixed = tuple((n, t) for n, t in sorted(rows.mixed.items()) if n not in rows.unreadable)
    return LogSummary(rows.lines, graph_lines, other, unreadable, mixed, tuple(notes))


__all__ = ["LogError", "LogImport", "LogSummary", "LoggedGraph", "read_log"]
