"""Random split-level graphs: what the plain lowering owes to each of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from splitproof.model.command import Compute, Copy, GetOutput, SetInput, SyncQueue
from splitproof.model.document import from_dict
from splitproof.model.plan.lower import lower
from splitproof.model.schedule import Schedule

DEVICES = [
    {"name": "gpu0", "memory": "v0", "reads": ["v0"], "async": True, "copy": "stream"},
    {"name": "gpu1", "memory": "v1", "reads": ["v1"], "async": True, "copy": "stream"},
    {"name": "cpu", "memory": "ram", "reads": ["ram"]},
]
HOME = {"gpu0": "v0", "gpu1": "v1", "cpu": "ram"}


@st.composite
def split_graphs(draw: st.DrawFn) -> Schedule:
    """Adds, views and host weights over three devices, cut as ggml cuts: an input is listed
    once per device, or by each split that reads it."""
    relist = draw(st.booleans())
    tensors: dict[str, Any] = {
        "x0": {"dtype": "f32", "shape": [4], "input": True},
        "x1": {"dtype": "f32", "shape": [4], "input": True},
        "w": {"dtype": "f32", "shape": [4], "buffer": "weights", "offset": 0},
    }
    base_home = {"x0": "ram", "x1": "ram", "w": "ram"}
    nodes: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = []
    assignment: dict[str, str] = {}
    listed: set[tuple[str, str]] = set()
    for i in range(draw(st.integers(1, 12))):
        name = f"n{i}"
        device = draw(st.sampled_from(list(HOME)))
        view = draw(st.integers(0, 3)) == 0
        sources = draw(st.lists(st.sampled_from(list(base_home)), min_size=2, max_size=2))
        if view:
            home = base_home[sources[0]]
            tensors[name] = {"dtype": "f32", "shape": [2, 2], "view_of": sources[0], "offset": 0}
            nodes.append({"op": "reshape", "dst": name, "src": sources[:1]})
            base_home[name] = home
        else:
            flat = [s if "view_of" not in tensors[s] else "x0" for s in sources]
            tensors[name] = {"dtype": "f32", "shape": [4], "output": draw(st.booleans())}
            nodes.append({"op": "add", "dst": name, "src": flat})
            base_home[name] = HOME[device]
            assignment[name] = device
        if draw(st.integers(0, 4)) == 0 and view:
            gelu = f"g{i}"
            tensors[gelu] = {"dtype": "f32", "shape": [2, 2]}
            nodes.append({"op": "gelu", "dst": gelu, "src": [name]})
            assignment[gelu] = device
        start = splits[-1]["nodes"][1] if splits else 0
        if not splits or splits[-1]["device"] != device:
            splits.append({"device": device, "nodes": [start, start], "inputs": []})
        split = splits[-1]
        for node in nodes[split["nodes"][1] :]:
            for source in node["src"] if node["op"] != "reshape" else ():
                remote = base_home[source] != HOME[device]
                due = source not in split["inputs"] and (relist or (device, source) not in listed)
                if remote and due:
                    split["inputs"].append(source)
                    listed.add((device, source))
        split["nodes"][1] = len(nodes)
    return from_dict(
        {
            "format": "splitproof/1",
            "memories": {"ram": {"host": True}, "v0": {}, "v1": {}},
            "buffers": {"weights": {"memory": "ram", "usage": "weights", "bytes": 64}},
            "devices": DEVICES,
            "tensors": tensors,
            "nodes": nodes,
            "assignment": assignment,
            "splits": splits,
        }
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(split_graphs())
def test_what_a_lowered_program_owes(schedule: Schedule) -> None:
    lowered = lower(schedule)
    program = lowered.program or ()
    graph = schedule.graph
    assert lower(schedule) == lowered

    computed = [c.node for c in program if isinstance(c, Compute)]
    assert computed == [n.dst for n in graph.nodes if n.op != "reshape"]
    assert [c.tensor for c in program if isinstance(c, SetInput)] == ["x0", "x1"]
    assert [c.tensor for c in program if isinstance(c, GetOutput)] == [
        t.name for t in graph.tensors if t.output
    ]

    # ``visible``: what the host knows to be complete; ``pending``: issued, not yet awaited.
    visible = {t.name for t in graph.tensors if t.input or t.buffer}
    pending: dict[str, set[str]] = {}
    for command in program:
        queue = lowered.queue_of(command)
        if isinstance(command, SyncQueue):
            visible |= pending.pop(command.queue, set())
        elif isinstance(command, Copy):
            assert schedule.base(command.src).name in visible
            pending.setdefault(queue, set()).add(command.dst)
        elif isinstance(command, Compute):
            device = graph.device(lowered.compute_device(command) or "")
            for i in range(len(graph.node(command.node).src)):
                read = lowered.bound(command, i)
                assert lowered.location(read).memory in device.reads
                owner = lowered.base(read).name
                assert owner in visible or owner in pending.get(queue, set())
            pending.setdefault(queue, set()).add(command.node)
        if queue == "host":
            visible |= pending.pop("host", set())
    assert not pending
