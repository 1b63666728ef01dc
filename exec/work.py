"""What each command does to real memories, as jobs that a thread can carry out.

The host asks for the job of a command's part when it issues it; what the part needs is found
then, and what it touches when the job runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from ..model.cache import SlotState, SlotStep
from ..model.command import Callback, Compute, Copy, CopyExperts, FillBank
from ..model.graph import Node
from .arena import Arena, copy, write
from .bank import ExpertCopyCounters, Piece, RunningBanks, move, used_experts
from .cpu.table import Choice, choose, weight_type
from .evaluate import evaluate, read_tensors, written_tensors
from .hardware import Hardware, Kernels
from .memory import Content
from .operand import Operand
from .parallel import Team
from .quant import Array, Bytes, to_array
from .reference import World, operand
from .traffic import Traffic
from .user_ops import user_choice
from .window import Window, move_bytes

Job = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a compute needs, found once.  ``remote``: what a GPU does in its place."""

    node: Node
    choice: Choice
    targets: list[Operand]
    sources: list[Operand]
    remote: Job | None = None


class Staging:
    """Host memory through which the bytes of one staged command go; it is asked for once."""

    def __init__(self, raw: Bytes) -> None:
        self._raw = raw

    def hold(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Take the sources over; the pieces that are left to move."""
        held: list[Piece] = []
        at = 0
        for source, target in pieces:
            kept = self._raw[at : at + source.nbytes].view(source.dtype).reshape(source.shape)
            move_bytes(source, kept)
            held.append((kept, target))
            at += source.nbytes
        return held


class Work:
    """The memories of a run, and what was counted."""

    def __init__(
        self,
        world: World,
        buffers: Mapping[str, Bytes | Window] | None,
        team: Team,
        states: dict[str, SlotState] | None,
        hardware: Hardware,
    ) -> None:
        hardware.hold(world.schedule)
        self.world, self.schedule, self.team = world, world.schedule, team
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        with self.phase("allocate"):
            self.arena = Arena(self.schedule, world.symbols, world.seed, buffers, hardware)
        self.traffic = Traffic(self.arena)
        self.banks = RunningBanks(self.schedule, self.arena, self.traffic, states)
        self.used: dict[str, list[int]] = {}
        self.expert_copies: dict[str, ExpertCopyCounters] = {}
        self.kernels: dict[tuple[str, str, bool], tuple[int, float]] = {}
        self._hardware = hardware
        commands = self.schedule.program or ()
        self._kernels = {
            device.name: hardware.gpus[device.name].kernels(len(commands))
            for device in self.schedule.graph.devices
            if device.name in hardware.gpus
        }
        self._prepared: dict[int, _Prepared] = {}
        self._staging: dict[tuple[int, str], Staging] = {}
        for index, command in enumerate(commands):
            if isinstance(command, Compute) and self._on_gpu(command) is not None:
                self.compute(index, command)  # what a GPU has no kernel for is told before a run

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self._spent(name, perf_counter() - start)

    def _spent(self, name: str, seconds: float) -> None:
        with self._lock:  # queues add to the same phase
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _timed(self, phase: str, job: Job) -> Job:
        def run() -> None:
            with self.phase(phase):
                job()

        return run

    # -- computes -------------------------------------------------------------------------------

    def compute(self, index: int, command: Compute) -> Job:
        """``NoKernelError`` for an op that nothing here computes."""
        if index not in self._prepared:  # the operands lie where they lie, in every pass
            self._prepared[index] = self._prepare(index, command)
        return partial(self._compute, self._prepared[index])

    def begin(self) -> None:
        """Nothing of this program runs, and its commands are about to be issued."""
        for kernels in self._kernels.values():
            kernels.begin()

    def faulty(self) -> int | None:
        """When all has ended: a command of which a GPU's kernel met an id out of range."""
        found = [kernels.faulty() for kernels in self._kernels.values()]
        return next((index for index in found if index is not None), None)

    def _on_gpu(self, command: Compute) -> Kernels | None:
        return self._kernels.get(str(self.schedule.compute_device(command)))

    def _prepare(self, index: int, command: Compute) -> _Prepared:
        node = self.schedule.graph.node(command.node)
        bound = {s: self.schedule.bound(command, i) for i, s in enumerate(node.src)}
        sources = [self.arena.operand(bound.get(n, n)) for n in read_tensors(node)]
        targets = [self.arena.operand(name) for name in written_tensors(node)]
        kernels = self._on_gpu(command)
        if kernels is not None:
            job = kernels.compute(index, node, targets[0], sources)
            choice = Choice(node.op, weight_type(node, [*targets, *sources]), None)
            return _Prepared(node, choice, targets, sources, job)
        choice = user_choice(node) or choose(node, [*targets, *sources])
        return _Prepared(node, choice, targets, sources)

    def _compute(self, ready: _Prepared) -> None:
        start = perf_counter()
        node, choice, targets, sources = ready.node, ready.choice, ready.targets, ready.sources
        if ready.remote is not None:
            ready.remote()
        elif choice.kernel is None:
            self._by_reference(node, targets, sources)
        elif len(targets) == 1:
            self.team.run(choice.kernel, node, targets[0], sources)
        else:
            # Only a custom op writes several: all at once, as none may see another's bytes.
            results = [replace(target, data=target.data.copy()) for target in targets]
            for result in results:
                choice.kernel(result, sources, node)
            for target, result in zip(targets, results, strict=True):
                target.assign(result.packed())
        compiled = choice.kernel is not None or ready.remote is not None
        key = choice.op, choice.dtype, compiled
        taken = perf_counter() - start
        with self._lock:
            count, seconds = self.kernels.get(key, (0, 0.0))
            self.kernels[key] = count + 1, seconds + taken
        self._spent("compute", taken)

    def _by_reference(self, node: Node, targets: list[Operand], sources: list[Operand]) -> None:
        values = [operand(source.layout, source.packed()) for source in sources]
        old = targets[0].packed().copy() if targets else None
        layouts = [target.layout for target in targets]
        written = evaluate(node, values, layouts, old, rounded=True)
        for target, new in zip(targets, written, strict=True):
            target.assign(new.raw)

    # -- transfers ------------------------------------------------------------------------------

    def copy(self, command: Copy) -> Job:
        """All bytes at once: by a queue, or by the host."""
        source, target = self.arena.operand(command.src), self.arena.operand(command.dst)
        return self._timed("copy", partial(self._copy, source, target))

    def _copy(self, source: Operand, target: Operand) -> None:
        self.traffic.add(source.layout.name, target.layout.name, copy(source, target))

    def staged_copy(self, index: int, command: Copy) -> Job:
        """Take the source over now; the job writes the destination."""
        with self.phase("copy"):
            raw = self.arena.operand(command.src).packed()
            ((held, _),) = self._held(index, "", len(raw), [(raw, raw)])
            target = self.arena.operand(command.dst)
        return self._timed("copy", partial(self._write, command.src, target, held))

    def _write(self, source: str, target: Operand, held: Any) -> None:
        write(target, held)
        self.traffic.add(source, target.layout.name, len(held))

    def read_used(self, index: int, command: CopyExperts, staged: bool) -> Job:
        """Read the ids, or take over an earlier set; the job uploads the experts."""
        with self.phase("copy"):
            if command.used_from is not None:
                used = self.used[command.used_from]
            else:
                assert command.ids is not None
                ids = self.arena.operand(command.ids).here.array
                used = sorted({int(i) for i in ids.reshape(-1) if i >= 0})
            self.used[command.dst] = used
            source, target = self.arena.operand(command.src), self.arena.operand(command.dst)
            pieces, moved = used_experts(source, target, used, command.padding)
            self.traffic.add(command.src, command.dst, moved.bytes, moved.transfers)
            total = self.expert_copies.setdefault(command.dst, ExpertCopyCounters())
            total.experts += moved.experts
            total.transfers += moved.transfers
            total.bytes += moved.bytes
            if staged:
                most = source.layout.nbytes + source.ne[2] * command.padding
                pieces = self._held(index, "", most, pieces)
        return self._timed("copy", partial(move, pieces))

    def decide_fill(
        self, index: int, command: FillBank, staged: bool, decided: Callable[[SlotStep], None]
    ) -> Job:
        """Read the ids and choose the slots; the job uploads the missed experts.  ``decided`` is
        told before anything moves."""
        with self.phase("fill"):
            filling = self.banks.decide(command)
            decided(filling.step)
            on_host = self.banks.table_on_host(command)
            pieces, table = filling.pieces, filling.table
            if staged:
                whole = [self.arena.operand(name).layout.nbytes for name in command.banks]
                pieces = self._held(index, "", sum(whole), pieces)
            if on_host:
                move(table)
            elif self._hardware.gpus:
                table = self._held(index, "table", sum(piece[0].nbytes for piece in table), table)

        def upload() -> None:
            move(pieces)
            if not on_host:
                move(table)

        return self._timed("fill", upload)

    def _held(self, index: int, part: str, most: int, pieces: list[Piece]) -> list[Piece]:
        """Pieces of a command, with their sources in its staging memory of ``most`` bytes."""
        if (index, part) not in self._staging:
            self._staging[index, part] = Staging(self._hardware.host_bytes(most, 0))
        return self._staging[index, part].hold(pieces)

    # -- the host -------------------------------------------------------------------------------

    def set_input(self, name: str, pass_: int, following: int) -> None:
        """The bytes are copied: the user's array is the user's again afterwards."""
        with self.phase("input"):
            self.arena.write(name, self.world.input(name, pass_, following))

    def output(self, name: str) -> Array:
        """A copy of the tensor's value, of shape ``ne``."""
        with self.phase("output"):
            source = self.arena.operand(name)
            return to_array(source.layout.dtype, source.packed().copy(), source.ne)

    def callback(self, command: Callback, pass_: int) -> None:
        with self.phase("callback"):
            reads: dict[str, Content] = {}
            if command.name in self.world.callbacks:
                for name in self.world.footprint(command.reads):
                    raw = self.arena.operand(name).packed().copy()
                    reads[name] = Content(raw, np.zeros(0, np.int64))
            for name, raw in self.world.callback(command, pass_, reads).items():
                self.arena.write(name, raw)
