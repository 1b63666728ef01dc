"""How the inputs of splits come to their devices, and the interface of what decides about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..schedule import Schedule
from .guard import Off

#: A split's number, and the tensor that it lists.
Input = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Selection:
    """The experts that these ``ids`` choose, or the set that the copy of ``same_as`` used.

    ``padding``: bytes after each run of experts.
    """

    ids: str
    same_as: str | None
    padding: int


@dataclass(frozen=True, slots=True)
class Bring:
    """How one input comes: the whole of it just before the nodes of its split, unless

    ``issued``: it is prefetched while that earlier split is current, before the inputs of that
    split, or ``after`` its nodes;
    ``experts``: only some of it is copied.
    """

    issued: int | None = None
    after: bool = False
    experts: Selection | None = None


@dataclass(frozen=True, slots=True)
class Transfers:
    """A split-level schedule, and what the policies have decided about its inputs.

    ``schedule``: with the places that policies gave to copies.  ``brings``: in the order in which
    prefetches of one split are issued; an input that is not in it is copied whole.  ``idle``:
    what was asked for and has no effect, and why.
    """

    schedule: Schedule
    brings: Mapping[Input, Bring] = field(default_factory=dict)
    idle: tuple[str, ...] = ()

    def bring(self, found: Mapping[Input, Bring], idle: str = "") -> Transfers:
        """With further decisions.  The first one about an input stands.

        ``idle``: what to say if nothing was found.
        """
        told = (idle,) if idle and not found.keys() - self.brings.keys() else ()
        return replace(self, brings={**found, **self.brings}, idle=self.idle + told)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Graph-level schedules that together serve the range of the one that was given.

    ``idle``: why the policy changes nothing.
    """

    schedules: tuple[Schedule, ...]
    idle: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to bring inputs: ``NAME``, or ``NAME:NUMBER`` if ``argument`` names the number.

    ``about``: one line for people.  ``prepare(schedule, number, off)`` changes the graph before
    it is planned, ``decide(transfers, number, off)`` decides about the inputs of its splits;
    both raise ``PlanError`` for what does not go together.  ``off``: guards that are switched
    off.
    """

    name: str
    about: str
    argument: str = ""
    prepare: Callable[[Schedule, int, Off], Prepared] | None = None
    decide: Callable[[Transfers, int, Off], Transfers] | None = None

    @property
    def spelled(self) -> str:
        """As a person asks for it."""
        return f"{self.name}:{self.argument}" if self.argument else self.name
