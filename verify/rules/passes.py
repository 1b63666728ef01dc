"""PP: passes that follow each other keep out of each other's inputs, copies and actions."""

from __future__ import annotations

from ...model.command import Command, Compute, SetInput
from ...model.symbol import PASS
from .case import Case, Test


# ∀ read r of copy c in pass p, upload u of c in a pass q > p:  r → u
def pp001(case: Case) -> bool:
    write = case.write
    return (
        write is not None
        and write.source is not None
        and case.relation == "unordered"
        and not case.foreign_write
        and case.schedule.copy_index(case.read_base) is not None
        and case.iteration(write.part) > case.iteration(case.root_read.part)
    )


# ∀ read r of user input x, later set_input s of x:  r → s
def pp002(case: Case) -> bool:
    return (
        isinstance(case.writer, SetInput)
        and not case.foreign_write
        and case.relation in ("unordered", "stale")
        and case.writes_later_version
    )


# ∀ read of copy c in pass p:  if pass p uploads copies of that input at all, it uploads c
def pp003(case: Case) -> bool:
    read, schedule = case.fault.read, case.schedule
    name = case.base(read.region.tensor.name)
    if schedule.copy_index(name) is None:
        return False
    uploaded = {
        case.base(write.region.tensor.name)
        for write in case.footprints.writes
        if write.source is not None and case.iteration(write.part) == case.iteration(read.part)
    }
    of = schedule.copy_of(name)
    return name not in uploaded and any(schedule.copy_of(other) == of for other in uploaded)


# ∀ read r of pass p:  what brings it its version, and the address that it is bound to, are of p
def pp004(case: Case) -> bool:
    return _left_behind(case) or _rebound(case)


def _left_behind(case: Case) -> bool:
    """Whether the reader finds what a command of an earlier pass left for it, and the guard of
    that command keeps it from all passes since."""
    part, write = case.fault.read.part, case.write
    if write is None or case.relation == "unordered" or case.foreign_write or case.brings_other:
        return False
    here, order = case.iteration(part), case.footprints.order
    return any(
        case.iteration(carrier) < here
        and _one_time(case.command(carrier))
        and (order.parts[carrier].command, here) not in order.by_command
        for carrier in (*case.fault.path, write.part)
    )


def _rebound(case: Case) -> bool:
    """Whether the reader is a node's compute of some passes only, and those of the others read
    its sources elsewhere."""
    reader, schedule = case.command(case.fault.read.part), case.schedule
    if not isinstance(reader, Compute) or not _one_time(reader):
        return False
    return any(
        isinstance(other, Compute)
        and other.node == reader.node
        and (other.bind, other.copy) != (reader.bind, reader.copy)
        for other in schedule.program or ()
    )


def _one_time(command: Command) -> bool:
    """Whether its guard tells passes apart other than in rotation."""
    return any(PASS in part.symbols and part.modulus is None for part in command.when.parts)


TESTS: dict[str, Test] = {"PP001": pp001, "PP002": pp002, "PP003": pp003, "PP004": pp004}
