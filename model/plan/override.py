"""Moving weights to other memories by their names, before anything is planned.

As llama.cpp's ``--override-tensor``, ``--cpu-moe`` and ``--n-cpu-moe``: a regular expression is
searched in each weight's name, and the first that is found moves the weight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..device import Buffer, Usage
from ..fault import meant, quote
from ..graph import Graph
from ..report import Finding, Kind
from ..symbol import Expr
from ..tensor import Tensor
from .error import PlanError
from .options import PlanOptions

#: Offsets stay the same modulo this, so that tensors keep their alignment.
_ALIGNMENT = 128

#: The experts of one layer, by llama.cpp's tensor names.
_EXPERTS = r"blk\.{layer}\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps"


@dataclass(frozen=True, slots=True)
class Override:
    """Weights whose names hold the pattern go to the memory.  ``option``: what declared it."""

    pattern: re.Pattern[str]
    memory: str
    option: str


def overrides(graph: Graph, options: PlanOptions) -> tuple[Override, ...]:
    """All that the options declare, in the order in which they are tried.

    ``PlanError`` for a pattern that is no regular expression, or a memory that is not declared.
    """
    found = []
    memories = [m.name for m in graph.memories]
    for pattern, memory in options.overrides:
        option = f"override {pattern}={memory}"
        if memory not in memories:
            raise PlanError(
                f"{option}: there is no memory {quote(memory)}{meant(memory, memories)}"
            )
        try:
            found.append(Override(re.compile(pattern), memory, option))
        except re.error as error:
            raise PlanError(f"{option}: not a regular expression: {error}") from None
    if options.cpu_moe != 0:
        layers, option = r"\d+", "cpu_moe"
        if options.cpu_moe is not None:
            layers = "|".join(map(str, range(options.cpu_moe)))
            option = f"cpu_moe {options.cpu_moe}"
        pattern = _EXPERTS.replace("{layer}", f"(?:{layers})")
        found.append(Override(re.compile(pattern), graph.devices[-1].memory, option))
    return tuple(found)


def move_weights(graph: Graph, moves: Sequence[Override]) -> tuple[Graph, tuple[Finding, ...]]:
    """The graph with its weights where the overrides want them, and the overrides without effect.

    A weight that moves gets bytes in a new buffer ``weights:MEMORY``; those that stay close up,
    in their order and with their alignment.
    """
    usage = {b.name: b for b in graph.buffers}
    weights = [
        t for t in graph.tensors
        if t.view_of is None and t.buffer is not None
        and usage[t.buffer].usage is Usage.WEIGHTS
    ]  # fmt: skip
    target: dict[str, str] = {}
    matched: set[int] = set()
    for tensor in weights:
        for number, move in enumerate(moves):
            if move.pattern.search(tensor.name) is None:
                continue
            matched.add(number)
            assert tensor.buffer is not None
            if usage[tensor.buffer].memory != move.memory:
                target[tensor.name] = move.memory
            break
    findings = [
        _idle(graph, moves, number, number in matched, target) for number in range(len(moves))
    ]
    if target:
        graph = _Moving(graph, target).graph()
    return graph, tuple(f for f in findings if f is not None)


def _idle(
    graph: Graph, moves: Sequence[Override], number: int, matched: bool, target: Mapping[str, str]
) -> Finding | None:
    """What is said of an override that moves nothing."""
    move = moves[number]
    hits = [t.name for t in graph.tensors if move.pattern.search(t.name)]
    if matched:
        if any(name in target for name in hits):
            return None
        why = f"the weights that it names lie in {move.memory} already"
    elif not hits:
        why = "no tensor has such a name"
    else:
        why = f"{quote(hits[0])} is no weight, or an earlier override took it"
        if len(hits) > 1:
            why = f"{len(hits)} tensors have such names, and each is no weight or was taken before"
    return Finding("PL006", Kind.COST, f"{move.option} moves nothing: {why}", "$.tensors")


class _Moving:
    """Weights on their way to other buffers."""

    def __init__(self, graph: Graph, target: Mapping[str, str]) -> None:
        self.before = graph
        self.target = target
        self.ranges = graph.ranges
        self.offset: dict[str, int] = {}
        self.buffer: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.left = {t.buffer for t in graph.tensors if t.name in target}

    def graph(self) -> Graph:
        for name in sorted(n for n in self.left if n is not None):
            self.close_up(name)
        added = [self.gather(memory) for memory in sorted(set(self.target.values()))]
        buffers = [
            replace(b, bytes=self.sizes.get(b.name, b.bytes))
            for b in self.before.buffers
            if self.sizes.get(b.name) != 0
        ]
        tensors = tuple(self.moved(t) for t in self.before.tensors)
        return replace(self.before, buffers=(*buffers, *added), tensors=tensors)

    def moved(self, tensor: Tensor) -> Tensor:
        if tensor.name not in self.offset:
            return tensor
        buffer = self.buffer.get(tensor.name, tensor.buffer)
        return replace(tensor, buffer=buffer, offset=Expr.of(self.offset[tensor.name]))

    def close_up(self, buffer: str) -> None:
        """Place what stays in a buffer without the holes that the others leave."""
        placed = sorted(self.placed_in(buffer))
        for (_, end, name), (start, _, other) in pairwise(placed):
            if start < end:
                raise PlanError(
                    f"{name!r} and {other!r} share bytes of buffer {buffer!r}, so neither can "
                    "be moved alone; give each its own bytes",
                    tensor=name, buffer=buffer,
                )  # fmt: skip
        end = 0
        for start, stop, name in placed:
            if name in self.target:
                continue
            at = end + (start - end) % _ALIGNMENT
            self.offset[name] = at
            end = at + stop - start
        self.sizes[buffer] = end

    def placed_in(self, buffer: str) -> Iterator[tuple[int, int, str]]:
        for tensor in self.before.tensors:
            if tensor.buffer == buffer and tensor.view_of is None:
                start = (tensor.offset or Expr.of(0)).bounds(self.ranges)[1]
                yield start, start + self.bytes_of(tensor), tensor.name

    def bytes_of(self, tensor: Tensor) -> int:
        return tensor.extent.bounds(self.ranges)[1]

    def gather(self, memory: str) -> Buffer:
        """A new buffer for all that goes to one memory."""
        taken = {b.name for b in self.before.buffers}
        name = f"weights:{memory}"
        while name in taken:
            name += "'"
        end = 0
        for tensor in self.before.tensors:
            if self.target.get(tensor.name) == memory:
                at = -(-end // _ALIGNMENT) * _ALIGNMENT
                self.offset[tensor.name], self.buffer[tensor.name] = at, name
                end = at + self.bytes_of(tensor)
        return Buffer(name, memory, Usage.WEIGHTS, end)
