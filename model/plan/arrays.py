"""A graph as flat lists of integers: what the passes of the planner read.

Devices are numbers in priority order, and sets of devices are masks (bit d: device d).
Tensors are numbers in the order of ``Graph.tensors``, nodes in graph order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..device import Usage
from ..graph import Graph, Node
from ..ops import OPS
from ..tensor import Tensor
from .capability import Capabilities
from .error import PlanError

Ints = Sequence[int]

#: No device, no tensor, no base.
NONE = -1
#: What a tensor's own buffer holds: no weights, weights, or weights in host memory.
NO_WEIGHT, WEIGHT, HOST_WEIGHT = 0, 1, 2

#: Their weights (rotary factors, attention sinks) are too small to decide where they run.
_WEIGHT_BLIND = frozenset(("rope", "flash_attn_ext"))


class GraphArrays(NamedTuple):
    """One graph.  Every field but the first two is a list, or an array in the compiled twin.

    Per node: ``node`` (its result), ``idle`` (a node without a command), ``blind`` (its weights
    do not decide), ``supports`` and ``wants`` (masks), and sources ``first[i]`` to
    ``first[i + 1]`` in ``source`` (tensors) and ``slot`` (their numbers).  Per tensor: ``base``
    (what a view lies in, the owner of the bytes), ``placed`` (it or its base has a buffer) with
    the mask ``readers`` of the devices that read that buffer's memory, ``weight`` (one of the
    three above), ``input`` and ``pin``.  ``leafs``: tensors that no node computes.  Per device:
    masks ``home`` (who reads its memory) and ``kin`` (who has the same memory).
    """

    devices: int
    offload: int
    node: Ints
    idle: Ints
    blind: Ints
    supports: Ints
    wants: Ints
    first: Ints
    source: Ints
    slot: Ints
    base: Ints
    placed: Ints
    readers: Ints
    weight: Ints
    input: Ints
    pin: Ints
    leafs: Ints
    home: Ints
    kin: Ints


def graph_arrays(
    graph: Graph,
    capabilities: Capabilities,
    pins: Mapping[str, str],
    placements: Mapping[str, str],
) -> GraphArrays:
    """The arrays of a graph whose sizes are known to ``capabilities``.

    ``pins``: device by tensor, besides the tensors' own.  ``placements``: buffer by tensor,
    besides the tensors' own.  ``PlanError`` for a graph without devices.
    """
    if not graph.devices:
        raise PlanError("there are no devices; declare one at least, the CPU last")
    return _Flattening(graph, capabilities, pins, placements).arrays()


class _Flattening:
    """One graph on its way into arrays."""

    def __init__(
        self,
        graph: Graph,
        capabilities: Capabilities,
        pins: Mapping[str, str],
        placements: Mapping[str, str],
    ) -> None:
        self.graph = graph
        self.capabilities = capabilities
        self.pins = pins
        self.placements = placements
        self.tensors: Sequence[Tensor] = graph.tensors
        self.index = {t.name: i for i, t in enumerate(graph.tensors)}
        self.device = {d.name: j for j, d in enumerate(graph.devices)}
        self.readers_of = {
            memory.name: sum(1 << j for j, d in enumerate(graph.devices) if memory.name in d.reads)
            for memory in graph.memories
        }

    def arrays(self) -> GraphArrays:
        graph = self.graph
        count = len(self.tensors)
        index = self.index
        node = [index[n.dst] for n in graph.nodes]
        computed, read = bytearray(count), bytearray(count)
        for i in node:
            computed[i] = 1
        base = self.bases()
        placed, readers, weight = self.buffers(base, computed)
        source, slot, first, wants = self.sources(weight)
        for s in source:
            read[s] = 1
        ops = [n.op for n in graph.nodes]
        views = {op for op in OPS if OPS[op].view}
        supports = self.capabilities.supports
        memories = [d.memory for d in graph.devices]
        return GraphArrays(
            devices=len(graph.devices),
            offload=int(graph.op_offload),
            node=node,
            idle=[int(op in views) for op in ops],
            blind=[int(op in _WEIGHT_BLIND) for op in ops],
            supports=[supports(n) for n in graph.nodes],
            wants=wants,
            first=first,
            source=source,
            slot=slot,
            base=base,
            placed=placed,
            readers=readers,
            weight=weight,
            input=[int(t.input) for t in self.tensors],
            pin=self.pinned(),
            leafs=[
                i for i, t in enumerate(self.tensors) if not computed[i] and (read[i] or t.input)
            ],
            home=[self.readers_of[m] for m in memories],
            kin=[sum(1 << j for j, other in enumerate(memories) if other == m) for m in memories],
        )

    def bases(self) -> list[int]:
        """The owner of the bytes of each view."""
        base = [NONE if t.view_of is None else self.index[t.view_of] for t in self.tensors]
        for i, parent in enumerate(base):
            while parent != NONE and base[parent] != NONE:
                parent = base[parent]
            base[i] = parent
        return base

    def buffers(self, base: Ints, computed: bytearray) -> tuple[list[int], list[int], list[int]]:
        """``placed``, ``readers`` and ``weight`` of each tensor.

        A view that a node makes has no buffer of its own before the graph is allocated, so it
        is no weight even where its base is one; a view that was there before the graph is.
        """
        host = {m.name for m in self.graph.memories if m.host}
        facts = {}
        for buffer in self.graph.buffers:
            kind = NO_WEIGHT
            if buffer.usage is Usage.WEIGHTS:
                kind = HOST_WEIGHT if buffer.memory in host else WEIGHT
            facts[buffer.name] = self.readers_of[buffer.memory], kind
        count = len(self.tensors)
        placed, readers, weight = [0] * count, [0] * count, [NO_WEIGHT] * count
        for i, tensor in enumerate(self.tensors):
            owner = tensor if base[i] == NONE else self.tensors[base[i]]
            name = self.placements.get(owner.name, owner.buffer)
            if name is None:
                continue
            placed[i] = 1
            readers[i], kind = facts[name]
            if owner is tensor or not computed[i]:
                weight[i] = kind
        return placed, readers, weight

    def sources(self, weight: Ints) -> tuple[list[int], list[int], list[int], list[int]]:
        """``source``, ``slot``, ``first`` and ``wants`` of the nodes.

        Who wants a node is asked only where it reads a weight in host memory.
        """
        index, offload = self.index, self.graph.op_offload
        source: list[int] = []
        slot: list[int] = []
        first = [0]
        wants = [0] * len(self.graph.nodes)
        for i, node in enumerate(self.graph.nodes):
            here = [index[name] for name in node.src]
            source += here
            slots = node.param("src_slot") if node.params else None
            slot += range(len(here)) if slots is None else slots
            first.append(len(source))
            if offload and HOST_WEIGHT in [weight[s] for s in here]:
                wants[i] = self.capabilities.wants(node)
        return source, slot, first, wants

    def pinned(self) -> list[int]:
        pin = [NONE if t.pin is None else self.device[t.pin] for t in self.tensors]
        for name, device in self.pins.items():
            pin[self.index[name]] = self.device[device]
        return pin


def host_weight_nodes(graph: Graph, arrays: GraphArrays) -> list[Node]:
    """The nodes for which op offload is a question: one of their sources is a host weight."""
    return [
        node
        for i, node in enumerate(graph.nodes)
        if any(
            arrays.weight[arrays.source[k]] == HOST_WEIGHT
            for k in range(arrays.first[i], arrays.first[i + 1])
        )
    ]
