"""Recorded expert routings, as Python values and as arrays."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: ``(layer, [(expert, was it resident)])``
Batches = Sequence[tuple[int, Sequence[tuple[int, bool]]]]


def read_trace(path: Path) -> tuple[list[tuple[int, list[tuple[int, bool]]]], dict[int, int]]:
    """Batches ``(layer, [(expert, was it resident)])``, and bytes of an expert by layer."""
    size = {}
    with gzip.open(path, "rt") as lines:
        rows = []
        for line in lines:
            if line.startswith("# layer="):
                words = dict(word.split("=") for word in line[2:].split())
                size[int(words["layer"])] = int(words["expert_bytes"])
            elif not line.startswith("#"):
                rows.append(line)
    records = list(csv.DictReader(rows))

    def batch(row: dict[str, str]) -> tuple[str, ...]:
        step = row["step"] if row["phase"] == "1" else ""
        return row["turn"], row["phase"], step, row["layer"]

    batches = []
    for _, group in itertools.groupby(records, batch):
        members = [(int(row["layer"]), int(row["expert"]), row["residency"]) for row in group]
        batches.append((members[0][0], [(expert, hit == "1") for _, expert, hit in members]))
    return batches, size


@dataclass(frozen=True)
class Arrays:
    """``first``: whether an id is the first of its kind in its batch."""

    starts: NDArray[np.int64]
    layers: NDArray[np.int64]
    ids: NDArray[np.int64]
    sizes: NDArray[np.int64]
    recorded: NDArray[np.bool_]
    first: NDArray[np.bool_]

    @property
    def inputs(self) -> tuple[NDArray[np.int64], ...]:
        """As the compiled policy takes them."""
        return self.starts, self.layers, self.ids, self.sizes


def as_arrays(batches: Batches, size: Mapping[int, int], times: int = 1) -> Arrays:
    """The trace, ``times`` in a row."""
    whole = [batch for _ in range(times) for batch in batches]
    rows = [row for _, found in whole for row in found]
    firsts = []
    for _, found in whole:
        seen: set[int] = set()
        for expert, _ in found:
            firsts.append(expert not in seen)
            seen.add(expert)
    return Arrays(
        np.cumsum([0, *(len(found) for _, found in whole)], dtype=np.int64),
        np.array([layer for layer, _ in whole], np.int64),
        np.array([expert for expert, _ in rows], np.int64),
        np.array([size[layer] for layer in range(max(size) + 1)], np.int64),
        np.array([resident for _, resident in rows], bool),
        np.array(firsts, bool),
    )
