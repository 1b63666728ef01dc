"""The full lowering: asynchronous queues, copies beside computes, and events between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..command import Command, Copy, GetOutput, SetInput
from ..device import HOST, Device
from ..schedule import Schedule, Split
from ..symbol import ALWAYS
from .operands import Operands, Turn, last_pass
from .synchronize import Awaits, synchronize


def lower_overlapped(schedule: Schedule, *, awaits: Awaits | None = None) -> Schedule:
    """A split-level schedule with a program in which only dependences wait.

    Inputs are copied on the second queue of the split's device, where it has one, while its
    first computes; to a synchronous device on the source's queue.  The host waits for what host
    commands read or overwrite.  With ``n_copies`` = n > 1 the copies of inputs rotate, so that n
    passes are in flight, and outputs are read after the last pass.

    ``awaits``: which dependences are waited for (all); for tests of what each is good for.
    ``LowerError`` for a graph-level schedule.  A ``program`` is kept.
    """
    if schedule.program is not None:
        return schedule
    skeleton = tuple(_Skeleton(schedule).commands())
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

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.graph = schedule, schedule.graph
        self.operands = Operands(schedule)

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
        for name in self.operands.inputs(split):
            for turn in self.operands.turns:
                yield self.copy(name, device, index, turn)
        yield from self.operands.computes(index, split)

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
