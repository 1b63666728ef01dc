"""The lines of a debug log, put together again and sorted into graphs.

Logs are pasted: with the prefixes of a logger in the middle of a line, with colours, torn by
other threads.  A line is taken apart where a record begins (``## SPLIT #``, ``node #``, …); what
stands before the first one continues the record that is open.  What looks as if it belonged to
a graph and cannot be read is kept as unreadable, with its number.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ops import OPS
from .llama_rows import (
    DEVICE_WIDTH,
    HEAD,
    HEADER,
    INPUT,
    PHASE,
    SOURCE,
    TRACE,
    UNNAMED,
    GraphRows,
    NodeRow,
    Operand,
    Size,
    SplitRow,
    Told,
    TraceRow,
    is_device,
    operand,
)

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b")
#: llama.cpp's own prefix (minutes.seconds.ms.us LEVEL), which each piece of a line gets.
_PREFIX = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} [A-Z](?: |$)")
_RECORD = re.compile(r"## SPLIT #|node #|TRACE split|TRACE   set_async|### PHASE|### RESULT")
#: What no other message looks like: a size in brackets, or the start of a record.
_GRAPHLIKE = re.compile(r"\(\s*\d{1,5}[KM]\)\s*[\[\]]|SPLIT\s*#|\bnode\s*#|^TRACE|\bNULL\s*\]")
_RESERVE = re.compile(r"graph_reserve: reserving a graph .*?\bn_tokens =\s*(\d{1,9})")
_COPIES = re.compile(r"\bsched copies = (\d{1,3})\b|\bn_copies *= *(\d{1,3})\b")
_LOADING = re.compile(r"create_tensor: loading tensor (\S+)")
_USED = re.compile(r"input tensor '\s*(\S[^']*)' .*?(?:used by node '([^']*)')?(?: \(|$)")
#: Lines that may stand between the parts of a torn record.
_TORN_OVER = 2


@dataclass(slots=True)
class LogRows:
    """All that a log says.  Each line is of a graph, unreadable, or of something else.

    ``mixed``: lines of a graph that hold another message, too.
    """

    graphs: list[GraphRows] = field(default_factory=list)
    told: Told = field(default_factory=Told)
    lines: int = 0
    graph_lines: set[int] = field(default_factory=set)
    unreadable: dict[int, str] = field(default_factory=dict)
    mixed: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Torn:
    """The beginning of a record whose end is awaited on one of the next lines."""

    text: str
    line: int
    graph: GraphRows | None
    between: list[tuple[int, str]] = field(default_factory=list)


def read_rows(lines: Iterable[str]) -> LogRows:
    """Sort the lines of a log into graphs.  Never raises, whatever they hold."""
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        reader.rows.lines = number
        reader.line(number, _clean(line))
    reader.end()
    return reader.rows


def _clean(line: str) -> str:
    if line.startswith('{"log":'):  # a container's log file: an object a line
        with contextlib.suppress(ValueError, RecursionError):  # then it is text like any other
            line = str(json.loads(line)["log"])
    return _PREFIX.sub("", _COLOUR.sub("", line)).rstrip("\r\n")


class _Reader:
    def __init__(self) -> None:
        self.rows = LogRows()
        self.graph: GraphRows | None = None
        self.next = GraphRows(0)  # what is known of the graph that has not begun
        self.open: SplitRow | NodeRow | None = None
        self.tail, self.tail_line = "", 0
        self.torn: _Torn | None = None

    def unreadable(self, line: int, why: str) -> None:
        self.rows.unreadable.setdefault(line, why)
        self.rows.graph_lines.discard(line)
        graph = self.graph
        if graph is not None and line not in graph.unread:
            graph.unread.append(line)
            if graph.splits:
                graph.splits[-1].unread = True

    def mixed(self, line: int, text: str) -> None:
        """Text where operands were due: another message, or what is left of an operand."""
        told = repr(text.strip()[:40])
        if text[0] in " [" or _GRAPHLIKE.search(text) or text.count("(") != text.count(")"):
            self.unreadable(line, f"no operand: {told}")
        else:
            self.rows.mixed.setdefault(line, told)

    def readable(self, line: int) -> None:
        if line not in self.rows.unreadable:
            self.rows.graph_lines.add(line)

    # -- lines ----------------------------------------------------------------------------------

    def line(self, number: int, text: str) -> None:
        starts = [match.start() for match in _RECORD.finditer(text)]
        lead = text[: starts[0]] if starts else text
        if not self.mended(number, lead):
            self.lead(number, lead)
        for start, end in itertools.pairwise([*starts, len(text)]):
            self.settle()
            if not self.record(text[start:end], number):
                if end == len(text):
                    self.torn = _Torn(text[start:end], number, self.graph)
                else:
                    self.unreadable(number, "a record that breaks off")

    def lead(self, number: int, text: str) -> None:
        """What stands before the first record of a line."""
        if not text.strip():
            return
        if self.open is not None and self.continues(text):
            self.readable(number)
            self.feed(text, number)
        elif self.torn is not None:
            self.torn.between.append((number, text))
            if len(self.torn.between) >= _TORN_OVER:
                self.settle()
        elif _GRAPHLIKE.search(text):
            self.unreadable(number, "a piece of a graph without its beginning")
        else:
            self.message(text)

    def continues(self, text: str) -> bool:
        if isinstance(self.open, SplitRow):
            due = self.open.due or 0
            return len(self.open.inputs) < due and INPUT.search(self.tail + text) is not None
        return SOURCE.search(self.tail + text) is not None

    def mended(self, number: int, text: str) -> bool:
        """Whether a torn record is whole with this line, over what stands between."""
        torn = self.torn
        if torn is None or not text.strip():
            return False
        pieces = ["".join(piece for _, piece in torn.between), ""]
        for piece in dict.fromkeys(pieces):
            if self.record(torn.text + piece + text, torn.line):
                self.readable(number)
                if piece:
                    for line, _ in torn.between:
                        self.readable(line)
                    torn.between.clear()
                self.torn = None
                self.replay(torn)
                return True
        return False

    def settle(self) -> None:
        """Give up what is torn: a record begins, or the file ends."""
        torn, self.torn = self.torn, None
        if torn is not None:
            self.unreadable(torn.line, "a record that breaks off")
            self.replay(torn)

    def replay(self, torn: _Torn) -> None:
        """Lines that stood between and were no part of the record, as if they came alone."""
        for number, text in torn.between:
            if _GRAPHLIKE.search(text):
                self.unreadable(number, "a piece of a graph without its beginning")
            else:
                self.message(text)

    def end(self) -> None:
        self.settle()
        self.close()
        self.rows.graphs = [g for g in self.rows.graphs if g.splits]

    # -- records --------------------------------------------------------------------------------

    def record(self, text: str, line: int) -> bool:
        """Read one record; false if it is not whole."""
        if text.startswith("## SPLIT"):
            return self.header(text, line)
        if text.startswith("node"):
            return self.node(text, line)
        if text.startswith("TRACE split"):
            return self.trace(text, line)
        self.close()
        if text.startswith("### PHASE"):
            self.phase(text)
        self.readable(line)
        return True

    def header(self, text: str, line: int) -> bool:
        found = HEADER.match(text)
        if found is None or not is_device(found[2]):
            return False
        self.close()
        number = int(found[1])
        last = self.graph.splits[-1].number if self.graph and self.graph.splits else None
        if self.graph is None or number == 0 or (last is not None and number <= last):
            self.begin(line)
        assert self.graph is not None
        split = SplitRow(number, found[2], int(found[3]), line)
        self.rows.told.devices.setdefault(split.device)
        self.graph.splits.append(split)
        self.open = split
        self.readable(line)
        self.feed(text[found.end() :], line)
        return True

    def node(self, text: str, line: int) -> bool:
        found = HEAD.match(text)
        if found is None:
            return False
        # " %20.20s": the field is as wide as this build prints names.
        self.rows.told.width = max(self.rows.told.width, len(found[3]) - 1)
        result = operand(found[3], found[4], found[5], self.rows.told.width)
        if not is_device(result.device):
            return False
        self.close()
        node = NodeRow(int(found[1]), found[2].strip(), result, line)
        if self.graph is None or any(n.number >= node.number for n in self.last_nodes()):
            self.begin(line)
        assert self.graph is not None
        splits = self.graph.splits
        if not splits or splits[-1].device[:DEVICE_WIDTH].strip() != result.device:
            # The header of the split is not there: its device is all that the node tells.
            splits.append(SplitRow(None, result.device, None, line, unread=True))
        splits[-1].nodes.append(node)
        self.open = node
        self.readable(line)
        self.feed(text[found.end() :], line)
        return True

    def last_nodes(self) -> list[NodeRow]:
        assert self.graph is not None
        return next((s.nodes[-1:] for s in reversed(self.graph.splits) if s.nodes), [])

    def trace(self, text: str, line: int) -> bool:
        found = TRACE.match(text)
        if found is None:
            return False
        split, place, *told = found.groups()
        kind, tensor, source, target, size = told[:5] if told[0] else told[5:]
        if not (is_device(source) and is_device(target)):
            return False
        self.close()
        row = TraceRow(int(split), int(place), kind, tensor, source, target, int(size))
        told_names = self.rows.told
        told_names.names.add(tensor)
        told_names.devices.setdefault(source)
        told_names.devices.setdefault(target)
        if self.graph is None:
            self.unreadable(line, "a copy of a graph that is not there")
        else:
            self.graph.traces.append(row)
            self.readable(line)
        return True

    def begin(self, line: int) -> None:
        self.graph, self.next = self.next, GraphRows(0, phase=self.next.phase)
        self.graph.line = line
        self.rows.graphs.append(self.graph)

    def phase(self, text: str) -> None:
        found = PHASE.match(text)
        if found is None:
            return
        self.graph, self.next = None, GraphRows(0, phase=found[1])
        self.next.reserved = found[1] == "init"
        self.next.tokens = int(found[2]) if found[2] else None

    # -- the pieces of a record -----------------------------------------------------------------

    def feed(self, text: str, line: int) -> None:
        """Take the operands that a piece of text holds; the rest waits for the next piece."""
        text, start = self.tail + text, 0
        pattern = INPUT if isinstance(self.open, SplitRow) else SOURCE
        while (found := pattern.search(text, start)) is not None:
            before = text[start : found.start()].strip(" :")
            start = found.end()
            if isinstance(self.open, SplitRow):
                self.open.inputs.append(Operand(found[1] or UNNAMED, Size.of(found[2])))
                self.rows.told.names.add(found[1])
            elif isinstance(self.open, NodeRow):
                width = self.rows.told.width
                before = found[1][:-width].strip()
                self.open.sources.append(operand(found[1], found[2], found[3], width))
            if before:
                self.mixed(line, before)
            if not found[1].strip():
                self.unreadable(line, "an operand without a name")
        self.tail, self.tail_line = text[start:], line
        if not self.tail.strip(" :"):
            self.tail = ""

    def close(self) -> None:
        """The record that is open ends here: was it whole?"""
        record, tail, line = self.open, self.tail, self.tail_line
        self.open, self.tail = None, ""
        if record is None:
            return
        if tail:
            self.mixed(line, tail)
        if isinstance(record, SplitRow):
            found, due = len(record.inputs), record.due or 0
            if found != due:
                self.unreadable(record.line, f"{due} inputs were due, {found} could be read")
        else:
            least = OPS[record.op.lower()].sources[0] if record.op.lower() in OPS else 0
            if len(record.sources) < least:
                found = len(record.sources)
                self.unreadable(
                    record.line, f"{record.op} has {least} sources, {found} could be read"
                )

    # -- other messages -------------------------------------------------------------------------

    def message(self, text: str) -> None:
        """What messages outside of the graphs tell."""
        told = self.rows.told
        if (found := _RESERVE.search(text)) is not None:
            self.close()
            self.graph = None
            self.next = GraphRows(0, reserved=True, phase=self.next.phase, tokens=int(found[1]))
        elif (found := _LOADING.search(text)) is not None:
            told.weights.add(found[1])
            told.names.add(found[1])
        elif (found := _USED.search(text)) is not None:
            told.inputs.add(found[1])
            told.names.update(name for name in found.groups() if name)
        elif (found := _COPIES.search(text)) is not None:
            told.copies = max(told.copies, int(found[1] or found[2]))


__all__ = ["LogRows", "read_rows"]
