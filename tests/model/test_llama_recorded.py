"""Debug logs held against the recorded graphs of the same runs, which are read here as JSON."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from splitproof.api import check
from splitproof.model.command import Copy
from splitproof.model.document import dumps, loads, to_dict
from splitproof.model.plan.lower import lower
from splitproof.model.read.llama_log import LogError, read_log
from splitproof.model.schedule import Schedule

DATA = Path(__file__).parents[3] / "shared" / "data"
LOGS = sorted((DATA / "llama-logs").glob("*.log.gz"))
RUNS = [path for path in LOGS if not path.name.startswith("stock")]
STOCK = [path for path in LOGS if path.name.startswith("stock")]
PUBLIC = sorted((DATA / "llama-logs").glob("public-*.log"))
VIEWS = {"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}

pytestmark = pytest.mark.skipif(not RUNS, reason="the recorded logs (../shared/data) are not here")
each_run = pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)


def recorded(path: Path) -> list[dict[str, Any]]:
    """The graphs of the same run, as llama.cpp itself recorded them."""
    file = DATA / "ggml-graphs" / path.name.replace(".log.gz", ".jsonl.gz")
    with gzip.open(file, "rt") as lines:
        return [json.loads(line) for line in lines]


imported = cache(read_log)


def pairs(path: Path) -> list[tuple[dict[str, Any], Schedule]]:
    """The prompt and the last decode: as recorded, and as imported from the log."""
    prompt, _, decode = recorded(path)
    return list(zip((prompt, decode), imported(path).schedules, strict=True))


def title(name: str) -> str:
    """A name without the mark of a repetition."""
    return re.sub(r"(@\d+)+$", "", name)


def computed(raw: dict[str, Any], start: int = 0, end: int | None = None) -> list[int]:
    """Tensors that commands compute, in order."""
    return [i for i in raw["nodes"][start:end] if raw["tensors"][i]["op"] not in VIEWS]


@each_run
def test_splits_devices_and_inputs_are_those_of_the_scheduler(path: Path) -> None:
    for raw, schedule in pairs(path):
        tensors, backends = raw["tensors"], [b["name"] for b in raw["backends"]]
        number = dict(zip((n.dst for n in schedule.graph.nodes), computed(raw), strict=True))
        assert schedule.splits is not None
        due = [
            (
                backends[s["backend"]],
                computed(raw, s["start"], s["end"]),
                [tensors[i]["name"] for i in s["inputs"]],
            )
            for s in raw["result"]["splits"]
        ]
        found = [
            (
                s.device,
                [number[n.dst] for n in schedule.graph.nodes[s.start : s.end]],
                [title(name) for name in s.inputs],
            )
            for s in schedule.splits
        ]
        assert found == due
        assert schedule.graph.n_copies == raw["n_copies"]


def misread(raw: dict[str, Any], schedule: Schedule) -> list[tuple[str, str, str]]:
    """Node, source and recorded source where the two are not the same tensor."""
    tensors, graph, wrong = raw["tensors"], schedule.graph, []
    number = dict(zip((n.dst for n in graph.nodes), computed(raw), strict=True))
    for node in graph.nodes:
        i = number[node.dst]
        due = [s for s in tensors[i]["src"] if s is not None and s != i]
        for name, s in zip(node.src, due, strict=True):
            base = tensors[s].get("view_of")
            owner = graph.base(name).name
            if name in number:
                right = number[name] in (s, base)  # a view may have its base's name
            elif owner != name:
                right = base is not None and number.get(owner, base) == base
                right = right and tensors[base]["name"].startswith(title(owner))
            else:
                right = tensors[s]["name"].strip().startswith(title(name))
            if not right:
                wrong.append((node.dst, name, tensors[s]["name"]))
    return wrong


@each_run
def test_sources_are_those_of_the_graph(path: Path) -> None:
    chosen = [g for g in imported(path).summary.graphs if g.imported]
    for (raw, schedule), graph in zip(pairs(path), chosen, strict=True):
        wrong = misread(raw, schedule)
        # Inputs that look alike: two of equal size, behind the cut name of a remote device.
        assert {(name[:9], due[:9]) for _, name, due in wrong} <= ALIKE, wrong
        assert len(wrong) <= graph.assumed
        if "rpc" not in path.name:
            assert wrong == []


#: The row numbers of keys and values are of equal size and are read by equal ops.
ALIKE = {("attn_inp_", "attn_inp_")}


@each_run
def test_tensors_are_on_the_recorded_devices_and_as_large(path: Path) -> None:
    for raw, schedule in pairs(path):
        backends = [b["name"] for b in raw["backends"]]
        for name, i in zip((n.dst for n in schedule.graph.nodes), computed(raw), strict=True):
            assert schedule.device_of(name) == backends[raw["result"]["backend"][i]]
            size = schedule.graph.tensor(name).bytes
            assert size is not None
            unit = 1 << 10 if raw["tensors"][i]["nbytes"] < 1 << 20 else 1 << 20
            assert 0 <= raw["tensors"][i]["nbytes"] - size < unit
        for split, due in zip(schedule.splits or (), raw["result"]["splits"], strict=True):
            for name, i in zip(split.inputs, due["inputs"], strict=True):
                assert schedule.device_of(name) == backends[raw["result"]["backend"][i]]


_TRACE = re.compile(
    r"TRACE split (\d+) input \d+: (?:(?:COPY|INPUT) (.+) \((\S+) -> (\S+)\) (\d+) bytes"
    r"|EXPERTS copy of (.+) \((\S+) -> (\S+)\): .* full (\d+))"
)


def traced(path: Path) -> list[list[tuple[int, str, str, str, int]]]:
    """Of each executed graph the copies that were made: split, tensor, from, to, bytes."""
    graphs: list[list[tuple[int, str, str, str, int]]] = []
    with gzip.open(path, "rt", errors="replace") as lines:
        for line in lines:
            if line.startswith("### PHASE"):
                graphs.append([])
            elif (found := _TRACE.match(line)) is not None:
                split, *told = [part for part in found.groups() if part is not None]
                graphs[-1].append((int(split), told[0], told[1], told[2], int(told[3])))
    return graphs[1:]  # the first is the phase in which memory is reserved


@each_run
@pytest.mark.parametrize("with_traces", [True, False])
def test_copies_of_the_lowered_schedule_are_those_that_were_made(
    path: Path, with_traces: bool
) -> None:
    with gzip.open(path, "rt", errors="replace") as file:
        lines = [line for line in file if with_traces or not line.startswith("TRACE")]
    (prompt, _, decode), log = traced(path), read_log(lines)
    placed = sum(graph.placed for graph in log.summary.graphs)
    assert placed == 0 or (not with_traces and re.search("rpc2|fake2", path.name))
    for schedule, due in zip(log.schedules, (prompt, decode), strict=True):
        device = {d.memory: d.name for d in schedule.graph.devices}
        found = []
        for command in lower(schedule).program or ():
            if isinstance(command, Copy):
                source, target = schedule.location(command.src), schedule.location(command.dst)
                assert command.split is not None
                assert source.memory is not None
                assert target.memory is not None
                size = schedule.graph.tensor(command.src).bytes
                found.append(
                    (command.split, title(command.src), device[source.memory],
                     device[target.memory], size)
                )  # fmt: skip
        pairs_of_copies = zip(sorted(found), sorted(due), strict=True)
        differ = [(f[:4], d[:4]) for f, d in pairs_of_copies if f[:4] != d[:4]]
        # Of three devices, the log may leave open from which of two an input comes.
        assert len(differ) <= placed
        assert all((f[0], f[1], f[3]) == (d[0], d[1], d[3]) for f, d in differ)
        for (*_, size), (*_, exact) in zip(sorted(found), sorted(due), strict=True):
            assert size is not None
            if with_traces:
                assert size == exact
            else:  # rounded down, and never to nothing
                unit = 1 << 10 if exact < 1 << 20 else 1 << 20
                assert size == max(exact // unit * unit, 1)


@each_run
def test_every_line_is_read(path: Path) -> None:
    summary = imported(path).summary
    with gzip.open(path) as file:
        lines = file.read().decode("utf-8", "replace").splitlines()
    begun = [line for line in lines if re.match(r"## SPLIT|node #|TRACE|### (PHASE|RESULT)", line)]
    assert summary.lines == len(lines)
    assert summary.unreadable == ()
    # One log has a line that another thread tore in two.
    assert summary.graph_lines == len(begun) + len(summary.mixed)
    chosen = [g for g in summary.graphs if g.imported]
    assert [(g.phase, g.tokens, g.complete, g.lost) for g in chosen] == [
        ("prompt", 64, True, 0), ("decode", 1, True, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("path", RUNS[::9], ids=lambda path: path.name)
def test_what_cannot_be_decided_is_unknown(path: Path) -> None:
    for schedule in read_log(path).schedules:
        assert to_dict(loads(dumps(schedule))) == to_dict(schedule)
        report = check(schedule)
        assert report.verdict == "unknown"
        assert {finding.rule for finding in report.findings} <= {"CO001"}
        assert len(report.gaps) == 1


@pytest.mark.parametrize("path", RUNS[::13], ids=lambda path: path.name)
def test_each_executed_graph_can_be_chosen(path: Path) -> None:
    numbers = [g.number for g in imported(path).summary.graphs if g.phase != "reserved"]
    for number, raw in zip(numbers, recorded(path), strict=True):
        (schedule,) = read_log(path, graph=number).schedules
        assert len(schedule.graph.nodes) == len(computed(raw))
        assert len(schedule.splits or ()) == len(raw["result"]["splits"])


def test_offloaded_experts_are_found() -> None:
    (path,) = [p for p in RUNS if p.name.startswith("olmoe-q4_K.24-")]
    prompt, decode = read_log(path).schedules
    raw = recorded(path)[0]
    crossing = [
        i for s in raw["result"]["splits"] for i in s["inputs"]
        if "_exps" in raw["tensors"][i]["name"]
    ]  # fmt: skip
    assert [f.rule for f in check(prompt).findings] == ["CO001"] * len(crossing)
    assert check(decode).findings == ()


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.name)
def test_logs_of_unchanged_builds(path: Path) -> None:
    """No markers, no causes; one has a prefix before each piece of a line."""
    found = read_log(path)
    chosen = [g for g in found.summary.graphs if g.imported]
    assert [(g.phase, g.splits, g.complete, g.lost) for g in chosen] == [
        ("prompt", 14, True, 0), ("decode", 14, True, 0),
    ]  # fmt: skip
    assert found.summary.unreadable == ()
    (twin,) = [p for p in RUNS if p.name.startswith("qwen3moe-q4_0.03-")]
    for schedule, raw in zip(found.schedules, recorded(twin), strict=False):
        due = [
            (
                raw["backends"][s["backend"]]["name"],
                [raw["tensors"][i]["name"] for i in s["inputs"]],
            )
            for s in raw["result"]["splits"]
        ]
        assert [(s.device, [title(n) for n in s.inputs]) for s in schedule.splits or ()] == due


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name)
def test_logs_as_people_paste_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    headers = re.findall(r"## SPLIT #\d+: (\S+) #", text)
    nodes = re.findall(r"node #\s*\d+ \(\s*(\w+)\)", text)
    if not nodes:
        with pytest.raises(LogError, match="no graph in 4 line"):
            read_log(path)
        return
    found = read_log(path)
    (schedule,) = found.schedules
    assert found.summary.unreadable == ()
    # Two excerpts end with a header: somebody must read the inputs that it lists.
    assert len([n for n in schedule.graph.nodes if not n.param("unread")]) == len(nodes)
    assert schedule.splits is not None
    assert [s.device for s in schedule.splits][-len(headers) :] == headers
    listed = re.findall(r"\[[^\[\]]+ \(\s*\d+[KM]\)\]", text)
    assert sum(len(s.inputs) for s in schedule.splits) == len(listed)
    assert to_dict(loads(dumps(schedule))) == to_dict(schedule)
    assert check(schedule).verdict != "proved"
