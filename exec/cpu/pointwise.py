"""Element by element, f32, for one thread, without the GIL; and ``custom``, over raw bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from ...model.graph import Node
from ..functions import name_bytes
from ..operand import Operand
from ..quant import Bytes, from_array

ADD, SUB, MUL, DIV = range(4)
SILU, SIGMOID, SCALE, CLAMP = range(4)
SWIGLU, SWIGLU_OAI = range(2)


# A division by zero is an infinity or a NaN here, as in C; Numba would raise an error.
@njit(cache=True, nogil=True, error_model="numpy")
def _row(op: Any, a: Any, b: Any, dst: Any) -> None:
    if op == ADD:
        for k in range(len(dst)):
            dst[k] = a[k] + b[k]
    elif op == SUB:
        for k in range(len(dst)):
            dst[k] = a[k] - b[k]
    elif op == MUL:
        for k in range(len(dst)):
            dst[k] = a[k] * b[k]
    else:
        for k in range(len(dst)):
            dst[k] = a[k] / b[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _one(op: Any, left: Any, right: Any) -> Any:
    if op == ADD:
        return left + right
    if op == SUB:
        return left - right
    if op == MUL:
        return left * right
    return left / right


@njit(cache=True, nogil=True, error_model="numpy")
def _binary(op: Any, a: Any, s: Any, b: Any, t: Any, b_ne: Any, dst: Any, d: Any, ne: Any) -> None:
    whole_rows = b_ne[0] == ne[0] and s[0] == 1 and t[0] == 1 and d[0] == 1
    n = ne[0]
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                to = i3 % b_ne[3] * t[3] + i2 % b_ne[2] * t[2] + i1 % b_ne[1] * t[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                if whole_rows:
                    _row(op, a[at : at + n], b[to : to + n], dst[out : out + n])
                    continue
                for k in range(n):
                    left, right = a[at + k * s[0]], b[to + k % b_ne[0] * t[0]]
                    dst[out + k * d[0]] = _one(op, left, right)


@njit(cache=True, nogil=True, error_model="numpy")
def _unary(op: Any, x: Any, s: Any, dst: Any, d: Any, ne: Any, first: Any, second: Any) -> None:
    """``first``, ``second``: scale and bias, or the least and the greatest result."""
    one = np.float32(1)
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                for k in range(ne[0]):
                    value = x[at + k * s[0]]
                    if op == SILU:
                        value = value / (one + np.exp(-value))
                    elif op == SIGMOID:
                        value = one / (one + np.exp(-value))
                    elif op == SCALE:
                        value = value * first + second
                    elif value < first:  # a NaN is neither
                        value = first
                    elif value > second:
                        value = second
                    dst[out + k * d[0]] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _gate(
    op: Any, a: Any, s: Any, b: Any, t: Any, dst: Any, d: Any, ne: Any, alpha: Any, limit: Any
) -> None:
    one = np.float32(1)
    for i3 in range(ne[3]):
        for i2 in range(ne[2]):
            for i1 in range(ne[1]):
                at = i3 * s[3] + i2 * s[2] + i1 * s[1]
                to = i3 * t[3] + i2 * t[2] + i1 * t[1]
                out = i3 * d[3] + i2 * d[2] + i1 * d[1]
                for k in range(ne[0]):
                    gate, up = a[at + k * s[0]], b[to + k * t[0]]
                    if op == SWIGLU_OAI:
                        gate = limit if gate > limit else gate
                        up = limit if up > limit else (-limit if up < -limit else up)
                        gate = gate / (one + np.exp(-alpha * gate))
                        dst[out + k * d[0]] = gate * (up + one)
                    else:
                        dst[out + k * d[0]] = gate / (one + np.exp(-gate)) * up


@njit(cache=True, nogil=True)
def _scramble(word: Any) -> Any:
    """splitmix64's finaliser."""
    z = np.uint64(word)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _digest(state: Any, raw: Any) -> Any:
    total = np.uint64(0)
    for k in range(len(raw)):
        total += (np.uint64(raw[k]) + np.uint64(1)) * _scramble(np.uint64(k + 1))
    return _scramble(state + total)


@njit(cache=True, nogil=True)
def _words(digest: Any, words: Any) -> None:
    for k in range(len(words)):
        words[k] = _scramble(digest + np.uint64(k + 1) * np.uint64(0x9E3779B97F4A7C15))


def add(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``a + b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(ADD, dst, sources)


def mul(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``a · b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(MUL, dst, sources)


def sub(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``a - b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(SUB, dst, sources)


def div(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``a / b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(DIV, dst, sources)


def _apply_binary(op: int, dst: Operand, sources: Sequence[Operand]) -> None:
    a, b = sources
    if not dst.empty:
        _binary(op, a.flat, a.steps, b.flat, b.steps, b.ne, dst.flat, dst.steps, dst.ne)


def silu(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``x / (1 + e⁻ˣ)``, f32."""
    _apply_unary(SILU, dst, sources)


def sigmoid(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``1 / (1 + e⁻ˣ)``, f32."""
    _apply_unary(SIGMOID, dst, sources)


def scale(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``x · scale + bias``, f32."""
    _apply_unary(SCALE, dst, sources, node.param("scale", 1.0), node.param("bias", 0.0))


def clamp(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """The nearest value from ``min`` to ``max``, f32; a NaN stays one."""
    _apply_unary(CLAMP, dst, sources, node.param("min", -np.inf), node.param("max", np.inf))


def _apply_unary(
    op: int, dst: Operand, sources: Sequence[Operand], first: Any = 0.0, second: Any = 0.0
) -> None:
    x = sources[0]
    if not dst.empty:
        numbers = np.float32(float(first)), np.float32(float(second))
        _unary(op, x.flat, x.steps, dst.flat, dst.steps, dst.ne, *numbers)


def swiglu(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``silu(gate) · up``, f32; gate and up are two sources, or the halves of each row of one."""
    _apply_gate(SWIGLU, dst, sources, node)


def swiglu_oai(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """``g · sigmoid(alpha · g) · (u + 1)``, f32; g at most ``limit``, u within it on both sides."""
    _apply_gate(SWIGLU_OAI, dst, sources, node)


def _apply_gate(op: int, dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    if dst.empty:
        return
    gate, up = sources[0], sources[-1]
    a, b = gate.flat, up.flat
    if len(sources) == 1:
        half = gate.ne[0] // 2 * gate.steps[0]
        a, b = (a[half:], b) if node.param("swapped", False) else (a, b[half:])
    alpha, limit = (np.float32(node.param(n, d)) for n, d in (("alpha", 1.702), ("limit", 7.0)))
    _gate(op, a, gate.steps, b, up.steps, dst.flat, dst.steps, dst.ne, alpha, limit)


def mixed_bytes(sources: Sequence[Bytes], dst: Operand) -> Bytes:
    """What ``custom`` writes to one destination: ``functions.mixed``, compiled, as packed bytes."""
    state = np.uint64(0)
    for raw in (name_bytes(dst.layout.name), *sources):
        state = np.uint64(_digest(state, np.ascontiguousarray(raw)))
    words = np.empty(int(np.prod(dst.ne, dtype=np.int64)), np.uint64)
    _words(state, words)
    kind = dst.layout.dtype
    flat: Any
    if kind.integer:
        low, high = dst.layout.values or (0, 128)
        flat = (words % np.uint64(max(high - low, 1))).astype(np.int64) + low
    else:
        flat = (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return from_array(kind, flat.reshape(dst.ne[::-1]).T)


def custom(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
    """Every byte of every source decides every element of the destination."""
    dst.assign(mixed_bytes([source.packed() for source in sources], dst))
