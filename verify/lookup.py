"""Who reads what: answers that would else be searched for command by command."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from ..model.command import Compute, CopyExperts, FillBank
from ..model.graph import Bank, Node
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

    def of_experts(self, command: CopyExperts, original: Callable[[str], str]) -> Node | None:
        """The matmul that reads the copied experts: of the split that consumes, if it has one;
        of several readers the one whose ids chose them.  ``original``: what a tensor is a copy of.
        """
        schedule = self.schedule
        nodes = self._of_experts.get(command.src, [])
        split = command.for_split if command.for_split is not None else command.split
        if split is not None and schedule.splits is not None:
            span = schedule.splits[split]
            here = [n for n in nodes if span.start <= schedule.graph.position(n.dst) < span.end]
            nodes = here or nodes
        if command.ids is not None:
            chosen = original(command.ids)
            nodes = [n for n in nodes if original(n.src[2]) == chosen] or nodes
        return nodes[0] if nodes else None


def filled_banks(schedule: Schedule, fill: tuple[int, int]) -> tuple[Bank, ...]:
    """The banks that a fill, ``(command, pass)``, names."""
    command = (schedule.program or ())[fill[0]]
    assert isinstance(command, FillBank)
    found = tuple(schedule.graph.find_bank(name) for name in command.banks)
    return tuple(bank for bank in found if bank is not None)


class Fills:
    """Which fill serves a reader: the latest that is issued before it."""

    def __init__(self) -> None:
        self._of_bank: dict[str, list[Issued]] = {}
        self._of_table: dict[tuple[str, int, str], list[Issued]] = {}

    def add(self, command: FillBank, first: Bank, issued: Issued) -> None:
        """In the order of issue.  ``first``: the first bank that the fill names."""
        for name in command.banks:
            self._of_bank.setdefault(name, []).append(issued)
        for table in {command.slot_ids, command.slot_map} - {None}:
            key = first.group, first.layer, table or ""
            self._of_table.setdefault(key, []).append(issued)

    def latest(self, bank: str, place: Part) -> tuple[int, int] | None:
        """``(command, pass)`` of the latest fill of a bank."""
        return _before(self._of_bank.get(bank, []), place)

    def publishing(self, bank: Bank, place: Part, table: str) -> tuple[int, int] | None:
        """The latest fill for the bank's layer that writes those slot ids or that map, perhaps one
        that loads other banks of the layer: all of them keep an expert in the same slot."""
        return _before(self._of_table.get((bank.group, bank.layer, table), []), place)


def _before(found: list[Issued], place: Part) -> tuple[int, int] | None:
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
