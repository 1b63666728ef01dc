"""Who reads what: answers that would else be searched for command by command."""

from __future__ import annotations

from bisect import bisect_left

from ..model.command import Compute, CopyExperts, FillBank
from ..model.graph import Node
from ..model.schedule import Schedule
from .access import bank_of_node
from .order import Order, Part

#: ``(pass, command)``
Issued = tuple[int, int]


class Readers:
    """The nodes that read banks and expert weights."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._of_bank: dict[str, int] = {}
        self._of_experts: dict[str, list[Node]] = {}
        for position, node in enumerate(schedule.graph.nodes):
            if node.op != "mul_mat_id":
                continue
            self._of_experts.setdefault(node.src[0], []).append(node)
            bank = bank_of_node(schedule, node)
            if bank is not None:
                self._of_bank.setdefault(bank.name, position)

    def of_banks(self, command: FillBank) -> Node | None:
        """The first node that reads one of the banks that a fill fills."""
        found = [self._of_bank[name] for name in command.banks if name in self._of_bank]
        return self.schedule.graph.nodes[min(found)] if found else None

    def of_experts(self, command: CopyExperts) -> Node | None:
        """The matmul that reads the copied experts: of the split that consumes, if it has one."""
        schedule = self.schedule
        nodes = self._of_experts.get(command.src, [])
        split = command.for_split if command.for_split is not None else command.split
        if split is not None and schedule.splits is not None:
            span = schedule.splits[split]
            here = [n for n in nodes if span.start <= schedule.graph.position(n.dst) < span.end]
            nodes = here or nodes
        return nodes[0] if nodes else None


class Fills:
    """Which fill serves a reader: the latest that is issued before it."""

    def __init__(self) -> None:
        self._issued: dict[tuple[str, str | None], list[Issued]] = {}

    def add(self, command: FillBank, issued: Issued) -> None:
        """In the order of issue."""
        for name in command.banks:
            for slot_map in dict.fromkeys((None, command.slot_map)):
                self._issued.setdefault((name, slot_map), []).append(issued)

    def latest(self, bank: str, place: Part, slot_map: str | None = None) -> tuple[int, int] | None:
        """``(command, pass)`` of the latest fill of a bank, with that slot map if one is named."""
        found = self._issued.get((bank, slot_map), [])
        at = bisect_left(found, (place.iteration, place.command))
        return found[at - 1][::-1] if at else None


def computes(schedule: Schedule, order: Order) -> dict[tuple[str, int], Part]:
    """The first compute of each node in each pass."""
    found: dict[tuple[str, int], Part] = {}
    for (index, iteration), parts in order.by_command.items():
        command = (schedule.program or ())[index]
        if isinstance(command, Compute):
            found.setdefault((command.node, iteration), parts[0])
    return found
