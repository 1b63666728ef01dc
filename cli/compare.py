"""What a run gave, held against the sequential reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .words import count, size_text

if TYPE_CHECKING:
    from .exec.reference import Reference
    from .exec.runtime import RunResult

#: Largest difference that rounding explains: kernels add up in another order than NumPy.
TOLERANCE = 1e-4
FIRST = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """One output of one pass.  ``shape``: innermost first.  ``first``: its first values.
    ``difference``: greatest distance to the reference, over the reference's greatest value;
    infinite if a value is no number."""

    iteration: int
    tensor: str
    shape: tuple[int, ...]
    first: tuple[float, ...]
    difference: float

    @property
    def agrees(self) -> bool:
        return self.difference <= TOLERANCE


def compare(result: RunResult, reference: Reference) -> list[Compared]:
    """All outputs of all passes, in order."""
    import numpy as np

    rows = []
    for iteration, outputs in enumerate(result.outputs):
        for tensor, value in outputs.items():
            due = np.asarray(reference.output(tensor, iteration), np.float64)
            got = np.asarray(value, np.float64)
            distance = float(np.max(np.abs(got - due), initial=0.0))
            scale = float(np.max(np.abs(due), initial=0.0)) or 1.0
            difference = distance / scale if np.isfinite(distance) else float("inf")
            first = tuple(float(x) for x in got.ravel(order="F")[:FIRST])
            rows.append(Compared(iteration, tensor, tuple(got.shape), first, difference))
    return rows


def run_items(result: RunResult, rows: list[Compared], quiet: bool) -> Iterator[RenderableType]:
    """What ``run`` says: outputs against the reference, then what moved and what computed."""
    wrong = [row for row in rows if not row.agrees]
    symbols = ", ".join(f"{name} = {value}" for name, value in result.symbols.items())
    line = Text()
    if wrong:
        line.append("DIFFERS", style="bold red")
        line.append(f"  {len(wrong)} of {count(len(rows), 'output')} from the reference")
    else:
        line.append("AGREES", style="bold green")
        line.append(f"  {count(len(rows), 'output')} with the sequential reference")
    line.append(f", {count(len(result.outputs), 'pass')}{', ' + symbols if symbols else ''}")
    yield line
    if quiet:
        return
    yield Text("")
    yield Padding(_outputs(rows), (0, 0, 0, 2))
    yield Text("")
    yield Padding(_counters(result), (0, 0, 0, 2))


def _outputs(rows: list[Compared]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("pass", justify="right")
    table.add_column("output")
    table.add_column("shape")
    table.add_column("first values")
    table.add_column("difference", justify="right")
    for row in rows:
        values = " ".join(f"{value:.4g}" for value in row.first)
        style = "" if row.agrees else "bold red"
        shape = " × ".join(map(str, row.shape))
        table.add_row(
            str(row.iteration), row.tensor, shape, f"{values} …",
            Text(f"{row.difference:.1e}", style=style),
        )  # fmt: skip
    return table


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


def run_to_dict(result: RunResult, rows: list[Compared]) -> dict[str, Any]:
    """The same as one JSON value."""
    return {
        "format": "splitproof-run/1",
        "agrees": all(row.agrees for row in rows),
        "tolerance": TOLERANCE,
        "symbols": dict(result.symbols),
        "outputs": [
            {
                "pass": row.iteration,
                "tensor": row.tensor,
                "shape": list(row.shape),
                "first": [value if value == value else None for value in row.first],
                "difference": row.difference if row.difference != float("inf") else None,
            }
            for row in rows
        ],
        "traffic": [
            {"from": m.source, "to": m.target, "bytes": m.bytes, "transfers": m.transfers}
            for m in result.traffic
        ],
        "banks": {
            name: {
                "fills": bank.fills, "hits": bank.hits, "misses": bank.misses,
                "evictions": bank.evictions, "uploaded": bank.uploaded, "uploads": bank.uploads,
            }
            for name, bank in result.banks.items()
        },
        "expert_copies": {
            name: {"experts": c.experts, "transfers": c.transfers, "bytes": c.bytes}
            for name, c in result.expert_copies.items()
        },
        "kernels": [
            {
                "op": use.op, "dtype": use.dtype, "compiled": use.compiled,
                "count": use.count, "seconds": round(use.seconds, 6),
            }
            for use in result.kernels
        ],
    }  # fmt: skip
