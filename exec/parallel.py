"""Large products on several threads: each computes some rows of the result.

Kernels release the GIL, and each result is computed whole by one thread, so the numbers are the
same for any number of threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..model.graph import Node
from .cpu.table import Kernel
from .operand import Operand

if TYPE_CHECKING:
    from .cpu.jobs import Job

#: A product with fewer multiplications is over before another thread has begun.
LEAST_WORK = 200_000
#: Ops whose kernels take a team.
_SHARED = frozenset({"mul_mat", "mul_mat_id"})
#: How often a worker looks for a job before it sleeps: about a tenth of a millisecond, which is
#: longer than what lies between two products of a decode.
PATIENCE = 5000


class Team:
    """``threads`` workers, the calling one included.  Threads start with the first large op.

    One job at a time is shared: who asks meanwhile (the queue of another device) does its own
    alone.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"{threads} threads; at least one was due")
        self.threads = threads
        self._busy = threading.Lock()
        self._workers: list[threading.Thread] = []
        self._bells: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(1, threads)]
        self._closing = False
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()

    def run(self, kernel: Kernel, node: Node, target: Operand, sources: Sequence[Operand]) -> None:
        """Compute a node, on all threads if it is large and can be shared."""
        if self.threads > 1 and node.op in _SHARED and _work(target, sources) >= LEAST_WORK:
            kernel(target, sources, node, self)
        else:
            kernel(target, sources, node)

    def share(self, job: Job) -> None:
        """Return when every unit of a job is done."""
        from .cpu import jobs  # Numba takes a third of a second

        if job.units < 2 or not self._busy.acquire(blocking=False):
            jobs.ALONE.share(job)
            return
        try:
            if not self._workers:
                self._start()
            mail = self._mail_at
            asleep = jobs.post(mail, job.function, job.arguments, job.units, self.threads)
            try:
                for thread, bell in enumerate(self._bells, 1):
                    if asleep and jobs.sleeps(mail, thread):
                        bell.put(None)
            finally:  # what was begun must end, whatever interrupts: workers write to its memory
                while not jobs.finish(mail, PATIENCE):
                    time.sleep(0)
        finally:
            self._busy.release()

    def _start(self) -> None:
        from .cpu.jobs import mailbox
        from .cpu.native import address

        self._mail = mailbox(self.threads)
        self._mail_at = address(self._mail)
        self._closing = False
        cores = self._cores
        if cores:  # a queue that is pinned keeps its core for itself
            mine = os.sched_getaffinity(0)
            cores = cores - mine or cores
        self._workers = [
            threading.Thread(
                target=self._attend, args=(thread, cores), name=f"splitproof-worker {thread}",
                daemon=True,
            )
            for thread in range(1, self.threads)
        ]  # fmt: skip
        for worker in self._workers:
            worker.start()

    def _attend(self, thread: int, cores: set[int]) -> None:
        from .cpu import jobs

        if cores:
            os.sched_setaffinity(0, cores)
        mail, seen = self._mail_at, 0
        while not self._closing:
            seen = jobs.attend(mail, seen, thread, PATIENCE)
            if jobs.lie_down(mail, seen, thread):
                self._bells[thread - 1].get()

    def close(self) -> None:
        """Stop the threads; none is left behind."""
        with self._busy:
            self._closing = True
            for bell in self._bells:
                bell.put(None)
            for worker in self._workers:
                worker.join()
            self._workers = []


def _work(target: Operand, sources: Sequence[Operand]) -> int:
    return target.layout.nbytes // 4 * sources[0].ne[0]
