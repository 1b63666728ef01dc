"""An expert cache: banks of slots in device memory in the place of host expert weights.

Layers of one layout on one device share a group of banks and one least-recently-used list, and
the byte budget of a device is divided over its groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...device import Buffer, Usage
from ...graph import Bank, Graph, Node
from ...schedule import Schedule
from ...symbol import Comparison, Condition, Expr
from ...tensor import Tensor, dtype
from ..capability import Capabilities
from ..error import PlanError
from ..guard import NONE_OFF, Guard, Off
from ..operands import Operands
from ..planner import plan_regimes
from ..transfer import Policy, Prepared

#: Larger batches use most experts anyway, and go the plain way.
MOST_TOKENS = 32
_ROLE = re.compile(r"ffn_(gate_up|gate|up|down)_(?:ch)?exps")
_ALIGNMENT = 128
_BANKS = "banks:"
#: ggml keeps one slot more than it uses.
_SPARE = 1


@dataclass(frozen=True, slots=True)
class _Layer:
    number: int
    device: str
    ids: str
    #: role → the node that reads that weight
    nodes: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class _Cache:
    """Groups of layers, the slots of each, and how readers learn of them."""

    groups: Mapping[str, list[_Layer]]
    slots: Mapping[str, int]
    off: Off
    slot_ids: bool


def cache_experts(
    schedule: Schedule, budget: int, off: Off = NONE_OFF, *, slot_ids: bool = False
) -> Prepared:
    """A graph-level schedule with a cache of ``budget`` bytes on each device that has experts:
    one for the batches that the cache serves, and one for those that go the plain way.

    The graph looks slots up in a map in host memory, as ggml's does, or (``slot_ids``) a fill
    writes the slots of its ids to the device.

    ``PlanError`` if no layer's experts fit, if a memory has not so many bytes left, and (BK011)
    for a group with so few slots that one-token decoding never finds an expert again.
    """
    layers = [
        layer for layer in _layers(schedule)
        if Guard.CAPABILITY in off or _capable(schedule, layer)
    ]  # fmt: skip
    if not layers:
        idle = "no layer has all its experts in host memory and a device that runs them from banks"
        return Prepared((schedule,), idle)
    groups = _groups(schedule.graph, layers)
    slots = dict(_slots(schedule, groups, budget, off))
    if not slots:
        raise PlanError(
            f"an expert cache of {budget} bytes holds less than one token's experts of any group"
        )
    kept = {name: found for name, found in groups.items() if name in slots}
    return _parts(schedule, _Cache(kept, slots, off, slot_ids))


def _parts(schedule: Schedule, cache: _Cache) -> Prepared:
    """The cache for the batches that it serves."""
    symbol, per_token = _tokens(schedule, cache.groups)
    most = min([MOST_TOKENS, *(slots // per_token for slots in cache.slots.values())])
    if symbol is None:
        return Prepared((_Banks(schedule, cache).schedule_with_banks(),))
    low, high = schedule.graph.ranges[symbol]
    if Guard.SLOTS in cache.off:
        most = high
    if low > most:
        idle = f"{symbol} is {low} or more, and the cache serves {most}"
        return Prepared((schedule,), idle)
    small = _within(schedule, symbol, low, min(most, high))
    found = [_Banks(small, cache).schedule_with_banks()]
    if high > most:
        found.append(_within(schedule, symbol, most + 1, high))
    return Prepared(tuple(found))


def _check_capacity(graph: Graph) -> None:
    for memory in graph.memories:
        taken = sum(b.bytes for b in graph.buffers if b.memory == memory.name)
        if memory.bytes is not None and taken > memory.bytes:
            banks = sum(
                b.bytes for b in graph.buffers
                if b.memory == memory.name and b.name.startswith(_BANKS)
            )  # fmt: skip
            raise PlanError(
                f"memory {memory.name!r} has {memory.bytes} bytes, of which "
                f"{memory.bytes - taken + banks} are left for banks; these take {banks}: "
                "give the cache fewer bytes"
            )


def _tokens(schedule: Schedule, groups: Mapping[str, list[_Layer]]) -> tuple[str | None, int]:
    """The symbol that counts tokens, and ids per token."""
    layer = next(iter(groups.values()))[0]
    ids = schedule.graph.tensor(layer.ids)
    per_token = ids.ne[0].constant or 1
    names = sorted(ids.elements.symbols)
    return (names[0] if names else None), per_token


def _within(schedule: Schedule, symbol: str, low: int, high: int) -> Schedule:
    symbols = tuple(
        (name, low, high) if name == symbol else (name, least, most)
        for name, least, most in schedule.graph.symbols
    )
    return replace(schedule, graph=replace(schedule.graph, symbols=symbols))


# -- which layers ---------------------------------------------------------------------------------


def _layers(schedule: Schedule) -> Iterator[_Layer]:
    """The layers whose experts all lie in host memory, on the device that computes their ids."""
    planned = plan_regimes(schedule)[0].schedule
    operands = Operands(planned)
    by_ids: dict[str, list[Node]] = {}
    for node in schedule.graph.nodes:
        if node.op == "mul_mat_id":
            by_ids.setdefault(node.src[2], []).append(node)
    for number, (ids, nodes) in enumerate(by_ids.items()):
        roles = [_ROLE.search(node.src[0]) for node in nodes]
        device = planned.device_of(schedule.base(ids).name)
        if device is None or not schedule.graph.device(device).asynchronous:
            continue
        if all(operands.host_weight(node.src[0]) for node in nodes):
            named = tuple((r[1], n) for r, n in zip(roles, nodes, strict=True) if r is not None)
            if len(dict(named)) < len(nodes):
                continue  # a weight without a role, or two with the same
            yield _Layer(number, device, ids, named)


def _capable(schedule: Schedule, layer: _Layer) -> bool:
    """Whether the device runs every matmul of the layer at all sizes that a bank serves."""
    low = {name: least for name, least, _ in schedule.graph.symbols}
    high = {name: most for name, _, most in schedule.graph.symbols}
    for values in (low, high):
        capabilities = Capabilities(schedule.graph, values)
        bit = capabilities.bit[layer.device]
        if not all(capabilities.supports(node) & bit for _, node in layer.nodes):
            return False
    return True


def _groups(graph: Graph, layers: list[_Layer]) -> dict[str, list[_Layer]]:
    """Layers by device and layout."""
    names: dict[object, str] = {}
    found: dict[str, list[_Layer]] = {}
    for layer in layers:
        weights = [(role, graph.tensor(node.src[0])) for role, node in layer.nodes]
        key = layer.device, tuple((role, t.dtype, t.shape, t.nb) for role, t in weights)
        name = names.setdefault(key, f"{layer.device}.{len(names)}")
        found.setdefault(name, []).append(layer)
    return found


def _slots(
    schedule: Schedule, groups: Mapping[str, list[_Layer]], budget: int, off: Off
) -> Iterator[tuple[str, int]]:
    """The slots of each group that holds at least one token's experts."""
    for name, layers in groups.items():
        device, graph = layers[0].device, schedule.graph
        shares = sum(found[0].device == device for found in groups.values())
        share = budget // shares
        sizes = [_slot_bytes(graph, device, node, off) for _, node in layers[0].nodes]
        experts = graph.tensor(layers[0].nodes[0][1].src[0]).ne[2].constant or 1
        slots = min(share // sum(sizes) - _SPARE, experts * len(layers))
        while slots > 0 and _bank_bytes(sizes, slots) > share:
            slots -= 1
        chosen = graph.tensor(layers[0].ids).ne[0].constant or 1
        if slots < chosen:
            continue
        if slots <= chosen * (len(layers) - 1) and Guard.FLOODING not in off:
            least = chosen * (len(layers) - 1) + 1
            due = _bank_bytes(sizes, least) * shares
            raise PlanError(
                f"BK011: the {len(layers)} layers of group {name} choose {chosen} experts each "
                f"and share {slots} slots, so that one-token decoding never finds one again: "
                f"{least} slots are the least that are of use ({due} bytes); force it otherwise"
            )
        yield name, slots


def _bank_bytes(sizes: Iterable[int], slots: int) -> int:
    """What the banks of a group take, given what a slot of each takes."""
    return sum(_aligned(size * (slots + _SPARE)) for size in sizes)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _slot_bytes(graph: Graph, device: str, node: Node, off: Off) -> int:
    """From one slot to the next: an expert, and what the device's kernel reads past it."""
    weight = graph.tensor(node.src[0])
    size = weight.nb[2].constant
    if size is None:
        raise PlanError(f"the experts of {weight.name!r} have no fixed size", tensor=weight.name)
    past = graph.device(device).over_read_bytes(node.op, weight.dtype)
    if not past or Guard.SLOT_PADDING in off:
        return size
    block = dtype(weight.dtype).block_bytes
    return size + -(-past // block) * block


# -- banks ----------------------------------------------------------------------------------------


class _Banks:
    """A graph with banks, and with slot ids or slot maps and their look-ups."""

    def __init__(self, schedule: Schedule, cache: _Cache) -> None:
        self.schedule, self.graph, self.cache = schedule, schedule.graph, cache
        self.tensors: list[Tensor] = []
        self.banks: list[Bank] = []
        self.buffers: dict[str, Buffer] = {}
        self.replaced: dict[str, Node] = {}
        #: look-ups, by the first node that needs them
        self.lookups: dict[str, tuple[Node, ...]] = {}

    def schedule_with_banks(self) -> Schedule:
        for name, layers in self.cache.groups.items():
            offsets = self.offsets(name, layers[0])
            for layer in layers:
                self.layer(name, layer, offsets)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.lookups.get(node.dst, ())
            nodes.append(self.replaced.get(node.dst, node))
        graph = replace(
            self.graph,
            tensors=(*self.graph.tensors, *self.tensors),
            nodes=tuple(nodes),
            banks=(*self.graph.banks, *self.banks),
            buffers=(*self.graph.buffers, *self.buffers.values()),
        )
        if Guard.CAPACITY not in self.cache.off:
            _check_capacity(graph)
        return replace(self.schedule, graph=graph)

    def take(self, buffer: str, device: str, usage: Usage, size: int) -> tuple[str, int]:
        """So many bytes of a buffer in a device's memory: its name, and where they begin."""
        memory = self.graph.device(device).memory
        known = self.buffers.get(buffer, Buffer(buffer, memory, usage, 0))
        at = _aligned(known.bytes)
        self.buffers[buffer] = replace(known, bytes=at + size)
        return buffer, at

    def offsets(self, group: str, layer: _Layer) -> dict[str, tuple[str, int]]:
        """Where each role's slots begin."""
        count = self.cache.slots[group] + _SPARE
        return {
            role: self.take(
                _BANKS + layer.device, layer.device, Usage.WEIGHTS,
                _slot_bytes(self.graph, layer.device, node, self.cache.off) * count,
            )
            for role, node in layer.nodes
        }  # fmt: skip

    def layer(self, group: str, layer: _Layer, offsets: Mapping[str, tuple[str, int]]) -> None:
        ids, slots = self.graph.tensor(layer.ids), self.cache.slots[group]
        found, slot_map = (
            self.told(layer, slots) if self.cache.slot_ids else self.looked_up(layer, slots)
        )
        when = Condition()
        experts = self.graph.tensor(layer.nodes[0][1].src[0]).ne[2].constant or 1
        if Guard.SLOTS not in self.cache.off and experts > slots:
            when = Condition((Comparison(ids.elements, "<=", Expr.of(slots)),))
        for role, node in layer.nodes:
            weight = self.graph.tensor(node.src[0])
            bank = f"bank {node.src[0]}"
            shape = (*weight.shape[:2], Expr.of(slots + _SPARE))
            size = _slot_bytes(self.graph, layer.device, node, self.cache.off)
            padded = weight.strides is not None or weight.nb[2] != Expr.of(size)
            strides = (*weight.nb[:2], Expr.of(size)) if padded else None
            buffer, at = offsets[role]
            self.tensors.append(
                Tensor(bank, weight.dtype, shape, strides, buffer=buffer, offset=Expr.of(at))
            )
            self.banks.append(
                Bank(
                    bank, weight.name, layer.number, role, group, slots, layer.ids,
                    slot_ids=found if self.cache.slot_ids else None, slot_map=slot_map, when=when,
                )
            )  # fmt: skip
            self.replaced[node.dst] = replace(node, src=(bank, node.src[1], found))

    def told(self, layer: _Layer, slots: int) -> tuple[str, None]:
        """Slot ids that the fill writes."""
        ids, name = self.graph.tensor(layer.ids), f"slots-{layer.number}"
        most = 4 * ids.elements.bounds(self.graph.ranges)[1]
        buffer, at = self.take(f"slot ids:{layer.device}", layer.device, Usage.COMPUTE, most)
        self.tensors.append(
            Tensor(
                name, "i32", ids.shape, buffer=buffer, offset=Expr.of(at),
                values=(0, slots),
            )
        )  # fmt: skip
        return name, None

    def looked_up(self, layer: _Layer, slots: int) -> tuple[str, str]:
        """A slot map that the fill writes, and what the graph finds in it."""
        ids = self.graph.tensor(layer.ids)
        experts = self.graph.tensor(layer.nodes[0][1].src[0]).ne[2]
        slot_map, rows, flat = (f"{what}-{layer.number}" for what in ("slot_map", "rows", "slots"))
        host, chosen = self.graph.devices[-1].name, (ids.ne[0], ids.ne[1])
        buffer, at = self.take("slot maps", host, Usage.WEIGHTS, 4 * (experts.constant or 1))
        self.tensors += [
            Tensor(slot_map, "i32", (Expr.of(1), experts), buffer=buffer, offset=Expr.of(at)),
            Tensor(rows, "i32", (Expr.of(1), *chosen), pin=layer.device, values=(0, slots)),
            Tensor(flat, "i32", chosen, view_of=rows, offset=Expr.of(0), values=(0, slots)),
        ]
        self.lookups[layer.nodes[0][1].dst] = (
            Node("get_rows", rows, (slot_map, layer.ids)),
            Node("reshape", flat, (rows,)),
        )
        return flat, slot_map


POLICY = Policy("expert-cache", "banks of experts in device memory", "BYTES", prepare=cache_experts)
