"""What a run gave, in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .words import count, size_text

if TYPE_CHECKING:
    from .exec.compare import Comparison, Difference
    from .exec.runtime import RunResult

#: Values of an output that are shown.
FIRST = 4


def run_items(
    result: RunResult, comparison: Comparison, quiet: bool = False
) -> Iterator[RenderableType]:
    """What ``run`` says: outputs against the reference, then what moved and what computed."""
    differences = comparison.differences
    wrong = sum(d.agrees is False for d in differences)
    symbols = ", ".join(f"{name} = {value}" for name, value in result.symbols.items())
    line = Text(no_wrap=True)
    if wrong:
        line.append("DIFFERS", style="bold red")
        line.append(f"  {wrong} of {count(len(differences), 'output')} from the reference")
    elif comparison.undecided:
        line.append("UNDECIDED", style="bold yellow")
        number = count(len(comparison.undecided), "output")
        line.append(f"  {number} may differ by any amount through rounding alone")
    else:
        line.append("AGREES", style="bold green")
        line.append(f"  {count(len(differences), 'output')} with the sequential reference")
    line.append(f", {count(len(result.outputs), 'pass')}{', ' + symbols if symbols else ''}")
    yield line
    if quiet:
        return
    yield Text("")
    yield Padding(_outputs(result, differences), (0, 0, 0, 2))
    yield Text("")
    yield Padding(_counters(result), (0, 0, 0, 2))


def _outputs(result: RunResult, differences: tuple[Difference, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("pass", justify="right")
    table.add_column("output")
    table.add_column("shape")
    table.add_column("first values")
    table.add_column("difference", justify="right")
    table.add_column("allowed", justify="right")
    for row in differences:
        shape, first = _summary(result, row)
        style = "bold red" if row.agrees is False else ""
        allowed = "any" if row.tolerance is None else f"{row.tolerance:.1e}"
        table.add_row(
            str(row.pass_), row.tensor, " × ".join(map(str, shape)),
            " ".join(f"{value:.4g}" for value in first) + " …",
            Text(f"{row.relative:.1e}", style=style), allowed,
        )  # fmt: skip
    return table


def _summary(result: RunResult, row: Difference) -> tuple[tuple[int, ...], list[float]]:
    """Shape (innermost first) and first values of an output."""
    value = result.outputs[row.pass_][row.tensor]
    shape = value.shape
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape, [float(x) for x in value.ravel(order="F")[:FIRST]]


def _counters(result: RunResult) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for move in result.traffic:
        if move.source != move.target:
            moved = f"{size_text(move.bytes)} in {count(move.transfers, 'transfer')}"
            table.add_row("moved", f"{move.source} → {move.target}: {moved}")
    for name, bank in result.banks.items():
        table.add_row(
            "bank",
            f"{name}: {count(bank.hits, 'hit')}, {count(bank.misses, 'miss', 'misses')}, "
            f"{count(bank.evictions, 'eviction')}, {size_text(bank.uploaded)} uploaded",
        )
    for name, copied in result.expert_copies.items():
        text = f"{count(copied.experts, 'expert')} in {count(copied.transfers, 'transfer')}"
        table.add_row("experts", f"{name}: {text}, {size_text(copied.bytes)}")
    compiled = sum(use.count for use in result.kernels if use.compiled)
    table.add_row(
        "computed", f"{compiled:,} by compiled kernels, {result.fallbacks:,} by the NumPy reference"
    )
    return table


def run_to_dict(result: RunResult, comparison: Comparison) -> dict[str, Any]:
    """The same as one JSON value.  ``difference`` and ``allowed``: shares of the reference's
    largest value; ``null`` for infinite, and for "any"."""
    outputs = []
    for row in comparison.differences:
        shape, first = _summary(result, row)
        outputs.append({
            "pass": row.pass_, "tensor": row.tensor, "shape": list(shape),
            "first": [_finite(value) for value in first],
            "difference": _finite(row.relative), "allowed": row.tolerance, "agrees": row.agrees,
        })  # fmt: skip
    return {
        "format": "splitproof-run/1",
        "agrees": comparison.agrees,
        "symbols": dict(result.symbols),
        "outputs": outputs,
        "traffic": [
            {"from": m.source, "to": m.target, "bytes": m.bytes, "transfers": m.transfers}
            for m in result.traffic
        ],
        "banks": {name: asdict(counted) for name, counted in result.banks.items()},
        "expert_copies": {name: asdict(c) for name, c in result.expert_copies.items()},
        "kernels": [asdict(use) | {"seconds": round(use.seconds, 6)} for use in result.kernels],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
