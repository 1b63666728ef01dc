"""Where bytes lie and where work runs: memories, buffers, devices and their copy contracts."""

from __future__ import annotations

from dataclasses import dataclass

from .word import Word

#: The queue of the host program itself.
HOST = "host"


class Usage(Word):
    """What a buffer is for, as in ``ggml_backend_buffer_usage``."""

    WEIGHTS = "weights"
    COMPUTE = "compute"
    ANY = "any"


class Contract(Word):
    """How a copy is ordered (see ``docs/semantics.md``, section "Order")."""

    STREAM = "stream"
    SYNC = "sync"
    STAGED = "staged"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True)
class Memory:
    """A place for bytes; ``bytes`` is its capacity (``None``: not stated)."""

    name: str
    host: bool = False
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation of ``bytes`` bytes in a memory."""

    name: str
    memory: str
    usage: Usage
    bytes: int


@dataclass(frozen=True, slots=True)
class CopyRule:
    """The contract of copies from one memory to another; ``None`` matches every memory."""

    source: str | None
    target: str | None
    contract: Contract


@dataclass(frozen=True, slots=True)
class SizeRange:
    """A bound on one dimension in a capability pattern (inclusive; ``None``: unbounded)."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class OpPattern:
    """Matches a node by op (``"*"``: all), operand types and sizes.

    ``dtypes``: ``(operand, dtype)`` pairs, the operand being ``"dst"`` or ``"src0"``…;
    ``ne``: ``(operand, dimension, range)``.
    """

    op: str
    dtypes: tuple[tuple[str, str], ...] = ()
    ne: tuple[tuple[str, int, SizeRange], ...] = ()


@dataclass(frozen=True, slots=True)
class InPlace:
    """On this device ``op`` may write its result over source number ``source``."""

    op: str
    source: int


@dataclass(frozen=True, slots=True)
class Device:
    """Something that runs ops.  Devices stand in priority order, the CPU last.

    ``asynchronous`` false: what runs there is a host command.  ``ops`` is ``None`` when every
    op is supported that ``deny`` does not match.  ``over_read``: ``(op, dtype, bytes)`` that a
    kernel reads past an expert.  ``waits_for``: devices whose events its queues can wait for
    (``None``: the default, itself; a synchronous device waits for all).
    """

    name: str
    memory: str
    reads: tuple[str, ...]
    asynchronous: bool = False
    copy: tuple[CopyRule, ...] = ()
    events: bool = True
    queues: tuple[str, ...] = ("compute",)
    ops: tuple[OpPattern, ...] | None = None
    deny: tuple[OpPattern, ...] = ()
    offload_min_tokens: int = 32
    over_read: tuple[tuple[str, str, int], ...] = ()
    waits_for: tuple[str, ...] | None = None
    in_place: tuple[InPlace, ...] = ()

    @property
    def first_queue(self) -> str:
        """Where its computes go if a command does not say: ``DEVICE.QUEUE``, or the host."""
        return f"{self.name}.{self.queues[0]}" if self.asynchronous else HOST

    def contract(self, source: str, target: str) -> Contract | None:
        """The contract of a copy on one of this device's queues; ``None``: none is declared."""
        if not self.asynchronous:
            return Contract.STREAM
        for rule in self.copy:
            if rule.source in (None, source) and rule.target in (None, target):
                return rule.contract
        return None

    def over_read_bytes(self, op: str, dtype: str) -> int:
        for name, kind, count in self.over_read:
            if name == op and kind == dtype:
                return count
        return 0

    def may_wait_for(self, device: str) -> bool:
        """Whether a queue of this device can wait for an event recorded on ``device``."""
        if device in (HOST, self.name) or not self.asynchronous:
            return True
        return device in (self.waits_for or ())
