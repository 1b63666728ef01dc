"""Inputs of the next split are copied before those of the running one."""

from __future__ import annotations

from itertools import pairwise

from ...device import Usage
from ...schedule import Schedule
from ..guard import Guard, Off
from ..operands import Operands, copies_aside
from ..transfer import Bring, Input, Policy, Transfers
from ..written import Written, host_writes, node_writes


def one_ahead(transfers: Transfers, number: int, off: Off) -> Transfers:
    """What lies in compute memory, if nothing writes it between the prefetch and its use.

    The nodes of the running split are still to come when the prefetch is issued, and so is what
    the host does for the next split.
    """
    schedule = transfers.schedule
    found: dict[Input, Bring] = {}
    for index, (running, following) in enumerate(pairwise(schedule.splits or ())):
        if not copies_aside(schedule.graph.device(following.device)):
            continue
        written = Written()
        if Guard.NOT_WRITTEN not in off:
            written |= node_writes(schedule, running)
        if Guard.HOST_WRITES not in off:
            written |= host_writes(schedule, following)
        for name in Operands(schedule).inputs(following):
            usage = schedule.location(schedule.base(name).name).usage
            if usage in (None, Usage.COMPUTE):
                kept = _meets(schedule, written, name, off)
            else:
                kept = Guard.USAGE not in off
            if not kept:
                found[index + 1, name] = Bring(issued=index)
    idle = "no input of a split is computed before the split that precedes it"
    return transfers.bring(found, f"prefetch one-ahead moves nothing: {idle}")


def _meets(schedule: Schedule, written: Written, name: str, off: Off) -> bool:
    if Guard.THROUGH_VIEWS in off:
        return name in written.names
    return written.meets(schedule, name)


POLICY = Policy(
    "one-ahead", "computed inputs, before those of the split that precedes", decide=one_ahead
)
