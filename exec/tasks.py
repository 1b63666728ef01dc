"""What each command does to a memory when one of its parts starts and when it ends.

At its start a part poisons what it will write; at its end it looks at what it read.  Bytes that
anybody touched in between read as poison; bytes of its own destination are those at its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..model.cache import SlotState
from ..model.command import Callback, Copy, GetOutput, SetInput
from .judge import WrongRead, WrongValue, wrong_output, wrong_read
from .layout import Layout
from .memory import Content, Memory, Region
from .reference import Reference, World, callback_write, output_tensors
from .script import Part


class FirstDifference(Exception):
    """Raised to stop a run that need not go on after its first difference."""


@dataclass
class Execution:
    """The state of one run.  ``used``: expert sets by (destination, pass)."""

    world: World
    reference: Reference
    memory: Memory
    slots: dict[str, SlotState] = field(default_factory=dict)
    used: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    wrong: list[WrongRead | WrongValue] = field(default_factory=list)
    stop: bool = False

    def placed(self, name: str) -> Layout:
        return self.world.layouts.placed(name)

    def note(self, wrong: WrongRead | WrongValue | None) -> None:
        if wrong is not None:
            self.wrong.append(wrong)
            if self.stop:
                raise FirstDifference


class Task(Protocol):
    """One command of one pass."""

    def start(self, part: str) -> None: ...

    def end(self, part: str) -> None: ...


class Reading:
    """The sources of a stretch that also writes ``targets``."""

    def __init__(
        self, memory: Memory, sources: Sequence[Layout], targets: Sequence[Layout] = ()
    ) -> None:
        self.memory = memory
        self.sources = sources
        self.own = [_own_bytes(source, targets) for source in sources]
        self.before: list[Content | None] = []
        self.began = 0

    def start(self) -> None:
        """Call before anything is poisoned."""
        self.began = self.memory.clock
        self.before = [
            None if own is None else self.memory.read(source)
            for source, own in zip(self.sources, self.own, strict=True)
        ]

    def end(self) -> list[Content]:
        contents = []
        for source, own, before in zip(self.sources, self.own, self.before, strict=True):
            content = self.memory.read_since(source, self.began)
            if own is not None and before is not None:
                content.raw[own] = before.raw[own]
                content.version[own] = before.version[own]
            contents.append(content)
        return contents


def _own_bytes(source: Layout, targets: Sequence[Layout]) -> NDArray[np.bool_] | None:
    own = np.zeros(source.nbytes, bool)
    for target in targets:
        apart = target.end <= source.offset or source.end <= target.offset
        if target.space == source.space and not apart:
            own |= np.isin(source.addresses, target.addresses)
    return own if own.any() else None


class InputTask:
    """``set_input``."""

    def __init__(self, run: Execution, part: Part, command: SetInput, following: int) -> None:
        self.run = run
        self.target = run.placed(command.tensor)
        self.raw = run.world.input(command.tensor, part.iteration, following)
        name = command.tensor + (f" (set {following} before the last)" if following else "")
        self.version = run.world.versions.of("input", name, part.iteration, self.target.nbytes)

    def start(self, part: str) -> None:
        self.run.memory.poison(self.target)

    def end(self, part: str) -> None:
        self.run.memory.write(self.target, self.raw, self.version)


class OutputTask:
    """``get_output``: held against the end of the pass in the sequential run."""

    def __init__(self, run: Execution, part: Part, command: GetOutput) -> None:
        self.run, self.part, self.command = run, part, command
        self.source = run.placed(command.tensor)
        self.reading = Reading(run.memory, [self.source])
        assert command.tensor in output_tensors(run.world.schedule)
        self.due = run.reference.outputs[command.tensor, part.iteration]

    def start(self, part: str) -> None:
        self.reading.start()

    def end(self, part: str) -> None:
        content = self.reading.end()[0]
        run = self.run
        run.note(wrong_read(run.world, self.part, self.source, content, self.due))
        run.note(wrong_output(self.part, self.source, content, self.due))


class CallbackTask:
    """User code: it reads and writes its whole footprint."""

    def __init__(self, run: Execution, part: Part, command: Callback) -> None:
        self.run, self.part, self.command = run, part, command
        world = run.world
        self.names = world.footprint(command.reads)
        self.targets = [run.placed(name) for name in world.footprint(command.writes)]
        self.reading = Reading(run.memory, [run.placed(n) for n in self.names], self.targets)
        self.due = run.reference.user_reads[part.command, part.iteration]

    def start(self, part: str) -> None:
        self.reading.start()
        for target in self.targets:
            self.run.memory.poison(target)

    def end(self, part: str) -> None:
        run, pass_ = self.run, self.part.iteration
        reads = dict(zip(self.names, self.reading.end(), strict=True))
        for name, content in reads.items():
            run.note(wrong_read(run.world, self.part, run.placed(name), content, self.due[name]))
        written = run.world.callback(self.command, pass_, reads)
        for target in self.targets:
            writer = callback_write(self.part.command, self.command, target.name)
            if target.name in written:
                version = run.world.versions.of("callback", writer, pass_, target.nbytes)
                run.memory.write(target, written[target.name], version)


class CopyTask:
    """``copy`` and ``prefetch``: versions travel with the bytes."""

    def __init__(self, run: Execution, part: Part, command: Copy) -> None:
        self.memory = run.memory
        source, self.target = run.placed(command.src), run.placed(command.dst)
        if source.nbytes != self.target.nbytes:
            raise ValueError(
                f"{part}: {command.src} has {source.nbytes} bytes, {command.dst} has "
                f"{self.target.nbytes}; a copy needs equal sizes"
            )
        self.reading = Reading(run.memory, [source], [self.target])
        self.held: Content | None = None

    def start(self, part: str) -> None:
        if part != "write":
            self.reading.start()
        if part != "read":
            self.memory.poison(self.target)

    def end(self, part: str) -> None:
        if part != "write":
            self.held = self.reading.end()[0]
        if part != "read":
            assert self.held is not None
            self.memory.write_content(self.target, self.held)


class Transfer:
    """Pieces of tensors on their way: ``(source, target)`` regions of equal length."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.pieces: list[tuple[Region, Region]] = []
        self.held: list[Content] = []
        self.began = 0

    def read(self, since: int) -> None:
        self.held = [self.memory.read_since(source, since) for source, _ in self.pieces]

    def start(self) -> None:
        self.began = self.memory.clock
        for _, target in self.pieces:
            self.memory.poison(target)

    def finish(self, staged: bool) -> None:
        if not staged:
            self.read(self.began)
        for (_, target), content in zip(self.pieces, self.held, strict=True):
            self.memory.write_content(target, content)


def logical_region(layout: Layout, first: int, last: int) -> Region:
    """Bytes ``[first, last)`` of a tensor, counted in logical order."""
    if isinstance(layout.where, slice):
        where = slice(layout.offset + first, layout.offset + last)
        return Region(layout.space, where, layout.name)
    return Region(layout.space, layout.where[first:last], layout.name)


def named(sources: Sequence[Layout], contents: Sequence[Content]) -> Mapping[str, Content]:
    return {layout.name: content for layout, content in zip(sources, contents, strict=True)}
