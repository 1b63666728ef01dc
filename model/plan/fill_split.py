"""Splits begin where a fill has to be issued between two nodes.

The fills of a split are issued before its nodes.  So the ids that choose the experts must come
from an earlier split, as the host reads them; and of the layers that share slots a split can read
one, as the next fill may take the slots of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..graph import Graph
from ..ops import OPS
from ..schedule import Split


@dataclass(frozen=True, slots=True)
class _Fill:
    """What a reader asks for: the experts of a layer in a group's slots, chosen by ids."""

    group: str
    layer: int
    ids: str


def begin_at_fills(graph: Graph, splits: Sequence[Split]) -> tuple[Split, ...]:
    """The splits, cut before each node that needs a fill which its split cannot begin with."""
    if not graph.banks:
        return tuple(splits)
    fills: dict[str, set[_Fill]] = {}
    for bank in graph.banks:
        fill = _Fill(bank.group, bank.layer, graph.base(bank.ids).name)
        for name in (bank.name, bank.slot_ids, bank.slot_map):
            if name is not None:
                fills.setdefault(name, set()).add(fill)
    return tuple(part for split in splits for part in _cut(graph, split, fills))


def _cut(graph: Graph, split: Split, fills: Mapping[str, set[_Fill]]) -> Iterator[Split]:
    computed: set[str] = set()
    held: dict[str, int] = {}
    for number in range(split.start, split.end):
        node = graph.nodes[number]
        if OPS[node.op].view:
            continue
        due = {fill for source in node.src for fill in fills.get(source, ())}
        if any(f.ids in computed or held.get(f.group, f.layer) != f.layer for f in due):
            early, late = _divided(graph, split, number)
            yield early
            yield from _cut(graph, late, fills)
            return
        held |= {fill.group: fill.layer for fill in due}
        computed.add(graph.base(node.dst).name)
    yield split


def _divided(graph: Graph, split: Split, at: int) -> tuple[Split, Split]:
    """Two splits for one; each lists the inputs that it is the first to read."""
    read = {
        source
        for node in graph.nodes[split.start : at]
        if not OPS[node.op].view
        for source in node.src
    }
    early = tuple(name for name in split.inputs if name in read)
    late = tuple(name for name in split.inputs if name not in read)
    return (
        replace(split, end=at, inputs=early),
        replace(split, start=at, inputs=late, callbacks=()),
    )
