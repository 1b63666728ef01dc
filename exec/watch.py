"""What a run tells of itself: a trace, or a sanitizer, listens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.cache import SlotStep
from ..model.schedule import Schedule
from .arena import Arena


class WatchError(RuntimeError):
    """Raised by a watcher that does not let a run go on."""


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
        """The first pass of a program is about to be issued; nothing else runs."""

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

    def decided(self, stretch: Stretch, step: SlotStep) -> None:
        """The host part of a fill has chosen slots; nothing has moved yet."""

    def banks(self, occupied: Mapping[str, int]) -> None:
        """Full slots of each group, after a fill was decided."""

    def end_run(self) -> None:
        """All that was issued has ended; an error that is raised here is the run's."""


#: Nobody listens.
NOBODY = Watcher()


class Both(Watcher):
    """Tells two watchers; the second can refuse, so it is told first where a part starts."""

    def __init__(self, first: Watcher, second: Watcher) -> None:
        self._first, self._second = first, second

    def begin_run(self, arena: Arena, schedule: Schedule, symbols: Mapping[str, int]) -> None:
        self._first.begin_run(arena, schedule, symbols)
        self._second.begin_run(arena, schedule, symbols)

    def begin_pass(self, pass_: int) -> None:
        self._first.begin_pass(pass_)
        self._second.begin_pass(pass_)

    def issue(self, stretch: Stretch) -> object:
        return self._first.issue(stretch), self._second.issue(stretch)

    def block(self, stretch: Stretch) -> None:
        self._first.block(stretch)
        self._second.block(stretch)

    def start(self, stretch: Stretch, token: object, flights: str = "", flown: int = 0) -> None:
        left, right = token if isinstance(token, tuple) else (None, None)
        self._second.start(stretch, right, flights, flown)
        self._first.start(stretch, left, flights, flown)

    def end(self, stretch: Stretch) -> None:
        self._first.end(stretch)
        self._second.end(stretch)

    def saw(self, waiter: Stretch, record: Stretch) -> None:
        self._first.saw(waiter, record)
        self._second.saw(waiter, record)

    def drained(self, waiter: Stretch, lane: str) -> None:
        self._first.drained(waiter, lane)
        self._second.drained(waiter, lane)

    def decided(self, stretch: Stretch, step: SlotStep) -> None:
        self._first.decided(stretch, step)
        self._second.decided(stretch, step)

    def banks(self, occupied: Mapping[str, int]) -> None:
        self._first.banks(occupied)
        self._second.banks(occupied)

    def end_run(self) -> None:
        self._first.end_run()
        self._second.end_run()
