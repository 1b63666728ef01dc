"""Places for what has none: compute memory per device, with bytes used again.

Two tensors may share bytes only if every use of one has *ended* before the other is written, in
every order that the program allows, and the same when the next pass begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from ..device import Buffer, Usage
from ..ops import OPS
from ..schedule import Schedule
from ..symbol import Expr
from .access import EVERYTHING
from .operands import Operands
from .order import NEVER, Use, uses

#: Offsets are multiples of it (CUDA's buffers ask for 128).
ALIGNMENT = 128
_PREFIX = "compute:"


@dataclass(slots=True)
class _Life:
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


def allocate(
    schedule: Schedule, *, list_order: bool = False, devices: Collection[str] | None = None
) -> Schedule:
    """The program-level schedule with a place for every tensor that has none.

    One buffer ``compute:DEVICE`` for each device.  Sizes are those at the symbols' upper ends.
    A tensor of which only the size is known, or of which a view lies no one knows where, keeps
    bytes of its own.  Outputs, and all copies of an input with ``n_copies`` > 1, share bytes
    with nothing.
    ``list_order``: as ggml's allocator, which frees a tensor after its last reader in the list of
    nodes, whatever order the program gives: right for some programs, and wrong for others.
    ``devices``: only what lies on these; the rest keeps bytes of its own.
    """
    if schedule.program is None:
        raise ValueError("only a program has an order: lower the schedule first")
    lives = _ListOrder(schedule).lives() if list_order else _Concurrent(schedule).lives()
    by_device: dict[str, list[_Life]] = {}
    for life in sorted(lives, key=lambda life: (life.order, life.name)):
        by_device.setdefault(life.device, []).append(life)
    compatible = _apart_in_list if list_order else _apart
    placements, buffers = [], []
    for device in schedule.graph.devices:
        found = by_device.get(device.name, [])
        if not found or (devices is not None and device.name not in devices):
            continue
        buffer = _free_name(schedule, device.name)
        offsets, size = _place(found, compatible)
        placements += [(life.name, buffer, Expr.of(offsets[life.name])) for life in found]
        buffers.append(Buffer(buffer, device.memory, Usage.COMPUTE, size))
    graph = replace(schedule.graph, buffers=(*schedule.graph.buffers, *buffers))
    return replace(schedule, graph=graph, placements=(*schedule.placements, *placements))


def _free_name(schedule: Schedule, device: str) -> str:
    taken = {b.name for b in schedule.graph.buffers}
    name = _PREFIX + device
    while name in taken:
        name += "'"
    return name


def _place(lives: list[_Life], apart: Callable[[_Life, _Life], bool]) -> tuple[dict[str, int], int]:
    """First fit: the lowest gap between those that are in use at the same time."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, _Life]] = []
    size = 0
    for life in lives:
        at = 0
        for start, end, other in placed:
            if start >= at + life.bytes:
                break
            if end > at and not apart(other, life):
                at = -(-end // ALIGNMENT) * ALIGNMENT
        offsets[life.name] = at
        placed.append((at, at + life.bytes, life))
        placed.sort(key=lambda p: p[:2])
        size = max(size, at + life.bytes)
    return offsets, size


def _apart_in_list(a: _Life, b: _Life) -> bool:
    return not a.forever and not b.forever and (a.span[1] < b.span[0] or b.span[1] < a.span[0])


def _apart(a: _Life, b: _Life) -> bool:
    """Whether one is done with before the other begins, in each pass, and it with the first in
    the pass that follows."""
    if a.forever or b.forever:
        return False
    return _turns(a, b) or _turns(b, a)


def _turns(a: _Life, b: _Life) -> bool:
    """Every use of ``a`` ends before ``b`` is written, and b's before a's next pass."""
    for p, ends in a.ends.items():
        for q, start in b.starts.items():
            if q >= p and not _reached(start, ends):
                return False
    for p, ends in b.ends.items():
        for q, start in a.starts.items():
            if q > p and not _reached(start, ends):
                return False
    return True


def _reached(clock: list[int], ends: list[int]) -> bool:
    return all(have >= due for have, due in zip(clock, ends, strict=True))


class _Lives:
    """The tensors that need a place."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.graph = schedule.graph
        self.ranges = self.graph.ranges
        # Which of its base's bytes such a view has is not known, so the base shares none.
        self.vague = {schedule.base(t.name).name for t in self.graph.tensors if t.about}
        self.outputs = {schedule.base(t.name).name for t in self.graph.tensors if t.output}

    def life(self, name: str) -> _Life | None:
        """A new life, if the tensor owns bytes and has no place."""
        if self.schedule.location(name).usage is not None:
            return None
        copy = self.schedule.copy_of(name)
        if name in self.vague or (copy is not None and self.graph.tensor(copy[1]).about):
            return None
        tensor = self.schedule.tensor(name)
        size = tensor.extent.bounds(self.ranges)[1]
        life = _Life(name, self.device(name), size)
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


class _Concurrent(_Lives):
    """Lifetimes by the order that the program gives."""

    def lives(self) -> list[_Life]:
        found: dict[str, _Life | None] = {}
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


def _extend(life: _Life, use: Use, width: int) -> None:
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


class _ListOrder(_Lives):
    """Lifetimes by the list of nodes, with the copies of a split's inputs before its nodes."""

    def lives(self) -> list[_Life]:
        found: dict[str, _Life | None] = {}
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
