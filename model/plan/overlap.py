"""The full lowering: asynchronous queues, copies beside computes, and events between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..command import Command, Copy, CopyExperts, FillBank, GetOutput, Prefetch, SetInput
from ..device import HOST, Device
from ..schedule import Schedule, Split
from ..symbol import ALWAYS
from .guard import NONE_OFF, Off
from .lower import PlainLowering
from .operands import Operands, Turn, last_pass
from .synchronize import synchronize
from .transfer import Bring, Input, Transfers


def lower_overlapped(source: Schedule | Transfers, *, off: Off = NONE_OFF) -> Schedule:
    """A split-level schedule, with or without decisions about its inputs, as a program in which
    only dependences wait.

    Inputs are copied on the second queue of the split's device, where it has one, while its
    first computes; to a synchronous device on the source's queue.  The host waits for what host
    commands read or overwrite.  With ``n_copies`` = n > 1 the copies of inputs rotate, so that n
    passes are in flight, and outputs are read after the last pass.

    ``off``: dependences that are not waited for.
    ``LowerError`` for a graph-level schedule.  A ``program`` is kept.
    """
    transfers = source if isinstance(source, Transfers) else Transfers(source)
    schedule = transfers.schedule
    if schedule.program is not None:
        return schedule
    skeleton = tuple(_Skeleton(transfers).commands())
    repeat = max(schedule.repeat, schedule.graph.n_copies + 1)
    skeleton += tuple(_outputs(schedule, repeat))
    schedule = replace(schedule, repeat=repeat)
    return replace(schedule, program=synchronize(schedule, skeleton, off))


_WHOLE = Bring()


def _outputs(schedule: Schedule, repeat: int) -> Iterator[Command]:
    guard = ALWAYS if schedule.graph.n_copies == 1 else last_pass(repeat)
    for tensor in schedule.graph.tensors:
        if tensor.output:
            yield GetOutput(tensor=tensor.name, when=guard)


class _Skeleton:
    """What is done, in issue order, without a wait."""

    def __init__(self, transfers: Transfers) -> None:
        self.schedule, self.graph = transfers.schedule, transfers.schedule.graph
        self.operands = Operands(self.schedule)
        self.plain = PlainLowering(self.schedule)
        self.brings = transfers.brings
        #: prefetches by the split that is current, and whether they follow its nodes
        self.early: dict[tuple[int, bool], list[Input]] = {}
        for place, bring in self.brings.items():
            if bring.issued is not None:
                self.early.setdefault((bring.issued, bring.after), []).append(place)

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
        yield from self.prefetches(index, after=False)
        for name in self.operands.inputs(split):
            bring = self.brings.get((index, name), _WHOLE)
            if bring.issued is None:
                for turn in self.operands.turns:
                    yield self.brought(bring, self.copy(name, device, index, turn), device, turn)
        yield from self.operands.computes(index, split)
        yield from self.prefetches(index, after=True)

    def fills(self, index: int, split: Split) -> Iterator[Command]:
        """Fills of the banks that the split reads, on the second queue of their device."""
        for command in self.plain.fill_banks(index, self.operands.nodes(split)):
            if isinstance(command, FillBank):
                device = self.graph.device(self.schedule.queue_device(command.queue))
                yield replace(command, queue=copy_queue(device))

    def brought(self, bring: Bring, copy: Copy, device: Device, turn: Turn) -> Command:
        """A copy as it is, or of the chosen experts only."""
        choice = bring.experts
        if choice is None:
            return copy
        known = None
        if choice.same_as is not None:
            known = self.schedule.copy_name(device.name, choice.same_as, turn.copy)
        return CopyExperts(
            src=copy.src, dst=copy.dst, queue=copy.queue, ids=None if known else choice.ids,
            used_from=known, padding=choice.padding, when=copy.when, split=copy.split,
        )  # fmt: skip

    def prefetches(self, index: int, *, after: bool) -> Iterator[Command]:
        assert self.schedule.splits is not None
        for split, name in self.early.get((index, after), ()):
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
