"""Debug logs of our own making: what is read of them, and what happens to damaged ones."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splitproof.api import check
from splitproof.model.document import dumps, loads, to_dict
from splitproof.model.plan.lower import lower
from splitproof.model.read.llama_log import LogError, LogImport, read_log
from splitproof.model.schedule import Schedule

SMALL = Path(__file__).parents[2] / "docs" / "examples" / "small.log"
LINES = SMALL.read_text(encoding="utf-8").splitlines()


def shape(schedule: Schedule) -> list[tuple[str, list[str], list[str]]]:
    """Device, nodes and inputs of each split."""
    nodes = [node.dst for node in schedule.graph.nodes]
    return [(s.device, nodes[s.start : s.end], list(s.inputs)) for s in schedule.splits or ()]


PROMPT = [
    ("CPU", ["embd"], []),
    ("GPU0", ["norm-0", "ffn_norm-0", "ffn_moe_logits-0", "ffn_moe_argsort-0"], ["embd"]),
    ("GPU0", ["ffn_moe_gate-0"], ["blk.0.ffn_gate_exps.weight"]),
    ("CPU", ["result_output"], ["ffn_moe_gate-0"]),
]
DECODE = [
    ("CPU", ["embd"], []),
    ("GPU0", ["norm-0", "ffn_norm-0", "ffn_moe_logits-0", "ffn_moe_argsort-0"], ["embd"]),
    ("CPU", ["ffn_moe_gate-0", "result_output"], ["ffn_norm-0 (reshaped)", "ffn_moe_topk-0"]),
]


def test_the_last_prompt_and_the_last_decode_are_taken() -> None:
    found = read_log(SMALL)
    assert [shape(schedule) for schedule in found.schedules] == [PROMPT, DECODE]
    summary = found.summary
    assert (summary.lines, summary.graph_lines, summary.unreadable) == (len(LINES), 25, ())
    assert [(g.phase, g.imported) for g in summary.graphs] == [
        ("reserved", False), ("prompt", True), ("decode", True),
    ]  # fmt: skip


def test_what_nodes_read() -> None:
    schedule = read_log(SMALL, graph=1).schedules[0]
    graph = schedule.graph
    assert graph.node("embd").src == ("tok.weight", "inp_tokens")
    assert graph.node("norm-0").src == ("embd",)
    # A weight by its whole name, a view by its base, and a view that nothing explains.
    expert = graph.node("ffn_moe_gate-0")
    assert expert.op == "mul_mat_id"
    assert expert.src[0] == "blk.0.ffn_gate_exps.weight"
    assert graph.base(expert.src[1]).name == "ffn_norm-0"
    assert expert.src[2] == "ffn_moe_topk-0"
    assert graph.tensor("blk.0.ffn_gate_exps.weight").buffer == "weights:CPU"
    assert graph.tensor("blk.0.norm.weight").buffer == "weights:GPU0"
    assert graph.tensor("ffn_moe_topk-0").buffer == "any:GPU0"
    assert graph.tensor("ffn_norm-0").bytes == 256 << 10
    assert all(tensor.about for tensor in graph.tensors)
    assert schedule.location("ffn_moe_gate-0").memory == "GPU0"


def test_an_input_does_not_lie_where_it_is_copied_to() -> None:
    decode = read_log(SMALL).schedules[1]
    for name in ("ffn_norm-0 (reshaped)", "ffn_moe_topk-0"):
        assert decode.location(name).memory == "GPU0"


def same_graphs(lines: list[str]) -> LogImport:
    """Import lines that say what the small log says."""
    found = read_log(lines)
    assert [shape(schedule) for schedule in found.schedules] == [PROMPT, DECODE]
    assert found.summary.unreadable == ()
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda line: f"2026-01-02T03:04:05.678901234Z {line}",
        lambda line: f"Jan  2 03:04:05 box llama-server[123]: {line}",
        lambda line: f"\x1b[34m{line}\x1b[0m",
        lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}, separators=(",", ":")),
        lambda line: line + "\r\n",
        lambda line: re.sub(r" use=\d,c=1:", ":", line),
    ],
    ids=["container", "journal", "colours", "container-json", "crlf", "without-use-counts"],
)  # fmt: skip
def test_prefixes_and_colours_are_no_part_of_a_line(change: object) -> None:
    assert callable(change)
    same_graphs([change(line) for line in LINES])


def test_prefixes_in_the_middle_of_lines() -> None:
    text = "\n".join(line.replace("] use=1,c=1:", "] use=1,c=1:0.01.244.605 D ") for line in LINES)
    same_graphs(text.replace("] ", "] 0.01.244.606 D ").replace(
        "] 0.01.244.606 D use", "] use"
    ).split("\n"))  # fmt: skip


@pytest.mark.parametrize("width", [17, 40, 75, 110, 140])
def test_torn_lines_are_put_together(width: int) -> None:
    torn: list[str] = []
    for line in LINES:
        cut = width if line.startswith(("node", "##")) else len(line)
        torn += [line[:cut], line[cut:]] if 0 < cut < len(line) else [line]
    found = read_log(torn)
    assert [shape(schedule) for schedule in found.schedules] == [PROMPT, DECODE]
    assert found.summary.unreadable == ()
    assert_counted(found, torn)


def test_records_without_a_beginning_are_counted() -> None:
    records = sum(line.startswith(("node", "##")) for line in LINES)
    with pytest.raises(LogError, match=f"{records} of them unreadable"):
        read_log([line[3:] for line in LINES])


def test_other_messages_between_and_in_lines() -> None:
    lines = list(LINES)
    at = next(i for i, line in enumerate(lines) if "#  6 (MUL_MAT_ID)" in line)
    head, rest = lines[at].split("c=1:", 1)
    lines[at : at + 1] = [f"{head}c=1:srv  update_slots: run slots", rest]
    found = same_graphs(lines)
    assert len(found.summary.mixed) == 1


def test_a_line_that_is_lost_is_counted_and_no_fault_of_the_schedule() -> None:
    lines = list(LINES)
    at = next(i for i, line in enumerate(lines) if "#  6 (MUL_MAT_ID)" in line)
    lines[at] = lines[at][:30]
    found = read_log(lines, graph=1)
    assert [number for number, _ in found.summary.unreadable] == [at + 1]
    assert not found.summary.graphs[1].complete
    split = shape(found.schedules[0])[2]
    # Somebody reads the input: a stand-in for what could not be read.
    assert split[2] == ["blk.0.ffn_gate_exps.weight"]
    assert "unread" in split[1][0]


def test_a_missing_reader_is_no_fault_of_the_schedule() -> None:
    found = read_log([line for line in LINES if "(MUL_MAT_ID)" not in line], graph=1)
    assert found.summary.unreadable == ()
    assert (found.summary.graphs[1].unread, found.summary.graphs[1].complete) == (1, False)
    assert check(found.schedules[0]).verdict == "unknown"


def test_a_graph_that_is_cut_off_is_not_chosen() -> None:
    again = LINES[LINES.index("", 30) :]
    found = read_log([*LINES, *again[:3], *again[3:6]])
    assert found.summary.graphs[-1].complete is False
    assert [shape(schedule) for schedule in found.schedules] == [PROMPT, DECODE]


@pytest.mark.parametrize("text", ["", "\n\n", "nothing of a graph\n", "node # x\n## SPLIT #\n"])
def test_no_graph_is_an_error(text: str) -> None:
    with pytest.raises(LogError, match="no graph in"):
        read_log(text.encode())


def test_a_graph_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LogError, match="there is no graph 3; the last one is 2"):
        read_log(SMALL, graph=3)


def test_compressed_logs(tmp_path: Path) -> None:
    file = tmp_path / "log.gz"
    file.write_bytes(gzip.compress(SMALL.read_bytes()))
    assert [shape(schedule) for schedule in read_log(file).schedules] == [PROMPT, DECODE]
    file.write_bytes(gzip.compress(SMALL.read_bytes())[:-50])
    with pytest.raises(ValueError, match="cut off or damaged"):
        read_log(file)


# -- damage -------------------------------------------------------------------------------------


def assert_counted(found: LogImport, lines: list[str]) -> None:
    """Each line is counted once, and what came out is a document."""
    summary = found.summary
    assert summary.lines == len(lines)
    assert summary.graph_lines + summary.other_lines + len(summary.unreadable) == len(lines)
    assert min(summary.graph_lines, summary.other_lines) >= 0
    assert all(1 <= number <= len(lines) for number, _ in summary.unreadable)
    for schedule in found.schedules:
        assert to_dict(loads(dumps(schedule))) == to_dict(schedule)
        lower(schedule)


def damage(lines: list[str], seed: int, kinds: set[str]) -> list[str]:
    rng, lines = random.Random(seed), list(lines)
    for _ in range(rng.randrange(1, 12)):
        i = rng.randrange(len(lines))
        line = lines[i]
        cut = rng.randrange(len(line) + 1)
        kind = rng.choice(sorted(kinds))
        if kind == "cut":
            lines[i] = line[:cut]
        elif kind == "behead":
            lines[i] = line[cut:]
        elif kind == "tear":
            lines[i : i + 1] = [line[:cut], line[cut:]]
        elif kind == "swap":
            j = rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], line
        elif kind == "drop" and len(lines) > 1:
            del lines[i]
        elif kind == "double":
            lines.insert(rng.randrange(len(lines) + 1), line)
        elif kind == "insert":
            lines[i] = line[:cut] + "slot  launch: (3K) id [ 0 ] # node" + line[cut:]
        elif kind == "join" and i + 1 < len(lines):
            lines[i : i + 2] = [line + lines[i + 1]]
        elif kind == "flip" and line:
            at = rng.randrange(len(line))
            lines[i] = line[:at] + chr(rng.randrange(32, 0x250)) + line[at + 1 :]
    return lines


KINDS = ["cut", "behead", "tear", "swap", "drop", "double", "insert", "join", "flip"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sets(st.sampled_from(KINDS), min_size=1))
def test_damage_never_crashes_and_every_line_is_counted(seed: int, kinds: set[str]) -> None:
    lines = damage(LINES, seed, kinds)
    try:
        found = read_log(lines)
    except LogError:
        assert not any(line.startswith("## SPLIT #0") for line in lines)
        return
    assert_counted(found, lines)
    for number in range(len(found.summary.graphs)):
        assert_counted(read_log(lines, graph=number), lines)


PIECES = [
    "## SPLIT #", "0: CPU", " # 1 inputs", ": [a (   1K)] ", "node #", "  1 (       ADD):",
    " " * 19 + "x (   1K) [  CPU         ]", "\n", ":", "### PHASE decode", "\x00", "é",
    "TRACE split 0 input 0: COPY a (CPU -> CPU) 5 bytes", " use=1,c=1:",
]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_order_of_pieces_is_read_or_refused(pieces: list[str]) -> None:
    lines = "".join(pieces).split("\n")
    try:
        found = read_log(lines)
    except LogError:
        return
    assert_counted(found, lines)
