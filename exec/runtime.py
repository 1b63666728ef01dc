"""Run a proved schedule on real memories, with compiled kernels.

One thread carries out the program in issue order: each command runs to its end when it is
issued.  That is one of the orders that the proof covers, so events and waits have nothing to do
here; nothing overlaps, and the times are those of the work, not of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import assert_never, cast

import numpy as np

from ..model import document
from ..model.certificate import Certificate
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
)  # fmt: skip
from ..model.describe import command_text
from ..model.graph import Node
from ..model.plan.lower import lower
from ..model.schedule import Schedule
from .arena import Arena
from .bank import BankCounters, ExpertCopyCounters, RunningBanks, copy_used_experts
from .cpu.table import Choice, choose
from .evaluate import evaluate, read_tensors, written_tensors
from .memory import Content
from .operand import Operand
from .parallel import Team
from .quant import Array, Bytes, to_array
from .reference import CallbackFunction, Integers, World, input_commands, operand
from .traffic import Traffic


class RunError(RuntimeError):
    """A command that failed; the message names it, and the cause is the original error."""

    def __init__(self, index: int, pass_: int, text: str, cause: BaseException) -> None:
        super().__init__(f"command {index} ({text}), pass {pass_}: {type(cause).__name__}: {cause}")
        self.index, self.pass_, self.text = index, pass_, text


@dataclass(frozen=True, slots=True)
class KernelUse:
    """How often an op ran on a weight type, ``compiled`` or on the NumPy reference."""

    op: str
    dtype: str
    compiled: bool
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """What moved from one memory to another (``source`` may be ``target``)."""

    source: str
    target: str
    bytes: int
    transfers: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run gave.

    ``outputs``: per pass, what each ``get_output`` read, of shape ``ne`` (innermost first).
    ``seconds``: per phase, compilation of kernels included in ``compute``.
    """

    schedule: Schedule
    symbols: Mapping[str, int]
    outputs: tuple[Mapping[str, Array], ...]
    traffic: tuple[MemoryTraffic, ...]
    banks: Mapping[str, BankCounters]
    expert_copies: Mapping[str, ExpertCopyCounters]
    kernels: tuple[KernelUse, ...]
    seconds: Mapping[str, float]

    @property
    def fallbacks(self) -> int:
        """How many computes ran on the reference for want of a kernel."""
        return sum(use.count for use in self.kernels if not use.compiled)


def run(
    schedule: Schedule,
    certificate: Certificate,
    *,
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    callbacks: Mapping[str, CallbackFunction] | None = None,
    inputs: Mapping[tuple[str, int], Array] | None = None,
    integers: Integers = (),
) -> RunResult:
    """Run ``repeat`` passes of a schedule that was proved.

    ``symbols``: upper bounds where none are given.  ``callbacks``, ``inputs``, ``integers``: as
    for ``run_reference``, so that both runs can be given the same; arrays are copied when the
    program sets the input.  A split-level schedule is lowered first.

    ``CertificateError`` if the certificate is not a proof of exactly this document;
    ``ValueError`` for a symbol that does not exist or is out of its range; ``RunError`` names
    the command that failed.
    """
    certificate.require(document.digest(schedule))
    fixed = {(name, pass_): values for name, pass_, values in integers}
    program = lower(schedule)
    world = World(
        program, symbol_values(schedule, symbols or {}), seed, fixed, callbacks or {}, inputs or {}
    )
    machine = Machine(world)
    for pass_ in range(program.repeat):
        machine.one_pass(pass_)
    return machine.result(schedule)


def symbol_values(schedule: Schedule, given: Mapping[str, int]) -> dict[str, int]:
    ranges = schedule.graph.ranges
    for name, value in given.items():
        if name not in ranges:
            raise ValueError(f"there is no symbol {name}; known: {', '.join(ranges) or 'none'}")
        low, high = ranges[name]
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}; the proof covers {low} to {high}")
    return {name: given.get(name, high) for name, (low, high) in ranges.items()}


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a compute needs, found once."""

    node: Node
    choice: Choice
    targets: list[Operand]
    sources: list[Operand]
    shares: list[tuple[Operand, list[Operand]]]


class Machine:
    """The state of a run: memories, banks, and what was counted.

    ``buffers``: contents of buffers that come from outside (see ``Arena``).  ``team``: the
    threads that share large products (default: the calling one alone).
    """

    def __init__(
        self,
        world: World,
        buffers: Mapping[str, Bytes] | None = None,
        team: Team | None = None,
    ) -> None:
        self.team = team or Team(1)
        self.world = world
        self.schedule = world.schedule
        self.seconds: dict[str, float] = {}
        with self._phase("allocate"):
            self.arena = Arena(self.schedule, world.symbols, world.seed, buffers)
        self.traffic = Traffic(self.arena)
        self.banks = RunningBanks(self.schedule, self.arena, self.traffic)
        self.used: dict[str, list[int]] = {}
        self.following: dict[int, int] = {}
        self.expert_copies: dict[str, ExpertCopyCounters] = {}
        self.kernels: dict[tuple[str, str, bool], tuple[int, float]] = {}
        self.outputs: list[dict[str, Array]] = []
        self._prepared: dict[int, _Prepared] = {}

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

    def one_pass(self, pass_: int) -> None:
        at = self.world.at(pass_)
        self.outputs.append({})
        self.used.clear()
        self.following = {i: later for i, _, later in input_commands(self.schedule, at)}
        for index, command in enumerate(self.schedule.program or ()):
            if not self._exists(command, at):
                continue
            try:
                self._execute(index, command, pass_)
            except Exception as error:
                raise RunError(index, pass_, command_text(command), error) from error

    def _exists(self, command: Command, at: Mapping[str, int]) -> bool:
        if command.when.parts and not command.when.holds(at):
            return False
        if not isinstance(command, Compute):
            return True
        when = self.schedule.graph.node(command.node).when
        return not when.parts or when.holds(at)

    def _execute(self, index: int, command: Command, pass_: int) -> None:
        # Closed over the known commands: a new kind must say here what it does.
        known = cast(
            "Compute | Copy | CopyExperts | FillBank | Callback | SetInput | GetOutput | Record"
            " | Wait | SyncEvent | SyncQueue",
            command,
        )
        match known:
            case Compute():
                self._compute(index, known)
            case Copy(src=src, dst=dst):
                with self._phase("copy"):
                    self.traffic.add(src, dst, self.arena.copy(src, dst))
            case CopyExperts():
                with self._phase("copy"):
                    self._copy_experts(known)
            case FillBank():
                with self._phase("fill"):
                    self.banks.fill(known)
            case Callback():
                with self._phase("callback"):
                    self._call(known, pass_)
            case SetInput(tensor=name):
                with self._phase("input"):
                    raw = self.world.input(name, pass_, self.following[index])
                    self.arena.write(name, raw)
            case GetOutput(tensor=name):
                with self._phase("output"):
                    self.outputs[-1][name] = self._value(name)
            case Record() | Wait() | SyncEvent() | SyncQueue():
                pass  # everything issued before has ended
            case _:
                assert_never(known)

    def _value(self, name: str) -> Array:
        source = self.arena.operand(name)
        return to_array(source.layout.dtype, source.packed().copy(), source.ne)

    def _prepare(self, command: Compute) -> _Prepared:
        node = self.schedule.graph.node(command.node)
        bound = {s: self.schedule.bound(command, i) for i, s in enumerate(node.src)}
        sources = [self.arena.operand(bound.get(n, n)) for n in read_tensors(node)]
        targets = [self.arena.operand(name) for name in written_tensors(node)]
        shares = self.team.shares(node, targets[0], sources) if len(targets) == 1 else []
        return _Prepared(node, choose(node, [*targets, *sources]), targets, sources, shares)

    def _compute(self, index: int, command: Compute) -> None:
        start = perf_counter()
        if index not in self._prepared:  # the operands lie where they lie, in every pass
            self._prepared[index] = self._prepare(command)
        ready = self._prepared[index]
        node, choice, targets, sources = ready.node, ready.choice, ready.targets, ready.sources
        if choice.kernel is None:
            self._by_reference(node.dst, targets, sources)
        elif len(targets) == 1:
            self.team.run(choice.kernel, node, ready.shares)
        else:
            # Only a custom op writes several: all at once, as none may see another's bytes.
            results = [replace(target, data=target.data.copy()) for target in targets]
            for result in results:
                choice.kernel(result, sources, node)
            for target, result in zip(targets, results, strict=True):
                target.assign(result.packed())
        key = choice.op, choice.dtype, choice.kernel is not None
        count, seconds = self.kernels.get(key, (0, 0.0))
        taken = perf_counter() - start
        self.kernels[key] = count + 1, seconds + taken
        self.seconds["compute"] = self.seconds.get("compute", 0.0) + taken

    def _by_reference(self, name: str, targets: list[Operand], sources: list[Operand]) -> None:
        node = self.schedule.graph.node(name)
        values = [operand(source.layout, source.packed()) for source in sources]
        old = targets[0].packed().copy() if targets else None
        layouts = [target.layout for target in targets]
        written = evaluate(node, values, layouts, old, rounded=True)
        for target, new in zip(targets, written, strict=True):
            target.assign(new.raw)

    def _copy_experts(self, command: CopyExperts) -> None:
        if command.used_from is not None:
            used = self.used[command.used_from]
        else:
            assert command.ids is not None
            ids = self.arena.operand(command.ids).array
            used = sorted({int(i) for i in ids.reshape(-1) if i >= 0})
        self.used[command.dst] = used
        source, target = self.arena.operand(command.src), self.arena.operand(command.dst)
        moved = copy_used_experts(source, target, used, command.padding)
        self.traffic.add(command.src, command.dst, moved.bytes, moved.transfers)
        total = self.expert_copies.setdefault(command.dst, ExpertCopyCounters())
        total.experts += moved.experts
        total.transfers += moved.transfers
        total.bytes += moved.bytes

    def _call(self, command: Callback, pass_: int) -> None:
        reads: dict[str, Content] = {}
        if command.name in self.world.callbacks:
            for name in self.world.footprint(command.reads):
                raw = self.arena.operand(name).packed().copy()
                reads[name] = Content(raw, np.zeros(0, np.int64))
        for name, raw in self.world.callback(command, pass_, reads).items():
            self.arena.write(name, raw)

    def result(self, schedule: Schedule) -> RunResult:
        """``schedule``: the one that was given, which the certificate is for."""
        moved = self.traffic
        return RunResult(
            schedule=schedule,
            symbols=dict(self.world.symbols),
            outputs=tuple(self.outputs),
            traffic=tuple(
                MemoryTraffic(source, target, count, moved.transfers[source, target])
                for (source, target), count in sorted(moved.bytes.items())
            ),
            banks={name: replace(count) for name, count in self.banks.counters.items()},
            expert_copies=self.expert_copies,
            kernels=tuple(
                KernelUse(op, kind, compiled, count, seconds)
                for (op, kind, compiled), (count, seconds) in sorted(self.kernels.items())
            ),
            seconds=self.seconds,
        )
