"""When the bytes of a tensor are in use: by the order of a program, or by the list of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ops import OPS
from ..schedule import Schedule
from .access import EVERYTHING
from .operands import Operands
from .order import NEVER, Use, uses


@dataclass(slots=True)
class Life:
    """When a tensor's bytes are in use.  ``order``: by first use.  In list order a span of steps;
    else per pass the clocks of its first writes and, per chain, where its last uses end."""

    name: str
    device: str
    bytes: int
    order: tuple[int, ...] = ()
    span: tuple[int, int] = (0, 0)
    starts: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, list[int]] = field(default_factory=dict)
    forever: bool = False


class Lives:
    """The tensors that need a place."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.graph = schedule.graph
        self.ranges = self.graph.ranges
        # Which of its base's bytes such a view has is not known, so the base shares none.
        self.vague = {schedule.base(t.name).name for t in self.graph.tensors if t.about}
        self.outputs = {schedule.base(t.name).name for t in self.graph.tensors if t.output}

    def life(self, name: str) -> Life | None:
        """A new life, if the tensor owns bytes and has no place."""
        if self.schedule.location(name).usage is not None:
            return None
        copy = self.schedule.copy_of(name)
        if name in self.vague or (copy is not None and self.graph.tensor(copy[1]).about):
            return None
        tensor = self.schedule.tensor(name)
        size = tensor.extent.bounds(self.ranges)[1]
        life = Life(name, self.device(name), size)
        life.forever = name in self.outputs or self.rotates(name)
        return life

    def device(self, name: str) -> str:
        copy = self.schedule.copy_of(name)
        if copy is not None:
            return copy[0]
        assigned = self.schedule.device_of(name)
        return assigned or self.schedule.tensor(name).pin or self.graph.devices[-1].name

    def rotates(self, name: str) -> bool:
        return self.graph.n_copies > 1 and self.schedule.copy_of(name) is not None


class Concurrent(Lives):
    """Lifetimes by the order that the program gives."""

    def lives(self) -> list[Life]:
        found: dict[str, Life | None] = {}
        width = 0
        touched = uses(self.schedule, max(2, self.graph.n_copies + 1))
        for use in touched:
            name = use.access.space
            width = len(use.start)
            if name not in found:
                known = name != EVERYTHING and self.schedule.find_tensor(name) is not None
                found[name] = self.life(name) if known else None
                if (life := found[name]) is not None:
                    life.order = (use.turn, use.number)
            life = found[name]
            if life is not None:
                _extend(life, use, width)
        whole = any(use.access.space == EVERYTHING for use in touched)
        for life in found.values():
            if life is not None and (whole or not life.starts):
                life.forever = True
        return [life for life in found.values() if life is not None]


def _extend(life: Life, use: Use, width: int) -> None:
    if use.ends == NEVER:
        life.forever = True
        return
    ends = life.ends.setdefault(use.turn, [0] * width)
    ends[use.chain] = max(ends[use.chain], use.ends)
    if not use.access.writes:
        return
    starts = life.starts.get(use.turn)
    if starts is None:
        life.starts[use.turn] = list(use.start)
    else:
        life.starts[use.turn] = [min(a, b) for a, b in zip(starts, use.start, strict=True)]


class ListOrder(Lives):
    """Lifetimes by the list of nodes, with the copies of a split's inputs before its nodes."""

    def lives(self) -> list[Life]:
        found: dict[str, Life | None] = {}
        for step, name in self.steps():
            base = self.schedule.base(name).name
            if base not in found:
                life = found[base] = self.life(base)
                if life is not None:
                    life.order = (step, len(found))
                    life.span = (step, step)
            life = found[base]
            if life is not None:
                life.span = (life.span[0], step)
        return [life for life in found.values() if life is not None]

    def steps(self) -> Iterator[tuple[int, str]]:
        """Each mention of a tensor, with its step."""
        operands, step = Operands(self.schedule), 0
        for tensor in self.graph.tensors:
            if tensor.input:
                yield step, tensor.name
        for index, split in enumerate(self.schedule.splits or ()):
            for name in operands.inputs(split):
                step += 1
                yield step, name
                for turn in operands.turns:
                    yield step, self.schedule.copy_name(split.device, name, turn.copy)
            for node in self.graph.nodes[split.start : split.end]:
                if OPS[node.op].view:
                    continue
                computes = list(operands.compute(index, split, node))
                step += 1
                yield step, node.dst
                for compute in computes:
                    for place in range(len(node.src)):
                        yield step, self.schedule.bound(compute, place)
            operands.copied |= {(split.device, name) for name in split.inputs}
