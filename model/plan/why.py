"""Why a plan is as it is: for each node, for each split, and what would change it.  Plain data;
words are the command line's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ops import OPS
from ..tensor import Tensor
from .arrays import NO_WEIGHT, NONE, WEIGHT, GraphArrays
from .assign import Cause, recorded_name
from .decide import decide_arrays
from .error import PlanError
from .options import PlanOptions
from .planner import Planned
from .split import Begins

#: Remedies are tried by planning again, until so many nodes were planned.
MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class NodeWhy:
    """Why a node runs where it does.

    ``step``: the pass that decided (0: the user).  ``cause``: a name of :class:`.assign.Cause`
    in lower case; ``recorded``: its name in ggml's debug output.  ``led_by``: the weight, base,
    neighbour or reader that it followed.
    """

    node: str
    op: str
    device: str
    step: int
    cause: str
    recorded: str
    led_by: str | None


@dataclass(frozen=True, slots=True)
class Crossing:
    """A tensor that is copied into a split.  ``bytes``: at the upper bounds of the symbols;
    ``weight``: it lies in a weights buffer, so what crosses is the same in each pass."""

    tensor: str
    bytes: int
    memory: str | None
    weight: bool


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change by which a split goes: none begins at its node any more, and there are fewer.

    ``kind``: ``"capability"`` (``device`` supports the ops ``what``), ``"placement"`` (the
    weights ``what`` lie in the memory of ``device``), ``"pin"`` (the nodes ``what`` are pinned
    to ``device``), ``"list"`` (longer input lists).  ``splits``: how many there are then, found
    by planning again; ``None``: not tried, as the effort was spent.
    """

    kind: str
    device: str
    what: tuple[str, ...]
    splits: int | None


@dataclass(frozen=True, slots=True)
class SplitWhy:
    """Why a split begins (``graph``, ``device``, ``weight`` or ``full``), at which node and
    because of which tensor, what crosses into it, which copies of earlier splits it uses, and
    what would remove it."""

    device: str
    start: int
    end: int
    begins: str
    node: str
    made_by: str | None
    crossing: tuple[Crossing, ...]
    shared: tuple[str, ...]
    remedies: tuple[Remedy, ...]

    @property
    def bytes(self) -> int:
        return sum(c.bytes for c in self.crossing)


@dataclass(frozen=True, slots=True)
class Why:
    """One reason for each node with a command, in graph order, and for each split."""

    nodes: tuple[NodeWhy, ...]
    splits: tuple[SplitWhy, ...]

    @property
    def bytes(self) -> int:
        """What crosses memories in one pass."""
        return sum(split.bytes for split in self.splits)


def why(planned: Planned, options: PlanOptions | None = None, effort: int = MOST_NODES) -> Why:
    """The reasons of a plan.  ``options``: those that it was made with.  ``effort``: nodes that
    may be planned to try remedies."""
    reasons = _Reasons(planned, options or PlanOptions(), effort)
    return Why(tuple(reasons.nodes()), tuple(reasons.splits()))


class _Reasons:
    def __init__(self, planned: Planned, options: PlanOptions, effort: int) -> None:
        self.decision = planned.decision
        self.schedule = planned.schedule
        self.graph = planned.decision.graph
        self.g = planned.decision.arrays
        self.options = options
        self.effort = effort
        self.names = [t.name for t in self.graph.tensors]
        self.index = {name: t for t, name in enumerate(self.names)}
        self.devices = [d.name for d in self.graph.devices]
        self.tried: dict[tuple[str, int, tuple[str, ...]], frozenset[int]] = {}

    def name(self, tensor: int) -> str | None:
        return None if tensor == NONE else self.names[tensor]

    def nodes(self) -> Iterator[NodeWhy]:
        device, causes, led = self.decision.assignment
        for i, node in enumerate(self.graph.nodes):
            if self.g.idle[i]:
                continue
            t = self.g.node[i]
            name = recorded_name(causes[t])
            cause = Cause.WEIGHT if causes[t] >= Cause.WEIGHT else Cause(causes[t])
            step = 4 if cause is Cause.FIRST else int(name[0]) if name[:1].isdigit() else 0
            yield NodeWhy(
                node.dst, node.op, self.devices[device[t]], step, cause.name.lower(), name,
                self.name(led[t]),
            )  # fmt: skip

    # -- splits -------------------------------------------------------------------------------

    def splits(self) -> Iterator[SplitWhy]:
        s = self.decision.splits
        copied: set[tuple[int, int]] = set()
        for k, split in enumerate(self.schedule.splits or ()):
            inputs = s.inputs[s.first[k] : s.first[k + 1]]
            shared = sorted({
                t for t in self.sources(split.start, split.end)
                if (t, s.device[k]) in copied and t not in inputs
            })  # fmt: skip
            copied |= {(t, s.device[k]) for t in inputs}
            begins = Begins(s.begins[k])
            first = next((i for i in range(split.start, split.end) if not self.g.idle[i]), None)
            yield SplitWhy(
                device=split.device, start=split.start, end=split.end,
                begins=begins.name.lower(),
                node=self.graph.nodes[split.start if first is None else first].dst,
                made_by=self.name(s.made_by[k]) if k else None,
                crossing=tuple(self.crossing(self.graph.tensors[t]) for t in inputs),
                shared=tuple(self.names[t] for t in shared),
                remedies=tuple(self.remedies(k)) if k else (),
            )  # fmt: skip

    def sources(self, start: int, end: int) -> Iterator[int]:
        for i in range(start, end):
            if not self.g.idle[i]:
                yield from self.g.source[self.g.first[i] : self.g.first[i + 1]]

    def crossing(self, tensor: Tensor) -> Crossing:
        where = self.schedule.location(tensor.name)
        most = tensor.data_bytes.bounds(self.schedule.graph.ranges)[1]
        return Crossing(
            tensor.name, most, where.memory,
            self.g.weight[self.index[tensor.name]] != NO_WEIGHT,
        )  # fmt: skip

    # -- what would remove a split ------------------------------------------------------------

    def remedies(self, k: int) -> Iterator[Remedy]:
        """Changes after which there are fewer splits, and none begins where this one does."""
        begin = self.decision.splits.start[k]
        for kind, device, what in self.candidates(k):
            starts = self.starts_with(kind, device, what)
            if starts is None:
                yield Remedy(kind, self.devices[device], what, None)
            elif len(starts) < self.decision.count and begin not in starts:
                yield Remedy(kind, self.devices[device], what, len(starts))

    def candidates(self, k: int) -> Iterator[tuple[str, int, tuple[str, ...]]]:
        """Changes that may join split k to the one before it, on either's device."""
        s = self.decision.splits
        before, here = s.device[k - 1], s.device[k]
        if s.begins[k] == Begins.FULL:
            yield "list", here, ()
        if s.begins[k] == Begins.WEIGHT:
            yield "placement", here, self.foreign_weights(self.commands(k), here)
        if before != here:
            yield from self.moves(self.commands(k), before)
            yield from self.moves(self.commands(k - 1), here)

    def commands(self, k: int) -> list[int]:
        """The nodes of a split that have a command."""
        split = (self.schedule.splits or ())[k]
        return [i for i in range(split.start, split.end) if not self.g.idle[i]]

    def moves(self, nodes: list[int], device: int) -> Iterator[tuple[str, int, tuple[str, ...]]]:
        """What may bring all of these nodes to a device."""
        g, led = self.g, self.decision.assignment.led
        lacking = {self.graph.nodes[i].op for i in nodes if not (g.supports[i] >> device) & 1}
        if lacking:
            yield "capability", device, tuple(sorted(lacking))
        deciding = {led[g.node[i]] for i in nodes} | {g.node[i] for i in nodes}
        placed = {
            t if g.base[t] == NONE else g.base[t]  # a view lies where its base does
            for t in deciding
            if t != NONE and g.placed[t] and not (g.readers[t] >> device) & 1
        }
        if placed:
            yield "placement", device, tuple(self.names[t] for t in sorted(placed))
        if not lacking and not any(g.placed[g.node[i]] for i in nodes):
            yield "pin", device, tuple(self.graph.nodes[i].dst for i in nodes)

    def foreign_weights(self, nodes: list[int], device: int) -> tuple[str, ...]:
        g = self.g
        found = {
            t if g.base[t] == NONE else g.base[t]
            for i in nodes
            for t in g.source[g.first[i] : g.first[i + 1]]
            if g.weight[t] != NO_WEIGHT and not (g.readers[t] >> device) & 1
        }
        return tuple(self.names[t] for t in sorted(found))

    def starts_with(self, kind: str, device: int, what: tuple[str, ...]) -> frozenset[int] | None:
        """Where splits begin after a change; ``None`` if the effort is spent."""
        key = kind, device, what
        if key not in self.tried:
            if self.effort < len(self.graph.nodes):
                return None
            self.effort -= len(self.graph.nodes)
            self.tried[key] = self.starts_after(kind, device, set(what))
        return self.tried[key]

    def starts_after(self, kind: str, device: int, what: set[str]) -> frozenset[int]:
        options = self.options
        g = self.g
        if kind == "list":
            options = PlanOptions(split_inputs=len(self.names))
        elif kind == "capability":
            g = self.supporting(device, what)
        elif kind == "pin":
            pin = [device if n in what else p for n, p in zip(self.names, g.pin, strict=True)]
            g = g._replace(pin=pin)
        else:
            g = self.placing(device, what)
        try:
            return frozenset(decide_arrays(self.graph, g, options).splits.start)
        except PlanError:
            return frozenset(self.decision.splits.start)  # a broken plan removes nothing

    def supporting(self, device: int, ops: set[str]) -> GraphArrays:
        supports = [
            mask | (1 << device) if node.op in ops and not OPS[node.op].view else mask
            for mask, node in zip(self.g.supports, self.graph.nodes, strict=True)
        ]
        return self.g._replace(supports=supports)

    def placing(self, device: int, tensors: set[str]) -> GraphArrays:
        """Bases move, and their views with them."""
        g = self.g
        host = self.graph.memory(self.graph.devices[device].memory).host
        moved = {
            t for t, n in enumerate(self.names)
            if n in tensors or (g.base[t] != NONE and self.names[g.base[t]] in tensors)
        }  # fmt: skip
        moved |= {g.base[t] for t in moved if g.base[t] != NONE}
        readers = [g.home[device] if t in moved else m for t, m in enumerate(g.readers)]
        weight = [
            WEIGHT + int(host) if t in moved and w != NO_WEIGHT else w
            for t, w in enumerate(g.weight)
        ]
        return g._replace(readers=readers, weight=weight)
