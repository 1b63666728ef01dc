"""Row "cache replay": look-ups of a recorded routing through the cache that was recorded.

    python tests/bench/cache.py [--lookups 1000000] [--rounds 7]

The trace runs in a row until there are enough look-ups; its first turn must give every hit and
miss that was recorded.  Prints the best processor time of several rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from splitproof.exec.cpu.policies import lru_bytes_trace

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "exec"))
from route_traces import as_arrays, read_trace  # noqa: E402

TRACES = TESTS.parents[1] / "shared" / "data" / "traces"
#: Budgets of the recorded caches, and experts of a layer at most.
CASES = (("qwen", 4000, 128), ("gptoss", 3000, 128))
TARGET = 10e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lookups", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; target {TARGET:,.0f} a second")
    for model, mebibytes, experts in CASES:
        path = TRACES / f"{model}.route.csv.gz"
        if not path.exists():
            print(f"{model:8} not measured: the recorded data is absent ({path.name})")
            continue
        measure(model, path, mebibytes << 20, experts, options.lookups, options.rounds)


def measure(model: str, path: Path, budget: int, experts: int, lookups: int, rounds: int) -> None:
    batches, size = read_trace(path)
    once = as_arrays(batches, size)
    hits = np.zeros(len(once.ids), bool)
    lru_bytes_trace(*once.inputs, experts, budget, hits)
    agree = int((hits == once.recorded)[once.first].sum())
    many = as_arrays(batches, size, -(-lookups // len(once.ids)))
    hits = np.zeros(len(many.ids), bool)
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        lru_bytes_trace(*many.inputs, experts, budget, hits)
        taken.append(time.process_time() - began)
    rate = len(many.ids) / min(taken)
    print(
        f"{model:8} {len(many.ids):>9,} look-ups, {rate / 1e6:6.1f}M a second, "
        f"{agree:,} of {int(once.first.sum()):,} recorded hits and misses reproduced"
    )


if __name__ == "__main__":
    main()
