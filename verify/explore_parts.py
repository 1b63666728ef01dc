"""The parts of a small program, each with what must have ended before it and what it touches.

The same page of rules as ``footprint.py``, read a second time: footprints are sets of cells, and
banks are run, not reasoned about.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.command import (
    Callback,
    Command,
    Compute,
    Copy,
    CopyExperts,
    FillBank,
    GetOutput,
    Record,
    SetInput,
    SyncEvent,
    SyncQueue,
    Wait,
)
from ..model.graph import Node
from ..model.ops import OPS
from .explore_banks import Banks
from .explore_program import (
    CannotExplore,
    Cells,
    Meaning,
    Start,
    World,
    only_names_target,
    user_names,
)
from .explore_queues import Part


class Unrolled(Banks):
    """All parts in issue order, and memory at the start."""

    def __init__(self, world: World, meaning: Meaning, start: Sequence[Start] = ()) -> None:
        super().__init__(world, meaning, start)
        self.used: dict[tuple[str, int], list[int]] = {}
        for iteration in range(self.schedule.repeat):
            for index, command in enumerate(self.schedule.program or ()):
                if world.exists(command, iteration):
                    self._issue(index, iteration, command)
        self.past.settle()

    def _issue(self, index: int, iteration: int, command: Command) -> None:
        schedule = self.schedule
        if isinstance(command, Copy | CopyExperts | FillBank):
            first, last = self._moving(index, iteration, command)
        else:
            first = last = self._part(index, iteration, "main", schedule.queue_of(command))
        match command:
            case Record():
                last.after |= self.loose.get(command.queue, 0)
                self.records[command.event] = (1 << last.index, command.queue)
            case Wait():
                self._wait(command, last)
            case SyncEvent():
                last.after |= self.records.get(command.event, (0, ""))[0]
            case SyncQueue():
                last.after |= self.tails.get(command.queue, 0) | self.loose.get(command.queue, 0)
            case SetInput():
                self._write(last, ("input", index, iteration), command.tensor)
            case GetOutput():
                self._read(last, command.tensor, ("output", "", command.tensor))
            case Callback():
                for name in user_names(schedule, command.reads):
                    may = name not in (command.reads or ())
                    self._read(last, name, ("callback", index, name), may)
                for name in user_names(schedule, command.writes):
                    self._write(last, ("callback", index, iteration), name)
            case Compute():
                self._compute(last, command)
            case Copy():
                cells = [self.world.placed(name) for name in (command.src, command.dst)]
                self._move(first, last, (command.src, command.dst), cells[0], cells[1])
            case CopyExperts():
                self._copy_experts(first, last, command)
            case FillBank():
                self._fill(first, last, command)

    def _compute(self, part: Part, command: Compute) -> None:
        node, world = self.graph.node(command.node), self.world
        key = ("node", node.dst)
        bank = self.graph.find_bank(node.src[0]) if node.src else None
        if node.reads is not None:
            for name in node.reads:
                bound = name
                if name in node.src:
                    bound = self.schedule.bound(command, node.src.index(name))
                due = self.meaning.due[*key, name, part.iteration]
                self._hold(part, bound, world.placed(bound), due)
        elif node.op == "mul_mat_id" and bank is not None:
            self._bank_matmul(part, command, node, bank)
        else:
            for index, name in enumerate(node.src):
                if only_names_target(node, index):
                    continue
                bound = self.schedule.bound(command, index)
                due, cells = self.meaning.due[*key, name, part.iteration], world.placed(bound)
                if node.op == "mul_mat_id" and index == 0:
                    chosen = self._known(part, node, name)
                    due, cells = (
                        self._experts(name, due, chosen),
                        self._experts(bound, cells, chosen),
                    )
                    self.past.read(part, command, bound, chosen)
                if node.op == "get_rows" and index == 0 and self._remaps(part, node, bound):
                    continue
                self._hold(part, bound, cells, due)
            if OPS[node.op].updates:
                self._read(part, node.dst, (*key, node.dst))
        for name in node.writes if node.writes is not None else (node.dst,):
            self._write(part, (*key, part.iteration), name)

    def _known(self, part: Part, node: Node, weight: str) -> list[int]:
        """The experts that a matmul selects; an id of none is wrong by itself."""
        count = self.world.value(self.schedule.tensor(weight).ne[2])
        ids = set(self._ids(node, node.src[2], part.iteration))
        strange = {
            i for i in ids if not 0 <= i < count and not (i < 0 and node.param("negative_ids"))
        }
        if strange:
            part.broken.append((node.src[2], f"{min(strange)} is no expert"))
        return sorted(i for i in ids if 0 <= i < count)

    def _experts(self, name: str, cells: Cells, chosen: Sequence[int]) -> Cells:
        planes = self.world.planes(name, cells)
        return tuple(c for expert in sorted(set(chosen)) for c in planes[expert])

    # -- selective copies --------------------------------------------------------

    def _copy_experts(self, first: Part, last: Part, command: CopyExperts) -> None:
        world, iteration = self.world, first.iteration
        if command.used_from is not None:
            used = self.used.get((command.used_from, iteration), [])
        else:
            assert command.ids is not None
            node, when = self._matmul(command, iteration)
            due = self.meaning.due["node", node.dst, node.src[2], when]
            self._hold(first, command.ids, world.placed(command.ids), due)
            count = world.value(self.schedule.tensor(command.src).ne[2])
            used = sorted({i for i in world.ids(command.ids, due) if 0 <= i < count})
        self.used[command.dst, iteration] = used
        source, target = world.placed(command.src), world.placed(command.dst)
        count = world.value(self.schedule.tensor(command.src).ne[2])
        size, tail = len(source) // count, command.padding // world.grain
        moved: set[int] = set()
        for expert in used:
            moved.update(range(expert * size, min((expert + 1) * size + tail, len(source))))
        cells = sorted(moved)
        names = command.src, command.dst
        self._move(first, last, names, [source[k] for k in cells], [target[k] for k in cells])

    def _matmul(self, command: CopyExperts, iteration: int) -> tuple[Node, int]:
        """The matmul that reads the copy, and in which pass."""
        split = command.for_split if command.for_split is not None else command.split
        when = iteration
        if command.for_split is not None and command.split is not None:
            when += command.for_split < command.split
        found: list[Node] = []
        for other in self.schedule.program or ():
            if not isinstance(other, Compute) or other.split != split:
                continue
            node = self.graph.node(other.node)
            present = (
                ("node", node.dst, node.src[0], when) in self.meaning.due if node.src else False
            )
            if present and node.op == "mul_mat_id" and self.schedule.bound(other, 0) == command.dst:
                found.append(node)
        if not found:
            raise CannotExplore(f"no matmul of split {split} reads the experts of {command.dst!r}")
        # Of several readers the copy serves the one that selects by the very ids of the copy.
        own = [node for node in found if self._same(node.src[2], command.ids or "")]
        return (own or found)[0], when

    def _same(self, one: str, other: str) -> bool:
        """Whether two names are those of one tensor, or of copies and views of it."""
        bases = set()
        for name in (one, other):
            copy = self.schedule.copy_of(name)
            bases.add(self.schedule.base(copy[1] if copy is not None else name).name)
        return len(bases) == 1
