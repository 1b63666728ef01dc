"""Row "overlap": the upload of a layer's weight under the compute of the layer before it.

    python tests/bench/overlap.py [--layers 16] [--tokens 64] [--rounds 15]

A chain of products with weights in host memory, on a device with a queue for copies, is planned,
proved and run by the runtime: once with every upload awaited before it is used, which gives the
times of copies and computes alone, then with two slots that are filled one layer ahead.  A round
counts only if no thread was taken off its core: processor time of each part over its wall time.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from splitproof.exec.session import Session
from splitproof.exec.watch import Stretch, Watcher
from splitproof.model import document
from splitproof.model.certificate import certify
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.planner import plan
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check

WIDTH = 2048
#: Processor time over wall time below which a thread was taken off its core.
UNDISTURBED = 0.97
TARGET = 1.10


class Stopwatch(Watcher):
    """Wall and processor seconds of copies and computes, and of the whole run."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self._open: dict[Stretch, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def start(self, stretch: Stretch, token: object, flights: str = "", flown: int = 0) -> None:
        self._open[stretch] = time.perf_counter(), time.thread_time()

    def end(self, stretch: Stretch) -> None:
        wall, processor = self._open.pop(stretch)
        kind = stretch.text.split()[0]
        with self._lock:
            for table, clock, began in (
                (self.wall, time.perf_counter(), wall),
                (self.processor, time.thread_time(), processor),
            ):
                table[kind] = table.get(kind, 0.0) + clock - began

    def undisturbed(self) -> bool:
        kinds = [kind for kind in self.wall if kind in ("compute", "copy", "prefetch")]
        return all(self.processor[kind] >= UNDISTURBED * self.wall[kind] for kind in kinds)


def chain(layers: int, tokens: int) -> Schedule:
    """``x → w0 → w1 → …``, each product f32 activations times a q8_0 weight in host memory."""
    size = WIDTH // 32 * 34 * WIDTH
    tensors: dict[str, Any] = {"y0": {"dtype": "f32", "shape": [WIDTH, tokens], "input": True}}
    nodes = []
    for layer in range(layers):
        tensors[f"w{layer}"] = {
            "dtype": "q8_0", "shape": [WIDTH, WIDTH], "buffer": "weights", "offset": layer * size,
        }  # fmt: skip
        last = {"output": True} if layer == layers - 1 else {}
        tensors[f"y{layer + 1}"] = {
            "dtype": "f32", "shape": [WIDTH, tokens], "pin": "gpu0", **last,
        }  # fmt: skip
        nodes.append({"op": "mul_mat", "dst": f"y{layer + 1}", "src": [f"w{layer}", f"y{layer}"]})
    return document.from_dict({
        "format": "splitproof/1", "name": f"{layers} products of {tokens} tokens",
        "memories": {"host": {"host": True}, "vram0": {}},
        "devices": [
            {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True,
             "copy": "stream", "queues": ["compute", "copy"], "offload_min_tokens": 1},
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "buffers": {"weights": {"memory": "host", "usage": "weights", "bytes": layers * size}},
        "tensors": tensors, "nodes": nodes,
    })  # fmt: skip


def session(schedule: Schedule, lowering: Lowering, watch: Watcher) -> Session:
    program = replace(lower_as(plan(schedule), lowering).schedule, repeat=1)
    return Session(program, certify(check(program)), watcher=watch)


def timed(made: Session, watch: Stopwatch, inputs: Mapping[str, Any]) -> float:
    watch.wall.clear()
    watch.processor.clear()
    began = time.perf_counter()
    made.run(inputs)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    schedule, watch = chain(options.layers, options.tokens), Stopwatch()
    x = np.random.default_rng(0).standard_normal((WIDTH, options.tokens)).astype(np.float32)
    rows = []
    with (
        session(schedule, Lowering("plain"), watch) as plain,
        session(schedule, Lowering("overlapped", "staging", 2), watch) as staged,
    ):
        for made in (plain, staged):
            made.run({"y0": x})  # compiles, and touches all memory once
        for _ in range(options.rounds):
            timed(plain, watch, {"y0": x})
            alone = watch.wall["copy"], watch.wall["compute"]
            quiet = watch.undisturbed()
            both = timed(staged, watch, {"y0": x})
            rows.append((both, *alone, quiet and watch.undisturbed()))
    _report(rows, options.layers, options.tokens)


def _report(rows: list[tuple[float, float, float, bool]], layers: int, tokens: int) -> None:
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    kept = [row for row in rows if row[3]]
    print(f"overlap: {layers} products, {tokens} tokens; {load}")
    if not kept:
        print(f"not measured: in each of {len(rows)} rounds a thread was taken off its core")
        kept = rows
        print("for what it is worth, with these rounds:")
    both, copy, compute = (median(row[i] for row in kept) for i in range(3))
    ratio = median(row[0] / max(row[1], row[2]) for row in kept)
    print(
        f"{len(kept)} of {len(rows)} rounds: copies {copy * 1e3:.1f} ms, computes "
        f"{compute * 1e3:.1f} ms, overlapped {both * 1e3:.1f} ms: {ratio:.2f} of the longer "
        f"(target {TARGET:.2f})"
    )


if __name__ == "__main__":
    main()
