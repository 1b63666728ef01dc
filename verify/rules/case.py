"""A fault with the questions that rules ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...model.command import Callback, Command, CopyExperts, FillBank, Prefetch, SetInput
from ...model.device import Usage
from ...model.schedule import Schedule
from ..access import PAST, Read, Write
from ..footprint import Footprints
from ..obligation import Fault
from ..sequential import Event, Time, logical_space
from ..term import size

#: a rule's test of a fault
Test = Callable[["Case"], bool]


@dataclass(frozen=True, slots=True)
class Case:
    """One fault in its schedule.  *Root*: the read and write that it comes from; *reader*: the
    compute, callback, host read or output that sees it."""

    schedule: Schedule
    footprints: Footprints
    fault: Fault

    # -- commands -------------------------------------------------------------------------------

    def command(self, part: int) -> Command:
        assert self.schedule.program is not None
        return self.schedule.program[self.footprints.order.parts[part].command]

    def iteration(self, part: int) -> int:
        return self.footprints.order.parts[part].iteration

    @property
    def root_read(self) -> Read:
        return self.fault.root.read

    @property
    def root_command(self) -> Command:
        return self.command(self.root_read.part)

    @property
    def write(self) -> Write | None:
        return self.fault.root.write

    @property
    def writer(self) -> Command | None:
        return self.command(self.write.part) if self.write is not None else None

    @property
    def relation(self) -> str:
        return self.fault.root.relation

    # -- order and time ---------------------------------------------------------------------------

    def before(self, a: int, b: int) -> bool:
        return self.footprints.order.before(a, b)

    @property
    def due_writes(self) -> list[Write]:
        """The writes of the due version's own event."""
        due = self.fault.due
        return self.footprints.by_event.get(due, []) if due is not None else []

    @property
    def due_before_root(self) -> bool:
        return any(self.before(w.part, self.root_read.part) for w in self.due_writes)

    def event_time(self, event: Event) -> Time | None:
        return self.footprints.sequential.time_of(event)

    @property
    def writes_later_version(self) -> bool:
        """Whether the write's version comes after the read in the sequential run."""
        if self.write is None or self.write.event is None or self.fault.read.time is None:
            return False
        time = self.event_time(self.write.event)
        return time is not None and time >= self.fault.read.time

    @property
    def writes_due(self) -> bool:
        return self.write is not None and self.write.event == self.fault.due

    @property
    def races_with_due(self) -> bool:
        """Whether the write and one that brings the due version may end in either order."""
        write, due = self.write, self.fault.due
        return write is not None and any(
            self.footprints.carries(other, due)
            and not self.before(other.part, write.part)
            and not self.before(write.part, other.part)
            for other in self.footprints.by_space.get(self.root_read.region.space, ())
            if other.part != write.part
        )

    @property
    def overwrote_due(self) -> bool:
        """Whether the due version was in the bytes before the write."""
        write, due = self.write, self.fault.due
        if write is None:
            return False
        return not self.footprints.carries(write, due) and any(
            self.before(other.part, write.part) and self.footprints.carries(other, due)
            for other in self.footprints.by_space.get(self.root_read.region.space, ())
        )

    # -- places -----------------------------------------------------------------------------------

    def base(self, tensor: str) -> str:
        return self.schedule.base(tensor).name

    @property
    def read_base(self) -> str:
        return self.base(self.root_read.region.tensor.name)

    @property
    def written_base(self) -> str | None:
        return self.base(self.write.region.tensor.name) if self.write is not None else None

    @property
    def foreign_write(self) -> bool:
        """Whether the write is to another tensor that lies on the same bytes."""
        return self.written_base is not None and self.written_base != self.read_base

    @property
    def brings_other(self) -> bool:
        """Whether the write is a copy of another tensor than the reader means: two that are
        staged in one place."""
        write, original = self.write, self.footprints.original
        if write is None or write.source is None:
            return False
        name = write.source.region.tensor.name
        if original(name) == original(self.fault.read.due.name):
            return False
        lasting = self.schedule.location(name).usage in (Usage.WEIGHTS, Usage.ANY)
        return lasting or not self.footprints.carries(write, self.fault.due)

    @property
    def restages_weight(self) -> bool:
        """Whether the write brings a weight to where a node reads the copy of another weight."""
        if self.write is None or self.write.source is None or not self.brings_other:
            return False
        if self.root_read.part != self.fault.read.part:
            return False  # a stop on the way to the place that the node reads
        names = (self.write.source.region.tensor.name, self.fault.read.due.name)
        usages = {self.schedule.location(self.footprints.original(name)).usage for name in names}
        return usages <= {Usage.WEIGHTS, Usage.ANY}

    @property
    def computed_source(self) -> bool:
        """Whether the root reads a compute tensor that is no user input."""
        base = self.schedule.base(self.root_read.region.tensor.name)
        usage = self.schedule.location(base.name).usage
        return usage in (None, Usage.COMPUTE) and not base.input

    @property
    def prefetched(self) -> bool:
        return isinstance(self.root_command, Prefetch)

    @property
    def writer_is_user_code(self) -> bool:
        return isinstance(self.writer, Callback | FillBank | SetInput)

    def rewrites_before_use(self) -> bool:
        """Whether some command writes the root's bytes after its read could have started and
        before the reader is done."""
        root, reader = self.root_read, self.fault.read
        for write in self.footprints.by_space.get(root.region.space, ()):
            after = not self.before(write.part, root.part)
            used = not self.before(reader.part, write.part)
            if write.region.may_meet(root.region) and after and used and write.part != root.part:
                return True
        return False

    # -- banks and experts ------------------------------------------------------------------

    @property
    def reads_bank(self) -> bool:
        return self.fault.read.bank is not None

    @property
    def other_fill(self) -> bool:
        """Whether the write is an upload of the reader's group by a fill that does not serve it."""
        bank, write = self.fault.read.bank, self.write
        if bank is None or write is None or write.event is None or write.event.kind != "state":
            return False
        filled = self.schedule.graph.find_bank(write.event.name)
        if filled is None or filled.group != bank.bank.group:
            return False
        return write.event.place != bank.fill

    def selective_copies(self) -> list[CopyExperts]:
        """Selective copies into the bytes that the root reads, issued before it."""
        found = []
        for write in self.footprints.by_space.get(self.root_read.region.space, ()):
            command = self.command(write.part)
            if isinstance(command, CopyExperts) and write.part < self.root_read.part:
                found.append(command)
        return found

    @property
    def feeding_copy(self) -> CopyExperts | None:
        """The latest of the selective copies, the one that should have brought what is missing."""
        copies = self.selective_copies()
        return copies[-1] if copies else None

    def logical(self, tensor: str) -> str:
        return logical_space(self.schedule, tensor)

    @property
    def carried_by_prefetch(self) -> bool:
        """Whether the root reads bytes that a prefetch fills for it."""
        for write in self.footprints.by_space.get(self.root_read.region.space, ()):
            command = self.command(write.part)
            if isinstance(command, Prefetch) and self.base(command.dst) == self.read_base:
                return True
        return False

    @property
    def past_the_end(self) -> bool:
        """Whether the root reads past a slot, or past the last expert of its tensor."""
        read = self.root_read
        if read.role != PAST:
            return False
        values = self.fault.values
        end = values.value(size(read.region.start + read.region.tensor.extent))
        return read.bank is not None or self.fault.root.address >= end

    @property
    def in_a_tail(self) -> bool:
        """Whether a selective copy wrote the byte with the padding after an expert."""
        write, values = self.write, self.fault.values
        if write is None or write.experts is None or not write.experts.padding:
            return False
        inside = self.fault.root.address - values.value(size(write.region.start))
        chosen = values.sets.get(write.experts.set_id, frozenset())
        return inside // write.experts.stride not in chosen
