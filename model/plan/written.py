"""What the nodes of a split write, and what the host writes for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..command import Callback
from ..device import Usage
from ..ops import OPS
from ..schedule import Schedule, Split

_USAGE = "usage:"


@dataclass(frozen=True, slots=True)
class Written:
    """``names``: tensors, as they are written: a view stands for itself.  ``bases``: what owns
    their bytes.  ``usages``: all of these but banks; ``everything``: all but banks."""

    names: frozenset[str] = frozenset()
    bases: frozenset[str] = frozenset()
    usages: frozenset[str] = frozenset()
    everything: bool = False

    def __or__(self, other: Written) -> Written:
        return Written(
            self.names | other.names, self.bases | other.bases, self.usages | other.usages,
            self.everything or other.everything,
        )  # fmt: skip

    def meets(self, schedule: Schedule, name: str) -> bool:
        """Whether bytes of a tensor may be among what is written."""
        base = schedule.base(name).name
        if base in self.bases:
            return True
        if not (self.usages or self.everything) or schedule.graph.find_bank(base) is not None:
            return False
        usage = schedule.location(base).usage or Usage.COMPUTE  # where the planner will place it
        return self.everything or str(usage) in self.usages


def node_writes(schedule: Schedule, split: Split) -> Written:
    """By the nodes of a split."""
    names = set()
    for node in schedule.graph.nodes[split.start : split.end]:
        if not OPS[node.op].view:
            names |= set(node.writes if node.writes is not None else (node.dst,))
    return _written(schedule, names)


def host_writes(schedule: Schedule, split: Split) -> Written:
    """By the callbacks of a split, and by the fills of the banks that it reads or looks up."""
    names: set[str] = set()
    usages: set[str] = set()
    everything = False
    for callback in split.callbacks:
        assert isinstance(callback, Callback)
        everything |= callback.writes is None
        for name in callback.writes or ():
            (usages if name.startswith(_USAGE) else names).add(name)
    read = {name for node in schedule.graph.nodes[split.start : split.end] for name in node.src}
    for bank in schedule.graph.banks:
        filled = {n for n in (bank.name, bank.slot_ids, bank.slot_map) if n is not None}
        if filled & read:
            names |= filled
    found = _written(schedule, names)
    return replace(
        found, usages=frozenset(u.removeprefix(_USAGE) for u in usages), everything=everything
    )


def _written(schedule: Schedule, names: set[str]) -> Written:
    return Written(frozenset(names), frozenset(schedule.base(name).name for name in names))
