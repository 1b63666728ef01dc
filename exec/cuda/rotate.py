"""Rotary position embedding, f32: one block per head and token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from ...model.graph import Node
from ..operand import Operand
from ..rotation import Angles, pair_starts
from .launch import Launch
from .target import row_place, row_start


@cuda.jit
def _rope(
    x: Any, s: Any, ne: Any, positions: Any, p: Any, divisors: Any, by: Any, ramp: Any, ratio: Any,
    scale: Any, size: Any, step: Any, apart: Any, dst: Any, d: Any,
) -> None:  # fmt: skip
    pairs = ramp.size
    head, token, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(head, token, i3, s[1], s[2], s[3])
    out = row_start(head, token, i3, d[1], d[2], d[3])
    one = np.float32(1)
    # The angle of pair i comes from that of pair i - 1, rounded each time, as on the CPU.
    theta = np.float32(positions[token * p])
    for _ in range(cuda.threadIdx.x):
        theta = np.float32(theta * ratio)
    for i in range(cuda.threadIdx.x, pairs, cuda.blockDim.x):
        whole = theta
        if by:
            whole = np.float32(theta / divisors[i * by])
        angle = np.float32(scale * whole * (one - ramp[i]) + whole * ramp[i])
        cos = np.float32(math.cos(np.float64(angle)) * size)
        sin = np.float32(math.sin(np.float64(angle)) * size)
        a, b = x[at + i * step * s[0]], x[at + (i * step + apart) * s[0]]
        dst[out + i * step * d[0]] = a * cos - b * sin
        dst[out + (i * step + apart) * d[0]] = a * sin + b * cos
        for _ in range(cuda.blockDim.x):
            theta = np.float32(theta * ratio)
    for k in range(2 * pairs + cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        dst[out + k * d[0]] = x[at + k * s[0]]


def rope(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """x ``[size, heads, tokens]`` turned by the positions; source 2 divides the frequencies."""
    x, positions = sources[:2]
    if dst.empty:
        return
    angles = Angles.of(node)
    step, apart = pair_starts(node)
    divisors, by = x.flat, 0
    if len(sources) > 2:
        divisors, by = sources[2].flat, sources[2].steps[0]
    launch.rows(
        _rope, x.ne, x.flat, x.steps, x.ne, positions.flat, positions.steps[0], divisors, by,
        launch.constant("rope", node.dst, angles.ramp), np.float32(angles.ratio),
        np.float32(angles.scale), np.float32(angles.size), step, apart, dst.flat, dst.steps,
    )  # fmt: skip
