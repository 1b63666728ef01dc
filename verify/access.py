"""Accesses: what a part reads or writes, as data, and how nodes reach banks and experts."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.device import Usage
from ..model.graph import Bank, Node
from ..model.schedule import Schedule
from ..model.symbol import Expr
from ..model.tensor import Tensor
from .region import NeedsNumbers, Region, Unsupported
from .sequential import Event, Time
from .term import Bool, Int, Scope, conj, number, used

#: the role of a read that a callback may make: bytes without a version are no fault then
MAY_READ = "may read"

#: the role of a read past the experts that are used: bytes that must be defined, no more
PAST = "past"

#: ops whose last source names the bytes that they write into
TARGET_SOURCES = {"set_rows": 2, "cpy": 1}
#: ops with a source of ids, and which one it is
INDEX_SOURCES = {"mul_mat_id": 2, "get_rows": 1, "add_id": 2}


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of ``set_id``: expert e is the e-th run of ``stride`` bytes.

    ``padding``: bytes after each run that are moved too.  ``values``: the range that the ids
    promise to be in.
    """

    set_id: str
    stride: int
    padding: int = 0
    values: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class BankUse:
    """A read through a bank: of its slots, of the slot ids, or of the slot map.

    ``fill``: ``(command, iteration)`` of the fill that serves it, ``None`` if there is none.
    ``needs``: the used set of the ids that chose the slots.
    """

    bank: Bank
    what: str
    fill: tuple[int, int] | None
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that a part reads.

    ``region``: where.  ``due``: the tensor whose sequential content it should be, k-th byte
    for k-th byte, as of ``time``; ``time`` is ``None`` for the read of a copy, which is held
    to nothing itself: its reader is.  ``past``: of a read past experts, how many bytes of each.
    """

    part: int
    region: Region
    due: Tensor
    time: Time | None
    role: str
    experts: Experts | None = None
    bank: BankUse | None = None
    past: int = 0


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that a part writes: versions of ``event``, or what ``source`` reads."""

    part: int
    region: Region
    event: Event | None
    source: Read | None = None
    experts: Experts | None = None


def selects(experts: Experts, expert: Int, scope: Scope) -> Bool:
    """Whether an expert is used; ids keep to the range that they promise."""
    chosen = used(experts.set_id, expert)
    if experts.values is None:
        return chosen
    low, high = experts.values
    return conj([chosen, scope.le(number(low), expert), scope.lt(expert, number(high))])


def expert_stride(tensor: Tensor) -> int:
    """Bytes from one expert to the next: the stride of the third dimension."""
    if len(tensor.shape) < 3:
        stride: Expr = tensor.extent
    else:
        stride = tensor.nb[2]
    if stride.constant is None:
        raise NeedsNumbers(tensor.name)
    if stride.constant <= 0:
        raise Unsupported(f"the experts of tensor {tensor.name!r} have no bytes")
    return stride.constant


def bank_of_node(schedule: Schedule, node: Node) -> Bank | None:
    """The bank that a node reads, if it reads it in the way that banks are read.

    ``mul_mat_id`` through ``slot_ids`` or through ``get_rows(slot_map, ids)``, or that
    ``get_rows`` itself.
    """
    graph = schedule.graph
    if node.op == "mul_mat_id":
        bank = graph.find_bank(node.src[0])
        if bank is None:
            return None
        if node.src[2] == bank.slot_ids:
            return bank
        rows = graph.find_node(schedule.base(node.src[2]).name)
        if rows is not None and rows.op == "get_rows" and rows.src[0] == bank.slot_map:
            return bank
        return None
    if node.op == "get_rows":
        for bank in graph.banks:
            if bank.slot_map is not None and node.src[0] == bank.slot_map:
                return bank
    return None


def starts_with_content(schedule: Schedule, space: str) -> bool:
    """Whether the bytes of a space have a version before anything runs."""
    if space.startswith(("own:", "base:")):
        return False
    return schedule.graph.buffer(space).usage is not Usage.COMPUTE
