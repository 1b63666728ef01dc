"""Work in units that threads take one after another, handed over in compiled code.

Waking a thread costs tens of microseconds, as much as a tenth of a product.  So a worker looks for
a while for what comes next before it sleeps, and all of that without the GIL; each thread takes the
next unit when it has done its last, so that a slow one holds up nobody for longer than a unit.

*Mail* is some words that the threads share, each on a line of the cache of its own.  The ticket is
odd while there is a job; it is another one for every job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .native import features

#: Bytes between words of different use.
LINE = 128
#: Where the ticket stands, the next unit, how many workers are in the job, and what the job is.
_TICKET, _NEXT, _INSIDE, _FUNCTION, _ARGUMENTS, _UNITS = (LINE * k for k in range(6))
#: Where the first worker says that it sleeps.
_BEDS = 6 * LINE

_I64 = ir.IntType(64)
#: A kernel: the address of its arguments, a unit, the number of the thread (0: who asked).
KERNEL = types.void(types.int64, types.int64, types.int64)


@dataclass(frozen=True, slots=True)
class Job:
    """``units`` calls of a compiled function with the address of its arguments, in any order."""

    function: int
    arguments: int
    units: int


class Sharing(Protocol):
    """Whoever carries out jobs."""

    @property
    def threads(self) -> int: ...

    def share(self, job: Job) -> None:
        """Return when every unit is done."""


class Alone:
    """The thread that asks does everything."""

    threads = 1

    def share(self, job: Job) -> None:
        all_units(job.function, job.arguments, job.units)


ALONE = Alone()


def _pointer(builder: Any, value: Any) -> Any:
    return builder.inttoptr(value, _I64.as_pointer())


@intrinsic
def look(typing: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def _swap(typing: Any, place: Any, value: Any) -> Any:
    """What was there."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _add(typing: Any, place: Any, value: Any) -> Any:
    """What was there."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _pause(typing: Any) -> Any:
    """A moment of rest, where the processor has an instruction for it."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if features():
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _call(typing: Any, function: Any, arguments: Any, unit: Any, thread: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@njit(cache=True, nogil=True)
def all_units(function: int, arguments: int, units: int) -> None:
    for unit in range(units):
        _call(function, arguments, unit, 0)


@njit(cache=True, nogil=True)
def _take_units(mail: int, thread: int) -> None:
    function, arguments = look(mail + _FUNCTION), look(mail + _ARGUMENTS)
    units = look(mail + _UNITS)
    unit = _add(mail + _NEXT, 1)
    while unit < units:
        _call(function, arguments, unit, thread)
        unit = _add(mail + _NEXT, 1)


@njit(cache=True, nogil=True)
def attend(mail: int, seen: int, thread: int, patience: int) -> int:
    """What a worker does until no job has come for ``patience`` looks; the last ticket it saw."""
    idle = 0
    while idle < patience:
        ticket = look(mail + _TICKET)
        if ticket & 1 == 0 or ticket == seen:
            _pause()
            idle += 1
            continue
        # Only one who is inside may rely on the job: it may have ended since.
        _add(mail + _INSIDE, 1)
        ticket = look(mail + _TICKET)
        if ticket & 1:
            _take_units(mail, thread)
            seen = ticket
            idle = 0
        _add(mail + _INSIDE, -1)
    return seen


@njit(cache=True, nogil=True)
def lie_down(mail: int, seen: int, thread: int) -> bool:
    """Say that a worker is about to sleep; whether it may: no job has come meanwhile."""
    bed = mail + _BEDS + LINE * thread
    _swap(bed, 1)
    ticket = look(mail + _TICKET)
    if ticket & 1 == 0 or ticket == seen:
        return True
    _swap(bed, 0)
    return False


@njit(cache=True, nogil=True)
def sleeps(mail: int, thread: int) -> bool:
    """Whether a worker must be woken; it is asked once."""
    bed = mail + _BEDS + LINE * thread
    return look(bed) != 0 and _swap(bed, 0) != 0


@njit(cache=True, nogil=True)
def post(mail: int, function: int, arguments: int, units: int, threads: int) -> bool:
    """Let the workers begin; whether some of them sleep.  No job may be under way."""
    _swap(mail + _FUNCTION, function)
    _swap(mail + _ARGUMENTS, arguments)
    _swap(mail + _UNITS, units)
    _swap(mail + _NEXT, 0)
    _add(mail + _TICKET, 1)
    sleepers = 0
    for thread in range(1, threads):
        sleepers += look(mail + _BEDS + LINE * thread)
    return sleepers != 0


@njit(cache=True, nogil=True)
def finish(mail: int, patience: int) -> bool:
    """Do units until none is left, then wait for those that are still inside, for a while."""
    if look(mail + _TICKET) & 1:
        _take_units(mail, 0)
        _add(mail + _TICKET, 1)
    for _ in range(patience):
        if look(mail + _INSIDE) == 0:
            return True
        _pause()
    return False


def mailbox(threads: int) -> NDArray[np.int64]:
    """Mail for so many threads, the one that asks included; keep it while they live."""
    return np.zeros((_BEDS + LINE * (threads + 1)) // 8, np.int64)
