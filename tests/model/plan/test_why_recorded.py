"""What ``why`` says would remove a split, done to the document: the split must be gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import Planned, plan_regimes, unplanned
from splitproof.model.plan.why import Remedy, why
from splitproof.model.read.ggml_dump import read_dump
from splitproof.model.schedule import Schedule

GRAPHS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "ggml-graphs"
#: With the kinds of remedies that each has.
SAMPLE = {
    "gpt-oss-q4_0.28-fake1-no-MUL_MAT_ID": {"pin", "placement"},
    "qwen3moe-q4_0.09-rpc1-nkvo": {"pin", "placement"},
    "olmoe-q4_K.29-fake1-no-ROPE-ARGSORT-GLU": {"capability", "pin", "placement"},
    "deepseek2-q4_0.21-fake1-ot-exps-cpu-offload": {"pin", "placement"},
    "qwen3moe-q4_0.27-fake2-pipeline": {"pin", "placement"},
}

pytestmark = pytest.mark.skipif(
    not GRAPHS.exists(), reason="the recorded data is absent: ../shared/data/ggml-graphs"
)


def changed(schedule: Schedule, remedy: Remedy) -> Planned:
    """The plan after a remedy, which is carried out on the document, not on the planner."""
    graph, options = schedule.graph, PlanOptions()
    if remedy.kind == "pin":
        options = PlanOptions(pins=tuple((name, remedy.device) for name in remedy.what))
    elif remedy.kind == "capability":
        nodes = tuple(
            replace(n, supported_by=(*n.supported_by, remedy.device))
            if n.op in remedy.what and n.supported_by and remedy.device not in n.supported_by
            else n
            for n in graph.nodes
        )
        graph = replace(graph, nodes=nodes)
    else:
        assert remedy.kind == "placement"
        memory = graph.device(remedy.device).memory
        buffers = {
            usage: replace(b, name=f"moved:{usage}", memory=memory)
            for b in graph.buffers
            for usage in (b.usage,)
        }
        tensors = tuple(
            replace(t, buffer=buffers[graph.buffer(t.buffer or "").usage].name)
            if t.name in remedy.what
            else t
            for t in graph.tensors
        )
        graph = replace(graph, buffers=(*graph.buffers, *buffers.values()), tensors=tensors)
    (found,) = plan_regimes(replace(schedule, graph=graph), options)
    return found


def beginnings(planned: Planned) -> list[str]:
    """The first node with a command of each split."""
    nodes, idle = planned.schedule.graph.nodes, planned.decision.arrays.idle
    return [
        next(nodes[i].dst for i in range(s.start, s.end) if not idle[i])
        for s in planned.schedule.splits or ()
    ]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_remedy_removes_its_split(name: str) -> None:
    schedule = unplanned(read_dump(GRAPHS / f"{name}.jsonl.gz")[1])
    (found,) = plan_regimes(schedule)
    tried: Counter[str] = Counter()
    for split in why(found).splits:
        for remedy in split.remedies:
            tried[remedy.kind] += 1
            if tried[remedy.kind] > 8:
                continue
            then = beginnings(changed(schedule, remedy))
            assert split.node not in then, (split.node, remedy)
            assert len(then) == remedy.splits, (split.node, remedy)
    assert set(tried) == SAMPLE[name]
