"""The commands of a program, in the order in which the host issues them.

Each may carry a guard ``when`` (a command whose guard is false does not exist) and ``split``,
the split that is current when it is issued.  ``do`` is its name in a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .symbol import ALWAYS, Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    do: ClassVar[str] = ""
    when: Condition = ALWAYS
    split: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Command):
    """Run a node.  ``bind``: ``(source, tensor read in its place)``; ``copy``: the copy index
    that sources copied into the split are read from."""

    do: ClassVar[str] = "compute"
    node: str
    queue: str | None = None
    bind: tuple[tuple[str, str], ...] = ()
    copy: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Command):
    """All bytes of ``src`` to all bytes of ``dst``, k-th to k-th in logical order."""

    do: ClassVar[str] = "copy"
    src: str
    dst: str
    queue: str
    for_split: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefetch(Copy):
    """A copy that is issued while an earlier split is current."""

    do: ClassVar[str] = "prefetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyExperts(Command):
    """The experts in ``used(ids)``, and ``padding`` further bytes after each run of them."""

    do: ClassVar[str] = "copy_experts"
    src: str
    dst: str
    queue: str
    ids: str | None = None
    padding: int = 0
    used_from: str | None = None
    for_split: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FillBank(Command):
    """Bring ``used(ids)`` into slots of every bank named, and write the slot ids or the map."""

    do: ClassVar[str] = "fill_bank"
    banks: tuple[str, ...]
    ids: str
    queue: str
    slot_ids: str | None = None
    slot_map: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback(Command):
    """User code on the host.  Footprints are tensors or ``usage:NAME``; ``None`` means that
    none was declared, and then it may touch everything except banks."""

    do: ClassVar[str] = "callback"
    name: str
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInput(Command):
    do: ClassVar[str] = "set_input"
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOutput(Command):
    do: ClassVar[str] = "get_output"
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Command):
    do: ClassVar[str] = "record"
    event: str
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Command):
    do: ClassVar[str] = "wait"
    event: str
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncEvent(Command):
    """The host waits for the latest record of the event."""

    do: ClassVar[str] = "sync_event"
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncQueue(Command):
    """The host waits until everything issued on the queue has ended."""

    do: ClassVar[str] = "sync_queue"
    queue: str


COMMANDS: dict[str, type[Command]] = {
    kind.do: kind
    for kind in (
        Compute, Copy, Prefetch, CopyExperts, FillBank, Callback,
        SetInput, GetOutput, Record, Wait, SyncEvent, SyncQueue,
    )
}  # fmt: skip
