"""What reads look like to a theorem: whole tensors, what fetched them, banks and their fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.command import Callback, Command, Compute, CopyExperts, FillBank, Prefetch, SetInput
from ..model.device import Usage
from ..model.graph import Bank
from ..model.schedule import same_layout
from ..model.tensor import Tensor
from .access import Read, Write, expert_stride, starts_with_content
from .obligation import Judge
from .order import Order
from .region import Region
from .sequential import INITIAL, Event, covers

#: a split of a pass: ``(pass, split)``
Place = tuple[int, int]
#: commands that make something new; all others move bytes
_MAKERS = (Compute, Callback, FillBank, SetInput)


def _whole(region: Region) -> bool:
    """Whether a region is all bytes of a tensor, in one piece."""
    return (
        bool(region.tensor.shape)
        and region.exact
        and region.length is None
        and (region.tensor.packed)
    )


def _alike(left: Tensor, right: Tensor) -> bool:
    """Whether the k-th byte of one is as far from its first as the k-th byte of the other."""
    return left is right or (
        left.extent == right.extent and (same_layout(left, right) or (left.packed and right.packed))
    )


def asked(before: Sequence[Write], order: Order) -> int:
    """How many obligations there are about the writes before a read: one for each that no later
    write surely covers, and one for there being a write at all."""
    latest = [
        write for write in before
        if not any(o.experts is None and order.before(write.part, o.part) for o in reversed(before))
    ]  # fmt: skip
    return len(latest) + 1


@dataclass(frozen=True, slots=True)
class Plain:
    """A read of a whole tensor.

    ``due``: the event whose version all its bytes should have.  ``before``: the writes of the
    bytes that are before the read, in issue order; ``rest``: those that are not ordered with it.
    ``obligations``: as many as the judge would decide.
    """

    read: Read
    due: Event
    before: tuple[Write, ...]
    rest: tuple[Write, ...]
    obligations: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A plain read whose bytes ``fetch`` brought, a prefetch or a copy of experts.

    ``origin``: what the fetch reads; ``source``: the writes of those bytes; ``others``: the other
    writes of the bytes that it fills.
    """

    plain: Plain
    fetch: Write
    origin: Read
    source: tuple[Write, ...]
    others: tuple[Write, ...]
    issuing: Place
    consuming: Place

    @property
    def read(self) -> Read:
        return self.plain.read

    @property
    def due(self) -> Event:
        return self.plain.due

    @property
    def before(self) -> tuple[Write, ...]:
        return self.plain.before

    @property
    def rest(self) -> tuple[Write, ...]:
        return self.plain.rest


class Tensors:
    """Questions about reads and writes of whole tensors, answered by regions and order facts."""

    def __init__(self, judge: Judge) -> None:
        self.judge, self.schedule = judge, judge.schedule
        self.footprints, self.order = judge.footprints, judge.order
        self._brought: dict[tuple[int, str, str, Event], bool] = {}
        self._made: dict[Place, list[Write]] = {}

    # -- forms ------------------------------------------------------------------------------------

    def plain(self, read: Read) -> Plain | None:
        """The read, if it and all that may meet its bytes are whole, and one event is due."""
        due, writers = self._due(read), self._whole_writers(read)
        if due is None or writers is None or not _alike(read.region.tensor, read.due):
            return None
        if read.region.extent.bounds(self.schedule.graph.ranges)[1] < 1:
            return None  # no byte, no obligation
        order, here = self.order.before, read.part
        before = tuple(w for w in writers if order(w.part, here))
        rest = tuple(w for w in writers if not order(w.part, here) and not order(here, w.part))
        return Plain(read, due, before, rest, len(rest) + asked(before, self.order))

    def fetched(self, plain: Plain, kind: type[Prefetch | CopyExperts]) -> Fetched | None:
        """A read in a split of what the last write before it, of that kind, fetched for it."""
        read = self.order.parts[plain.read.part]
        command = self.command(plain.read)
        fetches = [w for w in (*plain.before, *plain.rest) if isinstance(self.command(w), kind)]
        if not isinstance(command, Compute) or command.split is None or not fetches:
            return None
        fetch = fetches[-1]
        source = self._whole_writers(fetch.source) if fetch.source is not None else None
        if source is None or fetch.source is None:
            return None
        if not _alike(fetch.region.tensor, fetch.source.region.tensor):
            return None
        if kind is Prefetch and not all(self._by_its_base(w, fetch.source) for w in source):
            return None
        return Fetched(
            plain, fetch, fetch.source, tuple(source),
            tuple(w for w in self.footprints.writers(plain.read) if w is not fetch),
            self.place(fetch), (read.iteration, command.split),
        )  # fmt: skip

    def _by_its_base(self, write: Write, origin: Read) -> bool:
        """Whether a node or user code writes, and a tensor of the base that is read: the setting
        of T1.  It speaks neither of copies nor of other tensors that lie on the same bytes."""
        base = self.schedule.base
        return isinstance(self.command(write), _MAKERS) and (
            base(write.region.tensor.name) == base(origin.region.tensor.name)
        )

    def _whole_writers(self, read: Read) -> list[Write] | None:
        """What may write the bytes of a read, if all of it writes all of them.  A copy of experts
        counts only for a read of experts of the same size."""
        writers, here = self.footprints.writers(read), read.region
        for write in writers:
            there = write.region
            if not _whole(there) or (there.start, there.extent) != (here.start, here.extent):
                return None
            if write.experts is not None and (
                read.experts is None or read.experts.stride != write.experts.stride
            ):
                return None
        return writers if _whole(here) else None

    def _due(self, read: Read) -> Event | None:
        """The one event whose version is due at all bytes of a read, if there is one."""
        assert read.time is not None
        sequential = self.judge.sequential
        logical = sequential.region(read.due.name)
        for event, region in sequential.writers(logical, read.time):
            return event if covers(region, logical) and _whole(logical) else None
        if logical.space.startswith("base:") or self.judge.sequential.holds_slots(logical.space):
            return None
        return INITIAL

    # -- commands ---------------------------------------------------------------------------------

    def command(self, access: Read | Write) -> Command:
        assert self.schedule.program is not None
        return self.schedule.program[self.order.parts[access.part].command]

    def place(self, write: Write) -> Place:
        """The split that is current when a write is issued; -1 for what belongs to none."""
        split = self.command(write).split
        return self.order.parts[write.part].iteration, -1 if split is None else split

    def is_node(self, write: Write) -> bool:
        return isinstance(self.command(write), Compute)

    def written_in(self, place: Place) -> list[Write]:
        """What nodes and user code write while a split is current."""
        if not self._made:
            for write in self.footprints.writes:
                if isinstance(self.command(write), _MAKERS):
                    self._made.setdefault(self.place(write), []).append(write)
        return self._made.get(place, [])

    def in_compute_buffer(self, access: Read | Write) -> bool:
        usage = self.schedule.location(access.region.tensor.name).usage
        return usage in (None, Usage.COMPUTE)

    # -- versions ---------------------------------------------------------------------------------

    def starts_due(self, read: Read, meant: Tensor, due: Event) -> bool:
        """Whether the bytes have the due version of a tensor before anything is written."""
        logical = self.judge.sequential.region(meant.name)
        return (
            due == INITIAL
            and starts_with_content(self.schedule, read.region.space)
            and (logical.space, logical.start) == (read.region.space, read.region.start)
        )

    def gives(self, write: Write, meant: Tensor, due: Event) -> bool:
        """Whether a write leaves the due version of a tensor, byte for byte."""
        if write.source is not None:
            source = write.source
            return _alike(write.region.tensor, source.region.tensor) and self.brings(
                source, meant, due
            )
        base = self.schedule.base
        return (
            write.event == due
            and base(write.region.tensor.name) == base(meant.name)
            and write.region.start == self.footprints.region(meant.name).start
        )

    def brings(self, source: Read, meant: Tensor, due: Event) -> bool:
        """The local condition of T7 for the read of a copy: whether it gets the due version."""
        key = (source.part, source.region.tensor.name, meant.name, due)
        if key not in self._brought:
            writers = self._whole_writers(source)
            before, part = self.order.before, source.part
            self._brought[key] = (
                writers is not None
                and all(before(w.part, part) or before(part, w.part) for w in writers)
                and self.last_gives(
                    [w for w in writers if before(w.part, part)], source, meant, due
                )
            )
        return self._brought[key]

    def last_gives(self, earlier: Sequence[Write], read: Read, meant: Tensor, due: Event) -> bool:
        """Whether one of these writes comes after all the others and gives the due version; of
        none: whether the bytes have it from the start."""
        for write in reversed(earlier):
            if all(o is write or self.order.before(o.part, write.part) for o in earlier):
                return self.gives(write, meant, due)
        return not earlier and self.starts_due(read, meant, due)

    # -- experts ----------------------------------------------------------------------------------

    def ids_in_range(self, read: Read) -> bool:
        """Whether the ids promise to name experts of the tensor only."""
        promised = read.experts.values if read.experts is not None else None
        count = read.region.tensor.ne[2].constant
        return (
            promised is not None
            and count is not None
            and (promised[0] >= 0 and promised[1] <= count)
        )

    def same_experts(self, case: Fetched) -> bool:
        """Whether the experts follow each other alike where they come from and where they go."""
        read, fetch = case.read.experts, case.fetch.experts
        return (
            read is not None
            and fetch is not None
            and (read.stride == fetch.stride == expert_stride(case.origin.region.tensor))
        )

    def no_over_read(self, read: Read) -> bool:
        """Whether the device that reads promises to read nothing past an expert."""
        device = self.schedule.queue_device(self.order.parts[read.part].queue)
        return all(d.name != device or not any(n for _, _, n in d.over_read)
                   for d in self.schedule.graph.devices)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filled:
    """A read of a bank's slots: ``serving`` is the upload of the fill that chose them, ``writers``
    all writes of the slots that are not after the read."""

    read: Read
    bank: Bank
    serving: Write
    writers: tuple[Write, ...]
    obligations: int


class Fills:
    """Questions about banks and their fills."""

    def __init__(self, judge: Judge) -> None:
        self.judge, self.schedule, self.banks = judge, judge.schedule, judge.banks
        self.footprints, self.order = judge.footprints, judge.order

    def filled(self, read: Read) -> Filled | None:
        """The read, if it is of the slots themselves and all writes there are of all slots."""
        use = read.bank
        if use is None or use.what != "slots" or use.fill is None:
            return None
        bank = use.bank
        if read.region.space != self.schedule.location(bank.name).space:
            return None
        own = (read.region.start, read.region.extent)
        writers = [
            w for w in self.footprints.writers(read) if not self.order.before(read.part, w.part)
        ]
        if any((w.region.start, w.region.extent) != own for w in writers):
            return None
        (serving,) = self.footprints.by_event[Event("state", *use.fill, bank.name)]
        before = [w for w in writers if self.order.before(w.part, read.part)]
        crowded = self.banks.experts(bank) > bank.slots
        obligations = len(writers) - len(before) + asked(before, self.order) + crowded
        return Filled(read, bank, serving, tuple(writers), obligations)

    def fits(self, case: Filled) -> bool:
        """Whether all experts, or all that the ids can name, fit into the slots."""
        ids = self.schedule.tensor(case.bank.ids).elements
        most = min(self.banks.experts(case.bank), ids.bounds(self.judge.symbols)[1])
        return most <= case.bank.slots

    def on_one_queue(self, case: Filled) -> bool:
        """Whether the uploads to the slots, and the read, are on one in-order queue."""
        parts = [self.order.parts[p] for p in (case.read.part, *(w.part for w in case.writers))]
        return len({part.queue for part in parts}) == 1 and not any(part.loose for part in parts)

    def serves(self, case: Filled) -> bool:
        """Whether the latest fill is for the ids of the reader."""
        use = case.read.bank
        assert use is not None and use.fill is not None
        same = self.footprints.filled.get(use.fill) == use.needs
        return same and all(w.part <= case.serving.part for w in case.writers)

    def alone(self, case: Filled) -> bool:
        """Whether only fills of the group write there, and none for the layer leaves the bank
        out while it loads experts."""
        use = case.read.bank
        assert use is not None and use.fill is not None
        event = Event("state", *use.fill, case.bank.name)
        return not any(self.banks.alien(w, case.read, event) for w in case.writers) and all(
            self.order.before(case.read.part, w.part) for w in self.banks.skipping(case.bank)
        )

    def keeps(self, case: Filled) -> bool:
        """Whether the tensor that the bank caches is never written."""
        region = self.judge.sequential.region(case.bank.caches)
        entries = self.judge.sequential.entries.get(region.space, ())
        return not any(entry.region.may_meet(region) for entry in entries)
