"""Rows of quantised weights as panels of 16, in which the same word of each row stands together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .blocks import FORMS
from .emit import I8, I16, I32, PANEL
from .native import address


def _mover(kind: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(a, kind.as_pointer()) for a in args)
        value = builder.load(source)
        value.align = 1
        builder.store(value, target).align = 1
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _move_byte(typing: Any, target: Any, source: Any) -> Any:
    return _mover(I8)


@intrinsic
def _move_half(typing: Any, target: Any, source: Any) -> Any:
    return _mover(I16)


@intrinsic
def _move_word(typing: Any, target: Any, source: Any) -> Any:
    return _mover(I32)


@njit(cache=True, nogil=True)
def to_panel(target: Any, source: Any, step: Any, rows: Any, blocks: Any, form: Any) -> None:
    """Rows at ``source``, ``step`` bytes apart, as a panel at ``target``; absent rows stay."""
    size, width, scales, places, first, words = form
    for block in range(blocks):
        at = target + block * PANEL * size
        for row in range(rows):
            start = source + row * step + block * size
            out = at + width * row
            for k in range(scales):
                if width == 2:
                    _move_half(out + 2 * PANEL * k, start + places[k])
                else:
                    _move_byte(out + PANEL * k, start + places[k])
            out = at + width * PANEL * scales + 4 * row
            for k in range(words):
                _move_word(out + 4 * PANEL * k, start + first + 4 * k)


@njit(cache=True, nogil=True)
def _pack(weights: Any, step: Any, rows: Any, blocks: Any, form: Any, panel: Any) -> None:
    """Whole panels of packed rows, in place; rows that fill no panel stay as they are.

    ``panel``: address of the bytes of one panel.
    """
    words = PANEL * step // 4
    for row in range(0, rows // PANEL * PANEL, PANEL):
        start = weights + row * step
        # Always 16 here; were it a constant, the loop over them would be unrolled at great length.
        count = min(PANEL, rows - row)
        to_panel(panel, start, step, count, blocks, form)
        for k in range(words):
            _move_word(start + 4 * k, panel + 4 * k)


def pack_rows(raw: NDArray[np.uint8], kind: str, n: int, rows: int) -> None:
    """Rows of n elements without holes, ``rows`` in each matrix, as panels, in place."""
    form = next(form for form in FORMS if form.name == kind)
    blocks = n // form.block
    step = blocks * form.bytes
    panel = np.empty(PANEL * step, np.uint8)
    for start in range(0, len(raw), rows * step):
        _pack(address(raw) + start, step, rows, blocks, form.shape, address(panel))
