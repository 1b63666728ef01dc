"""Real llama.cpp graphs with the real scheduler's splits: all are right, some are costly."""

from __future__ import annotations

from pathlib import Path

import pytest
from splitproof.model.plan.lower import lower
from splitproof.model.read.ggml_dump import read_dump
from splitproof.model.report import Kind, Verdict
from splitproof.verify.check import check

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
RECORDED = sorted((SHARED / "ggml-graphs").glob("*.jsonl.gz")) + sorted(
    (SHARED / "nano" / "graphs").glob("*.jsonl.gz")
)
REAL = [path for path in RECORDED if path.name != "random.jsonl.gz"]


@pytest.mark.skipif(not REAL, reason="the recorded graphs are not beside this checkout")
def test_there_are_all_of_them() -> None:
    assert len([p for p in REAL if p.parent.name == "ggml-graphs"]) == 88
    assert len([p for p in REAL if p.parent.name == "graphs"]) >= 36


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.name.removesuffix(".jsonl.gz"))
def test_recorded_schedules_are_right(path: Path) -> None:
    for number, schedule in enumerate(read_dump(path)):
        report = check(lower(schedule))
        assert report.verdict is Verdict.PROVED, (number, report.gaps, report.failures)
        # No other cost: where the work goes back to a device, its own lies out of its reach or is
        # of ops that it lacks; one queue a device leaves no room for earlier uploads.
        assert {(f.rule, f.kind) for f in report.findings} <= {("CO001", Kind.COST)}
        assert report.obligations > 100


@pytest.mark.skipif(not REAL, reason="the recorded graphs are not beside this checkout")
def test_expert_weights_that_travel_are_named_with_their_bytes() -> None:
    path = SHARED / "ggml-graphs" / "qwen3moe-q4_0.21-fake1-ot-exps-cpu-offload.jsonl.gz"
    prompt, decode, _ = (check(lower(s)) for s in read_dump(path))
    travelling = [f for f in prompt.findings if f.rule == "CO001"]
    # 64 tokens are offloaded: up, gate and down of all layers but the last, whose batch is cut
    assert len(travelling) == 15
    assert {dict(f.evidence)["bytes each pass"] for f in travelling} == {589824}
    assert not decode.findings  # one token is under the minimum batch: they stay
