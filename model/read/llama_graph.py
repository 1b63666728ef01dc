"""From the rows of a logged graph to a split-level schedule.

Devices have a memory each, named like them; the CPU has the host's, and BLAS computes there.
A tensor is ``about``: its size is what the log shows, rounded down.  Tensors without a node lie
in buffers made here, one per memory and usage, since a log tells no addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..device import Buffer, Contract, CopyRule, Device, Memory, Usage
from ..graph import Graph, Node
from ..ops import OPS
from ..schedule import Schedule, Split
from ..symbol import Expr
from ..tensor import Tensor
from .llama_copies import Copied, Shown, explain
from .llama_names import CPU, ON_HOST, Known, Names, memory_of
from .llama_rows import DEVICE_WIDTH, GraphRows, NodeRow, SplitRow, Told, TraceRow, is_device

#: Ops of which the ten characters that a log shows are not the name.
_LONGER = {"flash_attn": "flash_attn_ext"}
#: Offsets in the buffers that are made here are multiples of it.
_ALIGNMENT = 128
#: How llama.cpp's names of weights end or begin, for logs without load messages.
_WEIGHT_ENDS = (".weight", ".bias", ".scale", ".input_scale")


@dataclass(frozen=True, slots=True)
class Imported:
    """A schedule, and what had to be assumed for it.

    ``assumed``: sources for which several tensors look alike, the latest was taken.  ``lost``:
    copies of which the original is not told.  ``placed``: tensors whose device the log does
    not tell; what a device reads is then taken to come from the host.  ``unread``: splits with
    inputs that no line reads.
    """

    schedule: Schedule
    assumed: int
    lost: int
    placed: int
    unread: int


def log_schedule(graph: GraphRows, told: Told, name: str) -> Imported:
    """The schedule of one graph of a log."""
    return _Import(graph, told).imported(name)


@dataclass(slots=True)
class _Built:
    device: str
    inputs: list[str]
    nodes: list[Node] = field(default_factory=list)


class _Import:
    def __init__(self, graph: GraphRows, told: Told) -> None:
        self.graph, self.told = graph, told
        self.devices = _devices(graph, told)
        self.names = Names(graph, told, self.devices)
        self.copied: dict[str, list[Copied]] = {d: [] for d in self.devices}
        #: device → tensors elsewhere that its nodes read where they lie
        self.elsewhere: dict[str, list[Known]] = {d: [] for d in self.devices}
        self.assumed: set[tuple[int, int]] = set()
        self.lost = self.unread = 0
        self.traces: dict[tuple[int | None, int, str], TraceRow] = {
            (t.split, t.input, t.tensor): t for t in graph.traces
        }
        self.working: str | None = None
        self.splits = [self.split(row) for row in graph.splits]

    # -- splits and nodes -----------------------------------------------------------------------

    def split(self, row: SplitRow) -> _Built:
        device = self.full_device(row)
        earlier = self.copied[device]
        taken = {c.tensor for c in earlier}
        inputs = []
        for i, shown in enumerate(row.inputs):
            trace = self.traces.get((row.number, i, shown.name))
            origin = None if trace is None else trace.source
            known = self.names.listed(shown, device, taken, origin, self.working)
            if trace is not None and 0 <= trace.bytes - known.size.bytes < known.size.step:
                known.bytes = trace.bytes
            taken.add(known.name)
            inputs.append(Copied(known.name, shown))
        shown_copies = [
            Shown(shown, node.op, slot)
            for node in row.nodes
            for slot, shown in enumerate(node.sources)
            if shown.copy
        ]
        choices = iter(explain(shown_copies, device, earlier, inputs))
        built = _Built(device, [c.tensor for c in inputs])
        for node in row.nodes:
            sources = []
            for slot, shown in enumerate(node.sources):
                if not shown.copy:
                    sources.append(self.direct(node, slot, device))
                    continue
                choice = next(choices)
                if choice.tensor is None:
                    self.lost += 1
                elif not choice.certain:
                    self.assumed.add((node.number, slot))
                sources.append(choice.tensor or self.names.lost(shown, device))
            built.nodes.append(self.node(node, device, sources))
        built.nodes += self.unread_readers(row, built)
        self.copied[device] = [*earlier, *inputs]
        if device not in ON_HOST:
            self.working = device
        return built

    def full_device(self, row: SplitRow) -> str:
        if row.number is not None:
            return row.device
        return self.names.device(row.device, "") or next(
            (d for d in self.devices if d[:DEVICE_WIDTH].strip() == row.device), row.device
        )

    def direct(self, node: NodeRow, slot: int, device: str) -> str:
        shown = node.sources[slot]
        tensor = self.names.source(shown, node.number, device)
        self.elsewhere[device].append(self.names.tensors[tensor])
        return tensor

    def reads(self, device: str) -> tuple[str, ...]:
        """The memories that a device reads: its own, and those of tensors that it reads in place.

        A result that another device computes is no such witness where further results of that
        device are copied in: it misses a copy.
        """
        copied = [self.names.tensors[c.tensor] for c in self.copied[device]]
        brought = {known.device for known in copied if self.is_result(known)}
        found = [
            memory_of(known.device)
            for known in self.elsewhere[device]
            if known.device is not None
            and not (self.is_result(known) and known.device in brought - {device})
        ]
        return tuple(dict.fromkeys([memory_of(device), *found]))

    def is_result(self, known: Known) -> bool:
        """Whether its bytes are those of a computed tensor, which lie where that is computed."""
        while known.base is not None:
            known = self.names.tensors[known.base]
        return known.node is not None and known.node >= 0

    def node(self, row: NodeRow, device: str, sources: list[str]) -> Node:
        name = row.op.lower()
        name = _LONGER.get(name, name)
        if name == "cpy" and len(row.sources) == 2 and row.sources[1].name == row.result.name:
            sources = sources[:1]  # a cast names its own result as the place
        result = self.names.result(row, device, sources)
        if name in OPS and not OPS[name].view and _fits(name, len(sources)):
            return Node(op=name, dst=result.name, src=tuple(sources))
        return Node("custom", result.name, tuple(sources), (("ggml_op", row.op),))

    def unread_readers(self, row: SplitRow, built: _Built) -> list[Node]:
        """A stand-in for lines that are missing: it reads the inputs that nobody reads.

        ggml lists no input without a reader, so that one without is no fault of the schedule.
        """
        read = {source for node in built.nodes for source in node.src}
        rest = tuple(name for name in built.inputs if name not in read)
        if not rest:
            return []
        self.unread += 1
        name = f"unread lines of split {row.number}, line {row.line}"
        size = row.inputs[0].size
        self.names.tensors[name] = Known(name, name, size, built.device, node=-1)
        return [Node("custom", name, rest, (("unread", True),))]

    # -- the whole ------------------------------------------------------------------------------

    def imported(self, name: str) -> Imported:
        whole = self.names.renamed
        nodes = [
            replace(
                node,
                dst=whole.get(node.dst, node.dst),
                src=tuple(whole.get(s, s) for s in node.src),
            )
            for split in self.splits
            for node in split.nodes
        ]
        splits, start = [], 0
        for built in self.splits:
            end = start + len(built.nodes)
            inputs = tuple(whole.get(name, name) for name in built.inputs)
            splits.append(Split(built.device, start, end, inputs))
            start = end
        for known in self.names.tensors.values():
            if known.device is None:
                self.names.placed.add(known.name)
                known.device = CPU
        buffers, places = self.buffers()
        schedule = Schedule(
            graph=Graph(
                memories=tuple(
                    Memory(m, m == CPU) for m in dict.fromkeys(map(memory_of, self.devices))
                ),
                devices=tuple(self.device(d) for d in self.devices),
                buffers=buffers,
                tensors=tuple(
                    self.tensor(k, places.get(k.name)) for k in self.names.tensors.values()
                ),
                nodes=tuple(nodes),
                n_copies=self.told.copies,
            ),
            name=name,
            assignment=tuple(
                (whole.get(k.name, k.name), k.device or CPU) for k in self.names.tensors.values()
            ),
            splits=tuple(splits),
        )
        assumed = len(self.assumed) + len(self.names.assumed)
        return Imported(schedule, assumed, self.lost, len(self.names.placed), self.unread)

    def device(self, name: str) -> Device:
        host = name in ON_HOST
        return Device(
            name=name,
            memory=memory_of(name),
            reads=self.reads(name),
            asynchronous=not host,
            copy=() if host else (CopyRule(None, None, Contract.STREAM),),
            events=False,
        )

    def buffers(self) -> tuple[tuple[Buffer, ...], dict[str, tuple[str, int]]]:
        """A place for each tensor that no node computes and no user sets."""
        places: dict[str, tuple[str, int]] = {}
        buffers: dict[str, Buffer] = {}
        for known in self.names.tensors.values():
            if known.node is not None or known.base is not None or known.input:
                continue
            usage = Usage.WEIGHTS if self.weight(known.title) else Usage.ANY
            memory = memory_of(known.device or CPU)
            name = f"{usage.value}:{memory}"
            used = buffers[name].bytes if name in buffers else 0
            offset = -(-used // _ALIGNMENT) * _ALIGNMENT
            places[known.name] = name, offset
            # The size is rounded down: the room is what it may be at most.
            buffers[name] = Buffer(name, memory, usage, offset + known.size.bytes + known.size.step)
        return tuple(buffers.values()), places

    def weight(self, title: str) -> bool:
        if self.told.weights:
            cut = len(title) >= self.told.width
            return title in self.told.weights or (
                cut and any(w.startswith(title) for w in self.told.weights)
            )
        return title.endswith(_WEIGHT_ENDS) or title.startswith("blk.")

    def tensor(self, known: Known, place: tuple[str, int] | None) -> Tensor:
        whole = self.names.renamed
        return Tensor(
            name=whole.get(known.name, known.name),
            view_of=None if known.base is None else whole.get(known.base, known.base),
            buffer=None if place is None else place[0],
            offset=None if place is None else Expr.of(place[1]),
            input=known.input,
            about=True,
            bytes=known.bytes or max(known.size.bytes, 1),
        )


def _devices(graph: GraphRows, told: Told) -> list[str]:
    """Full names, the CPU last; of devices that no header names, the five characters shown."""
    shown = [s.device for s in graph.splits if s.number is None]
    shown += [s.device for node in graph.nodes for s in node.sources if not s.copy and s.device]
    names = dict(told.devices)
    known = {name[:DEVICE_WIDTH].strip() for name in [*names, CPU]}
    for name in shown:
        if is_device(name) and name not in known:
            names.setdefault(name)
            known.add(name)
    host = [name for name in ON_HOST[::-1] if name in names or name == CPU]
    return [name for name in names if name not in ON_HOST] + host


def _fits(op: str, count: int) -> bool:
    least, most = OPS[op].sources
    return least <= count and (most is None or count <= most)


__all__ = ["Imported", "log_schedule"]
