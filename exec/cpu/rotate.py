"""Rotary position embedding, f32, for one thread, without the GIL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from ...model.graph import Node
from ..operand import Operand
from ..rotation import Angles, pair_starts


@njit(cache=True, nogil=True)
def _rope(
    x: Any, s: Any, ne: Any, positions: Any, p: Any, divisors: Any, ramp: Any, ratio: Any,
    scale: Any, size: Any, step: Any, apart: Any, dst: Any, d: Any,
) -> None:  # fmt: skip
    pairs = len(ramp)
    cos, sin = np.empty(pairs, np.float32), np.empty(pairs, np.float32)
    one = np.float32(1)
    for token in range(ne[2]):
        theta = np.float32(positions[token * p])
        for i in range(pairs):
            whole = theta / divisors[i]
            angle = np.float32(scale * whole * (one - ramp[i]) + whole * ramp[i])
            cos[i] = np.float32(np.cos(np.float64(angle)) * size)
            sin[i] = np.float32(np.sin(np.float64(angle)) * size)
            theta = np.float32(theta * ratio)
        for i3 in range(ne[3]):
            for head in range(ne[1]):
                at = i3 * s[3] + token * s[2] + head * s[1]
                out = i3 * d[3] + token * d[2] + head * d[1]
                for i in range(pairs):
                    a, b = x[at + i * step * s[0]], x[at + (i * step + apart) * s[0]]
                    dst[out + i * step * d[0]] = a * cos[i] - b * sin[i]
                    dst[out + (i * step + apart) * d[0]] = a * sin[i] + b * cos[i]
                for k in range(2 * pairs, ne[0]):
                    dst[out + k * d[0]] = x[at + k * s[0]]


def rope(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """x ``[size, heads, tokens]`` turned by the positions; source 2 divides the frequencies."""
    x, positions = sources[:2]
    if dst.empty:
        return
    angles = Angles.of(node)
    step, apart = pair_starts(node)
    divisors = np.ones(len(angles.ramp), np.float32)
    if len(sources) > 2:
        divisors = np.ascontiguousarray(sources[2].array.reshape(-1), np.float32)
    _rope(
        x.flat, x.steps, x.ne, positions.flat, positions.steps[0], divisors, angles.ramp,
        angles.ratio, angles.scale, angles.size, step, apart, dst.flat, dst.steps,
    )  # fmt: skip
