"""What would remove a split: changes of ops, places and pins, each tried by planning again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from ..ops import OPS
from .arrays import NO_WEIGHT, NONE, WEIGHT, GraphArrays
from .decide import Decision, decide_arrays
from .error import PlanError
from .options import PlanOptions
from .split import Begins

#: Remedies are tried by planning again, until so many nodes were planned.
MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """``kind``: ``"capability"`` (``device`` supports the ops ``what``), ``"inability"`` (it
    supports none of them), ``"placement"`` (the tensors ``what`` lie in its memory), ``"pin"``
    (the nodes ``what`` are pinned to it), ``"list"`` (longer input lists)."""

    kind: str
    device: str
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remedy:
    """Changes by which a split goes: none begins at its node any more, and there are fewer.

    Where there are several, none of them does it alone.  ``splits``: how many there are then,
    found by planning again; ``None``: not tried, as the effort was spent.
    """

    changes: tuple[Change, ...]
    splits: int | None


class Remedies:
    """Tries changes on the arrays of one plan.  ``effort``: nodes that may be planned."""

    def __init__(self, decision: Decision, options: PlanOptions, effort: int) -> None:
        self.decision = decision
        self.graph = decision.graph
        self.g = decision.arrays
        self.options = options
        self.effort = effort
        self.names = [t.name for t in self.graph.tensors]
        self.devices = [d.name for d in self.graph.devices]
        self.tried: dict[tuple[Change, ...], frozenset[int]] = {}

    def of(self, k: int) -> tuple[Remedy, ...]:
        """What would remove split k > 0.

        For each of the two devices between which it begins: the single changes that do it, else
        the fewest that do it together.  Nothing, if even all that brings its nodes, or those of
        the split before, to one device leaves as many splits.
        """
        found = self.working(k, ((change,) for change in self.within(k)))
        for nodes, device in self.moves(k):
            here = self.working(k, ((change,) for change in self.move(nodes, device)))
            every = tuple(self.whole_move(nodes, device))
            for count in range(1, len(every) + 1):
                here = here or self.working(k, combinations(every, count))
            found += here
        return found

    def working(self, k: int, candidates: Iterable[tuple[Change, ...]]) -> tuple[Remedy, ...]:
        """The changes after which there are fewer splits, and none begins where k does."""
        begin = self.decision.splits.start[k]
        found: list[Remedy] = []
        for changes in candidates:
            starts = self.starts_with(changes)
            if starts is None:
                return (*found, Remedy(changes, None))
            if len(starts) < self.decision.count and begin not in starts:
                found.append(Remedy(changes, len(starts)))
        return tuple(found)

    # -- candidates ---------------------------------------------------------------------------

    def within(self, k: int) -> Iterator[Change]:
        """Changes for a split that begins on the device of the one before it."""
        s = self.decision.splits
        here = s.device[k]
        if s.begins[k] == Begins.FULL:
            yield Change("list", self.devices[here], ())
        if s.begins[k] == Begins.WEIGHT:
            foreign = self.foreign_weights(self.commands(k), here)
            yield Change("placement", self.devices[here], self.called(foreign))

    def moves(self, k: int) -> Iterator[tuple[list[int], int]]:
        """The nodes of either split, with the device of the other."""
        s = self.decision.splits
        before, here = s.device[k - 1], s.device[k]
        if before != here:
            yield self.commands(k), before
            yield self.commands(k - 1), here

    def commands(self, k: int) -> list[int]:
        """The nodes of a split that have a command."""
        s = self.decision.splits
        end = s.start[k + 1] if k + 1 < self.decision.count else len(self.graph.nodes)
        return [i for i in range(s.start[k], end) if not self.g.idle[i]]

    def move(self, nodes: list[int], device: int) -> Iterator[Change]:
        """What may bring all of these nodes to a device."""
        g = self.g
        lacking = self.lacking(nodes, device)
        if lacking:
            yield Change("capability", self.devices[device], lacking)
        placed = self.deciding(nodes, device)
        if placed:
            yield Change("placement", self.devices[device], self.called(placed))
        if not lacking and not any(g.placed[g.node[i]] for i in nodes):
            yield self.pinned(nodes, device)
        now = self.decision.assignment.device[g.node[nodes[0]]]
        if now < device and (g.kin[device] >> now) & 1:
            # In one memory the first device that can takes a node, whatever was pinned.
            ops = sorted({self.graph.nodes[i].op for i in nodes})
            yield Change("inability", self.devices[now], tuple(ops))

    def whole_move(self, nodes: list[int], device: int) -> Iterator[Change]:
        """What surely brings all of these nodes, and the weights that they need, to a device."""
        g = self.g
        lacking = self.lacking(nodes, device)
        if lacking:
            yield Change("capability", self.devices[device], lacking)
        placed = self.deciding(nodes, device) | self.foreign_weights(nodes, device)
        if placed:
            yield Change("placement", self.devices[device], self.called(placed))
        free = [i for i in nodes if not g.placed[g.node[i]]]
        if free:
            yield self.pinned(free, device)

    def pinned(self, nodes: list[int], device: int) -> Change:
        return Change("pin", self.devices[device], tuple(self.graph.nodes[i].dst for i in nodes))

    def lacking(self, nodes: list[int], device: int) -> tuple[str, ...]:
        ops = {self.graph.nodes[i].op for i in nodes if not (self.g.supports[i] >> device) & 1}
        return tuple(sorted(ops))

    def deciding(self, nodes: list[int], device: int) -> set[int]:
        """What is placed, out of the device's reach, and decides where a node runs."""
        g, led = self.g, self.decision.assignment.led
        deciding = {led[g.node[i]] for i in nodes} | {g.node[i] for i in nodes}
        return {
            self.owner(t)  # a view lies where its base does
            for t in deciding
            if t != NONE and g.placed[t] and not (g.readers[t] >> device) & 1
        }

    def foreign_weights(self, nodes: list[int], device: int) -> set[int]:
        g = self.g
        return {
            self.owner(t)
            for i in nodes
            for t in g.source[g.first[i] : g.first[i + 1]]
            if g.weight[t] != NO_WEIGHT and not (g.readers[t] >> device) & 1
        }

    def owner(self, tensor: int) -> int:
        base = self.g.base[tensor]
        return tensor if base == NONE else base

    def called(self, tensors: set[int]) -> tuple[str, ...]:
        return tuple(self.names[t] for t in sorted(tensors))

    # -- planning again -----------------------------------------------------------------------

    def starts_with(self, changes: tuple[Change, ...]) -> frozenset[int] | None:
        """Where splits begin after changes; ``None`` if the effort is spent."""
        if changes not in self.tried:
            if self.effort < len(self.graph.nodes):
                return None
            self.effort -= len(self.graph.nodes)
            self.tried[changes] = self.starts_after(changes)
        return self.tried[changes]

    def starts_after(self, changes: tuple[Change, ...]) -> frozenset[int]:
        options = self.options
        g = self.g
        for change in changes:
            device, what = self.devices.index(change.device), set(change.what)
            if change.kind == "list":
                options = PlanOptions(split_inputs=len(self.names))
            elif change.kind in ("capability", "inability"):
                g = self.supporting(g, device, what, change.kind == "capability")
            elif change.kind == "pin":
                pins = zip(self.names, g.pin, strict=True)
                g = g._replace(pin=[device if name in what else pin for name, pin in pins])
            else:
                g = self.placing(g, device, what)
        try:
            return frozenset(decide_arrays(self.graph, g, options).splits.start)
        except PlanError:
            return frozenset(self.decision.splits.start)  # a broken plan removes nothing

    def supporting(self, g: GraphArrays, device: int, ops: set[str], able: bool) -> GraphArrays:
        bit = 1 << device
        supports = [
            (mask | bit if able else mask & ~bit)
            if node.op in ops and not OPS[node.op].view
            else mask
            for mask, node in zip(g.supports, self.graph.nodes, strict=True)
        ]
        return g._replace(supports=supports)

    def placing(self, g: GraphArrays, device: int, tensors: set[str]) -> GraphArrays:
        """Bases move, and their views with them."""
        host = self.graph.memory(self.graph.devices[device].memory).host
        moved = {self.owner(t) for t, name in enumerate(self.names) if name in tensors}
        moved |= {t for t in range(len(self.names)) if self.owner(t) in moved}
        readers = [g.home[device] if t in moved else m for t, m in enumerate(g.readers)]
        weight = [
            WEIGHT + int(host) if t in moved and w != NO_WEIGHT else w
            for t, w in enumerate(g.weight)
        ]
        return g._replace(readers=readers, weight=weight)
