"""A graph as flat lists of integers: what the passes of the planner read.

Devices are numbers in priority order, and sets of devices are masks (bit d: device d).
Tensors are numbers in the order of ``Graph.tensors``, nodes in graph order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from ..device import Usage
from ..graph import Graph, Node
from ..ops import OPS
from ..tensor import Tensor
from .capability import Capabilities
from .error import PlanError

Ints = Sequence[int]

#: Masks of so many devices fit in 32 bits.
MOST_DEVICES = 30
#: No device, no tensor, no base.
NONE = -1
#: What a tensor's own buffer holds: no weights, weights, or weights in host memory.
NO_WEIGHT, WEIGHT, HOST_WEIGHT = 0, 1, 2

#: Their weights (rotary factors, attention sinks) are too small to decide where they run.
_WEIGHT_BLIND = frozenset(("rope", "flash_attn_ext"))


class GraphArrays(NamedTuple):
    """One graph.  Every field but the first two is a sequence of integers: typed and flat, or a
    NumPy array in the compiled twin.

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
    """One graph on its way into arrays.

    Large graphs are gone through field by field, so that the loops are the interpreter's own.
    """

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
        self.index: dict[str | None, int] = {t.name: i for i, t in enumerate(graph.tensors)}
        self.index[None] = NONE
        self.device: dict[str | None, int] = {d.name: j for j, d in enumerate(graph.devices)}
        self.device[None] = NONE
        self.readers_of = {
            memory.name: sum(1 << j for j, d in enumerate(graph.devices) if memory.name in d.reads)
            for memory in graph.memories
        }

    def arrays(self) -> GraphArrays:
        graph = self.graph
        node = self.numbers([n.dst for n in graph.nodes])
        computed, known = bytearray(len(self.tensors)), bytearray(len(self.tensors))
        for i in node:
            computed[i] = 1
        base = self.bases()
        placed, readers, weight = self.buffers(base, computed)
        sources = [n.src for n in graph.nodes]
        source = self.numbers(chain.from_iterable(sources))
        first = array("i", accumulate(map(len, sources), initial=0))
        inputs = bytearray(t.input for t in self.tensors)
        for s in source:
            known[s] = 1
        ops = [n.op for n in graph.nodes]
        views = {op for op in OPS if OPS[op].view}
        memories = [d.memory for d in graph.devices]
        return GraphArrays(
            devices=len(graph.devices),
            offload=int(graph.op_offload),
            node=node,
            idle=bytearray(map(views.__contains__, ops)),
            blind=bytearray(map(_WEIGHT_BLIND.__contains__, ops)),
            supports=self.masks(self.capabilities.supported(graph.nodes)),
            wants=self.masks(self.wants(source, first, weight)),
            first=first,
            source=source,
            slot=self.slots(sources),
            base=base,
            placed=placed,
            readers=readers,
            weight=weight,
            input=inputs,
            pin=self.pinned(),
            leafs=array(
                "i",
                (
                    i
                    for i, (c, r, given) in enumerate(zip(computed, known, inputs, strict=True))
                    if not c and (r or given)
                ),
            ),
            home=self.masks(self.readers_of[m] for m in memories),
            kin=self.masks(
                sum(1 << j for j, other in enumerate(memories) if other == m) for m in memories
            ),
        )

    def numbers(self, names: Iterable[str | None]) -> array[int]:
        """The numbers of tensors."""
        return array("i", map(self.index.__getitem__, names))

    def masks(self, values: Iterable[int]) -> Ints:
        """Sets of devices, small where they are small enough."""
        return array("i", values) if len(self.graph.devices) <= MOST_DEVICES else list(values)

    def bases(self) -> array[int]:
        """The owner of the bytes of each view."""
        base = self.numbers(t.view_of for t in self.tensors)
        for i, parent in enumerate(base):
            if parent != NONE:
                while base[parent] != NONE:
                    parent = base[parent]
                base[i] = parent
        return base

    def buffers(self, base: Ints, computed: bytearray) -> tuple[bytearray, Ints, bytearray]:
        """``placed``, ``readers`` and ``weight`` of each tensor.

        A view that a node makes has no buffer of its own before the graph is allocated, so it
        is no weight even where its base is one; a view that was there before the graph is.
        """
        host = {m.name for m in self.graph.memories if m.host}
        kind: dict[str | None, int] = {None: NO_WEIGHT}
        readers: dict[str | None, int] = {None: 0}
        for buffer in self.graph.buffers:
            readers[buffer.name] = self.readers_of[buffer.memory]
            kind[buffer.name] = NO_WEIGHT
            if buffer.usage is Usage.WEIGHTS:
                kind[buffer.name] = HOST_WEIGHT if buffer.memory in host else WEIGHT
        where = [t.buffer for t in self.tensors]
        for name, placed in self.placements.items():
            if name in self.index:
                where[self.index[name]] = placed
        views = [i for i, parent in enumerate(base) if parent != NONE]
        for i in views:
            where[i] = where[base[i]]
        weight = bytearray(map(kind.__getitem__, where))
        for i in views:
            if computed[i]:
                weight[i] = NO_WEIGHT
        return (
            bytearray(name is not None for name in where),
            self.masks(map(readers.__getitem__, where)),
            weight,
        )

    def wants(self, source: Ints, first: Ints, weight: bytearray) -> list[int]:
        """Who wants a node is asked only where it reads a weight in host memory."""
        wants = [0] * len(self.graph.nodes)
        if not self.graph.op_offload or HOST_WEIGHT not in weight:
            return wants
        hosted = bytearray(map(weight.__getitem__, source))
        at = hosted.find(HOST_WEIGHT)
        while at != NONE:
            node = bisect_right(first, at) - 1
            wants[node] = self.capabilities.wants(self.graph.nodes[node])
            at = hosted.find(HOST_WEIGHT, first[node + 1])
        return wants

    def slots(self, sources: Sequence[tuple[str, ...]]) -> array[int]:
        """The numbers of the sources, counted with those that are missing."""
        slot: array[int] = array("i")
        usual: dict[int, Ints] = {}
        for node, here in zip(self.graph.nodes, sources, strict=True):
            given = node.param("src_slot") if node.params else None
            if given is None:
                given = usual.get(len(here))
            if given is None:
                given = usual[len(here)] = array("i", range(len(here)))
            slot.extend(given)
        return slot

    def pinned(self) -> array[int]:
        pin = array("i", map(self.device.__getitem__, [t.pin for t in self.tensors]))
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
