"""OR: each read sees the version that the sequential run reads there."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import Copy, CopyExperts, FillBank, SyncEvent, Wait
from ...model.device import HOST
from .case import Case, Test
from .static import Broken, StaticRule, Statics


# ∀ read r, write w of one byte:  r → w  ∨  w → r;  two writes before r:  w → w′  ∨  w′ → w
def or001(case: Case) -> bool:
    if case.relation == "stale":
        return case.races_with_due
    return case.relation in ("unordered", "destroyed") and case.write is not None


# the latest write before r has the due version
def or002(case: Case) -> bool:
    if case.relation == "stale":
        return not or004(case)
    if case.relation == "none":
        return not or003(case)
    return case.relation in ("outdated", "skipped", "unserved")


# some write is before r
def or003(case: Case) -> bool:
    if case.relation != "none":
        return False
    space = case.root_read.region.space
    started = not space.startswith("own:") and (
        case.schedule.graph.buffer(space).usage != "compute"
    )
    return not started or case.fault.due is None


# ∀ read r of version v, write w of a later one:  r → w
def or004(case: Case) -> bool:
    if case.write is None or case.relation not in ("unordered", "stale", "destroyed"):
        return False
    late = case.writes_later_version or case.overwrote_due
    return late or (case.foreign_write and not case.writes_due)


# ∀ copy s on queue q that its contract makes synchronous, command c issued on q before it:
#   c → s, as for the copy in queue order that s stands for
def or007(case: Case) -> bool:
    if case.write is None or case.relation not in ("unordered", "destroyed"):
        return False
    read, write = case.root_read.part, case.write.part
    return _overtakes(case, read, write) or _overtakes(case, write, read)


def _overtakes(case: Case, part: int, other: int) -> bool:
    """Whether a part is of a synchronous copy, and the other was on the copy's queue before it."""
    command, parts = case.command(part), case.footprints.order.parts
    if not isinstance(command, Copy | CopyExperts | FillBank) or parts[part].name == "read":
        return False
    queue = case.schedule.queue_of(command)
    return (
        queue != HOST and parts[part].queue == HOST and parts[other].queue == queue and other < part
    )


#: the special case of a race comes before the race
TESTS: dict[str, Test] = {
    "OR007": or007, "OR001": or001, "OR002": or002, "OR003": or003, "OR004": or004,
}  # fmt: skip


# repeat ≥ 2 ⊢ ∀ wait of the last pass:  a record of its event is issued before it
def or005(s: Statics) -> Iterator[Broken]:
    assert s.schedule.program is not None
    waits = [c for c in s.schedule.program if isinstance(c, Wait | SyncEvent)]
    s.obligations += len(waits)
    if s.schedule.repeat < 2:
        return
    for command, iteration in s.order.unmet_waits:
        wait = s.schedule.program[command]
        assert isinstance(wait, Wait | SyncEvent)
        yield Broken(
            "OR005",
            f"in pass {iteration} nothing has recorded event {wait.event!r} that is waited for",
            f"$.program[{command}]",
            (("event", wait.event), ("pass", iteration)),
            s.regime.sample,
        )


# ∀ wait on a queue of d for an event of kind k:  d can wait for k
def or006(s: Statics) -> Iterator[Broken]:
    assert s.schedule.program is not None
    for command in dict.fromkeys(command for command, _ in s.order.void_waits):
        wait = s.schedule.program[command]
        assert isinstance(wait, Wait)
        yield Broken(
            "OR006",
            f"queue {wait.queue} cannot wait for event {wait.event!r}: the wait orders nothing",
            f"$.program[{command}]",
            (("event", wait.event), ("queue", wait.queue)),
        )


STATIC: tuple[StaticRule, ...] = (or005, or006)
