"""An expert cache: banks of slots in device memory in the place of host expert weights.

Layers of one layout on one device share a group of banks and one least-recently-used list, and
the byte budget of a device is divided over its groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..device import Buffer, Usage
from ..graph import Bank, Graph, Node
from ..schedule import Schedule
from ..symbol import Comparison, Condition, Expr
from ..tensor import Tensor
from .capability import Capabilities
from .error import PlanError
from .operands import Operands
from .planner import plan_regimes

#: Larger batches use most experts anyway, and go the plain way.
MOST_TOKENS = 32
_ROLE = re.compile(r"ffn_(gate_up|gate|up|down)_(?:ch)?exps")
_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class CacheGuards:
    """What the cache makes sure of; each can be switched off in a test."""

    #: the device runs all matmuls of a layer from banks, or the layer is not cached
    capable: bool = True
    #: the experts of a batch fit into the slots
    fits: bool = True


ALL_CACHE_GUARDS = CacheGuards()


@dataclass(frozen=True, slots=True)
class Cached:
    """The parts of the range of tokens: where the cache is used, and where it is not.

    ``idle``: what was asked for and has no effect.
    """

    schedules: tuple[Schedule, ...]
    slots: tuple[tuple[str, int], ...] = ()
    idle: str = ""


@dataclass(frozen=True, slots=True)
class _Layer:
    number: int
    device: str
    ids: str
    #: role → the node that reads that weight
    nodes: tuple[tuple[str, Node], ...]


def cache_experts(
    schedule: Schedule, budget: int, *, force: bool = False, guards: CacheGuards = ALL_CACHE_GUARDS
) -> Cached:
    """A graph-level schedule with a cache of ``budget`` bytes on each device that has experts.

    ``PlanError`` if no layer's experts fit, and (BK011) for a group with so few slots that
    one-token decoding never finds an expert again, unless ``force``.
    """
    layers = [
        layer
        for layer in _layers(schedule)
        if not guards.capable or _capable(schedule, layer)
    ]  # fmt: skip
    if not layers:
        idle = "no layer has all its experts in host memory and a device that runs them from banks"
        return Cached((schedule,), idle=idle)
    groups = _groups(schedule.graph, layers)
    slots = dict(_slots(schedule, groups, budget, force))
    if not slots:
        raise PlanError(
            f"an expert cache of {budget} bytes holds less than one token's experts of any group"
        )
    kept = {name: found for name, found in groups.items() if name in slots}
    return _parts(schedule, kept, slots, guards)


def _parts(
    schedule: Schedule,
    groups: Mapping[str, list[_Layer]],
    slots: Mapping[str, int],
    guards: CacheGuards,
) -> Cached:
    symbol, per_token = _tokens(schedule, groups)
    most = min([MOST_TOKENS, *(slots[name] // per_token for name in groups)])
    if symbol is None:
        with_cache = _Banks(schedule, groups, slots, guards).schedule_with_banks()
        return Cached((with_cache,), tuple(slots.items()))
    low, high = schedule.graph.ranges[symbol]
    if not guards.fits:
        most = high
    if low > most:
        return Cached((schedule,), idle=f"{symbol} is {low} or more, and the cache serves {most}")
    found = [_within(schedule, symbol, low, min(most, high))]
    found[0] = _Banks(found[0], groups, slots, guards).schedule_with_banks()
    if high > most:
        found.append(_within(schedule, symbol, most + 1, high))
    return Cached(tuple(found), tuple(slots.items()))


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
        if all(roles) and all(operands.host_weight(node.src[0]) for node in nodes):
            named = tuple((r[1], n) for r, n in zip(roles, nodes, strict=True) if r is not None)
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
    schedule: Schedule, groups: Mapping[str, list[_Layer]], budget: int, force: bool
) -> Iterator[tuple[str, int]]:
    """The slots of each group that holds at least one token's experts."""
    for name, layers in groups.items():
        device, graph = layers[0].device, schedule.graph
        shares = sum(found[0].device == device for found in groups.values())
        weights = [graph.tensor(node.src[0]) for _, node in layers[0].nodes]
        each = sum(_expert_bytes(t) for t in weights)
        experts = weights[0].ne[2].constant or 1
        slots = min(budget // shares // each - 1, experts * len(layers))
        chosen = graph.tensor(layers[0].ids).ne[0].constant or 1
        if slots < chosen:
            continue
        if slots <= chosen * (len(layers) - 1) and not force:
            raise PlanError(
                f"BK011: the {len(layers)} layers of group {name} choose {chosen} experts each "
                f"and share {slots} slots, so that one-token decoding never finds one again: "
                f"{chosen * (len(layers) - 1) + 1} slots are the least that are of use "
                f"({each * (chosen * (len(layers) - 1) + 2) * shares} bytes); force it otherwise"
            )
        yield name, slots


def _expert_bytes(tensor: Tensor) -> int:
    size = tensor.nb[2].constant
    if size is None:
        raise PlanError(f"the experts of {tensor.name!r} have no fixed size", tensor=tensor.name)
    return size


# -- banks ----------------------------------------------------------------------------------------


class _Banks:
    """The graph with banks, slot maps and the look-ups of slots."""

    def __init__(
        self,
        schedule: Schedule,
        groups: Mapping[str, list[_Layer]],
        slots: Mapping[str, int],
        guards: CacheGuards,
    ) -> None:
        self.schedule, self.graph = schedule, schedule.graph
        self.groups, self.slots, self.guards = groups, slots, guards
        self.tensors: list[Tensor] = []
        self.banks: list[Bank] = []
        self.sizes: dict[str, int] = {}
        self.replaced: dict[str, Node] = {}
        #: look-ups, by the first node that needs them
        self.lookups: dict[str, tuple[Node, ...]] = {}

    def schedule_with_banks(self) -> Schedule:
        for name, layers in self.groups.items():
            offsets = self.offsets(name, layers[0])
            for layer in layers:
                self.layer(name, layer, offsets)
        nodes: list[Node] = []
        for node in self.graph.nodes:
            nodes += self.lookups.get(node.dst, ())
            nodes.append(self.replaced.get(node.dst, node))
        memory = {d.name: d.memory for d in self.graph.devices}
        buffers = [
            Buffer(name, memory.get(name.removeprefix("banks:"), self.host()), Usage.WEIGHTS, size)
            for name, size in self.sizes.items()
        ]
        graph = replace(
            self.graph,
            tensors=(*self.graph.tensors, *self.tensors),
            nodes=tuple(nodes),
            banks=(*self.graph.banks, *self.banks),
            buffers=(*self.graph.buffers, *buffers),
        )
        return replace(self.schedule, graph=graph)

    def host(self) -> str:
        return self.graph.devices[-1].memory

    def take(self, buffer: str, size: int) -> int:
        at = -(-self.sizes.get(buffer, 0) // _ALIGNMENT) * _ALIGNMENT
        self.sizes[buffer] = at + size
        return at

    def offsets(self, group: str, layer: _Layer) -> dict[str, int]:
        """Where each role's slots begin; one slot more takes what is read past the last."""
        return {
            role: self.take(
                f"banks:{layer.device}",
                _expert_bytes(self.graph.tensor(node.src[0])) * (self.slots[group] + 1),
            )
            for role, node in layer.nodes
        }

    def layer(self, group: str, layer: _Layer, offsets: Mapping[str, int]) -> None:
        ids, slots = self.graph.tensor(layer.ids), self.slots[group]
        experts = self.graph.tensor(layer.nodes[0][1].src[0]).ne[2]
        count = experts.constant or 1
        slot_map, rows, flat = (f"{what}-{layer.number}" for what in ("slot_map", "rows", "slots"))
        chosen = ids.ne[0], ids.ne[1]
        self.tensors += [
            Tensor(
                slot_map, "i32", (Expr.of(1), experts), buffer="slot maps",
                offset=Expr.of(self.take("slot maps", 4 * count)),
            ),
            Tensor(rows, "i32", (Expr.of(1), *chosen), pin=layer.device, values=(0, slots)),
            Tensor(flat, "i32", chosen, view_of=rows, offset=Expr.of(0), values=(0, slots)),
        ]  # fmt: skip
        self.lookups[layer.nodes[0][1].dst] = (
            Node("get_rows", rows, (slot_map, layer.ids)),
            Node("reshape", flat, (rows,)),
        )
        when = Condition()
        if self.guards.fits and count > slots:
            when = Condition((Comparison(ids.elements, "<=", Expr.of(slots)),))
        for role, node in layer.nodes:
            weight = self.graph.tensor(node.src[0])
            bank = f"bank {node.src[0]}"
            shape = (*weight.shape[:2], Expr.of(slots + 1))
            self.tensors.append(
                Tensor(
                    bank, weight.dtype, shape, buffer=f"banks:{layer.device}",
                    offset=Expr.of(offsets[role]),
                )
            )  # fmt: skip
            self.banks.append(
                Bank(
                    bank, weight.name, layer.number, role, group, slots, layer.ids,
                    slot_map=slot_map, when=when,
                )
            )  # fmt: skip
            self.replaced[node.dst] = replace(node, src=(bank, node.src[1], flat))
