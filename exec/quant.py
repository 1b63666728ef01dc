"""Element types to float32 and back, and bytes to arrays.

Arrays stand in ggml's dimension order: ``array.shape == ne``, innermost first.  Raw bytes are
one-dimensional ``uint8``, packed, in logical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.tensor import DType
from .unsupported import UnsupportedOp

Bytes = NDArray[np.uint8]
Array = NDArray[Any]

_PLAIN = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def to_array(kind: DType, raw: Bytes, ne: Sequence[int]) -> Array:
    """The values of packed bytes: float32 (integers keep their type), of shape ``ne``.

    Types that have no plain NumPy form go through ``gguf.quants``; ``UnsupportedOp`` if that
    package cannot read the type either.
    """
    outermost_first = tuple(ne[::-1])
    if kind.name in _PLAIN:
        values = np.ascontiguousarray(raw).view(_PLAIN[kind.name])
        if not kind.integer:
            values = values.astype(np.float32)
    elif kind.name == "bf16":
        values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif kind.name == "q8_0":
        values = _from_q8_0(raw)
    elif kind.name == "q4_0":
        values = _from_q4_0(raw)
    else:
        values = _gguf_dequantize(kind, raw)
    return values.reshape(outermost_first).T


def from_array(kind: DType, array: Array) -> Bytes:
    """The packed bytes of an array of shape ``ne``; floats are rounded as ggml rounds them."""
    logical = array.T
    if kind.name in _PLAIN:
        with np.errstate(over="ignore"):  # a float16 overflows to infinity, as in ggml
            plain = np.ascontiguousarray(logical, dtype=_PLAIN[kind.name])
        return plain.reshape(-1).view(np.uint8)
    if kind.name == "bf16":
        return _to_bf16(np.ascontiguousarray(logical, dtype=np.float32)).view(np.uint8)
    from gguf import GGMLQuantizationType, quants

    code = GGMLQuantizationType[kind.name.upper()]
    packed = quants.quantize(np.ascontiguousarray(logical, dtype=np.float32), code)
    return np.ascontiguousarray(packed).reshape(-1).view(np.uint8)


def _blocks(raw: Bytes, block_bytes: int) -> tuple[Array, Bytes]:
    """The float16 scale at the head of each block, as a float32 column, and the rest of it."""
    blocks = raw.reshape(-1, block_bytes)
    scale = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    return scale, blocks[:, 2:]


def _from_q8_0(raw: Bytes) -> Array:
    scale, quants = _blocks(raw, 34)
    return scale * quants.view(np.int8).astype(np.float32)


def _from_q4_0(raw: Bytes) -> Array:
    # Element j of a block of 32 is the low half of byte j, element 16 + j its high half.
    scale, quants = _blocks(raw, 18)
    nibbles = np.concatenate([quants & 15, quants >> 4], axis=1).astype(np.int8) - np.int8(8)
    return scale * nibbles.astype(np.float32)


def _to_bf16(values: Array) -> NDArray[np.uint16]:
    bits = values.reshape(-1).view(np.uint32).astype(np.uint64)
    # Round to nearest even; a NaN stays one (its rounding could carry into the sign).
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    quiet = ((bits >> 16) | 64).astype(np.uint16)
    return np.where(np.isnan(values.reshape(-1)), quiet, rounded)


def _gguf_dequantize(kind: DType, raw: Bytes) -> Array:
    from gguf import GGMLQuantizationType, quants

    code = GGMLQuantizationType[kind.name.upper()]
    rows = raw.reshape(-1, kind.block_bytes)
    try:
        values: Array = quants.dequantize(rows, code)
    except NotImplementedError as error:
        raise UnsupportedOp(f"nothing here reads numbers of type {kind.name}") from error
    return values
