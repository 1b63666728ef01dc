"""Element by element, f32: one block per row, its threads along the row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from ...model.graph import Node
from ..operand import Operand
from .launch import Launch
from .target import row_place, row_start

ADD, SUB, MUL, DIV = range(4)
SILU, SIGMOID, SCALE, CLAMP, GELU, RELU = range(6)
SWIGLU, SWIGLU_OAI, GEGLU = range(3)
#: sqrt(2 / π) and the cubic term of the tanh form of GELU, as in ggml's ``ggml_gelu``.
GELU_ROOT, GELU_CUBE = 0.7978845608028654, 0.044715


@cuda.jit(device=True)
def _quotient(a: Any, b: Any) -> Any:
    """``a / b`` of floats as IEEE 754 has it, also for a zero below."""
    if b == 0:
        if a == 0 or math.isnan(a):
            return np.float32(math.nan)
        return math.copysign(np.float32(math.inf), a) * math.copysign(np.float32(1), b)
    return a / b


@cuda.jit
def _binary(op: Any, a: Any, s: Any, b: Any, t: Any, b_ne: Any, dst: Any, d: Any, ne: Any) -> None:
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    to = row_start(i1 % b_ne[1], i2 % b_ne[2], i3 % b_ne[3], t[1], t[2], t[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        left, right = a[at + k * s[0]], b[to + k % b_ne[0] * t[0]]
        if op == ADD:
            value = left + right
        elif op == SUB:
            value = left - right
        elif op == MUL:
            value = left * right
        else:
            value = _quotient(left, right)
        dst[out + k * d[0]] = value


@cuda.jit(device=True)
def _sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + math.exp(-x))


@cuda.jit(device=True)
def _gelu(x: Any) -> Any:
    inner = GELU_ROOT * (x + GELU_CUBE * x * x * x)
    return np.float32(0.5 * x * (1.0 + math.tanh(inner)))


@cuda.jit
def _unary(op: Any, x: Any, s: Any, dst: Any, d: Any, ne: Any, first: Any, second: Any) -> None:
    """``first``, ``second``: scale and bias, or the least and the greatest result."""
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        value = x[at + k * s[0]]
        if op == SILU:
            value = value * _sigmoid(value)
        elif op == SIGMOID:
            value = _sigmoid(value)
        elif op == SCALE:
            value = value * first + second
        elif op == GELU:
            value = _gelu(value)
        elif op == RELU:
            value = value if value > 0 else value * np.float32(0)  # a NaN stays one
        elif value < first:  # a NaN is neither
            value = first
        elif value > second:
            value = second
        dst[out + k * d[0]] = value


@cuda.jit
def _gate(
    op: Any, a: Any, s: Any, b: Any, t: Any, dst: Any, d: Any, ne: Any, alpha: Any, limit: Any
) -> None:
    i1, i2, i3 = row_place(cuda.blockIdx.x, ne[1], ne[2])
    at = row_start(i1, i2, i3, s[1], s[2], s[3])
    to = row_start(i1, i2, i3, t[1], t[2], t[3])
    out = row_start(i1, i2, i3, d[1], d[2], d[3])
    for k in range(cuda.threadIdx.x, ne[0], cuda.blockDim.x):
        gate, up = a[at + k * s[0]], b[to + k * t[0]]
        if op == SWIGLU_OAI:
            gate = limit if gate > limit else gate
            up = limit if up > limit else (-limit if up < -limit else up)
            value = gate * _sigmoid(alpha * gate) * (up + np.float32(1))
        elif op == GEGLU:
            value = _gelu(gate) * up
        else:
            value = gate * _sigmoid(gate) * up
        dst[out + k * d[0]] = value


def _apply_binary(op: int, dst: Operand, sources: Sequence[Operand], launch: Launch) -> None:
    a, b = sources
    if not dst.empty:
        launch.rows(
            _binary, dst.ne, op, a.flat, a.steps, b.flat, b.steps, b.ne, dst.flat, dst.steps, dst.ne
        )


def add(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``a + b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(ADD, dst, sources, launch)


def sub(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``a - b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(SUB, dst, sources, launch)


def mul(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``a · b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(MUL, dst, sources, launch)


def div(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``a / b``, f32; b repeats in each dimension that it divides."""
    _apply_binary(DIV, dst, sources, launch)


def _apply_unary(
    op: int, dst: Operand, x: Operand, launch: Launch, first: Any = 0.0, second: Any = 0.0
) -> None:
    if not dst.empty:
        numbers = np.float32(float(first)), np.float32(float(second))
        launch.rows(_unary, dst.ne, op, x.flat, x.steps, dst.flat, dst.steps, dst.ne, *numbers)


def silu(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``x / (1 + e⁻ˣ)``, f32."""
    _apply_unary(SILU, dst, sources[0], launch)


def sigmoid(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``1 / (1 + e⁻ˣ)``, f32."""
    _apply_unary(SIGMOID, dst, sources[0], launch)


def gelu(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """The tanh form, f32."""
    _apply_unary(GELU, dst, sources[0], launch)


def relu(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``max(x, 0)``, f32; a NaN stays one."""
    _apply_unary(RELU, dst, sources[0], launch)


def scale(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``x · scale + bias``, f32."""
    factor, bias = node.param("scale", 1.0), node.param("bias", 0.0)
    _apply_unary(SCALE, dst, sources[0], launch, factor, bias)


def clamp(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """The nearest value from ``min`` to ``max``, f32; a NaN stays one."""
    low, high = node.param("min", -np.inf), node.param("max", np.inf)
    _apply_unary(CLAMP, dst, sources[0], launch, low, high)


def swiglu(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``silu(gate) · up``, f32; gate and up are two sources, or the halves of each row of one."""
    _apply_gate(SWIGLU, dst, sources, node, launch)


def geglu(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``gelu(gate) · up``, f32; as for :func:`swiglu`."""
    _apply_gate(GEGLU, dst, sources, node, launch)


def swiglu_oai(dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch) -> None:
    """``g · sigmoid(alpha · g) · (u + 1)``, f32; g at most ``limit``, u within it on both sides."""
    _apply_gate(SWIGLU_OAI, dst, sources, node, launch)


def _apply_gate(
    op: int, dst: Operand, sources: Sequence[Operand], node: Node, launch: Launch
) -> None:
    if dst.empty:
        return
    gate, up = sources[0], sources[-1]
    a, b = gate.flat, up.flat
    if len(sources) == 1:
        half = gate.ne[0] // 2 * gate.steps[0]
        a, b = (a[half:], b) if node.param("swapped", False) else (a, b[half:])
    alpha, limit = (np.float32(node.param(n, d)) for n, d in (("alpha", 1.702), ("limit", 7.0)))
    launch.rows(
        _gate, dst.ne, op, a, gate.steps, b, up.steps, dst.flat, dst.steps, dst.ne, alpha, limit
    )
