"""Queues as threads: order, concurrency, contracts, and what a failure leaves behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from documents import moe, proved, selective, with_callback
from splitproof.exec.arena import Arena
from splitproof.exec.compare import compare
from splitproof.exec.operand import Operand
from splitproof.exec.quant import Array
from splitproof.exec.queue import Crew, Stopped
from splitproof.exec.reference import run_reference
from splitproof.exec.runtime import RunError, run
from splitproof.exec.session import Session
from splitproof.exec.work import Work
from splitproof.model.certificate import certify
from splitproof.model.device import Contract, CopyRule
from splitproof.model.plan.lower import lower
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("splitproof")]


def overlapped(schedule: Schedule, prefetch: str = "none", copy_experts: bool = False) -> Schedule:
    """With a second queue on the device, and waits where bytes are used twice."""
    gpu, *rest = schedule.graph.devices
    gpu = replace(gpu, queues=("compute", "copy"))
    graph = replace(schedule.graph, devices=(gpu, *rest))
    choice = Lowering("overlapped", prefetch, copy_experts=copy_experts)
    return lower_as(replace(schedule, graph=graph), choice).schedule


def under(schedule: Schedule, contract: Contract) -> Schedule:
    devices = tuple(
        replace(d, copy=(CopyRule(None, None, contract),)) if d.asynchronous else d
        for d in schedule.graph.devices
    )
    return replace(schedule, graph=replace(schedule.graph, devices=devices))


# -- lanes ------------------------------------------------------------------------------------


def test_lanes_run_at_the_same_time_and_each_in_order() -> None:
    meeting = threading.Barrier(2, timeout=60)
    seen: list[int] = []
    with Crew() as crew:
        left, right = crew.lane("a"), crew.lane("b")
        for number in range(50):
            left.put(lambda n=number: seen.append(n))  # type: ignore[misc]
        for lane in (left, right):
            lane.put(lambda: meeting.wait() and None)
        crew.drain()  # neither could have met itself
        assert seen == list(range(50))
    assert threads() == []


def test_a_wait_is_over_when_the_record_is() -> None:
    gate, passed = threading.Event(), []
    with Crew() as crew:
        first, second = crew.lane("a"), crew.lane("b")
        number = first.put(lambda: gate.wait(60) and None)

        def after() -> None:
            first.reach(number)
            passed.append(gate.is_set())

        second.put(after)
        gate.set()
        crew.drain()
    assert passed == [True]


def test_each_thread_has_a_core() -> None:
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("threads are pinned where there are two cores and a way to do it")
    cores: list[set[int]] = []
    before = os.sched_getaffinity(0)
    with Crew() as crew:
        for name in "ab":
            crew.lane(name).put(lambda: cores.append(os.sched_getaffinity(0)))
        crew.drain()
    assert [len(core) for core in cores] == [1, 1] and cores[0] != cores[1]
    assert os.sched_getaffinity(0) == before


def test_a_failure_frees_everyone_who_waits() -> None:
    crew, ran = Crew(), []

    def fail() -> None:
        raise KeyError("lost")

    never = threading.Event()
    blocked = crew.lane("b")
    broken = crew.lane("a")
    number = broken.issued + 2  # a job that is never put
    blocked.put(lambda: broken.reach(number))
    blocked.put(lambda: ran.append("after"))
    broken.put(fail)
    with pytest.raises(Stopped):
        crew.drain()
    assert isinstance(crew.failure, KeyError) and not never.is_set()
    crew.close()
    assert ran == [] and threads() == []
    with crew:  # it can be used again
        crew.lane("a").put(lambda: ran.append("again"))
        crew.drain()
    assert ran == ["again"]


# -- programs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", list(Contract))
@pytest.mark.parametrize("by_map", [False, True])
def test_a_bank_under_every_contract(contract: Contract, by_map: bool) -> None:
    agrees(overlapped(under(moe(layers=2, by_map=by_map, repeat=4), contract)))


# Not under unordered: there the queue that copies does not wait for its own copies.
@pytest.mark.parametrize("contract", [Contract.STREAM, Contract.SYNC, Contract.STAGED])
def test_selected_experts_under_every_contract(contract: Contract) -> None:
    ids = tuple(("ids", n, (3, 4, 3, 11)) for n in range(2))
    agrees(under(selective(), contract), ids)


def agrees(schedule: Schedule, ids: tuple[tuple[str, int, tuple[int, ...]], ...] = ()) -> None:
    """Proved, and the same numbers as the sequential reference, again and again."""
    program = lower(schedule)
    report = check(program)
    assert report.verdict is Verdict.PROVED, report.failures[:2]
    for _ in range(5):
        result = run(program, certify(report), integers=ids)
        assert compare(result, run_reference(program, result.symbols, integers=ids)).agrees
        assert threads() == []


def test_only_the_host_asks_for_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are made when they are first asked for: two threads would make them twice."""
    askers = set()
    plain = Arena.operand

    def operand(self: Arena, name: str) -> Operand:
        askers.add(threading.get_ident())
        return plain(self, name)

    monkeypatch.setattr(Arena, "operand", operand)
    for schedule in (moe(layers=2), under(moe(layers=2), Contract.STAGED), selective()):
        program = overlapped(schedule) if schedule.program is None else schedule
        run(program, proved(program))
    assert askers == {threading.get_ident()}


@pytest.mark.parametrize("name", ["_compute", "_copy"])
def test_a_failure_in_a_queue_names_the_command(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program = replace(overlapped(moe(layers=2)), repeat=1)
    inputs = {
        tensor.name: np.zeros([size.value({"n_tokens": 2}) for size in tensor.ne], np.float32)
        for tensor in program.graph.tensors
        if tensor.input
    }
    with Session(program, proved(program)) as session:
        before = session.run(inputs)
        assert threads()

        def fail(*_: object) -> None:
            raise ZeroDivisionError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(Work, name, fail)
            due = r"command \d+ \(.*\), pass 0: Zero.*planted"
            with pytest.raises(RunError, match=due) as info:
                session.run(inputs)
        assert isinstance(info.value.__cause__, ZeroDivisionError)
        assert threads() == []
        again = session.run(inputs)  # what the banks were said to hold is brought anew
        assert all((again[key] == before[key]).all() for key in before)
    assert threads() == []


def test_a_failing_callback_stops_the_queues() -> None:
    schedule = with_callback()

    def fail(pass_: int, reads: Mapping[str, Array]) -> dict[str, Array]:
        raise KeyError("nothing there")

    with pytest.raises(RunError, match=r"command 1 \(callback adapt\), pass 0: KeyError"):
        run(schedule, proved(schedule), callbacks={"adapt": fail})
    assert threads() == []


def test_users_keep_their_arrays() -> None:
    """What is done to an array after the run has begun changes nothing, and it is not written."""
    program = replace(overlapped(moe(layers=1)), repeat=1)
    rng = np.random.default_rng(0)
    shapes = {
        t.name: [size.value({"n_tokens": 2}) for size in t.ne]
        for t in program.graph.tensors
        if t.input
    }
    inputs: dict[str, Array] = {
        name: rng.standard_normal(shape).astype(np.float32)
        if name == "x"
        else np.arange(np.prod(shape)).reshape(shape)
        for name, shape in shapes.items()
    }
    kept = {name: value.copy() for name, value in inputs.items()}
    with Session(program, proved(program)) as session:
        first = {name: value.copy() for name, value in session.run(inputs).items()}
        assert all((inputs[name] == kept[name]).all() for name in inputs)
        returned = session.run(inputs)
        for value in inputs.values():
            value[...] = 0
        assert all((returned[name] == first[name]).all() for name in first)
