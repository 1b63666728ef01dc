"""The rows *GPU decode* and *GPU overlap*: shares of what the device does in the same rounds.

Decode: ``mul_mat_id`` with the experts of a bank, until each was used once; the bytes of the
weights over the bytes that a copy in the device's memory reads and writes in the same time.
Overlap: an upload from pinned memory, by a stream of its own, under products; the time of both over
the longer of the two alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from numba import cuda
from splitproof.exec.cuda.clock import hold_for
from splitproof.exec.cuda.driver import seconds, simulated
from splitproof.exec.cuda.launch import Launch
from splitproof.exec.cuda.table import choose
from splitproof.exec.data import initial_bytes
from splitproof.exec.layout import Layout
from splitproof.exec.operand import Operand, scratch
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Sizes:
    """``width``, ``rows``: of a matrix; ``used``: experts a token; ``side``: of the matrix of the
    products that the upload runs under, and ``tokens`` of these; ``upload``: bytes."""

    experts: int = 128
    width: int = 2048
    rows: int = 768
    used: int = 8
    side: int = 4096
    tokens: int = 512
    upload: int = 1 << 26
    rounds: int = 9


#: For the simulator.
TINY = Sizes(experts=2, width=32, rows=2, used=1, side=32, tokens=1, upload=4096, rounds=2)
#: Nanoseconds in which the host issues all that is timed; the stream waits for so long.
LEAD = 20_000_000
DECODE_TARGET, OVERLAP_TARGET = 0.70, 1.05
TYPES = ("q8_0", "q4_0")


def tensor(name: str, kind: str, *ne: int) -> Operand:
    """A packed operand on the device: small made-up numbers, or blocks of bytes that are no NaN."""
    a, b, c, d = [*ne, 1, 1, 1][:4]
    layout = Layout(name, dtype(kind), (a, b, c, d), (1, 1, 1, 1), "speed", 0, (0, 1))
    if kind in ("f32", "i32"):
        raw = initial_bytes(0, layout)
    else:
        raw = np.random.default_rng(0).integers(0, 60, layout.nbytes, np.uint8)
    return scratch(layout, cuda.to_device(raw))


def ready(work: Work, stream: Any) -> Work:
    """``work`` itself, done once: compiled, and everything loaded."""
    work()
    stream.synchronize()
    return work


# -- decode ---------------------------------------------------------------------------------------


def products(w: Operand, sizes: Sizes, tokens: int, launch: Launch) -> Work:
    """Products of so many tokens with ``used`` slots each, until every slot was used once."""
    slots = np.random.default_rng(1).permutation(sizes.experts).astype(np.int32)
    x = tensor("x", "f32", sizes.width, 1, tokens)
    y = tensor("y", "f32", sizes.rows, sizes.used, tokens)
    node = Node("mul_mat_id", "y", ("w", "x", "ids"))
    count = sizes.used * tokens
    calls = []
    for first in range(0, sizes.experts, count):
        ids = tensor("ids", "i32", sizes.used, tokens)
        ids.flat.copy_to_device(slots[first : first + count])
        calls.append((ids, choose(node, [y, w, x, ids])))

    def work() -> None:
        for ids, kernel in calls:
            kernel(y, [w, x, ids], node, launch)

    return work


def decode(kind: str, sizes: Sizes) -> list[dict[str, Any]]:
    """A row for 1, 4 and as many tokens as use every slot in one call."""
    stream = cuda.stream()
    launch = Launch(stream)
    w = tensor("w", kind, sizes.width, sizes.rows, sizes.experts)
    size = w.layout.nbytes
    other = cuda.device_array(size, np.uint8)
    copy = ready(lambda: other.copy_to_device(w.data, stream=stream), stream)
    rows = []
    for tokens in sorted({1, min(4, sizes.experts // sizes.used), sizes.experts // sizes.used}):
        work = ready(products(w, sizes, tokens, launch), stream)
        pairs = [(seconds(copy, stream, 1), seconds(work, stream, 1)) for _ in range(sizes.rounds)]
        launch.finish()
        rows.append({
            "row": "GPU decode", "type": kind, "tokens": tokens, "bytes": size,
            "copy_gb_s": 2 * size / median(p[0] for p in pairs) / 1e9,
            "read_gb_s": size / median(p[1] for p in pairs) / 1e9,
            "share": median(p[0] / (2 * p[1]) for p in pairs), "target": DECODE_TARGET,
        })  # fmt: skip
    return rows


# -- overlap --------------------------------------------------------------------------------------


def overlap(kind: str, sizes: Sizes) -> dict[str, Any]:
    """As many products under one upload as take about as long."""
    stream, copies = cuda.stream(), cuda.stream()
    launch = Launch(stream)
    w, x = tensor("w", kind, sizes.side, sizes.rows), tensor("x", "f32", sizes.side, sizes.tokens)
    y = tensor("y", "f32", sizes.rows, sizes.tokens)
    node = Node("mul_mat", "y", ("w", "x"))
    kernel = choose(node, [y, w, x])
    source = cuda.pinned_array(sizes.upload, np.uint8)
    source[:] = 1
    target = cuda.device_array(sizes.upload, np.uint8)

    def upload() -> None:
        target.copy_to_device(source, stream=copies)

    def once() -> None:
        kernel(y, [w, x], node, launch)

    ready(upload, copies)
    ready(once, stream)
    longest = seconds(upload, copies)
    count = max(1, round(longest / seconds(once, stream)))

    def compute() -> None:
        for _ in range(count):
            once()

    rows = []
    for _ in range(sizes.rounds):
        alone = seconds(upload, copies, 1), seconds(compute, stream, 1)
        rows.append((*alone, together(compute, upload, stream, copies)))
    launch.finish()
    return {
        "row": "GPU overlap", "type": kind, "products": count, "bytes": sizes.upload,
        "upload_ms": median(r[0] for r in rows) * 1e3,
        "compute_ms": median(r[1] for r in rows) * 1e3,
        "both_ms": median(r[2] for r in rows) * 1e3,
        "ratio": median(r[2] / max(r[:2]) for r in rows), "target": OVERLAP_TARGET,
    }  # fmt: skip


def together(compute: Work, upload: Work, stream: Any, copies: Any) -> float:
    """Seconds from the moment that both streams are let go until both are done."""
    if simulated():
        return seconds(lambda: (compute(), upload()), stream, 1)
    before, uploaded, after = (cuda.event(timing=True) for _ in range(3))
    hold_for[1, 1, stream](LEAD)
    before.record(stream)
    before.wait(copies)
    upload()
    uploaded.record(copies)
    compute()
    uploaded.wait(stream)
    after.record(stream)
    after.synchronize()
    return float(before.elapsed_time(after)) / 1000


def measure(sizes: Sizes) -> dict[str, Any]:
    """All rows, with the sizes.  In the simulator the numbers mean nothing."""
    rows: list[dict[str, Any]] = []
    for kind in TYPES:
        rows += decode(kind, sizes)
        rows.append(overlap(kind, sizes))
    for row in rows:
        share = row.get("share")
        met = share >= row["target"] if share is not None else row["ratio"] <= row["target"]
        row["met"] = None if simulated() else met
    return {"sizes": asdict(sizes), "rows": rows}


def text(row: dict[str, Any]) -> str:
    """A row for people."""
    if row["row"] == "GPU decode":
        found = (
            f"{row['row']:12} mul_mat_id {row['type']}, {row['tokens']} token(s) a call: weights "
            f"{row['read_gb_s']:.0f} GB/s, copy {row['copy_gb_s']:.0f} GB/s: {row['share']:.2f} of "
            f"it (target {row['target']:.2f})"
        )
    else:
        found = (
            f"{row['row']:12} {row['type']}: upload {row['upload_ms']:.2f} ms, compute "
            f"{row['compute_ms']:.2f} ms, both {row['both_ms']:.2f} ms: {row['ratio']:.3f} of the "
            f"longer (target {row['target']:.2f})"
        )
    return found if row["met"] is not None else f"{found} [simulator: no measurement]"
