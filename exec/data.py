"""Made-up contents: initial bytes, inputs, ids and what callbacks write.

Everything follows from (seed, purpose, name, pass) through SHA-256, so that two runs, two
processes and two machines agree, whatever the order in which they ask.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ..model.schedule import Schedule
from .layout import Layout, Layouts
from .quant import Bytes, from_array

#: Integers without a range and without a reader that bounds them stay below this.
UNBOUNDED = 128


def generator(seed: int, *key: str | int) -> np.random.Generator:
    """A NumPy generator for one purpose; equal keys give equal streams."""
    text = "\0".join([str(seed), *(str(part) for part in key)])
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def initial_bytes(seed: int, layout: Layout) -> Bytes:
    """What a tensor of a ``weights`` or ``any`` buffer holds at the start: finite values."""
    return _fill(generator(seed, "initial", layout.name), layout, layout.values)


def input_bytes(
    seed: int, layout: Layout, pass_: int, bounds: tuple[int, int] | None = None, earlier: int = 0
) -> Bytes:
    """What the user sets an input to in one pass.

    ``bounds``: the range of integers (default: the tensor's ``values``).  ``earlier``: 0 for the
    last ``set_input`` of the tensor in a pass, 1 for the one before it, …
    """
    rng = generator(seed, "input", layout.name, pass_, earlier)
    return _fill(rng, layout, bounds or layout.values)


def callback_bytes(seed: int, callback: str, layout: Layout, pass_: int) -> Bytes:
    """What a callback without a function of its own writes to a tensor in one pass."""
    return _fill(generator(seed, "callback", callback, layout.name, pass_), layout, layout.values)


def integer_bounds(layouts: Layouts, name: str) -> tuple[int, int]:
    """``[lo, hi)`` of an integer tensor: its ``values``, else what its readers can index."""
    schedule: Schedule = layouts.schedule
    tensor = schedule.tensor(name)
    if tensor.values is not None:
        return tensor.values
    base = schedule.base(name).name
    high = UNBOUNDED
    for node in schedule.graph.nodes:
        for operand, dimension, ids in (
            ("get_rows", 1, 1),
            ("set_rows", 1, 1),
            ("mul_mat_id", 2, 2),
        ):
            if node.op != operand or schedule.base(node.src[ids]).name != base:
                continue
            indexed = node.dst if operand == "set_rows" else node.src[0]
            high = min(high, layouts.sequential(indexed).ne[dimension])
    return 0, high


def _fill(rng: np.random.Generator, layout: Layout, bounds: tuple[int, int] | None) -> Bytes:
    kind = layout.dtype
    if kind.integer and layout.known:
        return from_array(kind, _integers(rng, layout, bounds or (0, UNBOUNDED)))
    count = layout.nbytes // kind.block_bytes
    if kind.name in ("f32", "f64", "f16", "bf16"):
        return from_array(kind, rng.standard_normal(count, dtype=np.float32))
    raw = rng.integers(0, 256, layout.nbytes, dtype=np.uint8)
    if kind.name in ("q8_0", "q4_0"):
        # 2**-7 … 2**-6 (q8_0) and 2**-3 … 2**-2 (q4_0): values of about the size of one.
        least = 2.0**-7 if kind.name == "q8_0" else 2.0**-3
        blocks = raw.reshape(count, kind.block_bytes)
        scale = (least * (1 + rng.random(count, dtype=np.float32))).astype(np.float16)
        blocks[:, :2] = scale.view(np.uint8).reshape(count, 2)
        return raw
    # Without bit 6 no exponent of any float of any width, wherever it lies, is all ones.
    return raw & np.uint8(0x3F)


def _integers(rng: np.random.Generator, layout: Layout, bounds: tuple[int, int]) -> np.ndarray:
    low, high = bounds
    per_token, *outer = layout.ne
    tokens = int(np.prod(outer, dtype=np.int64))
    if 0 < per_token <= high - low <= 65536:
        ranks = rng.random((tokens, high - low)).argsort(axis=1, kind="stable")
        values = low + ranks[:, :per_token]
    else:
        values = rng.integers(low, high, (tokens, per_token), dtype=np.int64)
    return values.reshape(layout.ne[::-1]).T
