"""Banks at run time: which expert lies in which slot, and the uploads that keep it so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..model.cache import SlotState, SlotStep, empty_slots, lru_slots
from ..model.command import FillBank
from ..model.graph import Bank
from ..model.schedule import Schedule
from .arena import Arena, ArenaError
from .operand import Operand
from .traffic import Traffic

_POLICIES = {"lru-slots": lru_slots}


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


class RunningBanks:
    """The banks of a schedule while it runs.  They start empty.

    A slot holds one expert of one layer, for every role of its group alike; what lies past the
    last slot (the spare slot) is never filled.
    """

    def __init__(self, schedule: Schedule, arena: Arena, traffic: Traffic) -> None:
        self._graph = schedule.graph
        self._arena = arena
        self._traffic = traffic
        self._states: dict[str, SlotState] = {}
        self.counters: dict[str, BankCounters] = {}
        for bank in self._graph.banks:
            self.counters[bank.name] = BankCounters()
            slots = self._states.setdefault(bank.group, empty_slots(bank.slots)).owners
            if len(slots) != bank.slots:
                raise BankError(
                    f"group {bank.group}: bank {bank.name} has {bank.slots} slots, "
                    f"another bank of the group {len(slots)}"
                )

    def state(self, group: str) -> SlotState:
        """What the slots of a group hold now."""
        return self._states[group]

    def fill(self, command: FillBank) -> SlotStep:
        """Bring ``used(ids)`` into slots of every bank named; write the slot ids or the map."""
        banks = self._banks(command)
        first = banks[0]
        ids = self._arena.operand(command.ids)
        flat = [int(i) for i in ids.array.reshape(-1)]
        experts = self._arena.operand(first.caches).ne[2]
        if flat and max(flat) >= experts:
            raise BankError(f"expert {max(flat)} of {command.ids}: {first.caches} has {experts}")
        step = _POLICIES[first.policy](self._states[first.group], first.layer, flat)
        self._states[first.group] = step.state
        for bank in banks:
            self._upload(bank, step)
        if command.slot_ids is not None:
            self._publish(command.slot_ids, np.array(step.slot_ids), command.ids)
        if command.slot_map is not None:
            slots = np.full(experts, -1)
            for (layer, expert), slot in step.state.slot_of.items():
                if layer == first.layer:
                    slots[expert] = slot
            self._publish(command.slot_map, slots, command.ids)
        return step

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

    def _upload(self, bank: Bank, step: SlotStep) -> None:
        source, target = self._arena.operand(bank.caches), self._arena.operand(bank.name)
        count = self.counters[bank.name]
        count.fills += 1
        count.hits += step.hits
        count.misses += len(step.uploads)
        count.evictions += len(step.victims)
        for first, slot, experts in merged(step.uploads):
            moved = copy_planes(source, first, target, slot, experts)
            self._traffic.add(bank.caches, bank.name, moved)
            count.uploaded += moved
            count.uploads += 1

    def _publish(self, name: str, values: np.ndarray, ids: str) -> None:
        target = self._arena.operand(name)
        target.array[...] = values.reshape(target.array.shape)
        # What the host writes to its own memory is no transfer.
        if self._arena.memory_of(name) != self._arena.memory_of(ids):
            self._traffic.add(ids, name, target.layout.nbytes)


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


def copy_planes(source: Operand, first: int, target: Operand, slot: int, count: int) -> int:
    """Copy ``count`` experts, from number ``first`` on, to places from ``slot`` on; the bytes."""
    planes = source.raw[:, first : first + count]
    if slot + count > target.ne[2]:
        raise ArenaError(f"{target.layout.name} has no place {slot + count - 1}")
    target.raw[:, slot : slot + count] = planes
    return int(planes.size)


@dataclass(slots=True)
class ExpertCopyCounters:
    """``copy_experts`` to one tensor: experts that travelled, in how many transfers, and bytes."""

    experts: int = 0
    transfers: int = 0
    bytes: int = 0


def copy_used_experts(
    source: Operand, target: Operand, used: Sequence[int], padding: int
) -> ExpertCopyCounters:
    """Copy the experts in ``used`` (ascending) to their own places, runs of neighbours at once.

    After each run ``padding`` further bytes travel, as far as the source goes.
    """
    count = ExpertCopyCounters(experts=len(used))
    if used and not 0 <= used[0] <= used[-1] < source.ne[2]:
        raise IndexError(f"expert {used[-1]}: {source.layout.name} has {source.ne[2]}")
    if padding and not (source.layout.packed and target.layout.packed):
        raise ArenaError(f"padding of {padding} bytes: {source.layout.name} is not packed")
    stride = source.layout.nb[2]
    for first, _, experts in merged([(expert, expert) for expert in used]):
        count.bytes += copy_planes(source, first, target, first, experts)
        count.transfers += 1
        end = (first + experts) * stride
        tail = min(padding, len(source.data) - end)
        if tail > 0:
            target.data[end : end + tail] = source.data[end : end + tail]
            count.bytes += tail
    return count
