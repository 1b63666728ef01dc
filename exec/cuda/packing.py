"""How weights are packed, as the product kernels take them: each type by a part of a block at a
time (decoding), and by eight words of a block at a time (tiles).

Block formats as in ggml: ``q8_0`` and ``q4_0`` have 32 weights and a float16 scale; ``q4_K`` has
256 in eight groups with six-bit scales and minima, ``q6_K`` 256 in sixteen groups with int8 scales.
Rows of float16 and bfloat16 are taken as blocks of 16 weights without a scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from .target import dot4, float_of_brain, float_of_half, quad, word_of

#: Words of a tile that belong together: 32 integers, or 16 halves.
GROUP = 8
LOW_NIBBLES = 0x0F0F0F0F
PAIRS_OF_BITS = 0x03030303
HIGHEST_BITS = 0x80808080


@dataclass(frozen=True, slots=True)
class Packing:
    """``weights`` of a block, and its ``size`` in units of ``unit`` bytes.

    ``words``: four bytes of activations each, for a block; ``sums`` of activations for a block.
    ``parts``: of a block, one of which a lane takes; ``take(w, at, part)`` reads it and
    ``dot(taken, part, words, scales, sums, block)`` multiplies it with a block of activations.
    ``fill(w, at, group)`` gives two factors and the words of a group as signed bytes or halves.
    """

    name: str
    weights: int
    size: int
    unit: int
    words: int
    sums: int
    parts: int
    take: Any
    dot: Any
    fill: Any

    @property
    def groups(self) -> int:
        """Groups of words in a block."""
        return self.words // GROUP

    @property
    def halves(self) -> bool:
        """Whether activations are halves, not bytes with a scale."""
        return self.words * 2 == self.weights

    @property
    def aligned(self) -> int:
        """What weights must start at multiples of, in bytes."""
        return 16 if self.unit == 4 else self.unit


@cuda.jit(device=True)
def _signed(word: Any, offset: Any) -> Any:
    """Four bytes less ``offset`` each: bytes below 128, the offset (of four bytes) at most that."""
    return ((word | HIGHEST_BITS) - offset) ^ HIGHEST_BITS


@cuda.jit(device=True)
def _pair(w: Any, at: Any) -> Any:
    return word_of(w[at], w[at + 1])


@cuda.jit(device=True)
def _words(w: Any, at: Any) -> Any:
    """Eight words from half-words."""
    return (
        _pair(w, at), _pair(w, at + 2), _pair(w, at + 4), _pair(w, at + 6),
        _pair(w, at + 8), _pair(w, at + 10), _pair(w, at + 12), _pair(w, at + 14),
    )  # fmt: skip


# -- q8_0: the scale, 32 int8 ---------------------------------------------------------------


@cuda.jit(device=True)
def _q8_0_take(w: Any, at: Any, part: Any) -> Any:
    first = at + 1 + 4 * part
    return float_of_half(w[at]), _pair(w, first), _pair(w, first + 2)


@cuda.jit(device=True)
def _q8_0_dot(taken: Any, part: Any, words: Any, scales: Any, sums: Any, block: Any) -> Any:
    scale, low, high = taken
    first = block * 8 + 2 * part
    total = dot4(high, words[first + 1], dot4(low, words[first], np.int32(0)))
    return np.float32(total) * (scale * scales[block])


@cuda.jit(device=True)
def _q8_0_fill(w: Any, at: Any, group: Any) -> Any:
    return float_of_half(w[at]), np.float32(0), *_words(w, at + 1)


# -- q4_0: the scale, 16 bytes of weight j (low) and 16 + j (high), both 8 too large ----------


@cuda.jit(device=True)
def _q4_0_dot(taken: Any, part: Any, words: Any, scales: Any, sums: Any, block: Any) -> Any:
    scale, one, two = taken
    first = block * 8 + 2 * part
    total = np.int32(0)
    if part == 0:
        total = np.int32(-8) * sums[block]
    total = dot4(two & LOW_NIBBLES, words[first + 1], dot4(one & LOW_NIBBLES, words[first], total))
    total = dot4((one >> 4) & LOW_NIBBLES, words[first + 4], total)
    total = dot4((two >> 4) & LOW_NIBBLES, words[first + 5], total)
    return np.float32(total) * (scale * scales[block])


@cuda.jit(device=True)
def _less_8(word: Any) -> Any:
    return _signed(word & LOW_NIBBLES, 0x08080808)


@cuda.jit(device=True)
def _q4_0_fill(w: Any, at: Any, group: Any) -> Any:
    a, b, c, d = _pair(w, at + 1), _pair(w, at + 3), _pair(w, at + 5), _pair(w, at + 7)
    return (
        float_of_half(w[at]), np.float32(0), _less_8(a), _less_8(b), _less_8(c), _less_8(d),
        _less_8(a >> 4), _less_8(b >> 4), _less_8(c >> 4), _less_8(d >> 4),
    )  # fmt: skip


# -- q4_K: two float16, eight scales and minima in 12 bytes, 128 bytes; 64 weights in 32 bytes ---


@cuda.jit(device=True)
def _six_bits(head: Any, group: Any) -> Any:
    """The scale and the minimum of a group of 32, as float32."""
    both, low, mid, high = head
    shift = group % 4 * 8
    if group < 4:
        scale, least = (low >> shift) & 63, (mid >> shift) & 63
    else:
        scale = ((high >> shift) & 15) | (((low >> (shift + 6)) & 3) << 4)
        least = ((high >> (shift + 4)) & 15) | (((mid >> (shift + 6)) & 3) << 4)
    step, lower = float_of_half(np.uint16(both & 0xFFFF)), float_of_half(np.uint16(both >> 16))
    return step * np.float32(scale), lower * np.float32(least)


@cuda.jit(device=True)
def _q4_k_take(w: Any, at: Any, part: Any) -> Any:
    head, group = quad(w, at), part // 2 * 2
    return _six_bits(head, group), _six_bits(head, group + 1), quad(w, at + 4 + 4 * part)


@cuda.jit(device=True)
def _dot16(weights: Any, shift: Any, values: Any) -> Any:
    """Sixteen nibbles times sixteen bytes."""
    a, b, c, d = weights
    e, f, g, h = values
    total = dot4((a >> shift) & LOW_NIBBLES, e, np.int32(0))
    total = dot4((b >> shift) & LOW_NIBBLES, f, total)
    total = dot4((c >> shift) & LOW_NIBBLES, g, total)
    return np.float32(dot4((d >> shift) & LOW_NIBBLES, h, total))


@cuda.jit(device=True)
def _q4_k_dot(taken: Any, part: Any, words: Any, scales: Any, sums: Any, block: Any) -> Any:
    (scale, least), (scale_2, least_2), weights = taken
    first = block * 64 + part // 2 * 16 + part % 2 * 4
    to = block * 16 + part // 2 * 4 + part % 2
    total = scale * _dot16(weights, 0, quad(words, first))
    total += scale_2 * _dot16(weights, 4, quad(words, first + 8))
    total -= least * np.float32(sums[to]) + least_2 * np.float32(sums[to + 2])
    return total * scales[block]


@cuda.jit(device=True)
def _q4_k_fill(w: Any, at: Any, group: Any) -> Any:
    first, shift = at + 4 + group // 2 * 8, group % 2 * 4
    a, b, c, d = quad(w, first)
    e, f, g, h = quad(w, first + 4)
    scale, least = _six_bits(quad(w, at), group)
    return (
        scale, least, (a >> shift) & LOW_NIBBLES, (b >> shift) & LOW_NIBBLES,
        (c >> shift) & LOW_NIBBLES, (d >> shift) & LOW_NIBBLES, (e >> shift) & LOW_NIBBLES,
        (f >> shift) & LOW_NIBBLES, (g >> shift) & LOW_NIBBLES, (h >> shift) & LOW_NIBBLES,
    )  # fmt: skip


# -- q6_K: 128 bytes of low nibbles, 64 of two high bits, 16 int8 scales, a float16 -------------
# In halves of 128 weights: weight 32 q + l has its nibble in byte 32 (q % 2) + l, low for q < 2,
# and its bits 2 q and 2 q + 1 in byte l.


@cuda.jit(device=True)
def _less_32(nibbles: Any, bits: Any) -> Any:
    word = (nibbles & LOW_NIBBLES) | ((bits & PAIRS_OF_BITS) << 4)
    return _signed(word, 0x20202020)


@cuda.jit(device=True)
def _scale_of(both: Any, odd: Any) -> Any:
    """One of two int8, as float32."""
    return np.float32((((np.int32(both) >> (8 * odd)) & 255) ^ 128) - 128)


@cuda.jit(device=True)
def _q6_k_take(w: Any, at: Any, part: Any) -> Any:
    half, place = part // 8, part % 8
    low, high = at + half * 32 + 2 * place, at + 64 + half * 16 + 2 * place
    a, b, bits = _pair(w, low), _pair(w, low + 16), _pair(w, high)
    step, first, odd = float_of_half(w[at + 104]), at + 96 + 4 * half, place // 4
    return (
        (step * _scale_of(w[first], odd), step * _scale_of(w[first + 1], odd),
         step * _scale_of(w[first + 2], odd), step * _scale_of(w[first + 3], odd)),
        (_less_32(a, bits), _less_32(b, bits >> 2), _less_32(a >> 4, bits >> 4),
         _less_32(b >> 4, bits >> 6)),
    )  # fmt: skip


@cuda.jit(device=True)
def _q6_k_dot(taken: Any, part: Any, words: Any, scales: Any, sums: Any, block: Any) -> Any:
    (step, step_1, step_2, step_3), (weights, weights_1, weights_2, weights_3) = taken
    first = block * 64 + part // 8 * 32 + part % 8
    total = step * np.float32(dot4(weights, words[first], np.int32(0)))
    total += step_1 * np.float32(dot4(weights_1, words[first + 8], np.int32(0)))
    total += step_2 * np.float32(dot4(weights_2, words[first + 16], np.int32(0)))
    total += step_3 * np.float32(dot4(weights_3, words[first + 24], np.int32(0)))
    return total * scales[block]


@cuda.jit(device=True)
def _q6_k_fill(w: Any, at: Any, group: Any) -> Any:
    half, q = group // 4, group % 4
    a, b, c, d, e, f, g, h = _words(w, at + half * 32 + q % 2 * 16)
    i, j, k, l, m, n, o, p = _words(w, at + 64 + half * 16)  # noqa: E741
    step, both = float_of_half(w[at + 104]), w[at + 96 + 4 * half + q]
    by, to = q // 2 * 4, q * 2
    return (
        step * _scale_of(both, 0), step * _scale_of(both, 1),
        _less_32(a >> by, i >> to), _less_32(b >> by, j >> to), _less_32(c >> by, k >> to),
        _less_32(d >> by, l >> to), _less_32(e >> by, m >> to), _less_32(f >> by, n >> to),
        _less_32(g >> by, o >> to), _less_32(h >> by, p >> to),
    )  # fmt: skip


# -- f16 and bf16: two weights a word -----------------------------------------------------------


@cuda.jit(device=True)
def _half_take(w: Any, at: Any, part: Any) -> Any:
    return quad(w, at + 4 * part)


@cuda.jit(device=True)
def _f16_products(a: Any, b: Any) -> Any:
    low = float_of_half(np.uint16(a & 0xFFFF)) * float_of_half(np.uint16(b & 0xFFFF))
    return low + float_of_half(np.uint16(a >> 16)) * float_of_half(np.uint16(b >> 16))


@cuda.jit(device=True)
def _f16_dot(taken: Any, part: Any, words: Any, scales: Any, sums: Any, block: Any) -> Any:
    a, b, c, d = taken
    e, f, g, h = quad(words, block * 8 + 4 * part)
    total = _f16_products(a, e) + _f16_products(b, f)
    return total + _f16_products(c, g) + _f16_products(d, h)


@cuda.jit(device=True)
def _bf16_products(a: Any, b: Any) -> Any:
    low = float_of_brain(np.uint16(a & 0xFFFF)) * float_of_brain(np.uint16(b & 0xFFFF))
    return low + float_of_brain(np.uint16(a >> 16)) * float_of_brain(np.uint16(b >> 16))


@cuda.jit(device=True)
def _bf16_dot(taken: Any, part: Any, words: Any, scales: Any, sums: Any, block: Any) -> Any:
    a, b, c, d = taken
    e, f, g, h = quad(words, block * 8 + 4 * part)
    total = _bf16_products(a, e) + _bf16_products(b, f)
    return total + _bf16_products(c, g) + _bf16_products(d, h)


@cuda.jit(device=True)
def _half_fill(w: Any, at: Any, group: Any) -> Any:
    return np.float32(0), np.float32(0), *quad(w, at), *quad(w, at + 4)


PACKINGS = {
    packing.name: packing
    for packing in (
        Packing("q8_0", 32, 17, 2, 8, 1, 4, _q8_0_take, _q8_0_dot, _q8_0_fill),
        Packing("q4_0", 32, 9, 2, 8, 1, 2, _q8_0_take, _q4_0_dot, _q4_0_fill),
        Packing("q4_k", 256, 36, 4, 64, 16, 8, _q4_k_take, _q4_k_dot, _q4_k_fill),
        Packing("q6_k", 256, 105, 2, 64, 16, 16, _q6_k_take, _q6_k_dot, _q6_k_fill),
        Packing("f16", 16, 8, 4, 8, 0, 2, _half_take, _f16_dot, _half_fill),
        Packing("bf16", 16, 8, 4, 8, 0, 2, _half_take, _bf16_dot, _half_fill),
    )
}
