"""Why a plan is as it is: for each node, for each split, and what would change it.  Plain data;
words are the command line's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..tensor import Tensor
from .arrays import NO_WEIGHT, NONE
from .assign import Cause, recorded_name
from .options import PlanOptions
from .planner import Planned
from .remedy import MOST_NODES, Remedies, Remedy
from .split import Begins


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
    reasons = _Reasons(planned, Remedies(planned.decision, options or PlanOptions(), effort))
    return Why(tuple(reasons.nodes()), tuple(reasons.splits()))


class _Reasons:
    def __init__(self, planned: Planned, remedies: Remedies) -> None:
        self.decision = planned.decision
        self.schedule = planned.schedule
        self.graph = planned.decision.graph
        self.g = planned.decision.arrays
        self.remedies = remedies
        self.names = [t.name for t in self.graph.tensors]
        self.index = {name: t for t, name in enumerate(self.names)}
        self.devices = [d.name for d in self.graph.devices]

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
                remedies=self.remedies.of(k) if k else (),
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
