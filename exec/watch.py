"""What a run tells of itself: a trace, or a sanitizer, listens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.schedule import Schedule
from .arena import Arena


@dataclass(frozen=True, slots=True)
class Stretch:
    """One part of a command in one pass: ``part`` is ``main``, or ``read`` and then ``write``.

    ``queue``: where it runs.  ``loose``: an unordered transfer of that queue.  ``text``: the
    command in words.
    """

    index: int
    pass_: int
    part: str
    queue: str
    text: str
    loose: bool = False


class Watcher:
    """Is told what happens, in the thread in which it happens; here it does nothing.

    Records, waits and host synchronisation start when they are over: then they order things.
    """

    def begin_run(self, arena: Arena, schedule: Schedule, symbols: Mapping[str, int]) -> None:
        """Memories are ready."""

    def begin_pass(self, pass_: int) -> None:
        """The host is about to issue a pass."""

    def issue(self, stretch: Stretch) -> object:
        """The host issues a part; what this returns is given to :meth:`start`."""
        return None

    def block(self, stretch: Stretch) -> None:
        """A wait has come to its turn and may have to wait."""

    def start(self, stretch: Stretch, token: object, flights: str = "", flown: int = 0) -> None:
        """A part starts.  A record: it has seen the first ``flown`` transfers of ``flights``."""

    def end(self, stretch: Stretch) -> None:
        """A part has ended."""

    def saw(self, waiter: Stretch, record: Stretch) -> None:
        """A wait has seen its record."""

    def drained(self, waiter: Stretch, lane: str) -> None:
        """The host has seen the end of all that was issued to a lane."""

    def banks(self, occupied: Mapping[str, int]) -> None:
        """Full slots of each group, after a fill was decided."""

    def end_run(self, occupied: Mapping[str, int]) -> None:
        """All that was issued has ended."""


#: Nobody listens.
NOBODY = Watcher()
