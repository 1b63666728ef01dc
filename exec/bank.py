"""Banks at run time: which expert lies in which slot, and the uploads that keep it so.

What a command moves is said as *pieces*: pairs of views, each copied from the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.cache import SlotState, SlotStep, empty_slots, lru_slots
from ..model.command import FillBank
from ..model.graph import Bank
from ..model.schedule import Schedule
from .arena import Arena, ArenaError
from .operand import PLAIN, Operand
from .traffic import Traffic
from .window import Window, move_bytes

_POLICIES = {"lru-slots": lru_slots}

#: ``(from, to)``: views of equal shape.
Piece = tuple[NDArray[Any] | Window, NDArray[Any] | Window]


class BankError(ValueError):
    """A fill that no bank can serve: mixed groups, an unknown policy, an expert out of range."""


@dataclass(slots=True)
class BankCounters:
    """One bank, over the whole run.

    ``hits``, ``misses``: distinct experts per fill; ``evictions``: experts that lost a slot, at a
    fill of this bank; ``uploaded``: bytes written to slots; ``uploads``: transfers that took
    (neighbouring experts in neighbouring slots travel as one).
    """

    fills: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    uploaded: int = 0
    uploads: int = 0


@dataclass(frozen=True, slots=True)
class Filling:
    """What a fill has decided: the policy's step, the experts that travel, and what the slot ids
    or the map are to hold."""

    step: SlotStep
    pieces: list[Piece]
    table: list[Piece]


class RunningBanks:
    """The banks of a schedule while it runs.

    A slot holds one expert of one layer, for every role of its group alike; what lies past the
    last slot (the spare slot) is never filled.  ``states``: what the slots hold, by group; it is
    kept up to date, so that programs with the same banks can take turns.  Groups that are not in
    it start empty.
    """

    def __init__(
        self,
        schedule: Schedule,
        arena: Arena,
        traffic: Traffic,
        states: dict[str, SlotState] | None = None,
    ) -> None:
        self._graph = schedule.graph
        self._arena = arena
        self._traffic = traffic
        self._states = states if states is not None else {}
        self.counters: dict[str, BankCounters] = {}
        for bank in self._graph.banks:
            self.counters[bank.name] = BankCounters()
            slots = self._states.setdefault(bank.group, empty_slots(bank.slots)).owners
            if len(slots) != bank.slots:
                raise BankError(
                    f"group {bank.group}: bank {bank.name} has {bank.slots} slots, "
                    f"another bank of the group {len(slots)}"
                )

    def forget(self) -> None:
        """Claim no longer that a slot holds anything."""
        for group, state in self._states.items():
            self._states[group] = empty_slots(len(state.owners))

    @property
    def occupied(self) -> Mapping[str, int]:
        """How many slots of each group are full."""
        return {
            group: sum(owner is not None for owner in state.owners)
            for group, state in self._states.items()
        }

    def decide(self, command: FillBank) -> Filling:
        """Read the ids and take one step of the policy; nothing is written to a bank yet."""
        banks = self._banks(command)
        first = banks[0]
        flat = [int(i) for i in self._arena.operand(command.ids).here.array.reshape(-1)]
        experts = self._arena.operand(first.caches).ne[2]
        if flat and max(flat) >= experts:
            raise BankError(f"expert {max(flat)} of {command.ids}: {first.caches} has {experts}")
        step = _POLICIES[first.policy](self._states[first.group], first.layer, flat)
        self._states[first.group] = step.state
        table: Sequence[int] = step.slot_ids
        if command.slot_map is not None:
            slot_of = step.state.slot_of
            table = [slot_of.get((first.layer, expert), -1) for expert in range(experts)]
        runs = merged(step.uploads)
        pieces = [piece for bank in banks for piece in self._pieces(bank, runs)]
        for bank in banks:
            self._count(bank, step, len(runs))
        return Filling(step, pieces, list(self._tables(command, table)))

    def _tables(self, command: FillBank, values: Sequence[int]) -> Iterator[Piece]:
        for name in (command.slot_ids, command.slot_map):
            if name is not None:
                target = self._arena.operand(name)
                table = np.array(values, PLAIN[target.dtype]).reshape(target.ne[::-1])
                if target.layout.packed:
                    yield table.reshape(-1).view(np.uint8), target.data
                else:
                    yield table, target.array
                # What the host writes to its own memory is no transfer.
                if not self.table_on_host(command):
                    self._traffic.add(command.ids, name, target.layout.nbytes)

    def table_on_host(self, command: FillBank) -> bool:
        """Whether the host writes the slot ids or the map itself, rather than the queue."""
        name = command.slot_ids or command.slot_map
        memory = self._arena.memory_of(name) if name is not None else None
        return any(m.name == memory and m.host for m in self._graph.memories)

    def _banks(self, command: FillBank) -> list[Bank]:
        banks = [bank for name in command.banks for bank in (self._graph.find_bank(name),) if bank]
        if len(banks) != len(command.banks) or len({(b.group, b.layer) for b in banks}) != 1:
            raise BankError(
                f"a fill of {', '.join(command.banks) or 'nothing'}: "
                "banks of one group and layer were due"
            )
        if banks[0].policy not in _POLICIES:
            raise BankError(f"bank {banks[0].name}: policy {banks[0].policy} cannot be run yet")
        return banks

    def _pieces(self, bank: Bank, runs: Sequence[tuple[int, int, int]]) -> Iterator[Piece]:
        source, target = self._arena.operand(bank.caches), self._arena.operand(bank.name)
        for first, slot, experts in runs:
            piece = planes(source, first, target, slot, experts)
            self._traffic.add(bank.caches, bank.name, piece[0].size)
            self.counters[bank.name].uploaded += piece[0].size
            yield piece

    def _count(self, bank: Bank, step: SlotStep, uploads: int) -> None:
        count = self.counters[bank.name]
        count.fills += 1
        count.hits += step.hits
        count.misses += len(step.uploads)
        count.evictions += len(step.victims)
        count.uploads += uploads


def move(pieces: Sequence[Piece]) -> None:
    """Copy each piece."""
    for source, target in pieces:
        move_bytes(source, target)


def merged(uploads: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """``(expert, slot)`` pairs as runs ``(first expert, first slot, length)`` in both ascending."""
    runs: list[tuple[int, int, int]] = []
    for expert, slot in uploads:
        if runs:
            first, first_slot, length = runs[-1]
            if (expert, slot) == (first + length, first_slot + length):
                runs[-1] = first, first_slot, length + 1
                continue
        runs.append((expert, slot, 1))
    return runs


def planes(source: Operand, first: int, target: Operand, slot: int, count: int) -> Piece:
    """``count`` experts, from number ``first`` on, and their places from ``slot`` on."""
    if slot + count > target.ne[2]:
        raise ArenaError(f"{target.layout.name} has no place {slot + count - 1}")
    if source.layout.packed and target.layout.packed:  # one run of bytes moves fastest
        size = source.layout.nb[2]
        return (
            source.data[first * size : (first + count) * size],
            target.data[slot * size : (slot + count) * size],
        )
    return source.raw[:, first : first + count], target.raw[:, slot : slot + count]


@dataclass(slots=True)
class ExpertCopyCounters:
    """``copy_experts`` to one tensor: experts that travelled, in how many transfers, and bytes."""

    experts: int = 0
    transfers: int = 0
    bytes: int = 0


def used_experts(
    source: Operand, target: Operand, used: Sequence[int], padding: int
) -> tuple[list[Piece], ExpertCopyCounters]:
    """The experts in ``used`` (ascending) on their way to their own places, runs of neighbours
    at once.

    After each run ``padding`` further bytes travel, as far as the source goes.
    """
    count, pieces = ExpertCopyCounters(experts=len(used)), []
    if used and not 0 <= used[0] <= used[-1] < source.ne[2]:
        raise IndexError(f"expert {used[-1]}: {source.layout.name} has {source.ne[2]}")
    if padding and not (source.layout.packed and target.layout.packed):
        raise ArenaError(f"padding of {padding} bytes: {source.layout.name} is not packed")
    stride = source.layout.nb[2]
    for first, _, experts in merged([(expert, expert) for expert in used]):
        pieces.append(planes(source, first, target, first, experts))
        count.transfers += 1
        end = (first + experts) * stride
        tail = min(padding, len(source.data) - end)
        if tail > 0:
            pieces.append((source.data[end : end + tail], target.data[end : end + tail]))
    count.bytes = sum(piece[0].size for piece in pieces)
    return pieces, count
