"""What can be left out of a proved schedule, and how weak its copies may be: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from .device import Contract
from .report import Finding, Report, Verdict
from .schedule import Schedule
from .word import Word


class Need(Word):
    """Whether a schedule stays right without one of its waits."""

    NEEDED = "needed"
    REDUNDANT = "redundant"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class SyncTrial:
    """One wait, event sync or queue sync, and what becomes of the schedule without it.

    ``command``: its place in the program; ``text``: in words.  ``without``: the schedule that
    was checked.  ``finding``: how that one goes wrong, if it is needed (commands are numbered as
    in ``without``).  ``reason``: why it is undecided.
    """

    command: int
    text: str
    need: Need
    without: Schedule
    finding: Finding | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Minimal:
    """A proved schedule with fewer waits.

    ``report``: of the schedule itself, with a cost finding for each redundant wait; if it is not
    ``proved`` nothing else was tried.  ``removed``: waits left out together, ``records``: records
    left out because nothing waits for them any more (both as places in the program).
    ``maximum``: no larger set of waits can be left out; otherwise the set is maximal (none can be
    added to it), or, if a check along the way was undecided, only proved.
    ``reduced``: the schedule without them, ``proof``: its report.  ``checks``: how many were made.
    """

    report: Report
    trials: tuple[SyncTrial, ...] = ()
    removed: tuple[int, ...] = ()
    records: tuple[int, ...] = ()
    maximum: bool = False
    maximal: bool = False
    reduced: Schedule | None = None
    proof: Report | None = None
    checks: int = 0

    @property
    def size(self) -> str:
        """How much is known of the size of the set: ``maximum``, ``maximal`` or ``proved``."""
        return "maximum" if self.maximum else "maximal" if self.maximal else "proved"


@dataclass(frozen=True, slots=True)
class ContractTrial:
    """The verdict on a schedule with a contract in the place of the declared one.

    ``under``: the schedule that was checked; ``finding``: how it goes wrong.
    """

    contract: Contract
    verdict: Verdict
    under: Schedule
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class ContractRow:
    """One declared contract of a device that some copy uses, and what could stand there.

    ``rule``: its place in the device's list.  ``source``, ``target``: the memories that it is
    about (``None``: any).  ``weakest``: the contracts under which the schedule holds and that
    are stronger than no other such contract.
    """

    device: str
    rule: int
    source: str | None
    target: str | None
    declared: Contract
    trials: tuple[ContractTrial, ...]
    weakest: tuple[Contract, ...]

    @property
    def holds(self) -> tuple[Contract, ...]:
        return tuple(t.contract for t in self.trials if t.verdict is Verdict.PROVED)


@dataclass(frozen=True, slots=True)
class Contracts:
    """What the copies of a proved schedule may be.

    ``rows``: each declared contract replaced alone.  ``together``: combinations of the rows'
    weakest contracts (one a row, in the rows' order) under which the schedule still holds;
    ``None`` if they are too many to be tried.
    """

    report: Report
    rows: tuple[ContractRow, ...] = ()
    together: tuple[tuple[Contract, ...], ...] | None = ()
    checks: int = 0


#: ``(stronger, weaker)``: each order that the stronger contract gives, the weaker gives or leaves
#: open.  No other two are comparable: ``sync`` does not wait for what its queue has, ``staged``
#: reads its source before its queue comes to it, ``stream`` and ``unordered`` let the host go on.
WEAKER: frozenset[tuple[Contract, Contract]] = frozenset({(Contract.STREAM, Contract.UNORDERED)})


def weakest(contracts: tuple[Contract, ...]) -> tuple[Contract, ...]:
    """Those that are stronger than no other of them."""
    return tuple(c for c in contracts if not any((c, other) in WEAKER for other in contracts))
