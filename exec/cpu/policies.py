"""Cache policies over long traces, compiled: twins of those of ``model/cache.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: No expert: the ends of the list.
_NONE = -1


@njit(cache=True, nogil=True)
def lru_bytes_trace(
    starts: Any, layers: Any, ids: Any, sizes: Any, experts: int, budget: int, hits: Any
) -> int:
    """Each batch of a trace through ``lru_bytes``, in order; the number of hits.

    ``starts``: of each batch in ``ids``, and the end; ``layers``: of each batch; ``sizes``: bytes
    of an expert, by layer; ``experts``: of a layer, at most.  ``hits``: for each id, whether its
    expert was held when its batch began (written).  Ids are not negative.
    """
    count = len(sizes) * experts
    older = np.full(count, _NONE, np.int32)
    newer = np.full(count, _NONE, np.int32)
    held = np.zeros(count, np.bool_)
    # The batch that touched an expert last, and whether it found it.
    touched = np.full(count, _NONE, np.int32)
    found = np.zeros(count, np.bool_)
    oldest, newest, total, number = _NONE, _NONE, 0, 0
    for batch in range(len(layers)):
        base = layers[batch] * experts
        for place in range(starts[batch], starts[batch + 1]):
            key = base + ids[place]
            if touched[key] != batch:
                touched[key] = batch
                found[key] = held[key]
            hits[place] = found[key]
            number += found[key]
            if key == newest:
                continue
            if held[key]:
                before, after = older[key], newer[key]
                if before != _NONE:
                    newer[before] = after
                else:
                    oldest = after
                older[after] = before  # there is one: it is not the newest
            else:
                held[key] = True
                total += sizes[layers[batch]]
            older[key], newer[key] = newest, _NONE
            if newest != _NONE:
                newer[newest] = key
            else:
                oldest = key
            newest = key
        while total > budget and oldest != _NONE and touched[oldest] != batch:
            key = oldest
            oldest = newer[key]
            if oldest != _NONE:
                older[oldest] = _NONE
            else:
                newest = _NONE
            held[key] = False
            newer[key] = _NONE
            total -= sizes[key // experts]
    return number
