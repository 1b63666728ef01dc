"""What ggml's scheduler issues, and where that is wrong: small schedules and recorded ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from splitproof.exec.interleave import legal
from splitproof.exec.replay import replay
from splitproof.model.command import Copy, GetOutput, Record, SyncEvent, SyncQueue, Wait
from splitproof.model.device import HOST, Contract, CopyRule, Device, Memory
from splitproof.model.document import dumps, loads
from splitproof.model.graph import Graph, Node
from splitproof.model.ops import OPS as OP_TABLE
from splitproof.model.plan.allocate import allocate
from splitproof.model.plan.ggml_protocol import lower_ggml
from splitproof.model.plan.lower import LowerError
from splitproof.model.plan.overlap import lower_overlapped
from splitproof.model.plan.planner import plan, unplanned
from splitproof.model.read.ggml_dump import read_dump
from splitproof.model.report import Report, Verdict
from splitproof.model.schedule import Schedule, Split
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor
from splitproof.verify.check import Options, check

GRAPHS = Path(__file__).parents[4] / "shared" / "data" / "ggml-graphs"
needs_data = pytest.mark.skipif(
    not GRAPHS.is_dir(), reason="../shared/data is absent: no recorded graphs"
)


def gpu(number: int, others: int) -> Device:
    return Device(
        f"gpu{number}", f"vram{number}", (f"vram{number}",), asynchronous=True,
        copy=(CopyRule(None, None, Contract.STREAM),), queues=("compute", "copy"),
        waits_for=tuple(f"gpu{k}" for k in range(others) if k != number) or None,
    )  # fmt: skip


OPS = "silu", "sigmoid", "relu", "gelu", "silu"


def chain(*splits: tuple[str, str, str, tuple[str, ...]], n_copies: int = 1) -> Schedule:
    """One op a split, each another: ``(device, result, source, inputs)``.

    ``x`` is the user's, and what nothing reads is an output.
    """
    gpus = sorted({device for device, *_ in splits if device != "cpu"})
    read = {source for _, _, source, _ in splits}
    shape = (Expr.of(64),)
    tensors = [Tensor("x", "f32", shape, input=True)]
    tensors += [Tensor(name, "f32", shape, output=name not in read) for _, name, _, _ in splits]
    graph = Graph(
        memories=(Memory("host", True), *(Memory(f"vram{k}") for k in range(len(gpus)))),
        devices=(
            *(gpu(k, len(gpus)) for k in range(len(gpus))), Device("cpu", "host", ("host",))
        ),
        tensors=tuple(tensors),
        nodes=tuple(Node(op, n, (s,)) for op, (_, n, s, _) in zip(OPS, splits, strict=False)),
        n_copies=n_copies,
    )  # fmt: skip
    return Schedule(
        graph, "a chain",
        assignment=tuple((name, device) for device, name, _, _ in splits),
        splits=tuple(Split(d, k, k + 1, inputs) for k, (d, _, _, inputs) in enumerate(splits)),
        repeat=2,
    )  # fmt: skip


#: A CPU split without inputs, while the copy of what the CPU computed before may still be read.
#: (`e`, an output, is computed from `d`, so that `d` is no output and may lie over `b`.)
BARE = chain(
    ("cpu", "b", "x", ()), ("gpu0", "c", "b", ("b",)), ("cpu", "d", "x", ()), ("cpu", "e", "d", ())
)
#: The CPU waits for gpu0, and gpu1 still reads the host bytes of `b`.
TWO = chain(
    ("gpu0", "a", "x", ("x",)), ("cpu", "b", "x", ()), ("gpu1", "c", "b", ("b",)),
    ("cpu", "d", "a", ("a",)), ("cpu", "e", "d", ()),
)  # fmt: skip
#: From device to device with copies in rotation.
PIPELINE = chain(("gpu0", "a", "x", ("x",)), ("gpu1", "b", "a", ("a",)), n_copies=2)


def reproduced(schedule: Schedule, report: Report) -> bool:
    return all(
        f.counterexample is not None and replay(schedule, f.counterexample).reproduced
        for f in report.failures
    )


@pytest.mark.parametrize(
    ("schedule", "wait", "rule"),
    [(BARE, False, "AL001"), (TWO, True, "AL001"), (PIPELINE, True, "PP001")],
    ids=["a split without inputs", "two asynchronous devices", "a copy on the source's queue"],
)
def test_the_known_faults(schedule: Schedule, wait: bool, rule: str) -> None:
    program = allocate(lower_ggml(schedule, bare_splits_wait=wait), list_order=True)
    report = check(loads(dumps(program)))
    assert report.verdict is Verdict.VIOLATED
    assert {f.rule for f in report.failures} == {rule}
    assert reproduced(program, report)


@pytest.mark.parametrize("schedule", [BARE, TWO, PIPELINE], ids=["bare", "two", "pipeline"])
def test_the_full_lowering_has_none_of_them(schedule: Schedule) -> None:
    program = allocate(lower_overlapped(schedule))
    assert check(loads(dumps(program))).verdict is Verdict.PROVED


def test_the_wait_of_bare_splits_mends_the_first() -> None:
    program = allocate(lower_ggml(BARE), list_order=True)
    assert check(program).verdict is Verdict.PROVED
    assert (
        program.placements
        == allocate(lower_ggml(BARE, bare_splits_wait=False), list_order=True).placements
    )


def test_a_place_by_the_programs_order_mends_the_second() -> None:
    by_list, by_order = (allocate(lower_ggml(TWO), list_order=flag) for flag in (True, False))
    assert check(by_order).verdict is Verdict.PROVED
    at = {name: offset for name, buffer, offset in by_list.placements if "cpu" in buffer}
    apart = {name: offset for name, buffer, offset in by_order.placements if "cpu" in buffer}
    assert at["b"] == at["d"] and apart["b"] != apart["d"]


def test_with_one_copy_there_are_no_events_but_those_of_device_copies() -> None:
    program = lower_ggml(replace(PIPELINE, graph=replace(PIPELINE.graph, n_copies=1))).program
    assert program is not None
    records = [c for c in program if isinstance(c, Record)]
    assert [c.queue for c in records] == ["gpu0.compute"]
    (moved,) = (c for c in program if isinstance(c, Copy) and c.src == "a")
    assert moved.queue == "gpu0.compute"
    assert [c.queue for c in program if isinstance(c, Wait)] == ["gpu1.compute"]
    assert not any(isinstance(c, SyncEvent) for c in program)


def test_a_user_input_is_copied_by_the_host_that_waited() -> None:
    program = lower_ggml(PIPELINE).program or ()
    places = [k for k, c in enumerate(program) if isinstance(c, Copy) and c.src == "x"]
    assert len(places) == 2  # one a turn
    for place in places:
        assert program[place].queue == HOST
        before = program[place - 1]
        assert isinstance(before, SyncEvent) and before.when == program[place].when


def test_outputs_are_read_after_all_passes_of_a_pipeline() -> None:
    schedule = lower_ggml(PIPELINE)
    (output,) = (c for c in schedule.program or () if isinstance(c, GetOutput))
    assert schedule.repeat == 3 and str(output.when) == "pass == 2"
    waited = [c.queue for c in schedule.program or () if isinstance(c, SyncQueue)]
    assert waited[-2:] == ["gpu0.compute", "gpu1.compute"]


def test_a_copy_that_cannot_be_queued_is_made_by_the_host() -> None:
    devices = tuple(
        replace(d, copy=(CopyRule(None, None, Contract.SYNC),)) for d in PIPELINE.graph.devices
    )
    schedule = replace(PIPELINE, graph=replace(PIPELINE.graph, devices=devices))
    program = lower_ggml(schedule)
    assert {c.queue for c in program.program or () if isinstance(c, Copy)} == {HOST}
    assert check(program).verdict is Verdict.PROVED


def test_a_graph_is_no_split_level() -> None:
    with pytest.raises(LowerError, match="has no splits"):
        lower_ggml(replace(BARE, splits=None))
    with pytest.raises(LowerError, match="has no splits"):
        lower_overlapped(replace(BARE, splits=None))


# -- recorded -----------------------------------------------------------------------------------


def recorded(name: str, number: int) -> Schedule:
    return read_dump(GRAPHS / f"{name}.jsonl.gz")[number]


@needs_data
def test_a_recorded_split_without_inputs_overwrites_what_is_copied() -> None:
    # The up products run on the CPU in splits without inputs, over the gate products' bytes.
    schedule = recorded("gpt-oss-q4_0.28-fake1-no-MUL_MAT_ID", 1)
    verdicts = {}
    for wait in (True, False):
        program = allocate(
            lower_ggml(schedule, bare_splits_wait=wait), list_order=True, devices=("CPU",)
        )
        report = check(program, Options(seconds=60))
        verdicts[wait] = report.verdict
        if not wait:
            assert {f.rule for f in report.failures} == {"AL001"}
            assert "copy ffn_moe_gate-0" in report.failures[0].message
            assert len(report.failures) == 4  # one a layer
    assert verdicts == {True: Verdict.PROVED, False: Verdict.VIOLATED}


@needs_data
def test_a_recorded_pipeline_overwrites_a_copy_that_is_still_read() -> None:
    schedule = recorded("olmoe-q4_K.27-fake2-pipeline", 1)
    schedule = replace(schedule, graph=replace(schedule.graph, n_copies=2))
    report = check(lower_ggml(schedule), Options(seconds=60))
    assert report.verdict is Verdict.VIOLATED
    assert any("FAKE1#l_out-2#0" in f.message for f in report.failures)
    assert check(lower_overlapped(schedule)).verdict is Verdict.PROVED


def with_a_second_device(schedule: Schedule) -> Schedule:
    """A recorded decode graph, planned for one device more than was there.

    FAKE1 is FAKE0 again with a memory of its own, and computes the weights of the experts.  What
    the recording does not say of the chosen ids is added: they are the first of the sorted ones.
    """
    graph = schedule.graph
    first = graph.devices[0]
    moved = {
        node.dst for node in graph.nodes
        if node.dst.startswith("ffn_moe_weights") and not OP_TABLE[node.op].view
    }  # fmt: skip

    def changed(tensor: Tensor) -> Tensor:
        if tensor.name.startswith("ffn_moe_topk"):
            return replace(tensor, about=False, offset=Expr.of(0))
        return replace(tensor, pin="FAKE1") if tensor.name in moved else tensor

    graph = replace(
        graph,
        memories=(*graph.memories, Memory("FAKE1")),
        devices=(
            first, replace(first, name="FAKE1", memory="FAKE1", reads=("FAKE1",)),
            *graph.devices[1:],
        ),
        tensors=tuple(map(changed, graph.tensors)),
        nodes=tuple(
            replace(n, supported_by=(*n.supported_by, "FAKE1"))
            if n.dst in moved and n.supported_by is not None else n
            for n in graph.nodes
        ),
    )  # fmt: skip
    return plan(replace(unplanned(schedule), graph=graph, repeat=2))


@needs_data
def test_a_recorded_graph_over_two_devices_overwrites_ids_that_one_still_reads() -> None:
    # The CPU sorts the ids, FAKE1 and FAKE0 read them, and the CPU, which waits for FAKE0 alone,
    # writes the next activations over them.
    schedule = with_a_second_device(recorded("olmoe-q4_K.29-fake1-no-ROPE-ARGSORT-GLU", 1))
    wrong = allocate(lower_ggml(schedule), list_order=True, devices=("CPU",))
    report = check(wrong)
    assert {f.rule for f in report.failures} == {"AL001"}
    (finding,) = report.failures
    assert "copy ffn_moe_topk-3 → FAKE1#ffn_moe_topk-3" in finding.message
    assert finding.counterexample is not None
    assert legal(wrong, dict(finding.counterexample.symbols), finding.counterexample.order)
    right = allocate(lower_ggml(schedule), devices=("CPU",))
    assert check(right).verdict is Verdict.PROVED


@needs_data
@pytest.mark.parametrize(
    "name", ["deepseek2-q4_0.21-fake1-ot-exps-cpu-offload", "qwen3moe-q4_0.05-rpc1-ngl2"]
)
def test_recorded_graphs_are_right_under_the_full_lowering(name: str) -> None:
    schedule = recorded(name, 0)
    for contract in (Contract.STREAM, Contract.STAGED, Contract.UNORDERED):
        devices = tuple(
            replace(d, copy=(CopyRule(None, None, contract),)) if d.asynchronous else d
            for d in schedule.graph.devices
        )
        program = lower_overlapped(
            replace(schedule, graph=replace(schedule.graph, devices=devices))
        )
        assert check(program).verdict is Verdict.PROVED, contract
