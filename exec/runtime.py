"""Run a proved schedule on real memories, with compiled kernels.

The calling thread is the host: it carries out host commands itself and issues the others to one
thread a queue, which works them off in order.  Waits, records and host synchronisation are what
orders these threads, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ..model import document
from ..model.cache import SlotState
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
from ..model.device import HOST, Contract
from ..model.plan.lower import lower
from ..model.schedule import Schedule
from ..model.symbol import ALWAYS
from .functions import OutOfRange
from .hardware import THREADS, Hardware
from .parallel import Team
from .quant import Array, Bytes
from .queue import Crew, Job, Lane, Mark, Stopped, ThreadLane
from .reference import CallbackFunction, Integers, World, input_commands
from .result import KernelUse, MemoryTraffic, RunError, RunResult
from .script import exists, symbol_values, upload_contract
from .watch import NOBODY, Stretch, Watcher, WatchError
from .window import Window
from .work import Work

_T = TypeVar("_T")
#: What is added to the name of a queue for the thread of its unordered transfers.
FLIGHT = "~"


__all__ = ["KernelUse", "Machine", "MemoryTraffic", "RunError", "RunResult", "run"]


def run(
    schedule: Schedule,
    certificate: Certificate,
    *,
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
    callbacks: Mapping[str, CallbackFunction] | None = None,
    inputs: Mapping[tuple[str, int], Array] | None = None,
    integers: Integers = (),
    watcher: Watcher = NOBODY,
    hardware: Hardware = THREADS,
) -> RunResult:
    """Run ``repeat`` passes of a schedule that was proved.

    ``symbols``: upper bounds where none are given.  ``callbacks``, ``inputs``, ``integers``: as
    for ``run_reference``, so that both runs can be given the same; arrays are copied when the
    program sets the input.  A split-level schedule is lowered first.  ``watcher``: is told of
    everything that starts and ends.  ``hardware``: devices that are GPUs.

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
    with Crew() as crew:
        machine = Machine(world, crew=crew, watcher=watcher, hardware=hardware)
        for pass_ in range(program.repeat):
            machine.one_pass(pass_)
        machine.finish()
        return machine.result(schedule)


#: Commands that are one part.
_Whole = Compute | SetInput | GetOutput | Callback


@dataclass(frozen=True, slots=True)
class _Step:
    """A command with what is the same in every pass.  ``guarded``: it may not exist in some."""

    command: Command
    stretch: Stretch
    guarded: bool

    @classmethod
    def of(cls, schedule: Schedule, index: int, command: Command) -> _Step:
        when = schedule.graph.node(command.node).when if isinstance(command, Compute) else ALWAYS
        queue, text = schedule.queue_of(command), command_text(command)
        guarded = command.when != ALWAYS or when != ALWAYS
        return cls(command, Stretch(index, 0, "main", queue, text), guarded)


#: Where the latest record of an event stands: a point of its lane, or the host's own.
_Recorded = tuple[Mark | None, Stretch]


class Machine:
    """The state of a run: memories, banks, threads, and what was counted.

    ``buffers``: contents of buffers that come from outside (see ``Arena``).  ``team``: the
    threads that share large products (default: the calling one alone).  ``crew``: the threads
    of queues; whoever made it closes it (default: one of its own, for :meth:`close`).
    ``states``: what banks hold, shared by programs with the same banks.  ``watcher``: is told of
    everything that starts and ends.  ``hardware``: devices that are GPUs.
    """

    def __init__(
        self,
        world: World,
        buffers: Mapping[str, Bytes | Window] | None = None,
        team: Team | None = None,
        *,
        crew: Crew | None = None,
        states: dict[str, SlotState] | None = None,
        watcher: Watcher = NOBODY,
        hardware: Hardware = THREADS,
    ) -> None:
        self.world, self.schedule, self.watcher = world, world.schedule, watcher
        self.crew, self.hardware = crew or Crew(), hardware
        self.work = Work(world, buffers, team or Team(1), states, self.hardware)
        self.outputs: list[dict[str, Array]] = []
        self.prefetches = 0
        self._steps = [
            _Step.of(self.schedule, index, command)
            for index, command in enumerate(self.schedule.program or ())
        ]
        self._following: dict[int, int] = {}
        self._guarded_inputs = any(
            step.guarded for step in self._steps if isinstance(step.command, SetInput)
        )
        self._events: dict[str, _Recorded] = {}
        #: unordered transfers start after the last wait of their queue
        self._last_wait: dict[str, _Recorded] = {}
        #: where the staging memory of a command is written from, and by when that has been done
        self._staged: dict[int, Mark] = {}
        self._flying = frozenset(
            device.name
            for device in self.schedule.graph.devices
            if any(rule.contract is Contract.UNORDERED for rule in device.copy)
        )
        self._running = False
        self._latest = Stretch(0, 0, "main", HOST, "")

    def one_pass(self, pass_: int) -> None:
        """Issue a pass; what queues do may still go on when it returns (see :meth:`finish`).

        ``RunError`` names the command that failed; then all threads have ended.
        """
        at = self.world.at(pass_)
        self.outputs.append({})
        self.work.used.clear()
        if self._guarded_inputs or not self._following:
            self._following = {i: later for i, _, later in input_commands(self.schedule, at)}
        if not self._running:
            self._running = True
            self.work.begin()
            self.watcher.begin_run(self.work.arena, self.schedule, self.world.symbols)
        self.watcher.begin_pass(pass_)
        with _Stopping(self):
            for step in self._steps:
                if not step.guarded or exists(self.schedule, step.command, at):
                    self._issue(step, pass_)

    def finish(self) -> None:
        """Wait until everything that was issued has ended."""
        with _Stopping(self):
            self._guarded(self._latest, self.crew.drain)
            index = self.work.faulty()
            if index is not None:
                cause = OutOfRange("a kernel met an id outside the table that it selects from")
                raise RunError(index, self._latest.pass_, self._steps[index].stretch.text, cause)
        self._events.clear()
        self._last_wait.clear()
        self._running = False
        self.watcher.end_run()

    def close(self) -> None:
        """End the threads."""
        self.crew.close()

    # -- issuing --------------------------------------------------------------------------------

    def _issue(self, step: _Step, pass_: int) -> None:
        command = step.command
        stretch = step.stretch if pass_ == 0 else replace(step.stretch, pass_=pass_)
        self._latest = stretch
        if isinstance(command, Compute | SetInput | GetOutput | Callback):
            self._place(stretch, partial(self._job, stretch, command))
        elif isinstance(command, Copy | CopyExperts | FillBank):
            self._transfer(stretch, command)
        elif isinstance(command, Record | Wait | SyncEvent | SyncQueue):
            self._guarded(stretch, partial(self._order, stretch, command))
        else:
            raise TypeError(f"the runtime does not know the command {command.do}")

    def _job(self, stretch: Stretch, command: _Whole) -> Job:
        """The job of a command that has one part."""
        if isinstance(command, Compute):
            return self.work.compute(stretch.index, command)
        if isinstance(command, SetInput):
            following = self._following.get(stretch.index, 0)
            return partial(self.work.set_input, command.tensor, stretch.pass_, following)
        if isinstance(command, GetOutput):
            return partial(self._read_output, self.outputs[-1], command.tensor)
        return partial(self.work.callback, command, stretch.pass_)

    def _read_output(self, outputs: dict[str, Array], name: str) -> None:
        outputs[name] = self.work.output(name)

    def _transfer(self, stretch: Stretch, command: Copy | CopyExperts | FillBank) -> None:
        """A host part where there is one, then what its contract says."""
        contract = upload_contract(self.schedule, command)
        staged = contract is Contract.STAGED
        self.prefetches += command.do == "prefetch"
        index = stretch.index
        if contract is Contract.SYNC:
            stretch = replace(stretch, queue=HOST)
        if isinstance(command, Copy) and not staged:
            self._place(stretch, lambda: self.work.copy(command), contract)
            return
        if index in self._staged:  # its memory still holds the pass before
            self._staged[index].reach()

        reading = replace(stretch, part="read", queue=HOST)

        def read() -> Job:
            if isinstance(command, Copy):
                return self.work.staged_copy(index, command)
            if isinstance(command, CopyExperts):
                return self.work.read_used(index, command, staged)
            decided = partial(self.watcher.decided, reading)
            return self.work.decide_fill(index, command, staged, decided)

        job = self._now(reading, read)
        if isinstance(command, FillBank):
            self.watcher.banks(self.work.banks.occupied)
        written = replace(stretch, part="write")
        self._place(written, lambda: job, contract)
        if staged or (isinstance(command, FillBank) and written.queue != HOST):
            flight = FLIGHT if contract is Contract.UNORDERED else ""
            self._staged[index] = self._lane(written.queue, flight).mark()

    def _place(
        self, stretch: Stretch, make: Callable[[], Job], contract: Contract | None = None
    ) -> None:
        """Give a job to whoever carries it out: the host at once, or a thread in its turn."""
        if stretch.queue == HOST:
            self._now(stretch, lambda: make()())
            return
        job = self._guarded(stretch, make)
        token = self.watcher.issue(stretch)
        if contract is not Contract.UNORDERED:
            lane = self._lane(stretch.queue)
            lane.put(partial(self._run, lane, stretch, token, job))
            return
        after = self._last_wait.get(stretch.queue)
        loose = replace(stretch, loose=True)
        flights = self._lane(stretch.queue, FLIGHT)

        def fly() -> None:
            if after is not None:
                self._reach(after, loose)
            self._run(flights, loose, token, job)

        flights.put(fly)

    def _lane(self, queue: str, flight: str = "") -> Lane:
        lane = self.crew.lanes.get(queue + flight)
        if lane is not None:
            return lane
        gpu = self.hardware.gpus.get(self.schedule.queue_device(queue))
        make = ThreadLane if gpu is None else gpu.make_lane(self.watcher is not NOBODY)
        return self.crew.lane(queue + flight, make)

    def _run(self, lane: Lane, stretch: Stretch, token: object, job: Job) -> None:
        """In a job of a lane."""
        self.watcher.start(stretch, token)
        self._guarded(stretch, partial(lane.carry_out, job))
        self.watcher.end(stretch)

    def _now(self, stretch: Stretch, job: Callable[[], _T]) -> _T:
        """In the host's own thread."""
        if self.watcher is NOBODY:
            return self._guarded(stretch, job)
        self.watcher.start(stretch, self.watcher.issue(stretch))
        made = self._guarded(stretch, job)
        self.watcher.end(stretch)
        return made

    def _guarded(self, stretch: Stretch, job: Callable[[], _T]) -> _T:
        try:
            return job()
        except (RunError, Stopped, WatchError):
            raise
        except Exception as error:
            raise RunError(stretch.index, stretch.pass_, stretch.text, error) from error

    # -- order ----------------------------------------------------------------------------------

    def _order(self, stretch: Stretch, command: Record | Wait | SyncEvent | SyncQueue) -> None:
        if isinstance(command, Record):
            self._record(stretch, command)
        elif isinstance(command, SyncQueue):
            self._now_after(stretch, command.queue)
        else:
            self._await(stretch, command)

    def _record(self, stretch: Stretch, command: Record) -> None:
        queue = stretch.queue
        if queue == HOST:
            self._now(stretch, _nothing)
            self._events[command.event] = None, stretch
            return
        lane, flights = self._lane(queue), self.crew.lanes.get(queue + FLIGHT)
        landed, flown = (flights.mark(), flights.issued) if flights is not None else (None, 0)
        token = self.watcher.issue(stretch)

        def job() -> None:
            if landed is not None:
                lane.follow(landed)
            self.watcher.start(stretch, token, queue + FLIGHT if landed is not None else "", flown)
            self.watcher.end(stretch)

        lane.put(job)
        self._events[command.event] = lane.mark(), stretch

    def _await(self, stretch: Stretch, command: Wait | SyncEvent) -> None:
        """A wait means the latest record; one that means none orders nothing."""
        queue, record = stretch.queue, self._events.get(command.event)
        if record is not None and queue != HOST:
            waiter = self.schedule.graph.device(self.schedule.queue_device(queue))
            if not waiter.may_wait_for(self.schedule.queue_device(record[1].queue)):
                record = None
        token = self.watcher.issue(stretch)

        def job() -> None:
            self.watcher.block(stretch)
            if record is not None:
                self._reach(record, stretch)
            self.watcher.start(stretch, token)
            self.watcher.end(stretch)

        if queue == HOST:
            job()
            return
        lane = self._lane(queue)
        lane.put(job)
        if self.schedule.queue_device(queue) in self._flying:
            self._last_wait[queue] = lane.mark(), stretch

    def _reach(self, record: _Recorded, waiter: Stretch) -> None:
        """What the waiter's lane does next, or the host, is after the record."""
        mark, stretch = record
        if mark is not None and waiter.queue == HOST:
            mark.reach()
        elif mark is not None:
            self._lane(waiter.queue, FLIGHT if waiter.loose else "").follow(mark)
        self.watcher.saw(waiter, stretch)

    def _now_after(self, stretch: Stretch, queue: str) -> None:
        """The host waits for all that was issued to a queue."""
        self.watcher.block(stretch)
        for name in (queue, queue + FLIGHT):
            lane = self.crew.lanes.get(name)
            if lane is not None:
                self._reach_all(lane, stretch)
        self._now(stretch, _nothing)

    def _reach_all(self, lane: Lane, waiter: Stretch) -> None:
        lane.drain()
        self.watcher.drained(waiter, lane.name)

    # -- results --------------------------------------------------------------------------------

    def result(self, schedule: Schedule) -> RunResult:
        """``schedule``: the one that was given, which the certificate is for."""
        work = self.work
        return RunResult(
            schedule=schedule,
            symbols=dict(self.world.symbols),
            outputs=tuple(self.outputs),
            traffic=tuple(
                MemoryTraffic(source, target, count, work.traffic.transfers[source, target])
                for (source, target), count in sorted(work.traffic.bytes.items())
            ),
            banks={name: replace(count) for name, count in work.banks.counters.items()},
            expert_copies=work.expert_copies,
            kernels=tuple(
                KernelUse(op, kind, compiled, count, seconds)
                for (op, kind, compiled), (count, seconds) in sorted(work.kernels.items())
            ),
            seconds=work.seconds,
            prefetches=self.prefetches,
        )


class _Stopping:
    """While commands are issued or awaited: an error ends all threads and names the command."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self.machine._running = False
        self.machine.work.banks.forget()  # an upload may be missing
        crew = self.machine.crew
        crew.stop(error)
        first = crew.failure
        crew.close()
        if first is not None and first is not error:
            raise first from first.__cause__  # not from what the host noticed of it


def _nothing() -> None:
    pass
