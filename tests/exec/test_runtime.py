"""The runtime: proofs are required, numbers agree with the reference, work is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import documents
import numpy as np
import pytest
from documents import (
    EXPERT_BYTES,
    EXPERTS,
    SLOTS,
    USED,
    moe,
    proved,
    remembered,
    selective,
    with_callback,
)
from splitproof.exec import bank
from splitproof.exec.arena import Arena, ArenaError
from splitproof.exec.compare import compare, difference, tolerances
from splitproof.exec.quant import Array
from splitproof.exec.reference import run_reference
from splitproof.exec.runtime import RunError, RunResult, run
from splitproof.model import document
from splitproof.model.cache import SlotState, SlotStep, lru_slots
from splitproof.model.certificate import CertificateError, certify
from splitproof.model.command import FillBank
from splitproof.model.plan.lower import lower
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.verify.check import check

CASES = Path(__file__).parents[3] / "shared" / "cases"

Integers = tuple[tuple[str, int, tuple[int, ...]], ...]


def checked(schedule: Schedule, integers: Integers = (), **symbols: int) -> RunResult:
    """Run, and hold the numbers against the reference."""
    result = run(schedule, proved(schedule), symbols=symbols, integers=integers)
    comparison = compare(result, run_reference(schedule, result.symbols, integers=integers))
    assert comparison.differences
    assert not comparison.undecided
    assert comparison.agrees, comparison.worst
    return result


# -- proofs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.PROVED])
def test_what_was_not_proved_is_not_run(verdict: Verdict) -> None:
    schedule = with_callback()
    with pytest.raises(CertificateError, match=f"is {verdict}, not proved"):
        run(schedule, replace(proved(schedule), verdict=verdict))


def test_a_changed_document_is_not_run() -> None:
    schedule = with_callback()
    certificate = proved(schedule)
    run(replace(schedule, name="another title"), certificate)
    for changed in (
        replace(schedule, repeat=3),
        replace(schedule, program=(schedule.program or ())[1:]),
        replace(schedule, graph=replace(schedule.graph, symbols=(("n_tokens", 1, 3),))),
    ):
        with pytest.raises(CertificateError, match="check it again"):
            run(changed, certificate)


@pytest.mark.parametrize(
    ("symbols", "say"),
    [
        ({"n_tokens": 3}, "n_tokens is 3; the proof covers 1 to 2"),
        ({"n_token": 1}, "no symbol n_token; known: n_tokens"),
    ],
)
def test_symbols_outside_of_the_proof(symbols: dict[str, int], say: str) -> None:
    schedule = with_callback()
    with pytest.raises(ValueError, match=say):
        run(schedule, proved(schedule), symbols=symbols)


@pytest.mark.parametrize(
    "schedule",
    [
        moe(layers=2, repeat=2), moe(layers=2, by_map=True, repeat=2), moe(kind="f32", repeat=2),
        selective(), selective(used_from=False), with_callback(), remembered(repeat=2),
    ],
)  # fmt: skip
def test_the_documents_here_are_proved_and_run(schedule: Schedule) -> None:
    program = lower(schedule)
    certificate = certify(check(program))
    assert certificate.verdict is Verdict.PROVED
    result = run(program, certificate)
    assert compare(result, run_reference(program, result.symbols)).agrees


# -- numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pf001-repaired", "bk001-repaired"])
@pytest.mark.parametrize("n_tokens", [1, 2])
def test_the_repaired_examples_agree_with_the_reference(name: str, n_tokens: int) -> None:
    path = CASES / f"{name}.json"
    if not path.exists():
        pytest.skip("the example documents are not beside this checkout (../shared/cases)")
    result = checked(document.load(path), n_tokens=n_tokens)
    assert result.fallbacks == 0
    assert len(result.outputs) == 2


def test_the_upper_bounds_are_the_default() -> None:
    assert checked(with_callback()).symbols == {"n_tokens": 2}


def test_a_broken_run_is_told_from_a_right_one() -> None:
    """The tolerance of 8-bit activations does not hide the activations of another pass."""
    schedule = moe(repeat=2)
    result = run(schedule, proved(schedule))
    reference = run_reference(schedule, result.symbols)
    assert compare(result, reference).agrees
    swapped = replace(result, outputs=result.outputs[::-1])
    assert not compare(swapped, reference).agrees


def test_memories_are_apart() -> None:
    arena = Arena(selective(), {"n_tokens": 1})
    before = arena.operand("up").packed().copy()
    arena.operand("gpu0#up").data[:] = 0
    assert (arena.operand("up").packed() == before).all()
    assert arena.memory_of("up") == "host"
    assert arena.memory_of("gpu0#up") == "vram0"
    assert not np.shares_memory(arena.operand("up").data, arena.operand("gpu0#up").data)


def test_a_tensor_outside_of_its_buffer() -> None:
    schedule = with_callback()
    tensors = tuple(
        replace(t, offset=Expr.of(4096 - 127)) if t.name == "w" else t
        for t in schedule.graph.tensors
    )
    wrong = replace(schedule, graph=replace(schedule.graph, tensors=tensors))
    with pytest.raises(ArenaError, match="w takes bytes 3969 to 4097 of w, which has 4096"):
        Arena(wrong, {"n_tokens": 1})


def test_given_inputs_are_copied_when_they_are_set() -> None:
    schedule = with_callback(repeat=1)
    x = np.ones((8, 1), np.float32)

    def spoil(pass_: int, reads: Mapping[str, Array]) -> dict[str, Array]:
        x[:] = np.nan
        return {"w": np.full((8, 4), 2, np.float32)}

    result = run(
        schedule, proved(schedule), symbols={"n_tokens": 1},
        inputs={("x", 0): x}, callbacks={"adapt": spoil},
    )  # fmt: skip
    assert (result.outputs[0]["y"] == 16).all()


def test_a_callback_reads_and_writes_what_it_declares() -> None:
    schedule = with_callback()

    def twice(pass_: int, reads: Mapping[str, Array]) -> dict[str, Array]:
        return {name: array * 2 for name, array in reads.items()}

    callbacks = {"adapt": twice}
    result = run(schedule, proved(schedule), callbacks=callbacks)
    reference = run_reference(schedule, result.symbols, callbacks=callbacks)
    assert compare(result, reference).agrees
    plain = run_reference(schedule, result.symbols)
    assert not compare(result, plain).agrees


def test_a_cache_lasts_over_passes_and_a_node_may_write_two_tensors() -> None:
    result = checked(remembered(), n_tokens=2)
    reference = run_reference(remembered(), result.symbols)
    for pass_, outputs in enumerate(result.outputs):
        for name in ("a", "b"):  # to the bit, though both hang on all passes before
            assert (outputs[name] == reference.output(name, pass_)).all()
    assert result.fallbacks == 0


def test_a_copy_moves_bytes_in_logical_order() -> None:
    arena = Arena(remembered(), {"n_tokens": 2})
    x = np.arange(64, dtype=np.uint8)
    arena.write("x", x)
    assert len(arena.operand("x").data) == 48 + 32
    assert arena.copy("x", "gpu0#x") == 64
    assert (arena.operand("gpu0#x").data == x).all()
    arena.write("x", np.zeros(64, np.uint8))
    arena.copy("gpu0#x", "x")
    assert (arena.operand("x").packed() == x).all()
    with pytest.raises(ArenaError, match="y has 48 bytes, not 64"):
        arena.copy("x", "y")


# -- errors ---------------------------------------------------------------------------------


def test_a_failing_callback_is_named() -> None:
    schedule = with_callback()

    def fail(pass_: int, reads: Mapping[str, Array]) -> dict[str, Array]:
        if pass_ == 1:
            raise KeyError("nothing there")
        return {}

    with pytest.raises(RunError, match=r"command 1 \(callback adapt\), pass 1: KeyError") as info:
        run(schedule, proved(schedule), callbacks={"adapt": fail})
    assert isinstance(info.value.__cause__, KeyError)
    assert (info.value.index, info.value.pass_) == (1, 1)


def test_a_callback_that_writes_what_it_does_not_declare() -> None:
    schedule = with_callback()
    with pytest.raises(RunError, match="adapt wrote y; it declares w"):
        run(schedule, proved(schedule), callbacks={"adapt": lambda p, r: {"y": r["w"]}})


def test_a_failing_kernel_is_named() -> None:
    schedule = selective()
    wrong = (("ids", 0, (0, EXPERTS)),)
    with pytest.raises(
        RunError, match=r"command 4 \(copy experts up → gpu0#up\), pass 0: IndexErr"
    ):
        run(schedule, proved(schedule), symbols={"n_tokens": 1}, integers=wrong)


# -- banks ----------------------------------------------------------------------------------


def predicted(passes: list[list[list[int]]], layers: int) -> dict[int, tuple[int, int, int]]:
    """Hits, misses, evictions per layer of a least-recently-used cache, by time stamps alone."""
    used_at: dict[tuple[int, int], int] = {}
    counts = dict.fromkeys(range(layers), (0, 0, 0))
    clock = 0
    for per_layer in passes:
        for layer, ids in enumerate(per_layer):
            wanted = [(layer, e) for e in dict.fromkeys(ids)]
            hits = [e for e in wanted if e in used_at]
            hit, miss, evicted = counts[layer]
            for expert in hits:
                clock += 1
                used_at[expert] = clock
            for expert in sorted(e for e in wanted if e not in hits):
                if len(used_at) == SLOTS:
                    del used_at[min(used_at, key=lambda e: used_at[e])]
                    evicted += 1
                clock += 1
                used_at[expert] = clock
            counts[layer] = hit + len(hits), miss + len(wanted) - len(hits), evicted
    return counts


def routes(layers: int, repeat: int, tokens: int, seed: int) -> list[list[list[int]]]:
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(0, 7, USED * tokens).tolist() for _ in range(layers)] for _ in range(repeat)
    ]


def as_integers(passes: list[list[list[int]]]) -> Integers:
    return tuple(
        (f"ids{layer}", number, tuple(ids))
        for number, per_layer in enumerate(passes)
        for layer, ids in enumerate(per_layer)
    )


@pytest.mark.parametrize("by_map", [False, True], ids=["slot_ids", "slot_map"])
@pytest.mark.parametrize(("layers", "tokens", "seed"), [(1, 1, 0), (1, 2, 1), (2, 1, 2), (2, 2, 3)])
def test_a_bank_hits_and_misses_as_predicted(
    layers: int, tokens: int, seed: int, by_map: bool
) -> None:
    passes = routes(layers, 8, tokens, seed)
    schedule = moe(layers=layers, repeat=8, by_map=by_map)
    result = checked(schedule, as_integers(passes), n_tokens=tokens)
    want = predicted(passes, layers)
    assert sum(hits for hits, _, _ in want.values()), "a route without a hit tests no cache"
    for name, count in result.banks.items():
        role, layer = name[:-6], int(name[-6])
        assert (count.hits, count.misses, count.evictions) == want[layer]
        assert count.uploaded == count.misses * EXPERT_BYTES[role]
        assert 0 < count.uploads <= count.misses
        assert count.fills == 8


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_a_bank_of_either_type(kind: str) -> None:
    checked(moe(kind=kind), n_tokens=2)


def test_a_bank_that_does_not_cache_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters tell a cache from a copy of everything in each pass: both give right numbers."""

    def forget(state: SlotState, layer: int, ids: list[int]) -> SlotStep:
        return lru_slots(replace(state, owners=(None,) * len(state.owners)), layer, ids)

    passes = routes(1, 8, 1, 0)
    monkeypatch.setitem(bank._POLICIES, "lru-slots", forget)
    result = checked(moe(repeat=8), as_integers(passes), n_tokens=1)
    hits, misses, _ = predicted(passes, 1)[0]
    assert result.banks["up0_bank"].hits == 0 < hits
    assert result.banks["up0_bank"].misses > misses


def test_uploads_go_to_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fill that uploads nothing leaves zeros in the slots, and the numbers say so."""
    monkeypatch.setattr(bank, "merged", lambda uploads: [])
    schedule = moe()
    result = run(schedule, proved(schedule))
    assert not compare(result, run_reference(schedule, result.symbols)).agrees


def test_neighbours_travel_as_one() -> None:
    assert bank.merged([(3, 0), (4, 1), (6, 2), (7, 4), (8, 5)]) == [
        (3, 0, 2),
        (6, 2, 1),
        (7, 4, 2),
    ]
    result = run(moe(repeat=1), proved(moe(repeat=1)), integers=(("ids0", 0, (4, 3, 6, 7)),))
    assert result.banks["gate0_bank"].uploads == 2
    assert result.banks["gate0_bank"].misses == 4


def test_traffic_is_what_was_copied_and_uploaded() -> None:
    result = checked(moe(repeat=3), n_tokens=2)
    (link,) = result.traffic
    uploaded = sum(count.uploaded for count in result.banks.values())
    x, slots = documents.WIDTH * 2 * 4, USED * 2 * 4
    assert (link.source, link.target, link.bytes) == ("host", "vram0", uploaded + 3 * (x + slots))


def test_a_fill_ahead_of_its_turn_is_refuted_and_gives_wrong_numbers() -> None:
    """Both layers filled before either ran: the second takes slots that the first still needs."""
    schedule = lower(moe(layers=2, by_map=True, repeat=8))
    program = list(schedule.program or ())
    first, second = (i for i, c in enumerate(program) if isinstance(c, FillBank))
    program.insert(first + 1, replace(program.pop(second), split=program[first].split))
    early = replace(schedule, program=tuple(program))
    report = check(early)
    assert {finding.rule for finding in report.failures} == {"BK003"}
    with pytest.raises(CertificateError):
        run(early, certify(report))
    integers = as_integers(routes(2, 8, 2, 3))
    result = run(early, proved(early), integers=integers)
    reference = run_reference(early, result.symbols, integers=integers)
    assert not compare(result, reference).agrees


# -- selective copies -----------------------------------------------------------------------


@pytest.mark.parametrize("used_from", [False, True])
@pytest.mark.parametrize("padding", [0, 64])
def test_copied_experts(padding: int, used_from: bool) -> None:
    ids = (("ids", 0, (3, 4, 3, 11)), ("ids", 1, (0, 0, 0, 0)))
    result = checked(selective(padding=padding, used_from=used_from), ids, n_tokens=2)
    size = EXPERT_BYTES["up"]
    for name in ("gpu0#up", "gpu0#gate"):
        count = result.expert_copies[name]
        # 3 and 4 as one; nothing is left of the source behind number 11.
        assert (count.experts, count.transfers) == (4, 3)
        assert count.bytes == 4 * size + 2 * padding


def test_without_ids_no_expert_travels() -> None:
    nobody = tuple(("ids", number, (-1, -1)) for number in range(2))
    result = checked(selective(), nobody, n_tokens=1)
    assert result.expert_copies["gpu0#up"].bytes == 0
    assert not any(array.any() for outputs in result.outputs for array in outputs.values())


# -- what is reported -----------------------------------------------------------------------


def test_kernels_and_fallbacks_are_counted() -> None:
    result = checked(moe(by_map=True, repeat=3), n_tokens=1)
    counts = {(use.op, use.dtype, use.compiled): use.count for use in result.kernels}
    assert counts == {
        ("mul_mat_id", "q8_0", True): 9, ("silu", "f32", True): 3, ("mul", "f32", True): 3,
        ("get_rows", "i32", True): 3,
    }  # fmt: skip
    assert result.fallbacks == 0
    without = checked(moe(by_map=True, repeat=3, kind="q5_0"), n_tokens=1)
    counts = {(use.op, use.dtype, use.compiled): use.count for use in without.kernels}
    assert counts["mul_mat_id", "q5_0", False] == without.fallbacks == 9
    assert {"allocate", "input", "fill", "copy", "compute", "output"} <= result.seconds.keys()


def test_tolerances_follow_the_rounded_products() -> None:
    given = tolerances(moe())
    assert given["u0"] == pytest.approx(0.0301)
    assert given["y0"] == pytest.approx(0.03 * 2**0.5 + 1e-4)
    assert tolerances(moe(kind="f32"))["y0"] == pytest.approx(1e-4)


def test_differences() -> None:
    due = np.array([1.0, np.nan, np.inf, 4.0])
    assert difference("y", 0, due.copy(), due, 0.0).agrees
    assert difference("y", 0, np.array([1.0, np.nan, np.inf, 5.0]), due, 0.3).relative == 0.25
    for got in (
        [1.0, 0.0, np.inf, 4.0],
        [1.0, np.nan, -np.inf, 4.0],
        [np.nan, np.nan, np.inf, 4.0],
    ):
        assert not difference("y", 0, np.array(got), due, 0.5).agrees
