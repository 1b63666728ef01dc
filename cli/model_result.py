"""What a run of a model gave, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .exec.generate import Generation
from .exec.runtime import RunResult
from .model.read.gguf import ModelFile
from .words import count, size_text


@dataclass(frozen=True, slots=True)
class Outcome:
    """``results``: of each program; ``seconds``: per phase."""

    model: ModelFile
    tokens: Sequence[int]
    made: Generation
    results: Sequence[RunResult]
    seconds: dict[str, float]

    @property
    def moved(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Bytes and transfers between different memories."""
        total: dict[tuple[str, str], tuple[int, int]] = {}
        for result in self.results:
            for move in result.traffic:
                if move.source != move.target:
                    moved, times = total.get((move.source, move.target), (0, 0))
                    total[move.source, move.target] = moved + move.bytes, times + move.transfers
        return total

    @property
    def computes(self) -> tuple[int, int]:
        """How many ran on compiled kernels, and on the NumPy reference."""
        compiled = sum(
            use.count for result in self.results for use in result.kernels if use.compiled
        )
        return compiled, sum(result.fallbacks for result in self.results)

    @property
    def prefetches(self) -> int:
        return sum(result.prefetches for result in self.results)

    @property
    def working(self) -> dict[str, float]:
        """Seconds of work by its kind, over all threads."""
        total: dict[str, float] = {}
        for result in self.results:
            for kind, taken in result.seconds.items():
                total[kind] = total.get(kind, 0.0) + taken
        return total

    @property
    def caches(self) -> dict[str, CacheUse]:
        """By group of banks."""
        found: dict[str, CacheUse] = {}
        for result in self.results:
            seen = set()
            for bank in result.schedule.graph.banks:
                use = found.setdefault(bank.group, CacheUse(bank.slots))
                counted = result.banks[bank.name]
                use.uploaded += counted.uploaded
                if (bank.group, bank.layer) in seen:
                    continue  # up, gate and down of a layer are looked up together
                seen.add((bank.group, bank.layer))
                use.hits += counted.hits
                use.misses += counted.misses
                use.evictions += counted.evictions
        return found


@dataclass(slots=True)
class CacheUse:
    """A group's slots; distinct experts per look-up of a layer that were there and that were
    not; experts that lost a slot; bytes uploaded."""

    slots: int
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    uploaded: int = 0


def outcome_items(outcome: Outcome, quiet: bool) -> Iterator[RenderableType]:
    """The tokens; then the model, what moved and how long it took."""
    yield Text(" ".join(map(str, outcome.made.tokens)))
    if quiet:
        return
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(outcome):
        table.add_row(name, text)
    yield Text("")
    yield Padding(table, (0, 0, 0, 2))


def _rows(outcome: Outcome) -> Iterator[tuple[str, str]]:
    model = outcome.model
    kinds = ", ".join(dict.fromkeys(tensor.dtype for tensor in model.tensors.values()))
    weights = sum(tensor.nbytes for tensor in model.tensors.values())
    yield "model", f"{model.architecture}, {size_text(weights)} of weights ({kinds})"
    yield "proved", count(len(outcome.results), "program")
    compiled, fallbacks = outcome.computes
    yield "computed", f"{compiled:,} by compiled kernels, {fallbacks:,} by the NumPy reference"
    for (source, target), (moved, times) in outcome.moved.items():
        yield "moved", f"{source} → {target}: {size_text(moved)} in {count(times, 'transfer')}"
    for group, use in outcome.caches.items():
        yield (
            "cache",
            f"{group}: {count(use.slots, 'slot')}, {count(use.hits, 'hit')}, "
            f"{count(use.misses, 'miss', 'misses')}, {count(use.evictions, 'eviction')}, "
            f"{size_text(use.uploaded)} uploaded",
        )
    if outcome.prefetches:
        yield "prefetch", count(outcome.prefetches, "transfer") + " ahead of their split"
    for phase, taken in outcome.seconds.items():
        fed = {"prompt": len(outcome.tokens), "decode": outcome.made.steps}.get(phase, 0)
        yield phase, _speed(taken, fed)
    work = ", ".join(f"{kind} {taken:.3f} s" for kind, taken in outcome.working.items())
    yield "work", work


def _speed(seconds: float, tokens: int) -> str:
    text = f"{seconds:.3f} s"
    if tokens > 0 and seconds > 0:
        text += f", {count(tokens, 'token')}, {tokens / seconds:.1f} a second"
    return text


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """The same as one JSON value."""
    compiled, fallbacks = outcome.computes
    return {
        "format": "splitproof-generation/1",
        "architecture": outcome.model.architecture,
        "prompt": list(outcome.tokens),
        "tokens": list(outcome.made.tokens),
        "programs": len(outcome.results),
        "computed": {"compiled": compiled, "reference": fallbacks},
        "traffic": [
            {"from": source, "to": target, "bytes": moved, "transfers": times}
            for (source, target), (moved, times) in outcome.moved.items()
        ],
        "caches": {group: asdict(use) for group, use in outcome.caches.items()},
        "prefetches": outcome.prefetches,
        "seconds": {phase: round(taken, 6) for phase, taken in outcome.seconds.items()},
        "work": {kind: round(taken, 6) for kind, taken in outcome.working.items()},
    }
