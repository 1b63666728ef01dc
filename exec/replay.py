"""Executes one given order of steps on separate, versioned, poisoned memories.

Every read is compared with the sequential run: the version that it saw, and the numbers that
come of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..model.cache import SlotState, filled_slots
from ..model.command import Callback, Command, Compute, Copy, CopyExperts, FillBank, GetOutput
from ..model.command import SetInput as SetInputCommand
from ..model.counterexample import Counterexample, Step
from ..model.describe import command_text
from ..model.schedule import Schedule
from .compute import ComputeTask
from .experts import CopyExpertsTask, FillTask, map_values
from .interleave import Bias, checked_moves, issue_order, random_moves, step_of
from .judge import WrongRead, WrongValue
from .layout import mentioned_tensors
from .memory import Memory
from .quant import from_array
from .reference import CallbackFunction, Integers, World, input_commands, sequential
from .script import Part, Script, unroll
from .tasks import (
    CallbackTask,
    CopyTask,
    Execution,
    FirstDifference,
    InputTask,
    OutputTask,
    Task,
)

#: Content of banks at the start: ``(group, ((slot, layer, expert), …))``.
Banks = Sequence[tuple[str, tuple[tuple[int, int, int], ...]]]


@dataclass(frozen=True)
class Replay:
    """What one order did.  ``wrong``: faulty reads and values, in the order of execution."""

    order: tuple[Step, ...]
    wrong: tuple[WrongRead | WrongValue, ...]

    @property
    def reproduced(self) -> bool:
        """Whether something went wrong that shows: a number that differs, or a read of poison
        (a wrong version with the right bytes alone does not count)."""
        return any(
            isinstance(item, WrongValue) or item.poison or item.differs for item in self.wrong
        )

    @property
    def summary(self) -> str:
        """A few lines: the first faulty read, and the first wrong number of each tensor."""
        if not self.wrong:
            return "no difference from the sequential run"
        lines: dict[tuple[str, str], str] = {}
        for item in self.wrong:
            lines.setdefault((type(item).__name__, item.tensor), str(item))
        return "\n".join(list(lines.values())[:8])


@dataclass(frozen=True)
class Fuzz:
    """``runs``: orders tried; ``replay``: the first that differed (``None``: none did)."""

    runs: int
    replay: Replay | None = None


def replay(
    schedule: Schedule,
    counterexample: Counterexample,
    *,
    seed: int = 0,
    callbacks: Mapping[str, CallbackFunction] | None = None,
) -> Replay:
    """Execute a counterexample.  ``IllegalOrder`` names the step at which its order is none."""
    symbols = {name: low for name, low, _ in schedule.graph.symbols}
    symbols.update(counterexample.symbols)
    return run_interleaving(
        schedule, counterexample.order, symbols, seed=seed, integers=counterexample.integers,
        banks=counterexample.banks, callbacks=callbacks, touched=_touched(schedule, counterexample),
    )  # fmt: skip


def run_interleaving(
    schedule: Schedule,
    order: Sequence[Step],
    symbols: Mapping[str, int],
    *,
    seed: int = 0,
    integers: Integers = (),
    banks: Banks = (),
    callbacks: Mapping[str, CallbackFunction] | None = None,
    touched: Iterable[str] = (),
) -> Replay:
    """Execute one order at given values of the symbols.

    ``touched``: tensors that callbacks without declared footprints also read and write.
    ``IllegalOrder`` for an order that is incomplete or that no machine can take.
    """
    fixed = {(name, pass_): values for name, pass_, values in integers}
    world = World(schedule, symbols, seed, fixed, callbacks or {}, {}, tuple(touched), lenient=True)
    bench = Bench(world)
    moves = checked_moves(bench.script, order)
    return Replay(tuple(order), bench.run(moves, Start.of(world, banks)))


def fuzz(
    schedule: Schedule,
    symbols: Mapping[str, int],
    *,
    runs: int = 1000,
    seed: int = 0,
    bias: Bias | None = None,
    banks: Banks | None = None,
) -> Fuzz:
    """Execute random legal orders, up to the first that differs from the sequential run.

    Without ``banks`` the runs take turns between empty banks and a few random contents.
    Any read of a wrong version counts, even where its bytes happen to be right.
    """
    world = World(schedule, symbols, seed, lenient=True)
    bench = Bench(world)
    rng = random.Random(seed)
    contents = [banks] if banks is not None else _random_contents(world, rng)
    starts = [Start.of(world, content) for content in contents]
    for number in range(runs):
        moves = tuple(random_moves(bench.script, rng, bias))
        start = starts[number % len(starts)]
        if bench.run(moves, start, stop=True):
            order = tuple(step_of(bench.script, *move) for move in moves)
            return Fuzz(number + 1, Replay(order, bench.run(moves, start)))
    return Fuzz(runs)


def replay_ids(schedule: Schedule, node: str, symbols: Mapping[str, int]) -> Replay:
    """Execute with the greatest id that the ids of a node may hold, in issue order: what CE006
    (an id that is no expert) does to the outputs.  ``ValueError`` if the ids have no range."""
    ids = schedule.graph.node(node).src[2]
    tensor, base = schedule.tensor(ids), schedule.base(ids)
    values = tensor.values or base.values
    if values is None:
        raise ValueError(f"the ids {ids} of {node} declare no values")
    layout = World(schedule, symbols).layouts.placed(ids)
    worst = (values[1] - 1,) * (layout.nbytes // layout.dtype.block_bytes)
    integers = [(ids, pass_, worst) for pass_ in range(schedule.repeat)]
    return run_interleaving(schedule, issue_order(schedule, symbols), symbols, integers=integers)


@dataclass(frozen=True)
class Start:
    """Memory and slots before the first step."""

    memory: Memory
    slots: Mapping[str, SlotState] = field(default_factory=dict)

    @staticmethod
    def of(world: World, banks: Banks) -> Start:
        graph = world.schedule.graph
        place = world.layouts.placed
        memory = world.memory(place, mentioned_tensors(world.schedule))
        content = dict(banks)
        slots = {
            bank.group: filled_slots(bank.slots, content.get(bank.group, ()))
            for bank in graph.banks
        }
        for bank in graph.banks:
            held, cached = place(bank.name), place(bank.caches)
            for slot in range(bank.slots, held.ne[2]):
                _define_spare(world, memory, bank.name, slot)
            for (layer, expert), slot in slots[bank.group].slot_of.items():
                if layer == bank.layer:
                    source = memory.read(cached.part(2, expert))
                    memory.write_content(held.part(2, slot), source)
        for bank in graph.banks:
            if bank.slot_map is not None:
                table = place(bank.slot_map)
                values = map_values(slots[bank.group], bank.layer, table.ne[1])
                array = np.array(values, np.int64).reshape(table.ne[::-1]).T
                version = world.versions.of("initial", bank.slot_map, 0, table.nbytes)
                memory.write(table, from_array(table.dtype, array), version)
        return Start(memory, slots)


def _define_spare(world: World, memory: Memory, bank: str, slot: int) -> None:
    """A spare slot is no slot: it has initial bytes (zeros), as other weights have."""
    layout = world.layouts.placed(bank).part(2, slot)
    version = world.versions.of("initial", f"{bank} spare {slot}", 0, layout.nbytes)
    memory.write(layout, np.zeros(layout.nbytes, np.uint8), version)


class Bench:
    """A script with everything prepared to run it many times."""

    def __init__(self, world: World) -> None:
        self.script: Script = unroll(world.schedule, world.symbols)
        reference = sequential(world)
        memory = world.memory(world.layouts.placed, mentioned_tensors(world.schedule))
        self.execution = Execution(world, reference, memory)
        made: dict[tuple[int, int], Task] = {}
        for part in self.script.parts:
            key = part.command, part.iteration
            if key not in made:
                made[key] = _task(self.execution, part)
        self.tasks = [made[part.command, part.iteration] for part in self.script.parts]

    def run(
        self, moves: Iterable[tuple[int, bool]], start: Start, stop: bool = False
    ) -> tuple[WrongRead | WrongValue, ...]:
        """Execute legal moves; with ``stop``, up to the first difference."""
        execution = self.execution
        execution.memory.reset(start.memory)
        execution.slots = dict(start.slots)
        execution.used, execution.wrong, execution.stop = {}, [], stop
        try:
            for part, starts in moves:
                name = self.script.parts[part].name
                if starts:
                    self.tasks[part].start(name)
                else:
                    self.tasks[part].end(name)
        except FirstDifference:
            pass  # it is in the list
        return tuple(execution.wrong)


def _task(run: Execution, part: Part) -> Task:
    schedule = run.world.schedule
    assert schedule.program is not None
    command: Command = schedule.program[part.command]
    match command:
        case SetInputCommand():
            inputs = input_commands(schedule, run.world.at(part.iteration))
            following = next(after for index, _, after in inputs if index == part.command)
            return InputTask(run, part, command, following)
        case GetOutput():
            return OutputTask(run, part, command)
        case Callback():
            return CallbackTask(run, part, command)
        case Compute():
            return ComputeTask(run, part, command)
        case Copy():
            return CopyTask(run, part, command)
        case CopyExperts():
            return CopyExpertsTask(run, part, command)
        case FillBank():
            return FillTask(run, part, command)
    raise TypeError(f"{part}: no way to execute {command.do}")


def _touched(schedule: Schedule, counterexample: Counterexample) -> tuple[str, ...]:
    """What a callback without declared footprints must touch to show the counterexample."""
    found = []
    for party in (counterexample.reader, counterexample.writer):
        if party is None or party.command is None or not party.tensor:
            continue
        command = (schedule.program or ())[party.command]
        if isinstance(command, Callback) and None in (command.reads, command.writes):
            found.append(party.tensor)
    return tuple(found) + _due_from_user_code(schedule, counterexample)


def _due_from_user_code(schedule: Schedule, counterexample: Counterexample) -> tuple[str, ...]:
    """The tensor that is read, if its due version is that of a callback without a footprint."""
    undeclared = [
        command
        for command in schedule.program or ()
        if isinstance(command, Callback) and None in (command.reads, command.writes)
    ]
    texts = tuple(f"{command_text(command)} of pass " for command in undeclared)
    if not counterexample.due.startswith(texts):
        return ()
    name = counterexample.reader.tensor
    copy = schedule.copy_of(name)  # user code writes what it is a copy of
    return (copy[1] if copy is not None else name,)


def _random_contents(world: World, rng: random.Random) -> list[Banks]:
    """No content, and three random ones (each group full, half full, …)."""
    graph = world.schedule.graph
    if not graph.banks:
        return [()]
    contents: list[Banks] = [()]
    for share in (1.0, 0.5, 1.0):
        content = []
        for group in dict.fromkeys(bank.group for bank in graph.banks):
            members = [bank for bank in graph.banks if bank.group == group]
            experts = sorted(
                {
                    (bank.layer, expert)
                    for bank in members
                    for expert in range(world.layouts.placed(bank.caches).ne[2])
                }
            )
            count = min(int(members[0].slots * share), len(experts))
            slots = rng.sample(range(members[0].slots), count)
            chosen = rng.sample(experts, count)
            content.append((group, tuple((s, *e) for s, e in zip(slots, chosen, strict=True))))
        contents.append(tuple(content))
    return contents
