"""Row "overlap": the upload of layer i + 1 under the compute of layer i.

    python tests/bench/overlap.py [--width 1024] [--tokens 32] [--layers 32] [--rounds 20]

A chain of products with weights in host memory, on a device with a queue for copies, is planned,
proved and run by the runtime: once with everything awaited, which gives the times of a copy and
of a compute alone, then with two slots that are filled one layer ahead.  A layer takes from the
start of its compute to the start of the next.  A part counts only if its thread was not taken off
its core: its processor time over its wall time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from splitproof.exec.queue import Crew
from splitproof.exec.session import Session
from splitproof.exec.watch import Stretch, Watcher
from splitproof.model import document
from splitproof.model.certificate import certify
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.planner import plan
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check

#: Processor time over wall time below which a thread was taken off its core.
UNDISTURBED = 0.97
TARGET = 1.10


@dataclass(frozen=True)
class Part:
    """When a copy or a compute began and ended, and seconds of the processor between."""

    kind: str
    began: float
    ended: float
    processor: float

    @property
    def wall(self) -> float:
        return self.ended - self.began

    @property
    def undisturbed(self) -> bool:
        return self.processor >= UNDISTURBED * self.wall


class Stopwatch(Watcher):
    """The copies and computes of a run."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._open: dict[Stretch, tuple[float, float]] = {}

    def start(self, stretch: Stretch, token: object, flights: str = "", flown: int = 0) -> None:
        self._open[stretch] = time.perf_counter(), time.thread_time()

    def end(self, stretch: Stretch) -> None:
        ended, processor = time.perf_counter(), time.thread_time()
        began, before = self._open.pop(stretch)
        kind = {"compute": "compute", "copy": "copy", "prefetch": "copy"}
        word = stretch.text.split()[0]
        if word in kind:
            self.parts.append(Part(kind[word], began, ended, processor - before))

    def take(self) -> list[Part]:
        """The parts so far, by their start."""
        parts, self.parts = sorted(self.parts, key=lambda part: part.began), []
        return parts


def chain(layers: int, tokens: int, width: int) -> Schedule:
    """``y0 → w0 → y1 → …``, each product f32 activations times a q8_0 weight in host memory."""
    size = width // 32 * 34 * width
    tensors: dict[str, Any] = {"y0": {"dtype": "f32", "shape": [width, tokens], "input": True}}
    nodes = []
    for layer in range(layers):
        tensors[f"w{layer}"] = {
            "dtype": "q8_0", "shape": [width, width], "buffer": "weights", "offset": layer * size,
        }  # fmt: skip
        last = {"output": True} if layer == layers - 1 else {}
        tensors[f"y{layer + 1}"] = {
            "dtype": "f32", "shape": [width, tokens], "pin": "gpu0", **last,
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


def session(schedule: Schedule, lowering: Lowering, watch: Watcher, crew: Crew) -> Session:
    program = replace(lower_as(plan(schedule), lowering).schedule, repeat=1)
    return Session(program, certify(check(program)), watcher=watch, crew=crew)


def layers_of(parts: Sequence[Part]) -> list[tuple[float, bool]]:
    """Per layer under which a copy ran: its seconds, and whether all of it was undisturbed."""
    computes = [part for part in parts if part.kind == "compute"]
    copies = [part for part in parts if part.kind == "copy"]
    found = []
    for one, following in pairwise(computes):
        under = [c for c in copies if c.began < following.began and c.ended > one.began]
        if under:
            quiet = all(part.undisturbed for part in (one, *under))
            found.append((following.began - one.began, quiet))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--free", action="store_true", help="do not pin threads to cores")
    options = parser.parse_args()
    schedule, watch = chain(options.layers, options.tokens, options.width), Stopwatch()
    rng = np.random.default_rng(0)
    inputs = {"y0": rng.standard_normal((options.width, options.tokens)).astype(np.float32)}
    alone: dict[str, list[float]] = {"copy": [], "compute": []}
    layers: list[tuple[float, bool]] = []
    with Crew(pinned=not options.free) as crew:
        plain = session(schedule, Lowering("plain"), watch, crew)
        staged = session(schedule, Lowering("overlapped", "staging", 2), watch, crew)
        for made in (plain, staged):
            made.run(inputs)  # compiles, and touches all memory once
        watch.take()
        for _ in range(options.rounds):
            plain.run(inputs)
            for part in watch.take():
                if part.undisturbed and part.wall > 1e-4:  # not the activations
                    alone[part.kind].append(part.wall)
            staged.run(inputs)
            layers += layers_of(watch.take())
    report(alone, layers)


def report(alone: dict[str, list[float]], layers: list[tuple[float, bool]]) -> None:
    print(f"overlap: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    kept = [seconds for seconds, quiet in layers if quiet]
    if not kept or not all(alone.values()):
        print(f"not measured: a thread was taken off its core in all of {len(layers)} layers")
        return
    copy, compute = median(alone["copy"]), median(alone["compute"])
    longer = max(copy, compute)
    print(
        f"{len(kept)} of {len(layers)} layers undisturbed: copy {copy * 1e3:.2f} ms, compute "
        f"{compute * 1e3:.2f} ms, both {median(kept) * 1e3:.2f} ms: {median(kept) / longer:.2f} of "
        f"the longer (best {min(kept) / longer:.2f}; one after the other "
        f"{(copy + compute) / longer:.2f}; target {TARGET:.2f})"
    )


if __name__ == "__main__":
    main()
