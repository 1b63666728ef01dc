"""Places for results: bytes that nobody needs any more are lent to the next tensor.

For programs whose splits are awaited one after another, as the plain lowering's are: there a
tensor is dead after its last reader in graph order.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace

from ..device import Buffer, Usage
from ..graph import Graph
from ..ops import OPS
from ..schedule import Schedule
from ..symbol import Expr

#: Offsets are multiples of it: a cache line, and the widest vector.
_ALIGNMENT = 64


@dataclass(slots=True)
class _Space:
    """One buffer in the making: free pieces ``(start, end)`` in order, and how far it reaches."""

    free: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def take(self, size: int) -> int:
        """The smallest free piece that fits, else the end."""
        fitting = [(e - s, s, e) for s, e in self.free if e - s >= size]
        if fitting:
            _, start, end = min(fitting)
            self.free.remove((start, end))
            if end - start > size:
                insort(self.free, (start + size, end))
            return start
        start = self.end
        if self.free and self.free[-1][1] == self.end:
            start = self.free.pop()[0]
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        insort(self.free, (start, start + size))
        merged: list[tuple[int, int]] = []
        for piece in self.free:
            if merged and merged[-1][1] == piece[0]:
                merged[-1] = (merged[-1][0], piece[1])
            else:
                merged.append(piece)
        self.free = merged


def result_bytes(schedule: Schedule) -> int:
    """What the results of one pass take if each has bytes of its own."""
    graph = schedule.graph
    return sum(graph.tensor(name).extent.value({}) for name in _lifetimes(graph)[0])


def allocate(schedule: Schedule) -> Schedule:
    """A split-level schedule of fixed sizes with its results in ``compute:DEVICE`` buffers.

    Tensors that have a place, copies and inputs stay as they are; outputs live to the end.
    ``ValueError`` for a schedule with symbols, or without splits.
    """
    graph = schedule.graph
    if schedule.splits is None or graph.symbols:
        raise ValueError(f"{schedule.name}: fixed sizes and splits are needed to place results")
    born, dead = _lifetimes(graph)
    ends: dict[int, list[str]] = {}
    for name in born:
        ends.setdefault(dead[name], []).append(name)
    spaces: dict[str, _Space] = {}
    places: dict[str, tuple[str, int, int]] = {}
    for position, node in enumerate(graph.nodes):
        if born.get(node.dst) == position:
            device = schedule.device_of(node.dst)
            assert device is not None
            size = -(-max(graph.tensor(node.dst).extent.value({}), 1) // _ALIGNMENT) * _ALIGNMENT
            start = spaces.setdefault(device, _Space()).take(size)
            places[node.dst] = device, start, size
        for name in ends.get(position, ()):
            device, start, size = places[name]
            spaces[device].give(start, size)
    return _placed(schedule, spaces, places)


def _lifetimes(graph: Graph) -> tuple[dict[str, int], dict[str, int]]:
    """Positions of the node that makes each base, and of the last that touches its bytes."""
    born: dict[str, int] = {}
    dead: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        tensor = graph.tensor(node.dst)
        if tensor.view_of is None and tensor.buffer is None and not OPS[node.op].view:
            born[node.dst] = position
        for name in (node.dst, *node.src):
            dead[graph.base(name).name] = position
    for tensor in graph.tensors:
        if tensor.output:
            dead[graph.base(tensor.name).name] = len(graph.nodes)
    return born, dead


def _placed(
    schedule: Schedule, spaces: dict[str, _Space], places: dict[str, tuple[str, int, int]]
) -> Schedule:
    graph = schedule.graph
    buffers = tuple(
        Buffer(f"compute:{device}", graph.device(device).memory, Usage.COMPUTE, space.end)
        for device, space in spaces.items()
    )
    found = tuple((n, f"compute:{d}", Expr.of(start)) for n, (d, start, _) in places.items())
    return replace(
        schedule,
        graph=replace(graph, buffers=(*graph.buffers, *buffers)),
        placements=(*schedule.placements, *found),
    )
