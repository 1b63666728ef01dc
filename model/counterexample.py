"""What a refuted obligation looks like, as plain data that can be printed and executed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["start", "end"]


@dataclass(frozen=True, slots=True)
class Step:
    """One moment of an interleaving: a part of a command starts or ends.

    ``part`` is ``"main"`` for most; ``"read"`` is the host part of a staged copy, of
    ``copy_experts`` and of ``fill_bank``, ``"write"`` their part on the queue.
    """

    command: int
    iteration: int
    part: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class Party:
    """A command that takes part in a fault: which one, and which bytes of which tensor.

    ``span``: first and one-past-last byte in ``space`` (a buffer's name, or ``own:TENSOR``).
    """

    command: int | None
    iteration: int
    part: str
    text: str
    tensor: str = ""
    space: str = ""
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Counterexample:
    """One execution that goes wrong.

    ``symbols``: their values.  ``integers``: contents of integer tensors (router ids) that
    matter, as ``(tensor, pass, values)``, flat and innermost first.  ``banks``: content at the
    start, ``(group, ((slot, layer, expert), …))``.  ``order``: an interleaving that shows it.
    ``reader`` reads what ``writer`` wrote (or failed to write); ``due`` is what it should have
    seen.  ``missing``: the edge that would repair it, in one line.  ``unique``: no other values of
    the symbols give it.  ``needed``: the commands ``(command, pass)`` that it needs; the others can
    be left out of the order and the reader sees the same.
    """

    symbols: tuple[tuple[str, int], ...]
    reader: Party
    writer: Party | None
    due: str
    missing: str
    order: tuple[Step, ...]
    integers: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    banks: tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...] = ()
    unique: bool = False
    needed: tuple[tuple[int, int], ...] = ()
