"""A recorded execution held against the order that a proof rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..model.command import Compute
from ..model.describe import command_text
from ..model.schedule import Schedule
from ..model.symbol import PASS
from .order import Order, Part, build_order

#: ``(command, pass, part, start, end)``: numbers in the order of all starts and ends.
RecordedPart = tuple[int, int, str, int, int]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a record and the schedule part.  ``command``: its index in the program."""

    command: int
    pass_: int
    message: str


@dataclass(frozen=True, slots=True)
class Held:
    """What was looked at: parts of commands, and edges between them; where they part."""

    parts: int
    edges: int
    partings: tuple[Parting, ...]


def hold(schedule: Schedule, symbols: Mapping[str, int], recorded: Iterable[RecordedPart]) -> Held:
    """Each part of each command happened once in each pass, and every edge was kept.

    An edge a → b is kept if a ended before b started.  The edges are the direct ones, which imply
    all others; the ends of waits, records and host synchronisation are where they order things.
    ``schedule``: at the program level.  ``ValueError`` for a symbol without a value.
    """
    absent = [name for name in schedule.graph.ranges if name not in symbols]
    if absent:
        raise ValueError(f"the record has no value for the symbol(s) {', '.join(absent)}")
    program = schedule.program or ()

    def exists(index: int, iteration: int) -> bool:
        command, at = program[index], {**symbols, PASS: iteration}
        if not command.when.holds(at):
            return False
        return not isinstance(command, Compute) or schedule.graph.node(command.node).when.holds(at)

    order = build_order(schedule, exists)
    return _Holding(schedule, order, recorded).held()


class _Holding:
    def __init__(self, schedule: Schedule, order: Order, recorded: Iterable[RecordedPart]) -> None:
        self.schedule, self.order = schedule, order
        self.partings: list[Parting] = []
        due = {(p.command, p.iteration, p.name): p for p in order.parts}
        self.times: dict[int, tuple[int, int]] = {}
        for command, iteration, name, start, end in recorded:
            part = due.get((command, iteration, name))
            if part is None:
                text = f"{self.text(command)} ({name}) happened; the schedule has no such part"
                self.partings.append(Parting(command, iteration, text))
            elif part.index in self.times:
                self.part_at(part, f"{self.name(part)} happened more than once")
            else:
                self.times[part.index] = start, end

    def held(self) -> Held:
        edges = 0
        for part in self.order.parts:
            if part.index not in self.times:
                self.part_at(part, f"{self.name(part)} did not happen")
                continue
            for before in dict.fromkeys(self.order.edges[part.index]):
                edges += 1
                if before in self.times and self.times[before][1] >= self.times[part.index][0]:
                    earlier = self.name(self.order.parts[before])
                    text = f"{self.name(part)} started before {earlier} had ended"
                    self.part_at(part, text)
        return Held(len(self.times), edges, tuple(self.partings))

    def part_at(self, part: Part, message: str) -> None:
        self.partings.append(Parting(part.command, part.iteration, message))

    def name(self, part: Part) -> str:
        piece = "" if part.name == "main" else f" ({part.name})"
        return f"{self.text(part.command)}{piece} of pass {part.iteration}"

    def text(self, command: int) -> str:
        program = self.schedule.program or ()
        known = 0 <= command < len(program)
        return f"command {command}" + (f" [{command_text(program[command])}]" if known else "")
