"""Views of which the document does not say where in their base they lie.

Which bytes such a view has is unknown, so versions cannot be followed byte by byte.  What can be
decided: if everything that may touch the bytes is ordered as in the sequential run, then the
bytes have their due versions whichever they are.  Where that fails the answer is "unknown".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..model.schedule import Schedule
from .access import Read, Write, starts_with_content
from .footprint import Footprints
from .sequential import Sequential, Time, covers, logical_space


@dataclass(frozen=True, slots=True)
class UnknownPlaces:
    """Judges reads that such views may meet."""

    schedule: Schedule
    sequential: Sequential
    footprints: Footprints

    def concern(self, read: Read) -> bool:
        """Whether the read, or what may have written its bytes, is such a view."""
        if not read.region.exact or (read.due.about and read.bank is None):
            return True
        if read.region.space in self.footprints.inexact and any(
            not write.region.exact for write in self.footprints.writers(read)
        ):
            return True
        logical = self.sequential.region(read.due.name)
        if logical.space not in self.sequential.inexact:
            return False
        entries = self.sequential.entries[logical.space]
        return any(not e.region.exact and e.region.may_meet(logical) for e in entries)

    def ordered_like_sequence(self, read: Read, time: Time) -> bool:
        """Whether all that may touch these bytes is ordered as in the sequential run.

        Then the bytes have their due versions whichever bytes the views are.
        """
        writers = self.footprints.writers(read)
        if len(writers) >= 1 and all(w.source is not None for w in writers):
            return self._copied_like_sequence(read, writers, time)
        base = self.schedule.base(read.region.tensor.name).name
        times = {
            e.event: e.time
            for e in self.sequential.entries.get(logical_space(self.schedule, base), ())
        }
        earlier: list[tuple[Time, Write]] = []
        for write in writers:
            owner = self.schedule.base(write.region.tensor.name).name
            if write.event not in times or owner != base:
                return False
            if times[write.event] < time:
                earlier.append((times[write.event], write))
                if not self.footprints.order.before(write.part, read.part):
                    return False
            elif not self.footprints.order.before(read.part, write.part):
                return False
        earlier.sort(key=lambda pair: pair[0])
        steps = pairwise(earlier)
        if not all(self.footprints.order.before(a.part, b.part) for (_, a), (_, b) in steps):
            return False
        done = {write.event for _, write in earlier}
        logical = self.sequential.region(base)
        due = list(self.sequential.writers(logical, time))
        if not starts_with_content(self.schedule, logical.space) and not any(
            covers(r, logical) for _, r in due
        ):
            return False  # bytes of the base may have no version at all
        return all(event in done for event, _ in due)

    def _copied_like_sequence(self, read: Read, writers: list[Write], time: Time) -> bool:
        """The same for bytes that only whole copies write: the last one carries them."""
        before = []
        for write in writers:
            if self.footprints.order.before(write.part, read.part):
                before.append(write)
            elif not self.footprints.order.before(read.part, write.part):
                return False
        last = [
            w
            for w in before
            if all(o is w or self.footprints.order.before(o.part, w.part) for o in before)
        ]
        if len(last) != 1 or last[0].experts is not None or last[0].source is None:
            return False
        source = last[0].source
        if self.schedule.base(source.due.name) != self.schedule.base(read.due.name):
            return False
        return self.ordered_like_sequence(source, time)
