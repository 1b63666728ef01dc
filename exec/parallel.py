"""Large products on several threads: each computes some rows of the result.

Kernels release the GIL, and each result is computed whole by one thread, so the numbers are the
same for any number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import pairwise

from ..model.graph import Node
from .cpu.table import Kernel
from .operand import Operand
from .panels import PANEL

#: A product with fewer multiplications is over before another thread has begun.
LEAST_WORK = 200_000
#: Dimension of the weight, and of the result, that counts the rows to share.
_ROWS = {"mul_mat": (1, 0), "mul_mat_id": (1, 0)}


class Team:
    """``threads`` workers, the calling one included.  Threads start with the first large op."""

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"{threads} threads; at least one was due")
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()  # the queues of several devices may share a team
        pinnable = hasattr(os, "sched_getaffinity")
        self._cores = os.sched_getaffinity(0) if pinnable else None

    def shares(self, node: Node, target: Operand, sources: Sequence[Operand]) -> list[_Share]:
        """The parts of a compute; one part, the whole, if it cannot or need not be shared."""
        whole = [(target, list(sources))]
        if self.threads == 1 or node.op not in _ROWS:
            return whole
        weight, result = _ROWS[node.op]
        rows = target.ne[result]
        if target.empty or _work(target, sources) < LEAST_WORK or rows < self.threads:
            return whole
        # Whole panels each, whatever the type: the last part takes the rest.
        steps = [rows * index // self.threads // PANEL * PANEL for index in range(self.threads)]
        edges = sorted({*steps, rows})
        return [
            (
                part(target, result, first, last),
                [part(sources[0], weight, first, last), *sources[1:]],
            )
            for first, last in pairwise(edges)
        ]

    def run(self, kernel: Kernel, node: Node, shares: Sequence[_Share]) -> None:
        """Carry out all parts, and return when all have ended; the first error is raised."""
        first, *others = shares
        if not others:
            kernel(first[0], first[1], node)
            return
        pool = self._threads()
        running = [pool.submit(kernel, target, own, node) for target, own in others]
        try:
            kernel(first[0], first[1], node)
        finally:
            wait(running)
        for future in running:
            future.result()

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    self.threads - 1, "splitproof-worker", initializer=self._spread
                )
            return self._pool

    def _spread(self) -> None:
        """A thread begins on the core to which the queue that asked for it is pinned."""
        if self._cores is not None:
            os.sched_setaffinity(0, self._cores)

    def close(self) -> None:
        """Stop the threads; none is left behind."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


_Share = tuple[Operand, list[Operand]]


def _work(target: Operand, sources: Sequence[Operand]) -> int:
    return target.layout.nbytes // 4 * sources[0].ne[0]


def part(operand: Operand, dimension: int, first: int, last: int) -> Operand:
    """Rows (1), planes (2)… ``first`` to ``last - 1`` of a tensor, on the same bytes."""
    layout = operand.layout
    ne = list(layout.ne)
    ne[dimension] = last - first
    start = first * layout.nb[dimension]
    smaller = replace(layout, ne=(ne[0], ne[1], ne[2], ne[3]), offset=layout.offset + start)
    return Operand(smaller, operand.data[start : start + smaller.end - smaller.offset])
