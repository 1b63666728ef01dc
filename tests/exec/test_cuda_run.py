"""Programs on a GPU: the numbers, the order of streams, and what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_launches import held
from cuda_simulator import LateEvent, LateStream, late, quicken
from documents import moe, proved, selective
from numba import cuda
from numba.cuda.simulator import api
from splitproof.exec.arena import copy
from splitproof.exec.compare import compare
from splitproof.exec.cpu.table import NoKernelError
from splitproof.exec.cuda import moves, pointwise
from splitproof.exec.cuda.gpu import CudaGpu
from splitproof.exec.cuda.lanes import StreamLane
from splitproof.exec.cuda.target import THREADS
from splitproof.exec.hardware import Hardware, HardwareError, MemoryShortError
from splitproof.exec.layout import Layout
from splitproof.exec.operand import Operand
from splitproof.exec.queue import Crew, Mark
from splitproof.exec.reference import run_reference
from splitproof.exec.runtime import RunError, RunResult, run
from splitproof.exec.session import Session
from splitproof.exec.trace import Trace, read_trace
from splitproof.exec.window import RemoteOperand
from splitproof.model import document
from splitproof.model.certificate import CertificateError, certify
from splitproof.model.command import SyncEvent, Wait
from splitproof.model.device import Contract, CopyRule, Memory
from splitproof.model.plan.lower import lower
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.planner import plan
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.model.tensor import dtype
from splitproof.verify.check import check
from splitproof.verify.recorded import hold


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    quicken(monkeypatch)
    yield
    assert [t.name for t in threading.enumerate() if t.name.startswith("splitproof")] == []


def gpu() -> Hardware:
    return Hardware({"gpu0": CudaGpu(0, "gpu0")})


def with_queues(schedule: Schedule, prefetch: str = "none", slots: int = 0) -> Schedule:
    return lower_as(schedule, Lowering("overlapped", prefetch, slots)).schedule


def under(schedule: Schedule, contract: Contract) -> Schedule:
    devices = tuple(
        replace(d, copy=(CopyRule(None, None, contract),)) if d.asynchronous else d
        for d in schedule.graph.devices
    )
    return replace(schedule, graph=replace(schedule.graph, devices=devices))


def on_gpu(program: Schedule, **more: Any) -> RunResult:
    return run(program, proved(program), hardware=gpu(), symbols={"n_tokens": 1}, **more)


def agrees(program: Schedule, result: RunResult, **more: Any) -> bool:
    return compare(result, run_reference(program, result.symbols, **more)).agrees


def chain(layers: int = 4) -> Schedule:
    """``y0 → w0 → y1 → …``, small products with weights in host memory, brought ahead in turns."""
    tensors: dict[str, Any] = {"y0": {"dtype": "f32", "shape": [4, 1], "input": True}}
    nodes = []
    for layer in range(layers):
        tensors[f"w{layer}"] = {
            "dtype": "f32", "shape": [4, 4], "buffer": "weights", "offset": layer * 64,
        }  # fmt: skip
        tensors[f"y{layer + 1}"] = {
            "dtype": "f32", "shape": [4, 1], "pin": "gpu0", "output": layer == layers - 1,
        }  # fmt: skip
        nodes.append({"op": "mul_mat", "dst": f"y{layer + 1}", "src": [f"w{layer}", f"y{layer}"]})
    schedule = document.from_dict({
        "format": "splitproof/1", "name": "a chain",
        "memories": {"host": {"host": True}, "vram0": {}},
        "devices": [
            {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True,
             "copy": "stream", "queues": ["compute", "copy"], "offload_min_tokens": 1},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "buffers": {"weights": {"memory": "host", "usage": "weights", "bytes": layers * 64}},
        "tensors": tensors, "nodes": nodes,
    })  # fmt: skip
    return with_queues(plan(schedule), "staging", 2)


# -- the numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", list(Contract))
def test_a_bank_under_every_contract(monkeypatch: pytest.MonkeyPatch, contract: Contract) -> None:
    program = with_queues(under(moe(repeat=2), contract))
    with late(monkeypatch, seed=1):
        result = on_gpu(program)
    assert agrees(program, result)
    assert result.fallbacks == 0
    assert sum(use.count for use in result.kernels) == 2 * 5


def test_a_bank_whose_slots_are_looked_up_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    program = with_queues(moe(by_map=True, repeat=2))
    with late(monkeypatch, seed=2):
        assert agrees(program, on_gpu(program))


@pytest.mark.parametrize("contract", [Contract.STREAM, Contract.STAGED])
def test_selected_experts(monkeypatch: pytest.MonkeyPatch, contract: Contract) -> None:
    ids = tuple(("ids", n, (3, 11)) for n in range(2))
    program = under(replace(selective(), repeat=1), contract)
    with late(monkeypatch, seed=3):
        assert agrees(program, on_gpu(program, integers=ids), integers=ids)


def test_a_second_run_of_a_session_gives_the_same_numbers_and_asks_for_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = replace(with_queues(moe()), repeat=1)
    inputs = {
        "x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(64, 1, 1),
        "ids0": np.array([[3], [7]], np.int32),
    }
    with Session(program, proved(program), hardware=gpu(), symbols={"n_tokens": 1}) as session:
        first = {name: value.copy() for name, value in session.run(inputs).items()}
        asked: list[tuple[int, int]] = []
        for name in ("allocate", "host_bytes"):
            monkeypatch.setattr(CudaGpu, name, lambda self, *size: asked.append(size))
        again = session.run(inputs)
    assert asked == []
    assert all((first[name] == again[name]).all() for name in first) and first
    uploads = {name: count.hits for name, count in session.result().banks.items()}
    assert set(uploads.values()) == {2}  # the second found what the first had brought


def test_a_gpu_beside_a_device_of_threads() -> None:
    """Products go from one to the other and back; each has its own memory, kernels and queues."""
    plain = chain()
    graph = plain.graph
    gpu0, cpu = graph.devices
    gpu0, gpu1 = (
        replace(gpu0, name=name, memory=memory, reads=(memory,), waits_for=("gpu0", "gpu1"))
        for name, memory in (("gpu0", "vram0"), ("gpu1", "vram1"))
    )
    tensors = tuple(
        replace(t, pin="gpu1") if t.name in ("y2", "y4") else t for t in graph.tensors
        if "#" not in t.name
    )  # fmt: skip
    graph = replace(
        graph, devices=(gpu0, gpu1, cpu), tensors=tensors,
        buffers=tuple(b for b in graph.buffers if b.name == "weights"),
        memories=(*graph.memories, Memory("vram1")),
    )  # fmt: skip
    program = with_queues(plan(Schedule(graph, repeat=2)))
    assert {split.device for split in program.splits or ()} == {"gpu0", "gpu1"}
    certificate = certified(program)
    for name in ("gpu0", "gpu1"):
        hardware = Hardware({name: CudaGpu(0, name)})
        assert agrees(program, run(program, certificate, hardware=hardware))
    both = Hardware({name: CudaGpu(0, name) for name in ("gpu0", "gpu1")})
    assert agrees(program, run(program, certificate, hardware=both))


def test_a_watched_run_follows_the_order_of_the_proof() -> None:
    program = chain()
    trace = Trace()
    assert agrees(program, run(program, certified(program), hardware=gpu(), watcher=trace))
    (recorded,) = read_trace(trace.to_dict())
    parts = [(p.command, p.iteration, p.part, p.start, p.end) for p in recorded.parts]
    held = hold(program, recorded.symbols, parts)
    assert held.partings == () and held.parts and held.edges


# -- the order of streams -------------------------------------------------------------------------


def certified(program: Schedule) -> Any:
    report = check(program)
    assert report.verdict is Verdict.PROVED, report.failures[:2]
    return certify(report)


def runs_right(program: Schedule, patch: pytest.MonkeyPatch, seeds: Sequence[int]) -> bool:
    """Whether the numbers are right in the order that each seed draws."""
    for seed in seeds:
        with late(patch, seed) as streams:
            result = run(program, proved(program), hardware=gpu())
            assert streams.carried_out > len(program.program or ())
        if not agrees(program, result):
            return False
    return True


def test_every_order_of_the_streams_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    program = replace(chain(), repeat=2)
    certified(program)
    assert runs_right(program, monkeypatch, range(12))


def test_a_source_with_gaps_is_read_when_its_turn_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host gathers it, so it waits for the stream, which may still write there."""
    packed = Layout("packed", dtype("f32"), (2, 2, 1, 1), (4, 8, 16, 16), "v", 0)
    gaps = replace(packed, name="gaps", nb=(4, 16, 32, 32))
    with late(monkeypatch, 0), Crew() as crew:
        device = CudaGpu(0, "gpu0")
        lane = StreamLane(device, crew, "q", None)
        staging, old = device.host_bytes(32, 0), device.allocate(32, 7)
        target = device.allocate(16, 0)
        lane.put(lambda: old.give(staging))
        lane.put(lambda: copy(Operand(gaps, staging), RemoteOperand(packed, target)) and None)
        lane.drain()
        assert (target.fetch() == 7).all()


def test_a_wait_that_is_left_out_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checker refutes without some wait shows on streams, and nothing else does."""
    program = chain()
    commands = program.program or ()
    caught, refuted = [], []
    for index in [i for i, c in enumerate(commands) if isinstance(c, Wait | SyncEvent)]:
        without = replace(program, program=commands[:index] + commands[index + 1 :])
        if check(without).verdict is Verdict.VIOLATED:
            refuted.append(index)
        if not runs_right(without, monkeypatch, range(8)):
            caught.append(index)
    assert refuted and caught == refuted


def test_streams_that_do_not_wait_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the tests above: a lane that forgets its waits."""

    def forget(self: StreamLane, mark: Mark) -> None:
        pass

    monkeypatch.setattr(StreamLane, "follow", forget)
    assert not runs_right(chain(), monkeypatch, range(4))


def test_the_host_waits_where_the_program_says_so_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = replace(chain(), repeat=1)
    waits = [c for c in program.program or () if c.do in ("sync_event", "sync_queue")]
    asked: list[str] = []
    event, stream = LateEvent.synchronize, LateStream.synchronize
    with late(monkeypatch, seed=0), monkeypatch.context() as patch:
        hardware = gpu()
        host: Any = hardware.gpus["gpu0"]
        own = host._host.handle

        def of_event(self: LateEvent) -> None:
            asked.append("event")
            event(self)

        def of_stream(self: LateStream) -> None:
            if self is not own:  # what the host does itself it waits for
                asked.append("stream")
            stream(self)

        patch.setattr(LateEvent, "synchronize", of_event)
        patch.setattr(LateStream, "synchronize", of_stream)
        run(program, proved(program), hardware=hardware)
    # The first wait is for an event that nobody has recorded; both streams end twice: at the end
    # of the run, and when they are closed.
    assert [w.do for w in waits] == ["sync_event"] * 2
    assert asked == ["event", *["stream"] * 4]


# -- what goes wrong ------------------------------------------------------------------------------


def test_an_error_of_a_kernel_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    program = replace(with_queues(moe()), repeat=1)
    certificate, inputs = proved(program), {
        "x": np.ones((64, 1, 1), np.float32), "ids0": np.array([[3], [7]], np.int32),
    }  # fmt: skip
    with Session(program, certificate, hardware=gpu(), symbols={"n_tokens": 1}) as session:
        before = {name: value.copy() for name, value in session.run(inputs).items()}

        def outside(*_: Any) -> None:
            raise IndexError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(pointwise._unary, "fn", outside)
            with pytest.raises(RunError, match=r"command \d+ \(compute s0\), pass 0: IndexError"):
                session.run(inputs)
        again = session.run(inputs)
    assert all((again[name] == before[name]).all() for name in before)


def test_what_a_gpu_tells_late_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An illegal address comes with a later call: here with the wait for an event, or the last."""
    program, hardware = chain(), gpu()
    host: Any = hardware.gpus["gpu0"]
    plain, own = api.stream.synchronize, host._host.handle

    def fail(self: object) -> None:
        if self is not own:
            raise RuntimeError("an illegal memory access")
        plain(own)

    for module, due in (
        (api.Event, r"command 24 \(wait for .*\), pass 0: RuntimeError: an illegal"),
        (api.stream, r"command 25 \(get output y4\), pass 1: RuntimeError: an illegal"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, "synchronize", fail)
            with pytest.raises(RunError, match=due):
                run(program, proved(program), hardware=hardware)
    assert agrees(program, run(program, proved(program), hardware=hardware))


def looked_up() -> Schedule:
    return document.from_dict({
        "format": "splitproof/1", "symbols": {"n_tokens": [1, 2]},
        "memories": {"host": {"host": True}, "vram0": {}},
        "devices": [
            {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True,
             "copy": "stream"},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "buffers": {"weights": {"memory": "vram0", "usage": "weights", "bytes": 64}},
        "tensors": {
            "table": {"dtype": "f32", "shape": [4, 4], "buffer": "weights", "offset": 0},
            "ids": {"dtype": "i32", "shape": ["n_tokens"], "input": True},
            "y": {"dtype": "f32", "shape": [4, "n_tokens"], "output": True, "pin": "gpu0"},
        },
        "nodes": [{"op": "get_rows", "dst": "y", "src": ["table", "ids"]}],
    })  # fmt: skip


def test_an_id_out_of_range_names_the_command() -> None:
    program = lower(plan(looked_up()))
    assert agrees(program, on_gpu(program))
    with pytest.raises(RunError, match=r"command \d+ \(compute y\), pass \d: OutOfRange"):
        on_gpu(program, integers=(("ids", 0, (4,)), ("ids", 1, (4,))))
    once = replace(program, repeat=1)
    good, bad = ({"ids": np.array([number], np.int32)} for number in (3, -1))
    with Session(once, proved(once), hardware=gpu(), symbols={"n_tokens": 1}) as session:
        first = session.run(good)["y"].copy()
        for _ in range(2):
            with pytest.raises(RunError, match="OutOfRange"):
                session.run(bad)
            assert (session.run(good)["y"] == first).all()


def test_too_little_memory_is_told_before_anything_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(
        "numba.cuda.simulator.cudadrv.devices.FakeCUDAContext.get_memory_info",
        lambda self: type("Info", (), {"free": 100_000, "total": 200_000}),
    )
    hardware = gpu()
    monkeypatch.setattr(CudaGpu, "allocate", lambda self, count, value: taken.append(count))
    program = with_queues(moe())
    due = r"AL003: gpu0 needs \d{3},\d{3} bytes, 100,000 are free; .* banks \(262,144 bytes\)"
    with pytest.raises(MemoryShortError, match=due):
        run(program, proved(program), hardware=hardware)
    assert taken == []


def test_an_op_without_a_kernel_is_told_before_the_run() -> None:
    program = with_queues(moe(kind="q5_0"))
    with pytest.raises(NoKernelError, match="mul_mat_id u0: no CUDA kernel for f32 q5_0"):
        on_gpu(program)


def test_memories_that_are_not_the_gpus() -> None:
    program = with_queues(moe())
    with pytest.raises(HardwareError, match="cpu has the memory host, which is the host's"):
        run(program, proved(program), hardware=Hardware({"cpu": CudaGpu(0, "cpu")}))
    gpu0, cpu = program.graph.devices
    devices = (replace(gpu0, reads=("vram0", "host")), cpu)
    bound = tuple(
        replace(c, bind=(("x", "x"),)) if c.do == "compute" and "u0" in str(c) else c
        for c in program.program or ()
    )
    there = replace(program, graph=replace(program.graph, devices=devices), program=bound)
    with pytest.raises(HardwareError, match="runs on gpu0, and x lies in host"):
        on_gpu(there)


def test_a_gpu_does_not_run_what_was_not_proved() -> None:
    program, other = chain(), chain(3)
    with pytest.raises(CertificateError):
        run(program, proved(other), hardware=gpu())


def test_a_launch_that_keeps_no_promise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    x, shape, steps = cuda.to_device(np.ones(8, np.float32)), (4, 2, 1, 1), (1, 4, 8, 8)
    one = np.float32(1)
    with held(monkeypatch) as launches:
        moves._fill[2, THREADS, 0](one, x, steps, shape)
        assert launches.faults == [] and launches.names == {"fill"}
        moves._fill[1, THREADS, 0](one, x, steps, shape)
        moves._fill[2, THREADS, 0](one, x[:7], (*steps[:3], 0), (3, 2, 1, 1))
        with pytest.raises(IndexError):
            moves._fill[2, THREADS, 0](one, x[:7], steps, shape)
    grid, last = launches.faults
    assert "a grid of (1, 1, 1), (2, 1, 1) was due" in grid
    assert "element 7 of y, which has 7" in last
    assert launches.count == 4
