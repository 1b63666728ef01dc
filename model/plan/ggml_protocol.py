"""The program that ggml's scheduler issues for given splits: its copies, its waits, no others.

As ``ggml_backend_sched_compute_splits`` does it.  Nothing is added that would make it right: this
is the schedule that a real run has, to be judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..command import (
    Command,
    Copy,
    GetOutput,
    Record,
    SetInput,
    SyncEvent,
    SyncQueue,
    Wait,
)
from ..device import HOST, Contract, Device
from ..schedule import Schedule, Split
from ..symbol import ALWAYS
from .lower import LowerError
from .operands import Operands, Turn, last_pass


def lower_ggml(schedule: Schedule, *, bare_splits_wait: bool = True) -> Schedule:
    """A split-level schedule with the program that ggml runs; ``program`` level is kept.

    Per split: if it has no inputs and the split before ran on another device, the host waits
    for that device (``bare_splits_wait`` false: as before that was mended, it does not).  Then
    the inputs, host weights last.  A user input is copied by the host, after the host waited
    until the split's device is done with that copy.  Another input: the split's device comes
    first to the end of its own readers (with events its queue waits for the event of that copy,
    without the host waits for the device), and then the copy is queued where both ends can: on
    the *source's* queue from device to device, with an event that the target's queue awaits;
    on the target's queue from host memory.  Else the host waits for both ends and copies.  Then
    the computes, and the event of (device, copy).

    Events are there with ``n_copies`` > 1 only.  The user sets all inputs before a pass, and
    waits for all devices before outputs are read: after each pass with one copy, after the last
    with several, where passes follow each other without a wait.

    ``LowerError`` for a graph-level schedule, and for one with banks, which ggml fills in user
    code.
    """
    if schedule.program is not None:
        return schedule
    if schedule.graph.banks:
        raise LowerError(
            "ggml fills banks in user code, which this protocol does not have; lower a schedule "
            "with banks by plain or overlapped"
        )
    return _Protocol(schedule, bare_splits_wait).schedule_with_program()


class _Protocol:
    def __init__(self, schedule: Schedule, bare_splits_wait: bool) -> None:
        self.schedule = schedule
        self.graph = schedule.graph
        self.operands = Operands(schedule)
        self.bare_splits_wait = bare_splits_wait
        self.moves = 0

    def schedule_with_program(self) -> Schedule:
        copies = self.graph.n_copies
        repeat = max(self.schedule.repeat, copies + 1)
        program: list[Command] = [SetInput(tensor=t.name) for t in self.graph.tensors if t.input]
        before: Split | None = None
        for index, split in enumerate(self.schedule.splits or ()):
            program += self.split(index, split, before)
            before = split
        program += self.outputs(repeat)
        return replace(self.schedule, program=tuple(program), repeat=repeat)

    def split(self, index: int, split: Split, before: Split | None) -> Iterator[Command]:
        device = self.graph.device(split.device)
        for callback in split.callbacks:
            yield replace(callback, split=index)
        bare = before is not None and before.device != split.device and not split.inputs
        if before is not None and bare and self.bare_splits_wait:
            yield from _drain(self.graph.device(before.device), index)
        for name in self.operands.inputs(split):
            for turn in self.operands.turns:
                yield from self.bring(name, device, index, turn)
        computes = list(self.operands.computes(index, split))
        yield from computes
        if self.has_event(device):
            for turn in self.operands.turns:
                yield Record(
                    event=_event(device, turn), queue=device.first_queue, when=turn.when,
                    split=index,
                )  # fmt: skip

    def outputs(self, repeat: int) -> Iterator[Command]:
        guard = ALWAYS if self.graph.n_copies == 1 else last_pass(repeat)
        for device in self.graph.devices:
            for command in _drain(device, None):
                yield replace(command, when=guard)
        for tensor in self.graph.tensors:
            if tensor.output:
                yield GetOutput(tensor=tensor.name, when=guard)

    # -- one input ----------------------------------------------------------------------------

    def bring(self, name: str, device: Device, index: int, turn: Turn) -> Iterator[Command]:
        target = self.schedule.copy_name(device.name, name, turn.copy)
        by_host = Copy(src=name, dst=target, queue=HOST, when=turn.when, split=index)
        if self.graph.tensor(name).input:
            yield from self.host_waits(device, index, turn)
            yield by_host
            return
        queue = self.queue_of_copy(name, target, device)
        if self.has_event(device):
            yield Wait(
                event=_event(device, turn), queue=device.first_queue, when=turn.when, split=index
            )
        else:
            yield from _guarded(_drain(device, index), turn)
        if queue is None:
            source = self.operands.source_device(name)
            if source is not None:
                yield from _guarded(_drain(source, index), turn)
            if self.has_event(device):
                yield from self.host_waits(device, index, turn)
            yield by_host
            return
        yield replace(by_host, queue=queue)
        if queue != device.first_queue:
            yield from self.follow(queue, device, index, turn)

    def follow(self, queue: str, device: Device, index: int, turn: Turn) -> Iterator[Command]:
        """The target's queue waits for a copy that runs on the source's."""
        self.moves += 1
        event = f"moved {self.moves} to {device.name}"
        yield Record(event=event, queue=queue, when=turn.when, split=index)
        yield Wait(event=event, queue=device.first_queue, when=turn.when, split=index)

    def queue_of_copy(self, name: str, target: str, device: Device) -> str | None:
        """Where an asynchronous copy runs; ``None``: one of the ends cannot have it queued."""
        if not device.asynchronous:
            return None
        source = self.operands.source_device(name)
        runs_on = device
        if source is not None and source.name != device.name:
            if not (source.events and device.may_wait_for(source.name)):
                return None
            runs_on = source
        memory, to = (self.schedule.location(n).memory or "" for n in (name, target))
        contract = runs_on.contract(memory, to)
        return None if contract in (None, Contract.SYNC) else runs_on.first_queue

    # -- events ---------------------------------------------------------------------------------

    def has_event(self, device: Device) -> bool:
        return self.graph.n_copies > 1 and device.asynchronous and device.events

    def host_waits(self, device: Device, index: int, turn: Turn) -> Iterator[Command]:
        """The host waits until the device is done with a copy."""
        if self.has_event(device):
            yield SyncEvent(event=_event(device, turn), when=turn.when, split=index)
        else:
            yield from _guarded(_drain(device, index), turn)


def _event(device: Device, turn: Turn) -> str:
    return f"{device.name} copy {turn.copy}"


def _drain(device: Device, index: int | None) -> Iterator[SyncQueue]:
    if device.asynchronous:
        yield SyncQueue(queue=device.first_queue, split=index)


def _guarded(commands: Iterator[SyncQueue], turn: Turn) -> Iterator[SyncQueue]:
    for command in commands:
        yield replace(command, when=turn.when)
