"""The full lowering: asynchronous queues, copies beside computes, and events between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..command import Command, Copy, CopyExperts, FillBank, GetOutput, Prefetch, SetInput
from ..device import HOST, Device
from ..schedule import Schedule, Split
from ..symbol import ALWAYS
from .expert_copy import Selection
from .lower import PlainLowering
from .operands import Operands, Turn, last_pass
from .prefetch import Ahead
from .synchronize import Awaits, synchronize


def lower_overlapped(
    schedule: Schedule,
    *,
    moves: Ahead | None = None,
    chosen: Mapping[tuple[int, str], Selection] | None = None,
    awaits: Awaits | None = None,
) -> Schedule:
    """A split-level schedule with a program in which only dependences wait.

    Inputs are copied on the second queue of the split's device, where it has one, while its
    first computes; to a synchronous device on the source's queue.  The host waits for what host
    commands read or overwrite.  With ``n_copies`` = n > 1 the copies of inputs rotate, so that n
    passes are in flight, and outputs are read after the last pass.

    ``moves``: which copies are issued early (:func:`.prefetch.ahead`); none.
    ``chosen``: which inputs are copied selectively (:func:`.expert_copy.selections`); none.
    ``awaits``: which dependences are waited for (all); for tests of what each is good for.
    ``LowerError`` for a graph-level schedule.  A ``program`` is kept.
    """
    if schedule.program is not None:
        return schedule
    moves = moves or Ahead(schedule)
    schedule = moves.schedule
    skeleton = tuple(_Skeleton(moves, chosen or {}).commands())
    repeat = max(schedule.repeat, schedule.graph.n_copies + 1)
    skeleton += tuple(_outputs(schedule, repeat))
    schedule = replace(schedule, repeat=repeat)
    return replace(schedule, program=synchronize(schedule, skeleton, awaits))


def _outputs(schedule: Schedule, repeat: int) -> Iterator[Command]:
    guard = ALWAYS if schedule.graph.n_copies == 1 else last_pass(repeat)
    for tensor in schedule.graph.tensors:
        if tensor.output:
            yield GetOutput(tensor=tensor.name, when=guard)


class _Skeleton:
    """What is done, in issue order, without a wait."""

    def __init__(self, ahead: Ahead, chosen: Mapping[tuple[int, str], Selection]) -> None:
        self.schedule, self.graph = ahead.schedule, ahead.schedule.graph
        self.operands = Operands(self.schedule)
        self.plain = PlainLowering(self.schedule)
        self.chosen = chosen
        self.early = {(split, name) for _, split, name in ahead.moves}
        self.first: dict[int, list[tuple[int, str]]] = {}
        self.last: dict[int, list[tuple[int, str]]] = {}
        for move in ahead.moves:
            issuing, split, name = move
            moved = self.last if move in ahead.after else self.first
            moved.setdefault(issuing, []).append((split, name))

    def commands(self) -> Iterator[Command]:
        for tensor in self.graph.tensors:
            if tensor.input:
                yield SetInput(tensor=tensor.name)
        for index, split in enumerate(self.schedule.splits or ()):
            yield from self.split(index, split)

    def split(self, index: int, split: Split) -> Iterator[Command]:
        device = self.graph.device(split.device)
        for callback in split.callbacks:
            yield replace(callback, split=index)
        yield from self.fills(index, split)
        yield from self.prefetches(index, self.first)
        for name in self.operands.inputs(split):
            if (index, name) not in self.early:
                for turn in self.operands.turns:
                    yield self.selected(index, name, self.copy(name, device, index, turn), turn)
        yield from self.operands.computes(index, split)
        yield from self.prefetches(index, self.last)

    def fills(self, index: int, split: Split) -> Iterator[Command]:
        """Fills of the banks that the split reads, on the second queue of their device."""
        for command in self.plain.fill_banks(index, self.operands.nodes(split)):
            if isinstance(command, FillBank):
                device = self.graph.device(self.schedule.queue_device(command.queue))
                yield replace(command, queue=copy_queue(device))

    def selected(self, index: int, name: str, copy: Copy, turn: Turn) -> Command:
        """A copy as it is, or of the chosen experts only."""
        choice = self.chosen.get((index, name))
        if choice is None:
            return copy
        assert self.schedule.splits is not None
        device = self.schedule.splits[index].device
        known = None
        if choice.same_as is not None:
            known = self.schedule.copy_name(device, choice.same_as, turn.copy)
        return CopyExperts(
            src=name, dst=copy.dst, queue=copy.queue, ids=None if known else choice.ids,
            used_from=known, padding=choice.padding, when=copy.when, split=index,
        )  # fmt: skip

    def prefetches(self, index: int, moved: dict[int, list[tuple[int, str]]]) -> Iterator[Command]:
        assert self.schedule.splits is not None
        for split, name in moved.get(index, ()):
            device = self.graph.device(self.schedule.splits[split].device)
            for turn in self.operands.turns:
                copy = self.copy(name, device, index, turn)
                yield Prefetch(
                    src=copy.src, dst=copy.dst, queue=copy.queue, when=copy.when, split=index,
                    for_split=split,
                )  # fmt: skip

    def copy(self, name: str, device: Device, index: int, turn: Turn) -> Copy:
        target = self.schedule.copy_name(device.name, name, turn.copy)
        queue = self.copy_queue(name, target, device)
        return Copy(src=name, dst=target, queue=queue, when=turn.when, split=index)

    def copy_queue(self, name: str, target: str, device: Device) -> str:
        runs_on = device if device.asynchronous else self.operands.source_device(name)
        if runs_on is None:
            return HOST
        memory, to = (self.schedule.location(n).memory or "" for n in (name, target))
        return copy_queue(runs_on) if runs_on.contract(memory, to) is not None else HOST


def copy_queue(device: Device) -> str:
    """The queue on which a device copies: its second, if it has one."""
    return f"{device.name}.{device.queues[min(1, len(device.queues) - 1)]}"
