"""From a graph and a device per node to splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..device import Usage
from ..graph import Graph, Node
from ..ops import OPS
from ..schedule import Schedule, Split


def beside_weights(graph: Graph) -> Callable[[Node], str]:
    """Nodes run on the CPU, but for those whose weights lie in another device's memory."""
    cpu = graph.devices[-1]

    def device(node: Node) -> str:
        for name in node.src:
            base = graph.base(name)
            if base.buffer is None or graph.buffer(base.buffer).usage is not Usage.WEIGHTS:
                continue
            memory = graph.buffer(base.buffer).memory
            for owner in graph.devices:
                if owner.memory == memory and memory not in cpu.reads:
                    return owner.name
        return cpu.name

    return device


def split_by(schedule: Schedule, device: Callable[[Node], str]) -> Schedule:
    """The split level: a split is a run of nodes on one device; views stay with what they view.

    A tensor that the split's device cannot read is an input of the first split there that
    needs it.
    """
    graph = schedule.graph
    assignment: dict[str, str] = {}
    for node in graph.nodes:
        base = graph.base(node.dst)
        if base.name == node.dst:
            assignment[node.dst] = device(node)
        elif base.name in assignment:
            assignment[node.dst] = assignment[base.name]
        else:
            assert base.buffer is not None
            assignment[node.dst] = _reader(graph, graph.buffer(base.buffer).memory)
    placed = replace(schedule, assignment=tuple(assignment.items()), splits=())
    splits: list[Split] = []
    copied: set[tuple[str, str]] = set()
    for start, end in _runs(graph, assignment):
        name = assignment[graph.nodes[start].dst]
        needed = _inputs(placed, name, start, end)
        splits.append(Split(name, start, end, tuple(s for s in needed if (name, s) not in copied)))
        copied.update((name, s) for s in needed)
    return replace(placed, splits=tuple(splits))


def _reader(graph: Graph, memory: str) -> str:
    owners = [d.name for d in graph.devices if d.memory == memory]
    return (owners or [d.name for d in graph.devices if memory in d.reads])[0]


def _runs(graph: Graph, assignment: dict[str, str]) -> list[tuple[int, int]]:
    """Ranges of nodes on one device; a view goes with its neighbours."""
    runs: list[tuple[int, int]] = []
    current = ""
    for position, node in enumerate(graph.nodes):
        name = assignment[node.dst]
        if not runs or (name != current and not OPS[node.op].view):
            runs.append((position, position + 1))
            current = name
        else:
            runs[-1] = (runs[-1][0], position + 1)
    return runs


def _inputs(schedule: Schedule, device: str, start: int, end: int) -> list[str]:
    graph = schedule.graph
    reads = graph.device(device).reads
    found: dict[str, None] = {}
    for node in graph.nodes[start:end]:
        if OPS[node.op].view:
            continue
        for name in node.src:
            if schedule.location(name).memory not in reads:
                found[name] = None
    return list(found)
