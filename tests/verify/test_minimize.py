"""Fewest waits and weakest contracts, held against every subset and against execution."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import replace
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import pytest
from random_schedules import random_document
from splitproof.exec.replay import replay
from splitproof.model.device import Contract
from splitproof.model.document import digest, from_dict, load
from splitproof.model.minimal import WEAKER, Need, weakest
from splitproof.model.plan.lower import lower
from splitproof.model.report import Finding, Gap, Kind, Report, Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify import minimize
from splitproof.verify.check import Options, check
from splitproof.verify.encode import Solver
from splitproof.verify.minimize import (
    minimize_syncs,
    smallest_hitting,
    syncs,
    under,
    weakest_contracts,
    without,
)

ROOT = Path(__file__).parent.parent
RULES = ROOT / "rules"
Document = dict[str, Any]


def case(name: str) -> Schedule:
    return lower(load(RULES / f"{name}.json"))


def three_ways() -> Document:
    """Waits B, C (4, 5) do what W1, W2, A (6 to 8) do together; each alone can go."""
    document: Document = json.loads((RULES / "CO002" / "repaired.json").read_text())
    document["devices"][0]["queues"] = ["compute", "copy", "third"]
    document["tensors"] |= {
        "a": {"dtype": "f32", "shape": [4], "input": True},
        "b": {"dtype": "f32", "shape": [4], "output": True},
    }
    document["nodes"].append({"op": "custom", "dst": "b", "src": ["a"]})
    document["assignment"]["b"] = "gpu0"
    document["splits"] = [{"device": "gpu0", "nodes": [0, 2], "inputs": ["x", "a"]}]
    document["program"] = [
        {"do": "set_input", "tensor": "x"},
        {"do": "set_input", "tensor": "a"},
        {"do": "copy", "src": "x", "dst": "gpu0#x", "queue": "gpu0.compute", "split": 0},
        {"do": "compute", "node": "y", "split": 0},
        {"do": "record", "event": "c", "queue": "gpu0.compute"},
        {"do": "copy", "src": "a", "dst": "gpu0#a", "queue": "gpu0.copy", "split": 0},
        {"do": "compute", "node": "b", "queue": "gpu0.copy", "split": 0},
        {"do": "record", "event": "d", "queue": "gpu0.copy"},
        {"do": "sync_event", "event": "c"},
        {"do": "sync_event", "event": "d"},
        {"do": "wait", "event": "c", "queue": "gpu0.third"},
        {"do": "wait", "event": "d", "queue": "gpu0.third"},
        {"do": "sync_queue", "queue": "gpu0.third"},
        {"do": "get_output", "tensor": "y"},
        {"do": "get_output", "tensor": "b"},
    ]
    return document


B, C, W1, W2, A = 8, 9, 10, 11, 12


def largest(schedule: Schedule) -> int:
    """Size of the largest set of waits without which the schedule is proved: all are tried."""
    waits = syncs(schedule)
    subsets = chain.from_iterable(combinations(waits, n) for n in range(len(waits), -1, -1))
    return next(len(s) for s in subsets if check(without(schedule, s)).verdict is Verdict.PROVED)


# -- waits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["extra/pp-input-copy-repaired", "OR005/repaired", "extra/pf003-lent-bytes-repaired",
             "PL004/repaired", "CO002/violating"],
)  # fmt: skip
def test_the_set_is_as_large_as_the_largest_of_all_subsets(name: str) -> None:
    schedule = case(name)
    found = minimize_syncs(schedule)
    assert found.size == "maximum"
    assert len(found.removed) == largest(schedule)


def test_a_larger_set_is_found_where_the_first_choice_is_worse() -> None:
    schedule = from_dict(three_ways())
    found = minimize_syncs(schedule)
    assert {t.need for t in found.trials} == {Need.REDUNDANT}
    assert set(found.removed) == {W1, W2, A}
    assert found.size == "maximum"
    assert largest(schedule) == 3
    assert found.records == ()  # the host still waits for both
    greedy = minimize_syncs(schedule, limit=0)
    assert set(greedy.removed) == {B, C}
    assert greedy.size == "maximal"
    for place in {W1, W2, A}:
        assert check(without(schedule, {B, C, place})).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    "name", ["extra/pp-input-copy-repaired", "BK003/repaired", "extra/pf002-other-device-repaired",
             "PF005/repaired", "CE002/repaired", "OR006/repaired"],
)  # fmt: skip
def test_each_wait_is_needed_as_execution_shows_or_proved_redundant(name: str) -> None:
    schedule = case(name)
    found = minimize_syncs(schedule)
    assert [t.command for t in found.trials] == syncs(schedule)
    for trial in found.trials:
        assert trial.need is not Need.UNDECIDED
        if trial.need is Need.NEEDED:
            assert trial.finding is not None and trial.finding.counterexample is not None
            assert replay(trial.without, trial.finding.counterexample).reproduced, trial.text
        else:
            assert check(trial.without).verdict is Verdict.PROVED
    assert any(t.need is Need.NEEDED for t in found.trials)


def test_the_reduced_schedule_is_proved_and_drops_idle_records() -> None:
    schedule = case("extra/pp-input-copy-repaired")
    found = minimize_syncs(schedule)
    assert found.removed == (3, 7)
    assert found.records == (11,)  # nothing waits for used1 any more
    assert found.reduced == without(schedule, {3, 7, 11})
    assert found.proof is not None and found.reduced is not None
    assert found.proof.verdict is Verdict.PROVED
    assert found.proof.digest == digest(found.reduced)
    assert check(found.reduced).verdict is Verdict.PROVED


def test_a_record_that_holds_its_queue_back_stays() -> None:
    """Unordered copies end before the next record, and only so before later work of the queue."""
    document = json.loads((RULES / "CO002" / "repaired.json").read_text())
    document["devices"][0] |= {"copy": "unordered", "queues": ["compute", "copy"]}
    document["program"][2:2] = [
        {"do": "record", "event": "copied", "queue": "gpu0.compute"},
        {"do": "wait", "event": "copied", "queue": "gpu0.copy"},
    ]
    found = minimize_syncs(from_dict(document))
    assert (found.removed, found.records) == ((3,), ())
    assert check(without(from_dict(document), {2, 3})).verdict is Verdict.VIOLATED


def test_redundant_waits_are_cost_findings_of_this_check_only() -> None:
    schedule = case("CO002/violating")
    assert check(schedule).findings == ()
    report = minimize_syncs(schedule).report
    assert [(f.rule, f.kind, f.place) for f in report.findings] == [
        ("CO002", Kind.COST, "$.program[2]")
    ]
    assert report.verdict is Verdict.PROVED
    assert report.digest == digest(schedule)


def test_what_is_not_proved_is_not_reduced() -> None:
    found = minimize_syncs(case("PF001/violating"))
    assert found.report.verdict is Verdict.VIOLATED
    assert (found.trials, found.reduced, found.checks) == ((), None, 1)
    assert weakest_contracts(case("PF001/violating")).rows == ()


def test_nothing_is_a_maximum_by_a_check_that_was_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wait alone is redundant; of three and more it is not known."""
    schedule = from_dict(three_ways())
    whole, right = len(schedule.program or ()), minimize.check

    def tired(asked: Schedule, options: Options | None = None) -> Report:
        report = right(asked, options)
        if len(asked.program or ()) > whole - 3:
            return report
        gap = Gap(Verdict.UNKNOWN, "planted", "$")
        return replace(report, verdict=Verdict.UNKNOWN, findings=(), gaps=(gap,))

    monkeypatch.setattr(minimize, "check", tired)
    found = minimize_syncs(schedule)
    assert {t.need for t in found.trials} == {Need.REDUNDANT}
    assert len(found.removed) == 2  # three can go, which nobody saw
    assert found.size == "proved"


def test_a_finding_that_can_be_executed_stands_for_the_others() -> None:
    report = check(case("OR001/violating"))
    (shown,) = report.failures
    told = Finding("AL003", Kind.STATIC, "too large", "$")
    for findings in ((told, shown), (shown, told)):
        assert minimize._clearest(replace(report, findings=findings)) == shown
    other = replace(told, message="too large as well")
    assert minimize._clearest(replace(report, findings=(told, other))) == told


def test_an_undecided_check_is_neither_needed_nor_redundant(monkeypatch: Any) -> None:
    """A solver that gives up on the schedule without wait B: nothing is claimed of it."""
    schedule = from_dict(three_ways())
    real, unknown = check, check(schedule, Options(seconds=0.0))
    assert unknown.verdict is Verdict.UNKNOWN

    def weak(tried: Schedule, options: Options | None = None) -> Report:
        assert schedule.program is not None and tried.program is not None
        lacks = schedule.program[B] not in tried.program
        return unknown if lacks else real(tried, options)

    monkeypatch.setattr(minimize, "check", weak)
    found = minimize_syncs(schedule)
    assert [t.need for t in found.trials if t.command == B] == [Need.UNDECIDED]
    assert B not in found.removed
    assert found.size == "maximal"


def test_a_part_is_refused() -> None:
    schedule = case("CO002/violating")
    for part in (Options(only=["OR001"]), Options(symbols={"n_tokens": (1, 2)})):
        with pytest.raises(ValueError, match="whole document"):
            minimize_syncs(schedule, part)
        with pytest.raises(ValueError, match="whole document"):
            weakest_contracts(schedule, part)


def test_one_solver_for_many_checks_changes_no_answer() -> None:
    shared = Options(solver=Solver())
    for name in ("BK003/repaired", "PL007/repaired", "extra/pp-input-copy-repaired"):
        schedule = case(name)
        for place in (None, *syncs(schedule)):
            tried = without(schedule, set() if place is None else {place})
            one, other = check(tried), check(tried, shared)
            assert (one.verdict, one.findings, one.obligations) == (
                other.verdict, other.findings, other.obligations
            )  # fmt: skip
    assert shared.solver is not None
    again = check(case("PL007/repaired"), shared)
    assert again.solved == 0 and check(case("PL007/repaired")).solved > 0


def test_smallest_hitting_sets() -> None:
    rng = random.Random(5)
    for _ in range(300):
        items = list(range(rng.randint(1, 6)))
        conflicts = [
            frozenset(rng.sample(items, rng.randint(1, len(items))))
            for _ in range(rng.randint(0, 6))
        ]

        def meets(chosen: Collection[int], all_of: list[frozenset[int]] = conflicts) -> bool:
            return all(set(chosen) & conflict for conflict in all_of)

        found = smallest_hitting(conflicts, items)
        assert meets(found)
        least = next(
            n for n in range(len(items) + 1) if any(meets(c) for c in combinations(items, n))
        )
        assert len(found) == least


# -- contracts ------------------------------------------------------------------------------------


def test_contracts_of_a_schedule() -> None:
    found = weakest_contracts(case("extra/pp-input-copy-repaired"))
    (row,) = found.rows
    assert (row.device, row.source, row.target) == ("gpu0", None, None)
    assert set(row.holds) == {Contract.STREAM, Contract.STAGED, Contract.UNORDERED}
    assert set(row.weakest) == {Contract.STAGED, Contract.UNORDERED}
    (bad,) = [t for t in row.trials if t.verdict is not Verdict.PROVED]
    assert bad.contract is Contract.SYNC
    assert bad.finding is not None and bad.finding.counterexample is not None
    assert replay(bad.under, bad.finding.counterexample).reproduced
    assert bad.under.graph.device("gpu0").copy[0].contract is Contract.SYNC


def two_rules() -> Schedule:
    document = json.loads((RULES / "CE002" / "repaired.json").read_text())
    device = document["devices"][0]
    memory = device["memory"]
    device["copy"] = [
        {"from": "host", "to": memory, "is": "stream"},
        {"from": memory, "to": "host", "is": "stream"},
        {"from": memory, "to": memory, "is": "sync"},
    ]
    return from_dict(document)


def test_each_rule_of_a_device_that_is_used_is_a_row() -> None:
    schedule = two_rules()
    found = weakest_contracts(schedule)
    memory = schedule.graph.devices[0].memory
    assert [(r.rule, r.source, r.target) for r in found.rows] == [
        (0, "host", memory), (1, memory, "host")
    ]  # fmt: skip
    assert found.together is not None
    for chosen in product(*(row.weakest for row in found.rows)):
        tried = under(schedule, {("gpu0", i): c for i, c in enumerate(chosen)})
        assert (check(tried).verdict is Verdict.PROVED) == (chosen in found.together)


def test_contracts_that_hold_alone_may_not_hold_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that refutes every schedule with two contracts that were not declared."""
    schedule, right = two_rules(), minimize.check
    declared = [rule.contract for rule in schedule.graph.devices[0].copy]

    def strict(tried: Schedule, options: Options | None = None) -> Report:
        report = right(tried, options)
        copies = tried.graph.devices[0].copy
        changed = sum(r.contract is not d for r, d in zip(copies, declared, strict=True))
        return replace(report, verdict=Verdict.VIOLATED) if changed > 1 else report

    monkeypatch.setattr(minimize, "check", strict)
    found = weakest_contracts(schedule)
    every = set(product(*(row.weakest for row in found.rows)))
    due = {(a, b) for a, b in every if a is declared[0] or b is declared[1]}
    assert found.together is not None and set(found.together) == due < every


def test_a_program_without_copies_has_no_rows() -> None:
    assert weakest_contracts(case("extra/host-only")).rows == ()


def test_weakest() -> None:
    everything = tuple(Contract)
    assert set(weakest(everything)) == set(Contract) - {Contract.STREAM}
    assert weakest((Contract.STREAM, Contract.SYNC)) == (Contract.STREAM, Contract.SYNC)
    assert weakest(()) == ()


def with_contract(schedule: Schedule, contract: Contract) -> Schedule:
    rules = {(d.name, i): contract for d in schedule.graph.devices for i in range(len(d.copy))}
    return under(schedule, rules)


def holds(schedule: Schedule) -> dict[Contract, Verdict]:
    return {c: check(with_contract(schedule, c)).verdict for c in Contract}


def brought_back() -> Schedule:
    """A result is copied to the host on a queue that waits for it: no host part may read it."""
    document = json.loads((RULES / "CO002" / "repaired.json").read_text())
    document["devices"][0]["queues"] = ["compute", "copy"]
    document["tensors"]["h"] = {"dtype": "f32", "shape": [4, "n_tokens"]}
    document["nodes"] = [
        {"op": "custom", "dst": "h", "src": ["w"]},
        {"op": "custom", "dst": "y", "src": ["h"]},
    ]
    document["buffers"]["w"] = {"memory": "vram0", "usage": "weights", "bytes": 16}
    document["tensors"]["w"] = {"dtype": "f32", "shape": [4], "buffer": "w", "offset": 0}
    del document["tensors"]["x"]
    document["assignment"] = {"h": "gpu0", "y": "cpu"}
    document["splits"] = [
        {"device": "gpu0", "nodes": [0, 1], "inputs": []},
        {"device": "cpu", "nodes": [1, 2], "inputs": ["h"]},
    ]
    document["program"] = [
        {"do": "compute", "node": "h", "split": 0},
        {"do": "record", "event": "h", "queue": "gpu0.compute"},
        {"do": "wait", "event": "h", "queue": "gpu0.copy"},
        {"do": "copy", "src": "h", "dst": "cpu#h", "queue": "gpu0.copy", "split": 1},
        {"do": "sync_queue", "queue": "gpu0.copy"},
        {"do": "compute", "node": "y", "split": 1},
        {"do": "get_output", "tensor": "y"},
    ]
    return from_dict(document)


def test_no_other_two_contracts_can_be_compared() -> None:
    schedules = [brought_back()]
    schedules += map(
        case, ("AL001/repaired", "AL001/violating", "BK002/violating", "BK003/repaired")
    )
    apart = set()
    for schedule in schedules:
        found = holds(schedule)
        apart |= {
            (a, b) for a in Contract for b in Contract
            if found[a] is Verdict.PROVED and found[b] is Verdict.VIOLATED
        }  # fmt: skip
    assert apart == {
        (a, b) for a in Contract for b in Contract if a is not b and (b, a) not in WEAKER
    }


def test_what_holds_under_the_weaker_contract_holds_under_the_stronger() -> None:
    rng, proved = random.Random(2), 0
    for _ in range(60):
        document = random_document(rng)
        schedule = from_dict(document)
        for strong, weak in WEAKER:
            if check(with_contract(schedule, weak)).verdict is Verdict.PROVED:
                proved += 1
                assert check(with_contract(schedule, strong)).verdict is Verdict.PROVED, document
    assert proved >= 5
