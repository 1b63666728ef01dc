"""Rotary position embedding: the angles, and the op's meaning in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log, pi

import numpy as np

from ..model.graph import Node
from .quant import Array
from .source import Operand, Shape
from .unsupported import UnsupportedOp


@dataclass(frozen=True, slots=True)
class Angles:
    """What the parameters of a ``rope`` node say about its angles (``ggml_rope_cache_init``).

    Pair i of position p turns by ``t · (scale · (1 - ramp[i]) + ramp[i])``, t being p times the
    i-th power of ``ratio``; cosine and sine are multiplied by ``size``.
    """

    ratio: np.float32
    scale: np.float32
    ramp: Array
    size: float

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(node: Node) -> Angles:
        n_dims, base = _count(node, "n_dims"), float(node.param("freq_base", 1e4))
        scale = float(node.param("freq_scale", 1.0))
        mixing, size = float(node.param("ext_factor", 0.0)), float(node.param("attn_factor", 1.0))
        ramp = np.zeros(n_dims // 2, np.float32)
        if mixing:
            ramp = (_ramp(node, n_dims, base) * mixing).astype(np.float32)
            size *= 1.0 + 0.1 * log(1.0 / scale)
        ratio = np.float32(base ** (-2.0 / n_dims))
        return Angles(ratio, np.float32(scale), ramp, size)


def angles(node: Node, positions: Array, factors: Array | None = None) -> tuple[Array, Array]:
    """Cosines and sines, float32 ``[n_dims / 2, tokens]``.

    ``factors``: a divisor per frequency.  As in ggml the powers are taken by repeated
    multiplication in float32.
    """
    found = Angles.of(node)
    theta = np.empty((len(found.ramp), len(positions)), np.float32)
    current = positions.astype(np.float32)
    for i in range(len(theta)):
        theta[i] = current
        current = (current * found.ratio).astype(np.float32)
    if factors is not None:
        theta = (theta / factors.reshape(-1, 1)).astype(np.float32)
    ramp = found.ramp[:, None]
    exact = (found.scale * theta * (1 - ramp) + theta * ramp).astype(np.float64)
    cos, sin = np.cos(exact) * found.size, np.sin(exact) * found.size
    return cos.astype(np.float32), sin.astype(np.float32)


def _count(node: Node, name: str) -> int:
    value = node.param(name)
    if value is None:  # some recordings have no parameters
        raise UnsupportedOp(f"rope {node.dst}: the parameter {name} is not given")
    return int(value)


def _ramp(node: Node, n_dims: int, base: float) -> Array:
    """How much of each frequency is left as it was trained, from 1 (fast) to 0 (slow)."""
    context = _count(node, "n_ctx_orig")

    def dimension(turns: float) -> float:
        return n_dims * log(context / (turns * 2 * pi)) / (2 * log(base))

    low = max(0, floor(dimension(float(node.param("beta_fast", 32.0)))))
    high = min(n_dims - 1, ceil(dimension(float(node.param("beta_slow", 1.0)))))
    i = np.arange(n_dims // 2, dtype=np.float64)
    ramp: Array = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
    return ramp


def pair_starts(node: Node) -> tuple[int, int]:
    """Step from one pair to the next, and from a pair's first number to its second.

    ``normal``: neighbours; ``neox``: half of the rotated numbers apart.
    ``UnsupportedOp`` for another mode.
    """
    mode = node.param("mode", "normal")
    if mode in ("normal", 0):
        return 2, 1
    if mode in ("neox", 2):
        return 1, _count(node, "n_dims") // 2
    raise UnsupportedOp(f"rope {node.dst}: mode {mode!r}; 'normal' or 'neox' was due")


def rope(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
    """x ``[size, heads, tokens]``, positions ``[tokens]``; what is not rotated stays."""
    x = src[0].array
    factors = src[2].array if len(src) > 2 else None
    cos, sin = angles(node, src[1].array.reshape(-1), factors)
    pairs, (step, apart) = cos.shape[0], pair_starts(node)
    first = np.arange(pairs) * step
    a, b = x[first], x[first + apart]
    result = x.copy()
    cos, sin = cos[:, None, :, None], sin[:, None, :, None]
    result[first] = a * cos - b * sin
    result[first + apart] = a * sin + b * cos
    return result
