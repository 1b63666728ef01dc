"""What a plan decided and why, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .model.plan.compare import Comparison
from .model.plan.planner import Planned
from .model.plan.remedy import Change, Remedy
from .model.plan.why import NodeWhy, SplitWhy, Why
from .words import count, size_text

#: Remedies and crossing tensors that a line names.
FIRST = 3

#: Why a node is on its device, by cause; ``{}`` is what it followed.
_CAUSES = {
    "user": "pinned", "placed": "it is placed there", "input": "an input",
    "offload": "wants to have {} brought", "weight": "{} lies there",
    "fast_down": "as {} before it", "fast_up": "as {} after it",
    "rest_down": "as {} before it", "rest_up": "as {} after it",
    "best": "reads most of its sources there", "upgrade": "same memory, higher priority",
    "base": "as its base {}", "reader": "as its reader {}", "first": "first that supports it",
}  # fmt: skip


def plan_items(planned: Planned, reasons: Why | None = None) -> Iterator[RenderableType]:
    """One plan: a line, where it holds, and with reasons a table of splits and one of nodes."""
    schedule = planned.schedule
    nodes, splits = len(schedule.graph.nodes), len(schedule.splits or ())
    line = Text(no_wrap=True)
    line.append("PLANNED", style="bold green")
    line.append(f"  {schedule.name or 'the graph'}: {count(nodes, 'node')}, ")
    line.append(count(splits, "split"))
    if reasons is not None:
        line.append(f", {size_text(reasons.bytes)} cross per pass")
    yield line
    for cut in planned.cuts:
        device = f" of {cut.device}" if cut.device else ""
        yield Text(
            f"  changes at {cut.symbol} = {cut.value}: {cut.question} "
            f"({cut.kind}{device}, asked for {cut.about})",
            no_wrap=True,
        )
    if reasons is not None:
        yield Text("")
        for number, split in enumerate(reasons.splits):
            yield from _split(number, split)
        yield Text("")
        yield Padding(_nodes(reasons), (0, 0, 0, 2))


def _split(number: int, split: SplitWhy) -> Iterator[Text]:
    head = Text(no_wrap=True)
    head.append(f"  split {number}", style="bold")
    head.append(f"  {split.device}, nodes {split.start} to {split.end}: {_begins(split)}")
    yield head
    if split.crossing:
        named = ", ".join(f"{c.tensor} ({size_text(c.bytes)})" for c in split.crossing[:FIRST])
        more = len(split.crossing) - FIRST
        tail = f" and {more} more" if more > 0 else ""
        yield Text(f"    in   {size_text(split.bytes)}: {named}{tail}", no_wrap=True)
    for remedy in split.remedies:
        yield Text(f"    less {_remedy(remedy)}", no_wrap=True)
    if split.begins != "graph" and not split.remedies:
        yield Text("    less by no change that was tried: as many splits are left", no_wrap=True)


def _begins(split: SplitWhy) -> str:
    if split.begins == "graph":
        return f"the graph begins with {split.node}"
    if split.begins == "device":
        return f"{split.node} runs on another device"
    if split.begins == "weight":
        return f"{split.node} needs the weight {split.made_by} brought"
    return f"the input list was full at {split.made_by}"


def _remedy(remedy: Remedy) -> str:
    text = ", and ".join(_change(change) for change in remedy.changes)
    then = "not tried" if remedy.splits is None else f"{count(remedy.splits, 'split')} then"
    return f"{text} ({then})"


def _change(change: Change) -> str:
    named = ", ".join(change.what[:FIRST])
    if len(change.what) > FIRST:
        named += f" and {len(change.what) - FIRST} more"
    return {
        "capability": f"if {change.device} supported {named}",
        "inability": f"if {change.device} did not support {named}",
        "placement": f"with {named} in the memory of {change.device}",
        "pin": f"with {named} pinned to {change.device}",
        "list": "with longer input lists",
    }[change.kind]


def _nodes(reasons: Why) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in ("node", "op", "device", "cause", "because"):
        table.add_column(column)
    for node in reasons.nodes:
        table.add_row(node.node, node.op, node.device, node.recorded, _cause(node))
    return table


def _cause(node: NodeWhy) -> str:
    return _CAUSES[node.cause].format(node.led_by or "the weight")


def plan_data(planned: Planned, reasons: Why) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "name": planned.schedule.name,
        "symbols": {name: [low, high] for name, low, high in planned.schedule.graph.symbols},
        "cuts": [asdict(cut) for cut in planned.cuts],
        "findings": [
            {"rule": f.rule, "kind": str(f.kind), "message": f.message} for f in planned.findings
        ],
        "bytes": reasons.bytes,
        "splits": [{**asdict(split), "bytes": split.bytes} for split in reasons.splits],
        "nodes": [asdict(node) for node in reasons.nodes],
    }


def comparison_items(found: Comparison) -> Iterator[RenderableType]:
    """How many graphs of a dump agree, and the first difference of each that does not."""
    total = len(found.graphs)
    agree, recorded = found.causes
    line = Text(no_wrap=True)
    line.append(*(("AGREES", "bold green") if found.agrees else ("DIFFERS", "bold red")))
    line.append(f"  {found.source}: of {count(total, 'graph')} agree in")
    yield line
    for what, words in (
        ("assignment", "devices"), ("ranges", "split ranges"), ("inputs", "split inputs"),
    ):  # fmt: skip
        yield Text(f"  {words:13}{found.count(what)}", no_wrap=True)
    yield Text(f"  causes       {agree:,} of {recorded:,} tensors", no_wrap=True)
    for number, graph in enumerate(found.graphs):
        if graph.first_difference is not None:
            yield Text(f"  graph {number}: {graph.first_difference}", no_wrap=True)


def comparison_data(found: Comparison) -> dict[str, Any]:
    """The same as JSON values."""
    agree, recorded = found.causes
    return {
        "source": found.source,
        "agrees": found.agrees,
        "graphs": [asdict(graph) for graph in found.graphs],
        "assignment": found.count("assignment"),
        "ranges": found.count("ranges"),
        "inputs": found.count("inputs"),
        "causes": agree,
        "causes_recorded": recorded,
    }
