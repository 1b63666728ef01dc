"""Recorded graphs with something changed: planned as the slow transcription says, or refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from mutants import as_line, broken, plausible, torn
from plan_oracle import Abort, Oracle
from splitproof.main import invoke
from splitproof.model.document import dumps, loads
from splitproof.model.plan.error import PlanError
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import plan_regimes, unplanned
from splitproof.model.read.ggml_dump import DumpError, read_dump
from splitproof.model.schedule import Schedule

DATA = Path(__file__).parents[4] / "shared" / "data"
RANDOM = DATA / "ggml-graphs" / "random.jsonl.gz"
needs_data = pytest.mark.skipif(
    not RANDOM.is_file(), reason="../shared/data is absent: no recorded graphs"
)


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """Recorded random graphs of at most 40 nodes: the transcription is slow."""
    with gzip.open(RANDOM) as recorded:
        return [line for line in recorded if len(json.loads(line)["nodes"]) <= 40]


def agree(schedule: Schedule, limit: int) -> str:
    """Hold the planner against the transcription: devices and splits."""
    oracle = Oracle(schedule.graph, {}, limit)
    options = PlanOptions(split_inputs=limit)
    try:
        oracle.run()
        parts = oracle.split()
    except Abort as abort:
        with pytest.raises(PlanError) as error:
            plan_regimes(schedule, options)
        assert error.value.tensor == abort.args[0]
        return "aborted"
    (found,) = plan_regimes(schedule, options)
    assert dict(found.schedule.assignment) == oracle.on
    splits = [(s.device, s.start, s.end, list(s.inputs)) for s in found.schedule.splits or ()]
    assert splits == [(p.device, p.start, p.end, p.inputs) for p in parts]
    assert loads(dumps(found.schedule)) == found.schedule
    return "planned"


@needs_data
def test_a_recording_of_another_run_is_planned_as_the_rules_say(lines: list[bytes]) -> None:
    outcomes = dict.fromkeys(("refused", "aborted", "planned"), 0)
    for seed in range(250):
        rng = Random(seed)
        row = json.loads(rng.choice(lines))
        plausible(rng, row)
        try:
            (schedule,) = read_dump([as_line(row)])
        except DumpError:
            outcomes["refused"] += 1
            continue
        outcomes[agree(unplanned(schedule), rng.choice((1, 2, 30)))] += 1
    assert all(count > 3 for count in outcomes.values()), outcomes


@needs_data
def test_what_can_be_read_can_be_written_and_planned(lines: list[bytes]) -> None:
    outcomes = dict.fromkeys(("refused", "read"), 0)
    for seed in range(400):
        rng = Random(seed)
        row = json.loads(rng.choice(lines))
        broken(rng, row)
        try:
            (schedule,) = read_dump([as_line(row)])
        except DumpError as error:
            assert error.line == 1 and error.path.startswith("$")
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        assert loads(dumps(schedule)) == schedule
        try:
            plan_regimes(unplanned(schedule))
        except PlanError as error:
            assert error.tensor
    assert all(count > 20 for count in outcomes.values()), outcomes


COMMANDS = (
    ("import", "-o", "OUT"), ("plan", "--compare"), ("plan", "-o", "OUT"), ("check", "-q"),
)  # fmt: skip


def exits(arguments: list[str], capsys: pytest.CaptureFixture[str], due: set[int]) -> int:
    """The exit code; an error is one line, and no fault of the command itself."""
    code = invoke(arguments)
    err = capsys.readouterr().err
    assert code in due, (arguments, err)
    if code == 2:
        assert err.splitlines()[-1].startswith("splitproof: "), err
    return code


@needs_data
def test_torn_dumps_are_an_error_of_one_line(
    lines: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = 0
    for seed in range(80):
        rng = Random(seed)
        path = tmp_path / "torn.jsonl"
        path.write_bytes(torn(rng, rng.choice(lines)))
        command, *options = rng.choice(COMMANDS)
        options = [str(tmp_path / "out.json") if o == "OUT" else o for o in options]
        refused += exits([command, str(path), *options], capsys, {0, 1, 2, 3}) == 2
    assert refused > 40


LOGS = sorted((DATA / "llama-logs").glob("public-*.log"))


@pytest.mark.skipif(not LOGS, reason="../shared/data is absent: no logs")
def test_torn_logs_are_read_as_far_as_they_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(60):
        rng = Random(seed)
        path = tmp_path / "torn.log"
        path.write_bytes(torn(rng, rng.choice(LOGS).read_bytes()))
        for old in tmp_path.glob("out*"):
            old.unlink()
        exits(["import", str(path), "-o", str(tmp_path / "out.json")], capsys, {0, 2})
        for written in tmp_path.glob("out*"):
            assert exits(["check", "-q", str(written)], capsys, {0, 1, 2, 3}) != 2
