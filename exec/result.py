"""What a run gives: outputs, and what was counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.schedule import Schedule
from .bank import BankCounters, ExpertCopyCounters
from .quant import Array
from .unsupported import UnsupportedOp


@dataclass(frozen=True, slots=True)
class KernelUse:
    """How often an op ran on a weight type, ``compiled`` or on the NumPy reference."""

    op: str
    dtype: str
    compiled: bool
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """What moved from one memory to another (``source`` may be ``target``)."""

    source: str
    target: str
    bytes: int
    transfers: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run gave.

    ``outputs``: per pass, what each ``get_output`` read, of shape ``ne`` (innermost first).
    ``seconds``: per phase and over all threads, compilation of kernels included in ``compute``.
    ``prefetches``: how many were issued.
    """

    schedule: Schedule
    symbols: Mapping[str, int]
    outputs: tuple[Mapping[str, Array], ...]
    traffic: tuple[MemoryTraffic, ...]
    banks: Mapping[str, BankCounters]
    expert_copies: Mapping[str, ExpertCopyCounters]
    kernels: tuple[KernelUse, ...]
    seconds: Mapping[str, float]
    prefetches: int = 0

    @property
    def fallbacks(self) -> int:
        """How many computes ran on the reference for want of a kernel."""
        return sum(use.count for use in self.kernels if not use.compiled)


class RunError(RuntimeError):
    """A command that failed; the message names it, and the cause is the original error."""

    def __init__(self, index: int, pass_: int, text: str, cause: BaseException) -> None:
        what = str(cause)
        if not isinstance(cause, UnsupportedOp):
            what = f"{type(cause).__name__}: {what}"
        super().__init__(f"command {index} ({text}), pass {pass_}: {what}")
        self.index, self.pass_, self.text = index, pass_, text
