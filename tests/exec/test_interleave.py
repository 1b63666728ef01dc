"""The machine against the order relation of the semantics, written as a plain closure."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from exec_documents import CPU, GPU, Document, prefetch_under_callback, tensor
from exec_documents import document as make
from splitproof.exec.interleave import (
    Bias,
    IllegalOrder,
    checked_moves,
    issue_order,
    legal,
    random_moves,
    random_order,
)
from splitproof.exec.replay import run_interleaving
from splitproof.exec.script import ContractError, Place, Script, unroll
from splitproof.model import document
from splitproof.model.counterexample import Step
from splitproof.model.schedule import Schedule

SIZES = {"n_tokens": 2}


def steps(*items: tuple[int, str, str]) -> tuple[Step, ...]:
    return tuple(Step(c, 0, part, phase) for c, part, phase in items)  # type: ignore[arg-type]


def moving(contract: Any, program: list[Document], **more: Any) -> Schedule:
    """Copies of ``a0``… from the host to ``b0``… on two queues under one contract."""
    tensors = {f"a{i}": tensor([8], "w_host", 64 * i) for i in range(8)}
    tensors |= {f"b{i}": tensor([8], "c_gpu", 64 * i) for i in range(8)}
    parts = make(devices=[{**GPU, "copy": contract}, CPU], tensors=tensors, program=program,
                 splits=[{"device": "gpu0", "nodes": [0, 0], "inputs": []}], repeat=1)  # fmt: skip
    return document.from_dict({**parts, **more})


def copy(i: int, queue: str = "gpu0.compute") -> Document:
    return {"do": "copy", "src": f"a{i}", "dst": f"b{i}", "queue": queue, "split": 0}


def user(name: str) -> Document:
    return {"do": "callback", "name": name, "reads": [], "writes": [], "split": 0}


RECORD = {"do": "record", "event": "e", "queue": "gpu0.compute"}
WAIT = {"do": "wait", "event": "e", "queue": "gpu0.copy"}
SYNC = {"do": "sync_queue", "queue": "gpu0.compute"}


def test_a_stream_keeps_its_order_and_runs_beside_the_host() -> None:
    schedule = moving("stream", [copy(0), copy(1), user("u")])
    overlapping = steps(
        (2, "main", "start"), (0, "main", "start"), (2, "main", "end"), (0, "main", "end"),
        (1, "main", "start"), (1, "main", "end"),
    )  # fmt: skip
    assert legal(schedule, {}, overlapping)
    swapped = steps(*((i, "main", phase) for i in (1, 0, 2) for phase in ("start", "end")))
    with pytest.raises(IllegalOrder, match=r"step 0 \(command 1 start, pass 0\) starts too early: "
                                           r"gpu0.compute is at command 0 of pass 0"):  # fmt: skip
        checked_moves(unroll(schedule, {}), swapped)


def test_an_order_must_be_complete_and_of_this_program() -> None:
    schedule = moving("stream", [copy(0), copy(1)])
    script = unroll(schedule, {})
    whole = issue_order(schedule, {})
    assert legal(schedule, {}, whole)
    with pytest.raises(IllegalOrder, match="not complete: command 1 of pass 0 has not ended"):
        checked_moves(script, whole[:-1])
    with pytest.raises(IllegalOrder, match="there is no such part"):
        checked_moves(script, (*whole, Step(7, 0, "main", "start")))
    with pytest.raises(IllegalOrder, match="starts a second time"):
        checked_moves(script, (*whole, Step(1, 0, "main", "start")))
    with pytest.raises(IllegalOrder, match="ends but is not running"):
        checked_moves(script, whole[1:])
    with pytest.raises(IllegalOrder):
        run_interleaving(schedule, whole[1:], {})


def test_a_host_command_waits_for_the_one_before() -> None:
    schedule = moving("stream", [user("u"), user("v")])
    early = steps((0, "main", "start"), (1, "main", "start"))
    with pytest.raises(IllegalOrder, match="before the host has come to it"):
        checked_moves(unroll(schedule, {}), early)


def test_sync_copies_pass_by_what_is_queued() -> None:
    mixed = [
        {"from": "host", "to": "vram0", "is": "sync"},
        {"from": "vram0", "to": "vram0", "is": "stream"},
    ]
    onward = {**copy(0), "src": "b1", "dst": "b2"}
    schedule = moving(mixed, [onward, copy(0), user("u")])
    passing = steps(*((i, "main", p) for i in (1, 2, 0) for p in ("start", "end")))
    assert legal(schedule, {}, passing)
    late = steps(*((i, "main", p) for i in (0, 2, 1) for p in ("start", "end")))
    assert not legal(schedule, {}, late)


def test_a_staged_copy_is_read_by_the_host_and_written_by_the_queue() -> None:
    schedule = moving("staged", [copy(0), copy(1), user("u")])
    parts = [(part.command, part.name, part.place) for part in unroll(schedule, {}).parts]
    assert parts[:2] == [(0, "read", Place.HOST), (0, "write", Place.QUEUE)]
    order = [(0, "read"), (1, "read"), (2, "main"), (0, "write"), (1, "write")]
    flat = [(c, part, phase) for c, part in order for phase in ("start", "end")]
    assert legal(schedule, {}, steps(*flat))
    assert not legal(schedule, {}, steps(*flat[4:6], *flat[:4], *flat[6:]))


def test_an_unordered_copy_is_awaited_by_records_and_syncs_only() -> None:
    free = [(1, "main"), (0, "main")]
    flat = [(c, part, phase) for c, part in free for phase in ("start", "end")]
    assert legal(moving("unordered", [copy(0), copy(1)]), {}, steps(*flat))
    assert not legal(moving("unordered", [copy(0), SYNC, user("u")]), {}, steps(
        *((i, "main", p) for i in (2, 0) for p in ("start", "end"))))  # fmt: skip
    through_event = moving("unordered", [copy(0), RECORD, WAIT, copy(3, "gpu0.copy")])
    backwards = steps(*((i, "main", p) for i in (3, 0) for p in ("start", "end")))
    with pytest.raises(IllegalOrder, match=r"a wait of gpu0\.copy before it has not passed"):
        checked_moves(unroll(through_event, {}), backwards)


def test_a_wait_means_the_latest_record_before_it() -> None:
    late = moving("stream", [copy(0), WAIT, copy(2, "gpu0.copy"), RECORD], repeat=2)
    order = (
        Step(2, 0, "main", "start"), Step(2, 0, "main", "end"),
        Step(0, 0, "main", "start"), Step(0, 0, "main", "end"),
        Step(2, 1, "main", "start"), Step(2, 1, "main", "end"),
        Step(0, 1, "main", "start"), Step(0, 1, "main", "end"),
    )  # fmt: skip
    assert legal(late, {}, order)
    too_early = (*order[:2], *order[4:6], *order[2:4], *order[6:])
    assert not legal(late, {}, too_early)


def test_an_event_that_a_queue_cannot_wait_for_orders_nothing() -> None:
    other = {**GPU, "name": "gpu1", "memory": "vram0"}
    program = [copy(0), RECORD, {**WAIT, "queue": "gpu1.copy"}, copy(3, "gpu1.copy")]
    backwards = steps(*((i, "main", p) for i in (3, 0) for p in ("start", "end")))
    for waits_for, allowed in ((None, True), (["gpu0"], False)):
        able = {} if waits_for is None else {"waits_for": waits_for}
        schedule = moving("stream", program, devices=[GPU, {**other, **able}, CPU])
        assert legal(schedule, {}, backwards) is allowed


def test_steps_of_records_and_waits_may_stand_in_an_order() -> None:
    schedule = document.from_dict(prefetch_under_callback(repaired=False))
    order = issue_order(schedule, SIZES)
    extended = (*order[:4], Step(2, 0, "main", "start"), Step(2, 0, "main", "end"), *order[4:])
    assert legal(schedule, SIZES, extended)


def test_a_copy_without_a_contract_is_an_error() -> None:
    schedule = moving("stream", [copy(0)])
    device = replace(schedule.graph.device("gpu0"), copy=())
    graph = replace(schedule.graph, devices=(device, schedule.graph.device("cpu")))
    with pytest.raises(ContractError, match="no contract for copies from host to vram0"):
        unroll(replace(schedule, graph=graph), {})


def test_a_bias_moves_what_it_favours() -> None:
    schedule = moving("stream", [copy(0), user("u")])
    rng = random.Random(0)
    lazy = [random_order(schedule, {}, rng, bias=Bias(queue=1e-6))[0].command for _ in range(20)]
    eager = [random_order(schedule, {}, rng, bias=Bias(queue=1e6))[0].command for _ in range(20)]
    assert set(lazy) == {1} and set(eager) == {0}


# -- against the order relation -----------------------------------------------------------------


def random_program(rng: random.Random) -> list[Document]:
    """A few copies, callbacks, records, waits and syncs."""
    queues = ("gpu0.compute", "gpu0.copy")
    program: list[Document] = []
    for i in range(rng.randint(4, 6)):
        kind = rng.choice(("copy", "copy", "copy", "user", "record", "wait", "sync", "event"))
        queue, event = rng.choice(queues), rng.choice("ef")
        program.append(
            {
                "copy": copy(i, queue),
                "user": user(f"u{i}"),
                "record": {"do": "record", "event": event, "queue": queue},
                "wait": {"do": "wait", "event": event, "queue": queue},
                "sync": {"do": "sync_queue", "queue": queue},
                "event": {"do": "sync_event", "event": event},
            }[kind]
        )
    for event in "ef":  # an event that nobody records would be no document
        program.append({"do": "record", "event": event, "queue": queues[0]})
    return program


def closure(script: Script, contract: str) -> set[tuple[int, int]]:
    """Pairs of parts ``(a, b)`` with a → b: the rules of the semantics, then transitivity."""
    program = script.schedule.program or ()
    number = {(p.command, p.iteration, p.name): i for i, p in enumerate(script.parts)}
    moments: list[tuple[str, Any, str]] = []  # (sort, part number or event, queue), as issued
    for pass_ in range(script.schedule.repeat):
        for index, command in enumerate(program):
            if command.do in ("record", "wait", "sync_event", "sync_queue"):
                what = getattr(command, "event", None)
                moments.append((command.do, what, getattr(command, "queue", "host")))
                continue
            for name in ("read", "main", "write"):
                if (index, pass_, name) not in number:
                    continue
                host = command.do == "callback" or name == "read" or contract == "sync"
                sort = "host" if host else "flight" if contract == "unordered" else "queued"
                part = number[index, pass_, name]
                moments.append((sort, part, getattr(command, "queue", "host")))
    before = {
        (a, b)
        for b in range(len(moments))
        for a in range(b)
        if _ordered(moments, a, b)
    }  # fmt: skip
    for middle in range(len(moments)):
        into = [a for a, b in before if b == middle]
        out = [b for a, b in before if a == middle]
        before |= set(itertools.product(into, out))
    parts = {i: part for i, (sort, part, _) in enumerate(moments) if not isinstance(part, str)
             and sort in ("host", "flight", "queued")}  # fmt: skip
    return {(parts[a], parts[b]) for a, b in before if a in parts and b in parts}


def _ordered(moments: list[tuple[str, Any, str]], a: int, b: int) -> bool:
    """Whether a rule orders moment a before moment b, which was issued later."""
    (sort_a, what_a, queue_a), (sort_b, what_b, queue_b) = moments[a], moments[b]
    in_order = ("queued", "record", "wait")
    if sort_a in ("host", "sync_queue", "sync_event"):
        return True
    if sort_a in in_order and sort_b in in_order and queue_a == queue_b:
        return True
    if sort_b == "flight" and sort_a == "wait" and queue_a == queue_b:
        return True
    if sort_a == "flight" and sort_b == "record" and queue_a == queue_b:
        return True
    if sort_b == "sync_queue" and queue_a == queue_b:
        return True
    if sort_a == "record" and sort_b in ("wait", "sync_event") and what_a == what_b:
        later = [m for m in moments[a + 1 : b] if m[0] == "record" and m[1] == what_a]
        return not later
    return False


@pytest.mark.parametrize("contract", ["stream", "sync", "staged", "unordered"])
def test_the_machine_allows_exactly_what_the_order_relation_allows(contract: str) -> None:
    rng = random.Random(contract)
    unordered_pairs = 0
    for _ in range(12):
        schedule = moving(contract, random_program(rng), repeat=2)
        script = unroll(schedule, {})
        due = closure(script, contract)
        count = len(script.parts)
        always = set(itertools.permutations(range(count), 2))
        for _ in range(600):
            ended: set[int] = set()
            for part, starts in random_moves(script, rng):
                if starts:
                    # whatever has not ended when this starts is not before it in every order
                    always -= {(other, part) for other in range(count) if other not in ended}
                else:
                    ended.add(part)
            assert len(ended) == count
            assert due <= always
        assert always == due
        unordered_pairs += count * (count - 1) // 2 - len(due)
    assert unordered_pairs == 0 if contract == "sync" else unordered_pairs > 50
