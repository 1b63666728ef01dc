"""What each part of a command reads and writes.

A *version* is an event of the sequential run (a node's compute, a user's input, a callback,
what a buffer held at the start, the state of a bank after a fill) together with the logical
address of the byte.  A write that is no copy writes the version of its own event; a copy hands
on what its own read finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..model.command import (
    Callback,
    Command,
    Compute,
    Copy,
    CopyExperts,
    FillBank,
    GetOutput,
    SetInput,
)
from ..model.device import Contract, Usage
from ..model.graph import Bank, Node
from ..model.ops import OPS, Reads
from ..model.schedule import Schedule
from ..model.symbol import Expr
from ..model.tensor import Tensor
from .access import (
    INDEX_SOURCES,
    MAY_READ,
    PAST,
    TARGET_SOURCES,
    BankUse,
    Experts,
    Read,
    Write,
    bank_of_node,
    expert_stride,
)
from .lookup import Fills, Readers, computes, filled_banks
from .order import Order, Part, copy_contract
from .region import Region, Unsupported
from .sequential import INITIAL, Event, Sequential, Time, callback_names, callback_time
from .slice import Line, Numbered
from .spans import Span, Spans
from .tail import past_region


class Footprints:
    """All reads and writes of the parts of one order.  ``step`` is called with (done, total)."""

    def __init__(
        self,
        schedule: Schedule,
        order: Order,
        sequential: Sequential,
        step: Callable[[int, int], None] | None = None,
    ) -> None:
        self.schedule, self.order, self.sequential = schedule, order, sequential
        self.reads: list[Read] = []
        self.writes: list[Write] = []
        self.by_space: dict[str, list[Write]] = {}
        self.by_event: dict[Event, list[Write]] = {}
        #: fills of each group, in issue order
        self.fills: dict[str, list[tuple[int, int]]] = {}
        #: spaces with a write of unknown place
        self.inexact: set[str] = set()
        self._lines: dict[str, Spans[dict[tuple[str, bool], Line]]] = {}
        self._carried: dict[tuple[int, Event], bool] = {}  # copies, by their part
        #: used set that each fill brings in
        self.filled: dict[tuple[int, int], str] = {}
        #: fills that find all their experts, with the one that they follow: it was for the same ids
        self.idle: dict[tuple[int, int], tuple[int, int]] = {}
        #: used set of each ``copy_experts``, by destination and pass
        self._used: dict[tuple[str, int], str] = {}
        self._fills_so_far = Fills()
        self._readers = Readers(schedule)
        self._computes = computes(schedule, order) if schedule.graph.banks else {}
        for done, parts in enumerate(order.by_command.values()):
            if step is not None:
                step(done, len(order.by_command))
            self._add(parts)
        self._index()

    def _index(self) -> None:
        places: dict[str, dict[Span, dict[tuple[str, bool], Line]]] = {}
        for number, write in enumerate(self.writes):
            region, part = write.region, self.order.parts[write.part]
            if write.event is not None:
                self.by_event.setdefault(write.event, []).append(write)
            if self.moves_nothing(write):
                continue
            self.by_space.setdefault(region.space, []).append(write)
            if not region.exact:
                self.inexact.add(region.space)
            lines = places.setdefault(region.space, {}).setdefault(region.span, {})
            lines.setdefault((part.queue, part.loose), []).append(Numbered(number, write))
        self._lines = {space: Spans(found.items()) for space, found in places.items()}

    def region(self, name: str) -> Region:
        """A tensor's bytes where it is placed."""
        return self.sequential.placed(name)

    # -- one method a command ---------------------------------------------------------------

    def _add(self, parts: tuple[Part, ...]) -> None:
        assert self.schedule.program is not None
        command = self.schedule.program[parts[0].command]
        table: dict[str, Callable[[Command, tuple[Part, ...]], None]] = {
            "compute": self._compute, "copy": self._copy, "prefetch": self._copy,
            "copy_experts": self._copy_experts, "fill_bank": self._fill,
            "callback": self._callback, "set_input": self._set_input,
            "get_output": self._get_output,
        }  # fmt: skip
        if command.do in table:
            table[command.do](command, parts)

    def _read(self, part: Part, tensor: str, due: str, time: Time | None, role: str) -> Read:
        return Read(part.index, self.region(tensor), self.schedule.tensor(due), time, role)

    def _compute(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, Compute)
        part, graph = parts[0], self.schedule.graph
        node, position = graph.node(command.node), graph.position(command.node)
        time = Time(part.iteration, 1, position, 1)
        op = OPS[node.op]
        event = Event("node", position, part.iteration)
        if not op.declared:
            raise Unsupported(
                f"nobody said what op {op.name} ({node.dst!r}) reads and writes; "
                "register it with a footprint"
            )
        if node.reads is not None or node.writes is not None:
            self._declared(command, node, part, time, event)
            return
        for index, source in enumerate(node.src):
            if TARGET_SOURCES.get(node.op) == index:
                continue
            read = self._read(part, self.schedule.bound(command, index), source, time, "source")
            self._stands_in(read)
            if op.source_reads(index) is Reads.EXPERTS and self._raw_ids_on_bank(node):
                continue  # BK005 tells: such a read has no meaning to hold it to
            if INDEX_SOURCES.get(node.op) == index and self._slots_off_bank(node, source):
                continue  # the same
            read = self._through_bank(read, node, index)
            if op.source_reads(index) is Reads.EXPERTS and read.bank is None:
                read = replace(read, experts=self._experts_of(node, read.due, time))
            self.reads.append(read)
            if op.source_reads(index) is Reads.EXPERTS:
                self._read_past(command, node, read)
        if op.updates:
            self.reads.append(self._read(part, node.dst, node.dst, time, "old"))
        self.writes.append(Write(part.index, self.region(node.dst), event))

    def _read_past(self, command: Compute, node: Node, read: Read) -> None:
        """What the device's kernel reads past each expert, as a read of its own."""
        device, tensor = self.schedule.compute_device(command), read.region.tensor
        if device is None or not tensor.shape:
            return
        count = self.schedule.graph.device(device).over_read_bytes(node.op, tensor.dtype.lower())
        if count:
            region = past_region(self.schedule, self.region(tensor.name), count)
            self.reads.append(replace(read, region=region, role=PAST, past=count))

    def _stands_in(self, read: Read) -> None:
        """Refuse a stand-in of another size: its reader would be held to a part of its source."""
        found, due = read.region.tensor, read.due
        if read.region.exact and not due.about and found.data_bytes != due.data_bytes:
            raise Unsupported(f"{found.name!r} stands for {due.name!r}, which has another size")

    def _declared(self, command: Compute, node: Node, part: Part, time: Time, event: Event) -> None:
        """A footprint of the node's own; a source in it is read from where it is bound."""
        for name in node.reads if node.reads is not None else node.src:
            bound = name
            if name in node.src:
                bound = self.schedule.bound(command, node.src.index(name))
            read = self._read(part, bound, name, time, "source")
            self._stands_in(read)
            self.reads.append(read)
        for name in node.writes if node.writes is not None else (node.dst,):
            self.writes.append(Write(part.index, self.region(name), event))

    def _copy(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, Copy)
        source = self._read(parts[0], command.src, command.src, None, "copied")
        target = self.region(command.dst)
        self.writes.append(Write(parts[-1].index, target, None, source))

    def _copy_experts(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, CopyExperts)
        iteration = self._consumed_in(command, parts[0].iteration)
        node = self._readers.of_experts(command, self.original)
        if command.ids is not None:
            read = self._read(parts[0], command.ids, command.ids, None, "ids")
            if node is not None:
                time = Time(iteration, 1, self.schedule.graph.position(node.dst), 1)
                due = self.schedule.tensor(node.src[2])
                read = replace(read, due=due, time=time)
            self.reads.append(read)
            used = self._used_set(command.ids, node, iteration)
        else:
            assert command.used_from is not None
            used = self._used.get((command.used_from, parts[0].iteration), "none")
        self._used[command.dst, parts[0].iteration] = used
        target = self.region(command.dst)
        promised = self._promised(command.ids) if command.ids is not None else None
        experts = Experts(used, expert_stride(target.tensor), command.padding, promised)
        # A staged upload reads its source on the host, with the ids.
        reader = parts[0] if self._staged(command) else parts[-1]
        source = self._read(reader, command.src, command.src, None, "copied")
        self.writes.append(Write(parts[-1].index, target, None, source, experts))

    def _staged(self, command: CopyExperts | FillBank) -> bool:
        return copy_contract(self.schedule, command) is Contract.STAGED

    def _fill(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, FillBank)
        graph, place = self.schedule.graph, (parts[0].command, parts[0].iteration)
        banks = [graph.find_bank(name) for name in command.banks]
        first = banks[0]
        assert first is not None
        self._fills_so_far.add(command, first, place[::-1])
        if first.policy != "lru-slots":
            raise Unsupported(f"bank {first.name!r}: what {first.policy} evicts is not known here")
        if len({self._memories(bank) for bank in banks if bank is not None}) > 1:
            raise Unsupported(f"fill of {', '.join(command.banks)}: not all of the same memories")
        issued = self.fills.setdefault(first.group, [])
        node = self._readers.of_banks(command)
        if node is None:
            raise Unsupported(
                f"fill of {', '.join(command.banks)}: no node reads them, so no ids are due"
            )
        time = Time(parts[0].iteration, 1, graph.position(node.dst), 1)
        self.filled[place] = self.sequential.used_set(first.ids, time)
        if issued and self._same_experts(issued[-1], place):
            self.idle[place] = self.idle.get(issued[-1], issued[-1])
        issued.append(place)
        read = self._read(parts[0], command.ids, first.ids, time, "ids")
        self.reads.append(read)
        for bank in banks:
            assert bank is not None
            self._upload(bank, command, parts, time)
        self._publish(command, parts)

    def _same_experts(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Whether two fills of a group are for the same experts of the same layer."""
        layers = {filled_banks(self.schedule, place)[0].layer for place in (one, other)}
        return len(layers) == 1 and self.filled[one] == self.filled[other]

    def _memories(self, bank: Bank) -> tuple[str | None, str | None]:
        where = self.schedule.location
        return where(bank.caches).memory, where(bank.name).memory

    def _upload(self, bank: Bank, command: FillBank, parts: tuple[Part, ...], time: Time) -> None:
        weight = self.schedule.tensor(bank.caches)
        reader = parts[0] if self._staged(command) else parts[-1]
        source = self._read(reader, bank.caches, bank.caches, time, "upload")
        used, promised = self.sequential.used_set(bank.ids, time), self._promised(bank.ids)
        experts = Experts(used, expert_stride(weight), 0, promised)
        if (parts[0].command, parts[0].iteration) not in self.idle:
            self.reads.append(replace(source, experts=experts))
        event = Event("state", parts[0].command, parts[0].iteration, bank.name)
        self.writes.append(Write(parts[-1].index, self.slots(bank), event))

    def _publish(self, command: FillBank, parts: tuple[Part, ...]) -> None:
        """The slot ids or the map: by the host part if in host memory, else by an upload."""
        for kind, name in (("slots", command.slot_ids), ("map", command.slot_map)):
            if name is None:
                continue
            memory = self.schedule.location(name).memory
            on_host = memory is not None and self.schedule.graph.memory(memory).host
            part = parts[0] if on_host else parts[-1]
            event = Event(kind, parts[0].command, parts[0].iteration)
            self.writes.append(Write(part.index, self.region(name), event))

    def _callback(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, Callback) and command.split is not None
        part = parts[0]
        time = callback_time(self.schedule, command, part.command, part.iteration)
        event = Event("callback", part.command, part.iteration)
        named = frozenset(command.reads or ())
        for name in callback_names(self.schedule, command.reads):
            role = "callback" if name in named else MAY_READ
            self.reads.append(self._read(part, name, name, time, role))
        for name in callback_names(self.schedule, command.writes):
            self.writes.append(Write(part.index, self.region(name), event))

    def _set_input(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, SetInput)
        event = Event("input", parts[0].command, parts[0].iteration)
        self.writes.append(Write(parts[0].index, self.region(command.tensor), event))

    def _get_output(self, command: Command, parts: tuple[Part, ...]) -> None:
        assert isinstance(command, GetOutput)
        time = Time(parts[0].iteration, 2, 0, 0)
        name = command.tensor
        self.reads.append(self._read(parts[0], name, name, time, "output"))

    def moves_nothing(self, write: Write) -> bool:
        """Whether it is that of a fill which finds all its experts."""
        event = write.event
        return event is not None and event.kind == "state" and event.place in self.idle

    # -- questions ----------------------------------------------------------------------------

    def writers(self, read: Read) -> list[Write]:
        """Writes that may touch the read's bytes, other than the reader's own, in issue order."""
        found = [numbered for line in self.lines(read) for numbered in line]
        found.sort(key=lambda numbered: numbered.number)
        return [write for _, write in found if write.part != read.part]

    def lines(self, read: Read) -> list[Line]:
        """The same, as the lines of :mod:`.slice`; the reader's own writes are among them."""
        spans = self._lines.get(read.region.space)
        if spans is None:
            return []
        met = spans.meeting(read.region.span)
        return [line for group in met for lines in group for line in lines.values()]

    def carries(self, write: Write, event: Event | None) -> bool:
        """Whether a write is of that event, or a copy that can read what carries it."""
        if event is None:
            return False
        if write.source is None:
            return write.event == event
        key = (write.part, event)
        if key not in self._carried:
            self._carried[key] = self._hands_on(write.source, event)
        return self._carried[key]

    def _hands_on(self, source: Read, event: Event) -> bool:
        usage = self.schedule.location(source.region.tensor.name).usage
        if event == INITIAL and usage not in (None, Usage.COMPUTE):
            return True
        return any(
            self.order.before(other.part, source.part) and self.carries(other, event)
            for other in self.by_space.get(source.region.space, ())
            if other.part < source.part
        )

    def original(self, name: str) -> str:
        """The base of a tensor, or of the tensor that it is a copy of."""
        copy = self.schedule.copy_of(name)
        return self.schedule.base(copy[1] if copy is not None else name).name

    # -- experts and banks ------------------------------------------------------------------

    def slots(self, bank: Bank) -> Region:
        """The bytes of a bank's slots, the spare excluded."""
        region = self.region(bank.name)
        return replace(region, length=Expr.of(bank.slots * expert_stride(region.tensor)))

    def _experts_of(self, node: Node, weight: Tensor, time: Time) -> Experts:
        used, promised = self.sequential.used_set(node.src[2], time), self._promised(node.src[2])
        return Experts(used, expert_stride(weight), 0, promised)

    def _promised(self, ids: str) -> tuple[int, int] | None:
        return self.schedule.tensor(ids).values or self.schedule.base(ids).values

    def _through_bank(self, read: Read, node: Node, index: int) -> Read:
        """A read of slots, slot ids or a slot map, as what it means."""
        name, place = node.src[index], self.order.parts[read.part]
        bank = bank_of_node(self.schedule, node)
        if bank is None:
            return read
        if node.op == "get_rows":
            if index != 0:
                return read
            fill = self._fills_so_far.publishing(bank, place, name)
            return replace(read, bank=BankUse(bank, "map", fill))
        if index == 1:
            return read
        chooser, ids, time = self._chosen_by(node, bank, place)
        fill = self._fills_so_far.latest(bank.name, chooser)
        if index == 0:
            slots = self.slots(bank)
            region = replace(read.region, length=slots.length)
            needs = self.sequential.used_set(ids, time)
            fill = self._loading(bank, fill)
            return replace(read, region=region, bank=BankUse(bank, "slots", fill, needs))
        if name == bank.slot_ids:
            # A later fill of the layer, perhaps of other banks, may have published them again.
            latest = self._fills_so_far.publishing(bank, chooser, name)
            needs = self.sequential.used_set(ids, time) if latest != fill else ""
            return replace(read, bank=BankUse(bank, "ids", latest or fill, needs))
        return read

    def _loading(self, bank: Bank, fill: tuple[int, int] | None) -> tuple[int, int] | None:
        """The fill that loads what a reader finds: not one that follows another for the same ids,
        if that one fills the bank too."""
        first = self.idle.get(fill) if fill is not None else None
        if first is None or bank not in filled_banks(self.schedule, first):
            return fill
        return first

    def _chosen_by(self, node: Node, bank: Bank, place: Part) -> tuple[Part, str, Time]:
        """What chose the slots of a matmul, with which ids and when: itself, or a ``get_rows``."""
        graph, iteration = self.schedule.graph, place.iteration
        rows = graph.find_node(self.schedule.base(node.src[2]).name)
        if node.src[2] == bank.slot_ids or rows is None:
            return place, bank.ids, Time(iteration, 1, graph.position(node.dst), 1)
        time = Time(iteration, 1, graph.position(rows.dst), 1)
        chooser = self._computes.get((rows.dst, iteration), place)
        return chooser, rows.src[1], time

    def _raw_ids_on_bank(self, node: Node) -> bool:
        bank = self.schedule.graph.find_bank(node.src[0])
        return bank is not None and bank_of_node(self.schedule, node) is None

    def _slots_off_bank(self, node: Node, source: str) -> bool:
        graph = self.schedule.graph
        if graph.find_bank(node.src[0]) is not None:
            return False
        return graph.find_slot_ids(source) is not None

    def _consumed_in(self, command: CopyExperts, iteration: int) -> int:
        current, target = command.split, command.for_split
        if current is None or target is None or target >= current:
            return iteration
        return iteration + 1

    def _used_set(self, ids: str, node: Node | None, iteration: int) -> str:
        """The set that ``ids`` names: that of the matmul if it is the same tensor or its copy."""
        copy = self.schedule.copy_of(ids)
        original = copy[1] if copy is not None else ids
        if node is None:
            return f"{original}@{iteration}"
        time = Time(iteration, 1, self.schedule.graph.position(node.dst), 1)
        return self.sequential.used_set(original, time)
