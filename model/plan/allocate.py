"""Places for what has none: compute memory per device, with bytes used again.

Two tensors may share bytes only if every use of one has *ended* before the other is written, in
every order that the program allows, and the same when the next pass begins.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from ..device import Buffer, Usage
from ..ops import OPS
from ..schedule import Schedule
from ..symbol import Expr
from .lifetime import Concurrent, Life, ListOrder

#: Offsets are multiples of it (CUDA's buffers ask for 128).
ALIGNMENT = 128
_PREFIX = "compute:"


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
    lives = ListOrder(schedule).lives() if list_order else Concurrent(schedule).lives()
    by_device: dict[str, list[Life]] = {}
    for life in sorted(lives, key=lambda life: (life.order, life.name)):
        by_device.setdefault(life.device, []).append(life)
    placements, buffers = [], []
    for device in schedule.graph.devices:
        found = by_device.get(device.name, [])
        if not found or (devices is not None and device.name not in devices):
            continue
        buffer = _free_name(schedule, device.name)
        offsets, size = _in_list(found) if list_order else _in_order(found)
        placements += [
            (life.name, buffer, Expr.of(at)) for life, at in zip(found, offsets, strict=True)
        ]
        buffers.append(Buffer(buffer, device.memory, Usage.COMPUTE, size))
    graph = replace(schedule.graph, buffers=(*schedule.graph.buffers, *buffers))
    return replace(schedule, graph=graph, placements=(*schedule.placements, *placements))


def result_bytes(schedule: Schedule) -> int:
    """What the results of one pass take, at the symbols' upper ends, if each has its own bytes."""
    graph = schedule.graph
    results = (graph.tensor(node.dst) for node in graph.nodes if not OPS[node.op].view)
    return sum(
        tensor.extent.bounds(graph.ranges)[1]
        for tensor in results
        if tensor.view_of is None and schedule.location(tensor.name).usage is None
    )


def _free_name(schedule: Schedule, device: str) -> str:
    taken = {b.name for b in schedule.graph.buffers}
    name = _PREFIX + device
    while name in taken:
        name += "'"
    return name


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


# -- by the program's order -----------------------------------------------------------------------


def _in_order(lives: list[Life]) -> tuple[list[int], int]:
    """Offsets, and the bytes of all: by first use or the largest first, whichever takes less;
    before or behind them what shares bytes with nothing."""
    from .conflict import Conflicts, lowest_places  # NumPy, for this alone

    sharing = [k for k, life in enumerate(lives) if not life.forever]
    conflicts = Conflicts([lives[k] for k in sharing])
    born = range(len(sharing))
    largest = sorted(born, key=lambda k: -conflicts.bytes[k])
    found = (lowest_places(conflicts, order, ALIGNMENT) for order in (born, largest))
    places, shared = min(found, key=lambda places: places[1])

    # What ends the buffer need not be filled up to a multiple: the one with most to fill.
    alone = [k for k, life in enumerate(lives) if life.forever]
    alone.sort(key=lambda k: (_aligned(lives[k].bytes) - lives[k].bytes, k))
    kept, kept_end = _in_a_row([lives[k].bytes for k in alone])
    before, behind = _aligned(kept_end) + shared, _aligned(shared) + kept_end
    if before <= behind:
        places = [place + _aligned(kept_end) for place in places]
    else:
        kept = [place + _aligned(shared) for place in kept]
    offsets = dict(zip((*sharing, *alone), (*places, *kept), strict=True))
    return [offsets[k] for k in range(len(lives))], min(before, behind)


def _in_a_row(sizes: Sequence[int]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for size in sizes:
        offsets.append(_aligned(end))
        end = offsets[-1] + size
    return offsets, end


# -- in list order --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Space:
    """One buffer in the making: free pieces ``(start, end)`` in order, and how far it reaches."""

    free: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def take(self, size: int) -> int:
        """The smallest free piece that fits, else the end."""
        fitting = [(e - s, s, e) for s, e in self.free if e - s >= size]
        if fitting:
            _, start, end = min(fitting)
            self.free.remove((start, end))
            if end - start > size:
                insort(self.free, (start + size, end))
            return start
        start = self.end
        if self.free and self.free[-1][1] == self.end:
            start = self.free.pop()[0]
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        insort(self.free, (start, start + size))
        merged: list[tuple[int, int]] = []
        for piece in self.free:
            if merged and merged[-1][1] == piece[0]:
                merged[-1] = (merged[-1][0], piece[1])
            else:
                merged.append(piece)
        self.free = merged


def _in_list(lives: Sequence[Life]) -> tuple[list[int], int]:
    """Offsets, and the bytes of all: as ``ggml_dyn_tallocr`` chooses among free pieces."""
    space = _Space()
    offsets: list[int] = []
    used: list[tuple[int, int, int]] = []
    for life in lives:
        while used and used[0][0] < life.span[0]:
            _, start, size = heappop(used)
            space.give(start, size)
        size = _aligned(life.bytes)
        offsets.append(space.take(size))
        if not life.forever:
            heappush(used, (life.span[1], offsets[-1], size))
    return offsets, space.end
