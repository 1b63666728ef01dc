"""What ``why`` says would remove a split, done to the document: the split must be gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from splitproof.model.graph import Graph, Node
from splitproof.model.plan.planner import Planned, plan_regimes, unplanned
from splitproof.model.plan.remedy import Change, Remedy
from splitproof.model.plan.why import why
from splitproof.model.read.ggml_dump import read_dump
from splitproof.model.schedule import Schedule

GRAPHS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "ggml-graphs"
#: With the kinds of remedies that each has.
SAMPLE = {
    "gpt-oss-q4_0.28-fake1-no-MUL_MAT_ID": {
        "pin", "placement", "placement+pin", "capability+placement",
    },
    "qwen3moe-q4_0.09-rpc1-nkvo": {"pin", "placement", "placement+pin"},
    "olmoe-q4_K.29-fake1-no-ROPE-ARGSORT-GLU": {"capability", "pin", "placement", "placement+pin"},
    "deepseek2-q4_0.21-fake1-ot-exps-cpu-offload": {"pin", "placement", "placement+pin"},
    "qwen3moe-q4_0.27-fake2-pipeline": {"pin", "placement", "placement+pin"},
    "olmoe-q4_K.28-fake1-no-MUL_MAT_ID": {
        "pin", "placement", "placement+pin", "capability+placement",
    },
    "olmoe-q4_K.32-fakeaccel-sharebuft-matmul-only": {"pin", "capability", "inability"},
}  # fmt: skip

pytestmark = pytest.mark.skipif(
    not GRAPHS.exists(), reason="the recorded data is absent: ../shared/data/ggml-graphs"
)


def changed(schedule: Schedule, remedy: Remedy) -> Planned:
    """The plan after a remedy, which is carried out on the document, not on the planner."""
    graph, pins = schedule.graph, {}
    for change in remedy.changes:
        if change.kind == "pin":
            pins = dict.fromkeys(change.what, change.device)
        elif change.kind in ("capability", "inability"):
            graph = able(graph, change)
        else:
            assert change.kind == "placement"
            graph = moved(graph, change)
    graph = replace(
        graph, tensors=tuple(replace(t, pin=pins.get(t.name, t.pin)) for t in graph.tensors)
    )
    (found,) = plan_regimes(replace(schedule, graph=graph))
    return found


def able(graph: Graph, change: Change) -> Graph:
    nodes = tuple(
        replace(n, supported_by=tuple(d.name for d in graph.devices if supports(n, d.name, change)))
        if n.op in change.what and n.supported_by
        else n
        for n in graph.nodes
    )
    return replace(graph, nodes=nodes)


def supports(node: Node, device: str, change: Change) -> bool:
    if device == change.device:
        return change.kind == "capability"
    return device in (node.supported_by or ())


def moved(graph: Graph, change: Change) -> Graph:
    memory = graph.device(change.device).memory
    buffers = {b.usage: replace(b, name=f"moved:{b.usage}", memory=memory) for b in graph.buffers}
    tensors = tuple(
        replace(t, buffer=buffers[graph.buffer(t.buffer or "").usage].name)
        if t.name in change.what
        else t
        for t in graph.tensors
    )
    return replace(graph, buffers=(*graph.buffers, *buffers.values()), tensors=tensors)


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
    first, *others = why(found).splits
    assert first.remedies == () and all(split.remedies for split in others)
    for split in others:
        for remedy in split.remedies:
            kinds = "+".join(change.kind for change in remedy.changes)
            tried[kinds] += 1
            if tried[kinds] > 8:
                continue
            then = beginnings(changed(schedule, remedy))
            assert split.node not in then, (split.node, remedy)
            assert len(then) == remedy.splits, (split.node, remedy)
    assert set(tried) == SAMPLE[name]
