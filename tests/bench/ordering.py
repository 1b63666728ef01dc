"""Row "ordering": happens-before closure and conflicting pairs of a program on 16 queues.

    python tests/bench/ordering.py [--rounds 5] [--commands 20000 1000000]

Each tenth command is a record, each tenth a wait, each thousandth a host wait for a queue; every
other command reads three places and writes one, which others use shortly before or after.
``closure`` and ``conflicts``: least processor time of the compiled functions (the compilation is
not counted); ``plain``: both on lists.
"""

from __future__ import annotations

import argparse
import os
from time import process_time
from typing import Any

import numpy as np
from splitproof.verify import closure as plain
from splitproof.verify import closure_compiled as twin
from splitproof.verify.closure import PLAIN, RECORD, SYNC_QUEUE, WAIT, Clocks, Steps

QUEUES = 16
EVENTS = 4096
#: Plain Python is measured up to this many commands.
MOST_PLAIN = 100_000
TARGET = 0.1


def program(commands: int) -> tuple[Steps, Any, Any, Any, int]:
    """Steps on 16 queues, and their accesses: where each part's begin, places, whether written."""
    draw = np.random.default_rng(0)
    what = draw.integers(0, 1000, commands)
    does = np.full(commands, PLAIN)
    does[what < 100], does[(what >= 100) & (what < 200)] = RECORD, WAIT
    does[what == 999] = SYNC_QUEUE
    chain = draw.integers(1, QUEUES + 1, commands)
    of = draw.integers(0, EVENTS, commands)
    of[does == SYNC_QUEUE] = chain[does == SYNC_QUEUE]
    chain[does == SYNC_QUEUE] = 0
    zero = np.zeros(commands, np.int64)
    steps = Steps(*(_ints(values) for values in (chain, zero, does, of, zero)))
    first = np.concatenate(([0], np.cumsum(np.where(does == PLAIN, 4, 0))))
    places = max(commands // 8, 1)
    near = np.repeat(np.arange(commands), np.diff(first)) // 8 + draw.integers(0, 64, first[-1])
    place = np.minimum(near, places - 1)
    writes = np.arange(first[-1]) % 4 == 3
    return steps, _ints(first), _ints(place), _ints(writes), places


def _ints(values: Any) -> Any:
    return np.asarray(values, np.int32)


def compiled(commands: int, rounds: int) -> tuple[float, float, int]:
    """Least seconds of the closure and of the conflicts, and how many pairs there are."""
    steps, first, place, writes, places = program(commands)
    times, pairs = [], 0
    for _ in range(rounds):
        started = process_time()
        clocks = twin.as_arrays(twin.run(steps, QUEUES + 1, 1, [1], EVENTS))
        between = process_time()
        last, raced = twin.full(places * 2 * (QUEUES + 1)), twin.full(places, 0)
        pairs = twin.conflicts(steps, QUEUES + 1, clocks, first, place, writes, last, raced)
        times.append((between - started, process_time() - between))
    return min(a for a, _ in times), min(b for _, b in times), pairs


def on_lists(commands: int) -> float:
    steps, first, place, writes, places = program(commands)
    lists = Steps(*(values.tolist() for values in steps))
    width, count = QUEUES + 1, commands
    started = process_time()
    out = Clocks(
        [0] * count, [0] * ((4 * count + 1) * width), [-1] * count, [-1] * count, [-1] * count
    )
    plain.closure(lists, width, 1, [1], [-1] * EVENTS, [-1] * (6 * width), out)
    accesses = first.tolist(), place.tolist(), writes.tolist()
    plain.conflicts(lists, width, out, *accesses, [-1] * (places * 2 * width), [0] * places)
    return process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commands", type=int, nargs="+", default=[20_000, 1_000_000])
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, target {TARGET} s for 1M")
    print(f"{'commands':>9}  {'closure':>9}  {'conflicts':>9}  {'both':>9}  {'pairs':>9}  plain")
    compiled(1000, 1)  # the compilation
    for commands in options.commands:
        a, b, pairs = compiled(commands, options.rounds)
        lists = "not measured"
        if commands <= MOST_PLAIN:
            lists = f"{on_lists(commands) * 1e3:.0f} ms ({on_lists(commands) / (a + b):.0f} x)"
        cells = "  ".join(f"{t * 1e3:6.1f} ms" for t in (a, b, a + b))
        print(f"{commands:>9,}  {cells}  {pairs:>9,}  {lists}")


if __name__ == "__main__":
    main()
