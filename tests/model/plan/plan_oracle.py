"""The scheduler's rules once more: slow, with names and dictionaries, from their description.

Nothing here is shared with the planner but the graph itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from splitproof.model.device import Device, OpPattern, Usage
from splitproof.model.graph import Graph, Node
from splitproof.model.tensor import Tensor

VIEWS = {"view", "reshape", "permute", "transpose", "none"}


class Abort(Exception):
    """Where the real scheduler ends the process; the argument is the tensor's name."""


@dataclass
class Part:
    device: str
    start: int
    end: int = 0
    inputs: list[str] = field(default_factory=list)


class Oracle:
    def __init__(self, graph: Graph, values: dict[str, int], limit: int = 30) -> None:
        self.graph, self.values, self.limit = graph, values, limit
        self.cpu = graph.devices[-1].name
        self.order = [d.name for d in graph.devices]
        self.on: dict[str, str] = {}
        self.cause: dict[str, str] = {}
        self.computed = {n.dst for n in graph.nodes}
        self.commands = [n for n in graph.nodes if n.op not in VIEWS]

    # -- facts ----------------------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.graph.tensors if t.name == name)

    def owner(self, name: str) -> str:
        tensor = self.tensor(name)
        return name if tensor.view_of is None else self.owner(tensor.view_of)

    def buffer(self, name: str):
        """The buffer that holds a tensor's bytes, or nothing."""
        held = self.tensor(self.owner(name)).buffer
        return next((b for b in self.graph.buffers if b.name == held), None)

    def is_weight(self, name: str) -> bool:
        """In a weights buffer of its own: what a node makes has none before allocation."""
        if name in self.computed and self.owner(name) != name:
            return False
        buffer = self.buffer(name)
        return buffer is not None and buffer.usage is Usage.WEIGHTS

    def operand(self, node: Node, which: str) -> Tensor | None:
        if which == "dst":
            return self.tensor(node.dst)
        slots = dict(node.params).get("src_slot", tuple(range(len(node.src))))
        at = {f"src{slot}": name for slot, name in zip(slots, node.src, strict=True)}
        return self.tensor(at[which]) if which in at else None

    def size(self, tensor: Tensor, dimension: int) -> int:
        return tensor.ne[dimension].value(self.values)

    def fits(self, pattern: OpPattern, node: Node) -> bool:
        if pattern.op != "*" and pattern.op != node.op:
            return False
        for which, kind in pattern.dtypes:
            tensor = self.operand(node, which)
            if tensor is None or tensor.dtype != kind:
                return False
        for which, dimension, span in pattern.ne:
            tensor = self.operand(node, which)
            if tensor is None:
                return False
            size = self.size(tensor, dimension)
            low = 0 if span.low is None else span.low
            if size < low or (span.high is not None and size > span.high):
                return False
        return True

    def supports(self, device: Device, node: Node | None) -> bool:
        if node is None:
            return True
        if node.supported_by is not None:
            return device.name in node.supported_by
        if node.op in VIEWS:
            return True
        allowed = device.ops is None or any(self.fits(p, node) for p in device.ops)
        return allowed and not any(self.fits(p, node) for p in device.deny)

    def wants(self, device: Device, node: Node) -> bool:
        if node.wanted_by is not None:
            return device.name in node.wanted_by
        dst = self.tensor(node.dst)
        if node.op == "get_rows":
            batch = 0
        elif node.op == "mul_mat":
            batch = self.size(dst, 1)
        elif node.op in ("mul_mat_id", "rope"):
            batch = self.size(dst, 2)
        else:
            batch = self.size(dst, 1) * self.size(dst, 2) * self.size(dst, 3)
        return batch >= device.offload_min_tokens

    def reads(self, device: Device, name: str) -> bool:
        """Whether the device reads the memory where the tensor is, or will be."""
        buffer = self.buffer(name)
        if buffer is not None:
            return buffer.memory in device.reads
        home = self.on.get(name) or self.on.get(self.owner(name))
        return home is not None and self.graph.device(home).memory in device.reads

    def set(self, name: str, device: str, cause: str) -> None:
        self.on[name], self.cause[name] = device, cause

    # -- the passes -----------------------------------------------------------------------------

    def run(self) -> None:
        read = {s for n in self.graph.nodes for s in n.src}
        for tensor in self.graph.tensors:
            if tensor.name not in self.computed and (tensor.name in read or tensor.input):
                self.from_placement(tensor, None)
        for node in self.graph.nodes:
            self.from_placement(self.tensor(node.dst), node)
        for cpu_too in (False, True):
            for backwards in (False, True):
                self.expand(cpu_too, backwards)
        for node in self.commands:
            if node.dst in self.on:
                self.upgrade(node)
            else:
                self.rescue(node)
        for node in self.graph.nodes:
            self.the_rest(node)

    def from_placement(self, tensor: Tensor, node: Node | None) -> None:
        if tensor.pin is not None:
            self.set(tensor.name, tensor.pin, "usr")
            return
        buffer = self.buffer(tensor.name)
        if buffer is not None:
            for device in self.graph.devices:
                if buffer.memory in device.reads and self.supports(device, node):
                    self.set(tensor.name, device.name, "1.dst")
                    return
            raise Abort(tensor.name)
        if tensor.input:
            self.set(tensor.name, self.cpu, "1.inp")
            return
        if node is None or node.op in ("rope", "flash_attn_ext"):
            return
        slots = dict(node.params).get("src_slot", tuple(range(len(node.src))))
        for slot, source in zip(slots, node.src, strict=True):
            if self.is_weight(source):
                self.by_weight(node, slot, source)
                return

    def by_weight(self, node: Node, slot: int, source: str) -> None:
        buffer = self.buffer(source)
        able = [
            d.name for d in self.graph.devices
            if buffer.memory in d.reads and self.supports(d, node)
        ]  # fmt: skip
        if not able:
            return
        host = self.graph.memory(buffer.memory).host
        if able[0] == self.cpu and host and self.graph.op_offload:
            for device in self.graph.devices[:-1]:
                if self.supports(device, node) and self.wants(device, node):
                    self.set(node.dst, device.name, "1.off")
                    return
        self.set(node.dst, able[0], f"1.wgt{slot}")

    def expand(self, cpu_too: bool, backwards: bool) -> None:
        current = None
        for node in reversed(self.commands) if backwards else self.commands:
            if node.dst in self.on:
                current = self.on[node.dst]
                if current == self.cpu and not cpu_too:
                    current = None
            elif current is not None and self.supports(self.graph.device(current), node):
                self.set(node.dst, current, "2.sup")

    def rescue(self, node: Node) -> None:
        best: tuple[int, str] | None = None
        for device in self.graph.devices:
            if self.supports(device, node):
                known = [s for s in node.src if s in self.on or self.owner(s) in self.on]
                score = sum(self.reads(device, s) for s in known)
                if best is None or score > best[0]:
                    best = score, device.name
        if best is not None:
            self.set(node.dst, best[1], "3.best")

    def upgrade(self, node: Node) -> None:
        mine = self.graph.device(self.on[node.dst])
        for device in self.graph.devices[: self.order.index(mine.name)]:
            same = device.memory == mine.memory and self.supports(device, node)
            if same and all(self.reads(device, s) for s in node.src):
                self.set(node.dst, device.name, "3.upg")
                return

    def the_rest(self, node: Node) -> None:
        self.follow_base(node.dst)
        for source in node.src:
            if source in self.on:
                continue
            if self.owner(source) != source:
                self.follow_base(source)
            elif node.dst in self.on:
                self.set(source, self.on[node.dst], "4.cur")
        if node.dst not in self.on:
            able = [d.name for d in self.graph.devices if self.supports(d, node)]
            if not able:
                raise Abort(node.dst)
            self.set(node.dst, able[0], "2.sup")

    def follow_base(self, name: str) -> None:
        owner = self.owner(name)
        if name not in self.on and owner != name and owner in self.on:
            self.set(name, self.on[owner], "4.vsrc")

    # -- splits ---------------------------------------------------------------------------------

    def split(self) -> list[Part]:
        if not self.graph.nodes:
            return []
        parts = [Part(self.order[0], 0)]
        if self.commands:
            parts[0].device = self.on[self.commands[0].dst]
        copied: set[tuple[str, str]] = set()
        room = self.limit
        for index, node in enumerate(self.graph.nodes):
            if node.op in VIEWS:
                continue
            part = parts[-1]
            if self.on[node.dst] != part.device or self.must_cut(node, part, copied, room):
                part.end = index
                part = Part(self.on[node.dst], index)
                parts.append(part)
                room = self.limit
            for source in node.src:
                if source not in self.on:
                    raise Abort(source)
                if self.foreign(source, part.device) and (source, part.device) not in copied:
                    copied.add((source, part.device))
                    if len(part.inputs) == room:
                        room *= 2
                    part.inputs.append(source)
        parts[-1].end = len(self.graph.nodes)
        return parts

    def foreign(self, source: str, device: str) -> bool:
        return self.on.get(source) != device and not self.reads(self.graph.device(device), source)

    def must_cut(self, node: Node, part: Part, copied: set[tuple[str, str]], room: int) -> bool:
        if not part.inputs:
            return False
        foreign = [s for s in node.src if self.foreign(s, part.device)]
        if any(self.is_weight(s) for s in foreign):
            return True
        full = len(part.inputs) >= room
        return full and any((s, part.device) not in copied for s in foreign)
