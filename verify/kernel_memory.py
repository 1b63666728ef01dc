"""What a kernel reads and writes where it runs on symbols (``verify/kernel_run.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import z3

from ..model.kernel import Data, Flag, Scratch
from .kernel_value import Num, Opaque, Unclear

if TYPE_CHECKING:
    from .kernel_run import Run

#: Types of numbers that an index may hang on, with their bits.
INTEGERS = {"i32": 32, "i64": 64}


@dataclass(frozen=True)
class Shared:
    """An array that the threads of a block share."""

    kind: str
    size: int


@dataclass(frozen=True, eq=False)
class Access:
    """A read or write of a parameter: where, and under which conditions.

    ``aligned``: the index must be a multiple of it.
    """

    parameter: Data | Scratch | Flag | Shared
    index: Num
    write: bool
    facts: tuple[Any, ...]
    calls: tuple[Call, ...]
    aligned: int = 1

    @cached_property
    def conditions(self) -> frozenset[int]:
        """The facts by the solver's numbers for them."""
        return frozenset(fact.get_id() for fact in self.facts)


@dataclass(frozen=True)
class Call:
    """A helper, or a load: equal inputs give equal outputs, and different ones different.

    ``natural``: the latter only of outputs that are not negative.  ``load``: the latter not at all,
    and the former where nothing writes to that tensor.
    """

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    natural: bool = False
    load: str = ""


class Array:
    def __init__(self, run: Run, parameter: Data | Scratch | Flag | Shared) -> None:
        self.run, self.parameter = run, parameter

    @property
    def size(self) -> Num:
        assert isinstance(self.parameter, Scratch)
        return self.run.size("*".join(self.parameter.size))

    def access(self, index: Any, write: bool, aligned: int = 1) -> None:
        run = self.run
        if not run.new:
            return
        index = index if isinstance(index, Num) else Num(run, z3.IntVal(index))
        facts, calls = (*run.sizes.facts, *run.facts), tuple(run.calls)
        run.accesses.append(Access(self.parameter, index, write, facts, calls, aligned))

    def __getitem__(self, index: Any) -> Any:
        self.access(index, False)
        if not isinstance(self.parameter, Data) or self.parameter.kind not in INTEGERS:
            return Opaque(self.run)
        found = self.run.loaded(INTEGERS[self.parameter.kind])
        index = index if isinstance(index, Num) else Num(self.run, z3.IntVal(index))
        strides = sorted(index.strides.items())
        tensor, units = self.parameter.tensor, [stride for stride, _ in strides]
        inputs = (index.rest, *(coefficient for _, coefficient in strides))
        self.run.calls.append(Call(f"{tensor} {units}", inputs, (found.rest,), load=tensor))
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        self.access(index, True)


class Local:
    """An array of one thread."""

    def __init__(self, run: Run, size: int) -> None:
        self.run, self.size = run, size

    def __getitem__(self, index: Any) -> Opaque:
        inside = isinstance(index, int) and 0 <= index < self.size
        if not inside and not self.run.holds(z3.And(index.rest >= 0, index.rest < self.size)):
            raise Unclear("an index outside a thread's own array")
        return Opaque(self.run)

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index]


class Floats:
    """``np`` and ``math``: what they give is opaque; a conversion to an integer keeps an index."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def int64(self, value: Any) -> Any:
        return value

    int32 = int64

    def __getattr__(self, name: str) -> Any:
        return Opaque(self.run) if name in ("nan", "inf") else lambda *_: Opaque(self.run)
