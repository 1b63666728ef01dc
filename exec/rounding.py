"""Activations as ggml's CPU kernels round them before a product, by the type of the weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.graph import Node
from ..model.tensor import dtype
from .quant import Array, from_array, to_array
from .source import Operand, Shape

Function = Callable[[Sequence[Operand], Node, Shape], Array]


def _blocks(x: Array, size: int) -> Array:
    """Dimension 0 split: ``(size, blocks, …)``, the elements of a block innermost."""
    return x.astype(np.float32).reshape((size, x.shape[0] // size, *x.shape[1:]), order="F")


def to_q8_0(x: Array) -> Array:
    """Each row in blocks of 32, as float32 again (``quantize_row_q8_0``).

    The integers are ``x · (127 / max |x|)``, halves to even; the scale that they are multiplied
    with again is ``max |x| / 127`` rounded to float16.
    """
    blocks = _blocks(x, 32)
    most = np.abs(blocks).max(axis=0, keepdims=True)
    with np.errstate(all="ignore"):
        inverse = np.where(most > 0, np.float32(127) / most, np.float32(0)).astype(np.float32)
        step = (most / np.float32(127)).astype(np.float16).astype(np.float32)
        integers = np.rint(blocks * inverse)
    result: Array = (integers * step).reshape(x.shape, order="F")
    return result


def to_q8_k(x: Array) -> Array:
    """Each row in blocks of 256, as float32 again (``quantize_row_q8_K``).

    The element of the largest size, the first of several, becomes -127: the integers are
    ``x · (-127 / it)``, halves to even; the scale is the inverse of that factor.
    """
    blocks = _blocks(x, 256)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=0, keepdims=True), axis=0)
    with np.errstate(all="ignore"):
        factor = np.where(largest != 0, np.float32(-127) / largest, np.float32(0))
        step = np.where(factor != 0, np.float32(1) / factor, np.float32(0))
        integers = np.minimum(np.rint(blocks * factor.astype(np.float32)), 127)
    result: Array = (integers * step.astype(np.float32)).reshape(x.shape, order="F")
    return result


def _through(name: str) -> Callable[[Array], Array]:
    """Elements of a plain type and back."""
    kind = dtype(name)

    def rounded(x: Array) -> Array:
        ne = [*x.shape, 1, 1, 1, 1][:4]
        return to_array(kind, from_array(kind, x.reshape(ne)), ne).reshape(x.shape)

    return rounded


#: By the type of the weight (``vec_dot_type`` in ggml); the others take float32.
ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "q8_0": to_q8_0, "q4_0": to_q8_0, "mxfp4": to_q8_0, "q4_k": to_q8_k, "q6_k": to_q8_k,
    "f16": _through("f16"), "bf16": _through("bf16"),
}  # fmt: skip


def with_rounding(product: Function) -> Function:
    """The product as ggml's CPU kernels take it: activations are rounded first.

    A weight times a scale and an activation times a scale are exact in float64, and so are
    their sums but for the last bits: no different from an integer sum per block.
    """

    def function(src: Sequence[Operand], node: Node, ne: Shape) -> Array:
        rounding = ROUNDINGS.get(src[0].dtype.name)
        if rounding is None:
            return product(src, node, ne)
        x = src[1]
        values: Any = np.ascontiguousarray(rounding(x.array).T)
        packed = values.reshape(-1).view(np.uint8)
        return product((src[0], replace(x, raw=packed), *src[2:]), node, ne)

    return function
