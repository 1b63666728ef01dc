"""What a lowering asks about splits: their inputs in order, copies in rotation, and computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..command import Compute
from ..device import Device, Usage
from ..graph import Node
from ..ops import OPS
from ..schedule import Schedule, Split
from ..symbol import ALWAYS, PASS, Comparison, Condition, Expr
from .lower import LowerError


@dataclass(frozen=True, slots=True)
class Turn:
    """One copy of the inputs, and the passes that use it (``copy`` ``None``: there is one)."""

    copy: int | None
    when: Condition


class Operands:
    """The splits of one schedule, gone through in order.

    With ``n_copies`` = n > 1 copy c serves the passes with ``pass % n == c``, so what names a
    copy is issued once per turn, under the turn's guard.
    """

    def __init__(self, schedule: Schedule) -> None:
        if schedule.splits is None:
            raise LowerError(
                f"schedule {schedule.name!r} has no splits; give it 'assignment' and 'splits', "
                "or plan it first"
            )
        self.schedule = schedule
        self.graph = schedule.graph
        self.turns = turns(self.graph.n_copies)
        self.copied: set[tuple[str, str]] = set()

    def inputs(self, split: Split) -> list[str]:
        """The inputs in the order in which they are copied: as listed, host weights last."""
        return sorted(split.inputs, key=self.host_weight)

    def host_weight(self, name: str) -> bool:
        where = self.schedule.location(name)
        return (
            where.usage is Usage.WEIGHTS
            and where.memory is not None
            and self.graph.memory(where.memory).host
        )

    def source_device(self, name: str) -> Device | None:
        """The asynchronous device on which a tensor is computed, or in whose memory it lies."""
        assigned = self.schedule.device_of(self.schedule.base(name).name)
        if assigned is not None and self.graph.device(assigned).asynchronous:
            return self.graph.device(assigned)
        memory = self.schedule.location(name).memory
        owners = (d for d in self.graph.devices if d.asynchronous and d.memory == memory)
        return next(owners, None)

    def nodes(self, split: Split) -> list[Node]:
        """The nodes of a split that have a command."""
        nodes = self.graph.nodes[split.start : split.end]
        return [node for node in nodes if not OPS[node.op].view]

    def computes(self, index: int, split: Split) -> Iterator[Compute]:
        """The computes of a split; call it after the inputs of the split became known."""
        self.copied |= {(split.device, name) for name in split.inputs}
        for node in self.nodes(split):
            yield from self.compute(index, split, node)

    def compute(self, index: int, split: Split, node: Node) -> Iterator[Compute]:
        shared = self.shared(node, split)
        if not shared and not any(source in split.inputs for source in node.src):
            yield Compute(node=node.dst, split=index)
            return
        for turn in self.turns:
            bind = tuple(
                (source, self.schedule.copy_name(split.device, source, turn.copy))
                for source in shared
            )
            yield Compute(node=node.dst, split=index, bind=bind, copy=turn.copy, when=turn.when)

    def shared(self, node: Node, split: Split) -> list[str]:
        """Sources that an earlier split of the device had copied, and this one does not list."""
        reads = self.graph.device(split.device).reads
        return [
            source
            for source in dict.fromkeys(node.src)
            if source not in split.inputs
            and (split.device, source) in self.copied
            and self.schedule.location(source).memory not in reads
        ]


def copies_aside(device: Device) -> bool:
    """Whether a device has a second queue, which can copy while the first computes."""
    return device.asynchronous and len(device.queues) > 1


def turns(copies: int) -> tuple[Turn, ...]:
    """The copies of a rotation with their guards."""
    if copies <= 1:
        return (Turn(None, ALWAYS),)
    number = Expr.symbol(PASS)
    return tuple(
        Turn(c, Condition((Comparison(number, "==", Expr.of(c), copies),))) for c in range(copies)
    )


def last_pass(repeat: int) -> Condition:
    """The guard of what happens once, after all passes were issued."""
    return Condition((Comparison(Expr.symbol(PASS), "==", Expr.of(repeat - 1)),))
