"""Parts of the symbols' ranges in which every decision of the planner is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..graph import Graph
from ..satisfy import satisfiable
from ..symbol import PASS, Comparison, Condition, Expr, Ranges
from .capability import Capabilities, Threshold
from .error import PlanError

#: From each symbol to its range, both ends included.
Box = dict[str, tuple[int, int]]

#: A size that is no linear expression is tried value by value, up to so many.
_MOST_VALUES = 65_536
_MOST_REGIMES = 1024


@dataclass(frozen=True, slots=True)
class Cut:
    """A decision changes between ``value - 1`` and ``value`` of a symbol.

    ``kind``: ``"offload"``, ``"capability"`` or ``"guard"``; ``question``: the comparison whose
    answer changes; ``about``: the node or bank that asks it; ``device``: whose capability or
    wish it is.
    """

    symbol: str
    value: int
    kind: str
    question: str
    about: str
    device: str | None = None


def thresholds(
    graph: Graph, capabilities: Capabilities, offloaded: Iterable[str]
) -> Iterator[Threshold]:
    """The different questions about symbols on which a plan hangs.

    ``offloaded``: the nodes for which op offload is a question.
    """
    asked = set(offloaded)
    seen: set[tuple[str, Expr, int]] = set()
    for node in graph.nodes:
        found = list(capabilities.thresholds(node, node.dst in asked))
        for question in (*_guards(node.when, node.dst), *found):
            key = question.kind, question.size, question.bound
            if key not in seen:
                seen.add(key)
                yield question
    for bank in graph.banks:
        yield from _guards(bank.when, bank.name)


def _guards(condition: Condition, about: str) -> Iterator[Threshold]:
    for part in condition.parts:
        if part.modulus is None and PASS not in part.symbols:
            size = part.left - part.right
            for bound in _BOUNDS[part.op]:
                yield Threshold("guard", size, bound, about, "")


#: ``left op right`` is answered by whether ``left - right`` reaches these bounds.
_BOUNDS = {"<": (0,), ">=": (0,), "<=": (1,), ">": (1,), "==": (0, 1), "!=": (0, 1)}


def cuts(questions: Iterable[Threshold], ranges: Ranges) -> tuple[Cut, ...]:
    """Where the answers change.  ``PlanError`` for a decision that hangs on several symbols at
    once (a guard that does stays in the plan as it is)."""
    found: dict[tuple[str, int], Cut] = {}
    for question in questions:
        low, high = question.size.bounds(ranges)
        if low >= question.bound or high < question.bound:
            continue
        names = sorted(n for n in question.size.symbols if ranges[n][0] < ranges[n][1])
        text = str(Comparison(question.size, ">=", Expr.of(question.bound)))
        if len(names) > 1:
            if question.kind == "guard":
                continue
            raise PlanError(
                f"where {question.node!r} runs hangs on {' and '.join(names)} at once "
                f"({text}: {question.kind} of {question.device}); give one of them a value (at)",
                tensor=question.node,
            )
        fixed = {n: lo for n, (lo, hi) in ranges.items() if lo == hi}
        for value in _changes(question, names[0], ranges[names[0]], fixed):
            cut = Cut(names[0], value, question.kind, text, question.node, question.device or None)
            found.setdefault((names[0], value), cut)
    return tuple(found[key] for key in sorted(found))


def _changes(
    question: Threshold, symbol: str, span: tuple[int, int], fixed: Mapping[str, int]
) -> Iterator[int]:
    """The values at which ``size >= bound`` differs from the value before."""
    size = question.size.substitute(fixed)
    low, high = span
    if size.linear:
        rate = size.value({symbol: 1}) - size.value({symbol: 0})
        rest = question.bound - size.value({symbol: 0})
        value = -(-rest // rate) if rate > 0 else -rest // -rate + 1
        if low < value <= high:
            yield value
        return
    if high - low > _MOST_VALUES:
        raise PlanError(
            f"where {question.node!r} runs hangs on {size} >= {question.bound}, which is not "
            f"linear, over {low}..{high}; give {symbol} a value (at)",
            tensor=question.node,
        )
    answers = [size.value({symbol: v}) >= question.bound for v in range(low, high + 1)]
    yield from (low + k for k in range(1, len(answers)) if answers[k] != answers[k - 1])


def boxes(ranges: Ranges, where: Iterable[Cut]) -> list[Box]:
    """The ranges, cut everywhere; the first symbol's values vary slowest."""
    starts = {name: [low] for name, (low, _) in ranges.items()}
    for cut in where:
        starts[cut.symbol].append(cut.value)
    spans = []
    number = 1
    for name, (_, high) in ranges.items():
        first = sorted(set(starts[name]))
        last = [*(value - 1 for value in first[1:]), high]
        spans.append(list(zip(first, last, strict=True)))
        number *= len(first)
    if number > _MOST_REGIMES:
        raise PlanError(
            f"the plan may differ in {number} parts of the symbols' ranges; give values to some "
            f"of {', '.join(n for n, s in starts.items() if len(s) > 1)} (at)"
        )
    return [dict(zip(ranges, box, strict=True)) for box in itertools.product(*spans)]


def within(graph: Graph, box: Box, repeat: int) -> Graph:
    """The graph over a part of its symbols' ranges, without what no value there has."""
    ranges = {**box, PASS: (0, max(repeat - 1, 0))}
    known: dict[Condition, bool] = {}

    def lives(condition: Condition) -> bool:
        if condition not in known:
            # What effort does not decide stays, with its guard.
            known[condition] = satisfiable(condition, ranges) is not False
        return known[condition]

    return replace(
        graph,
        symbols=tuple((name, low, high) for name, (low, high) in box.items()),
        nodes=tuple(n for n in graph.nodes if not n.when.parts or lives(n.when)),
        banks=tuple(b for b in graph.banks if not b.when.parts or lives(b.when)),
    )


def merged(parts: list[tuple[Box, object]]) -> list[tuple[Box, int]]:
    """Join neighbouring boxes with equal outcomes; each with the index of one of its parts."""
    joined = [(box, k) for k, (box, _) in enumerate(parts)]
    for symbol in parts[0][0]:
        result: list[tuple[Box, int]] = []
        for box, k in sorted(joined, key=lambda p: _beside(p[0], symbol)):
            if result:
                before, j = result[-1]
                adjacent = before[symbol][1] + 1 == box[symbol][0]
                same = {**before, symbol: None} == {**box, symbol: None}
                if adjacent and same and parts[j][1] == parts[k][1]:
                    result[-1] = ({**before, symbol: (before[symbol][0], box[symbol][1])}, j)
                    continue
            result.append((box, k))
        joined = result
    return sorted(joined, key=lambda p: tuple(p[0].values()))


def _beside(box: Box, symbol: str) -> tuple[object, ...]:
    """Sorted by it, boxes that differ in one symbol only stand beside each other."""
    others = tuple(span for name, span in box.items() if name != symbol)
    return (*others, box[symbol])


def edges(box: Box, ranges: Ranges, where: Iterable[Cut]) -> tuple[Cut, ...]:
    """The cuts that bound a box."""
    return tuple(
        cut
        for cut in where
        if cut.value in (box[cut.symbol][0], box[cut.symbol][1] + 1)
        and ranges[cut.symbol][0] < cut.value <= ranges[cut.symbol][1]
    )
