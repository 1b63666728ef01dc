"""Static rules: what no execution is needed to see.  Sizes are decided for the whole range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...model.command import Compute, FillBank
from ...model.device import HOST, Device, OpPattern
from ...model.graph import Node
from ...model.ops import OPS
from ...model.schedule import Schedule
from ...model.tensor import Tensor
from ..encode import Solver
from ..footprint import _TARGET_SOURCES, INDEX_SOURCES, bank_of_node
from ..order import Order
from ..regime import Regime
from ..region import region_of
from ..term import Bool, Scope, Values, conj, disj, neg, number, size


@dataclass(frozen=True, slots=True)
class Broken:
    """A static rule that does not hold, and where.  ``values``: symbols at which it fails."""

    rule: str
    message: str
    place: str
    evidence: tuple[tuple[str, str | int], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    also: tuple[str, ...] = ()


@dataclass(slots=True)
class Statics:
    """The static rules over one regime."""

    schedule: Schedule
    regime: Regime
    order: Order
    solver: Solver
    undecided: list[str] = field(default_factory=list)
    obligations: int = 0
    scope: Scope = field(init=False)
    assume: Bool = field(init=False)

    def __post_init__(self) -> None:
        self.scope = Scope(self.regime.ranges, {})
        self.assume = self.scope.condition(self.regime.condition)

    def check(self) -> Iterator[Broken]:
        yield from self.pl005()
        for command, iteration in self.order.by_command:
            program = self.schedule.program
            assert program is not None
            compute = program[command]
            if isinstance(compute, Compute):
                yield from self.compute(compute, command)
        yield from self.pl004()
        yield from self.pl007()
        yield from self.al002()
        yield from self.al003()
        yield from self.bk005()
        yield from self.ce006()
        yield from self.waits()

    def possible(self, term: Bool) -> Values | None:
        """Values of the symbols in this regime at which the term holds."""
        self.obligations += 1
        answer = self.solver.model(conj([self.assume, term]), self.regime.ranges)
        if answer.found is None:
            self.undecided.append(answer.reason)
        return answer.values if answer.found else None

    # -- one compute ----------------------------------------------------------------------------

    def compute(self, command: Compute, index: int) -> Iterator[Broken]:
        schedule, place = self.schedule, f"$.program[{index}]"
        node = schedule.graph.node(command.node)
        name = schedule.compute_device(command)
        if name is None or name == HOST:
            if name is None:
                return  # PL005 tells
            name = schedule.graph.devices[-1].name
        device = schedule.graph.device(name)
        broken = [*self.pl001(node, device, place), *self.pl002(command, node, device, place)]
        broken += self.pl003(node, device, place)
        bank = list(self.bk001(command, node, device, place))
        if bank:
            codes = tuple(dict.fromkeys(b.rule for b in broken if b.rule != "BK001"))
            first = bank[0]
            yield Broken(first.rule, first.message, place, first.evidence, first.values, codes)
        else:
            yield from broken
        yield from self.al004(command, node, device, place)

    # ∀ symbols:  supports(device, node)
    def pl001(self, node: Node, device: Device, place: str) -> Iterator[Broken]:
        term = self.unsupported(node, device)
        values = self.possible(term)
        if values is not None:
            yield Broken(
                "PL001",
                f"{device.name} cannot run {node.op} {node.dst!r} with these types and sizes",
                place,
                tuple(capability(self.schedule, node, device)),
                tuple(values.symbols.items()),
            )

    # ∀ source s of a compute on d:  memory(bound(s)) ∈ reads(d)
    def pl002(
        self, command: Compute, node: Node, device: Device, place: str
    ) -> Iterator[Broken]:
        for index in range(len(node.src)):
            bound = self.schedule.bound(command, index)
            memory = self.schedule.location(bound).memory
            self.obligations += 1
            if memory is not None and not readable(device, memory):
                yield Broken(
                    "PL002",
                    f"{node.dst!r} on {device.name} reads {bound!r} in {memory}, which it cannot read",
                    place,
                    (("reads", ", ".join(device.reads)), ("memory", memory)),
                )

    # ∀ compute on d:  memory(dst) ∈ reads(d)
    def pl003(self, node: Node, device: Device, place: str) -> Iterator[Broken]:
        memory = self.schedule.location(node.dst).memory
        self.obligations += 1
        if memory is not None and not readable(device, memory):
            yield Broken(
                "PL003",
                f"{node.dst!r} lies in {memory}, but {device.name}, which cannot reach it, computes it",
                place,
                (("reads", ", ".join(device.reads)), ("memory", memory)),
            )

    # ∀ matmul m reading bank b on d:  memory(b) = memory(d)  ∧  supports(d, m)
    def bk001(
        self, command: Compute, node: Node, device: Device, place: str
    ) -> Iterator[Broken]:
        bank = bank_of_node(self.schedule, node)
        if bank is None or node.op == "get_rows":
            return
        memory = self.schedule.location(bank.name).memory
        home = next((d for d in self.schedule.graph.devices if d.memory == memory), None)
        if memory is None or (readable(device, memory) and device.memory == memory):
            values = self.possible(self.unsupported(node, device))
            if values is not None:
                yield Broken(
                    "BK001",
                    f"{device.name}, which holds bank {bank.name!r}, cannot run {node.op} "
                    f"{node.dst!r} on it",
                    place,
                    tuple(capability(self.schedule, node, device)),
                    tuple(values.symbols.items()),
                )
            return
        self.obligations += 1
        evidence: list[tuple[str, str | int]] = [("bank", f"{bank.name} in {memory}")]
        if home is not None:
            evidence += capability(self.schedule, node, home)
        bound = self.schedule.bound(command, 0)
        if bound != bank.name:
            travels = self.schedule.tensor(bank.name).data_bytes.bounds(self.regime.ranges)[1]
            evidence.append(("bytes of the bank that travel each pass", travels))
        yield Broken(
            "BK001",
            f"{node.dst!r} reads bank {bank.name!r} in {memory}, but runs on {device.name} "
            f"({device.memory})",
            place,
            tuple(evidence),
        )

    # ∀ source s whose bytes meet dst:  (op, s, device) declared in-place safe
    def al004(
        self, command: Compute, node: Node, device: Device, place: str
    ) -> Iterator[Broken]:
        target = region_of(self.schedule, node.dst)
        for index in range(len(node.src)):
            if _TARGET_SOURCES.get(node.op) == index or (node.op, index) in {
                (rule.op, rule.source) for rule in device.in_place
            }:
                continue
            source = region_of(self.schedule, self.schedule.bound(command, index))
            if source.space != target.space or not (source.exact and target.exact):
                continue
            meet = conj([
                self.scope.lt(size(source.start), size(target.start + target.extent)),
                self.scope.lt(size(target.start), size(source.start + source.extent)),
            ])
            values = self.possible(meet)
            if values is not None:
                yield Broken(
                    "AL004",
                    f"{node.op} writes {node.dst!r} over its source {index} "
                    f"({source.tensor.name!r}); {device.name} does not declare that safe",
                    place,
                    (("in_place", ", ".join(f"{r.op}:{r.source}" for r in device.in_place)),),
                    tuple(values.symbols.items()),
                )

    def unsupported(self, node: Node, device: Device) -> Bool:
        """Where (in the symbols) the device does not support the node."""
        if node.supported_by is not None:
            return device.name not in node.supported_by
        denied = disj(self._matches(node, pattern) for pattern in device.deny)
        if device.ops is None:
            return denied
        allowed = disj(self._matches(node, pattern) for pattern in device.ops)
        return disj([denied, neg(allowed)])

    def _matches(self, node: Node, pattern: OpPattern) -> Bool:
        if pattern.op not in ("*", node.op):
            return False
        operands = operands_of(self.schedule, node)
        for operand, dtype in pattern.dtypes:
            tensor = operands.get(operand)
            if tensor is None or tensor.dtype.lower() != dtype.lower():
                return False
        parts = []
        for operand, dimension, span in pattern.ne:
            tensor = operands.get(operand)
            if tensor is None:
                return False
            extent = size(tensor.ne[dimension])
            if span.low is not None:
                parts.append(self.scope.le(number(span.low), extent))
            if span.high is not None:
                parts.append(self.scope.le(extent, number(span.high)))
        return conj(parts)

    # -- the whole document -----------------------------------------------------------------------

    # splits partition [0, nodes), and each node has the device of its split
    def pl005(self) -> Iterator[Broken]:
        schedule, expected = self.schedule, 0
        for position, node in enumerate(schedule.graph.nodes):
            self.obligations += 1
            if not OPS[node.op].view and schedule.device_of(node.dst) is None:
                yield Broken("PL005", f"node {node.dst!r} has no device", f"$.nodes[{position}]")
        if schedule.splits is None:
            return
        for index, split in enumerate(schedule.splits):
            place = f"$.splits[{index}]"
            if split.start != expected:
                text = f"split {index} starts at node {split.start}; {expected} was due"
                yield Broken("PL005", text, f"{place}.nodes")
            expected = split.end
            for node in schedule.graph.nodes[split.start : split.end]:
                device = schedule.device_of(node.dst)
                if not OPS[node.op].view and device is not None and device != split.device:
                    text = f"node {node.dst!r} is assigned to {device}, its split to {split.device}"
                    yield Broken("PL005", text, place)
        if expected != len(schedule.graph.nodes):
            text = f"the splits end at node {expected} of {len(schedule.graph.nodes)}"
            yield Broken("PL005", text, "$.splits")

    # ∀ split, source s of its nodes in an unreadable memory:  s ∈ inputs, here or in an earlier
    # split of the device (they share the copy);  each input has a reader
    def pl004(self) -> Iterator[Broken]:
        schedule = self.schedule
        copied: dict[str, set[str]] = {}
        for index, split in enumerate(schedule.splits or ()):
            device, needed = schedule.graph.device(split.device), set()
            here = copied.setdefault(split.device, set())
            here.update(split.inputs)
            for node in schedule.graph.nodes[split.start : split.end]:
                if OPS[node.op].view:
                    continue
                for position, source in enumerate(node.src):
                    needed.add(source)
                    memory = schedule.location(source).memory
                    self.obligations += 1
                    if memory is None or readable(device, memory) or source in here:
                        continue
                    if _TARGET_SOURCES.get(node.op) == position:
                        continue
                    text = f"{node.dst!r} reads {source!r} in {memory}, no input of split {index}"
                    yield Broken("PL004", text, f"$.splits[{index}].inputs")
            for name in split.inputs:
                self.obligations += 1
                if name not in needed:
                    text = f"input {name!r} of split {index} has no reader there"
                    yield Broken("PL004", text, f"$.splits[{index}].inputs")

    # ∀ pass, needed node n:  exactly one compute(n)
    def pl007(self) -> Iterator[Broken]:
        schedule = self.schedule
        counts: dict[tuple[str, int], int] = {}
        for command, iteration in self.order.by_command:
            assert schedule.program is not None
            compute = schedule.program[command]
            if isinstance(compute, Compute):
                key = (compute.node, iteration)
                counts[key] = counts.get(key, 0) + 1
        for iteration in range(schedule.repeat):
            for position in self._needed(iteration):
                node = schedule.graph.nodes[position]
                found = counts.get((node.dst, iteration), 0)
                self.obligations += 1
                if found != 1:
                    text = f"node {node.dst!r} is computed {found} times in pass {iteration}, not once"
                    yield Broken(
                        "PL007", text, f"$.nodes[{position}]", (("computes", found),),
                        self.regime.sample,
                    )  # fmt: skip

    def _needed(self, iteration: int) -> list[int]:
        """Positions of the nodes that an output needs: through sources, and through bytes."""
        schedule, graph = self.schedule, self.schedule.graph
        writers: dict[str, list[int]] = {}
        for position, node in enumerate(graph.nodes):
            if not OPS[node.op].view and self.regime.holds(node.when, iteration):
                for name in node.writes if node.writes is not None else (node.dst,):
                    writers.setdefault(schedule.base(name).name, []).append(position)
        wanted = [schedule.base(t.name).name for t in graph.tensors if t.output]
        assert schedule.program is not None
        for command in schedule.program:
            if command.do == "get_output":
                wanted.append(schedule.base(command.tensor).name)  # type: ignore[attr-defined]
        seen, needed = set(wanted), set()
        while wanted:
            for position in writers.get(wanted.pop(), ()):
                if position in needed:
                    continue
                needed.add(position)
                node = graph.nodes[position]
                for source in node.reads if node.reads is not None else node.src:
                    base = schedule.base(source).name
                    if base not in seen:
                        seen.add(base)
                        wanted.append(base)
        return sorted(needed)

    # ∀ placed tensor t:  0 ≤ offset(t)  ∧  offset(t) + extent(t) ≤ bytes(buffer)
    def al002(self) -> Iterator[Broken]:
        schedule = self.schedule
        names = [t.name for t in schedule.graph.tensors if t.view_of is None]
        for name in names:
            region = region_of(schedule, name)
            if region.space.startswith("own:"):
                continue
            buffer = schedule.graph.buffer(region.space)
            end = size(region.start + region.extent)
            outside = disj([
                self.scope.lt(size(region.start), number(0)),
                self.scope.lt(number(buffer.bytes), end),
            ])
            values = self.possible(outside)
            if values is not None:
                yield Broken(
                    "AL002",
                    f"{name!r} ends at byte {values.int(end)} of buffer {buffer.name!r}, "
                    f"which has {buffer.bytes}",
                    f"$.tensors.{name}",
                    (("start", values.int(size(region.start))), ("end", values.int(end)),
                     ("buffer", buffer.bytes)),
                    tuple(values.symbols.items()),
                )  # fmt: skip
        for bank in schedule.graph.banks:
            weight = schedule.tensor(bank.name)
            count = weight.ne[2].constant
            self.obligations += 1
            if count is not None and count < bank.slots:
                yield Broken(
                    "AL002", f"bank {bank.name!r} has {bank.slots} slots in room for {count}",
                    f"$.banks.{bank.name}",
                )  # fmt: skip

    # ∀ memory m:  Σ bytes(buffers in m) ≤ capacity(m)
    def al003(self) -> Iterator[Broken]:
        graph = self.schedule.graph
        for memory in graph.memories:
            total = sum(b.bytes for b in graph.buffers if b.memory == memory.name)
            self.obligations += 1
            if memory.bytes is not None and total > memory.bytes:
                yield Broken(
                    "AL003",
                    f"the buffers of {memory.name} take {total} bytes of {memory.bytes}",
                    f"$.memories.{memory.name}",
                    (("buffers", total), ("capacity", memory.bytes)),
                )

    # slot ids index banks and nothing else; raw ids index no bank
    def bk005(self) -> Iterator[Broken]:
        graph = self.schedule.graph
        slot_ids = {b.slot_ids for b in graph.banks if b.slot_ids is not None}
        for position, node in enumerate(graph.nodes):
            self.obligations += 1
            indexes = INDEX_SOURCES.get(node.op)
            if indexes is None or len(node.src) <= indexes:
                continue
            bank = graph.find_bank(node.src[0])
            chosen = node.src[indexes]
            if bank is not None and bank_of_node(self.schedule, node) is None:
                text = f"{node.dst!r} indexes bank {bank.name!r} with {chosen!r}, no slot ids of it"
                yield Broken("BK005", text, f"$.nodes[{position}]", (("ids", chosen),))
            elif bank is None and chosen in slot_ids:
                text = f"{node.dst!r} indexes {node.src[0]!r}, no bank, with the slot ids {chosen!r}"
                yield Broken("BK005", text, f"$.nodes[{position}]", (("ids", chosen),))

    # ∀ id:  0 ≤ id < n_expert
    def ce006(self) -> Iterator[Broken]:
        for position, node in enumerate(self.schedule.graph.nodes):
            if node.op != "mul_mat_id" or bank_of_node(self.schedule, node) is not None:
                continue
            span = self.schedule.tensor(node.src[2]).values or self.schedule.base(node.src[2]).values
            count = self.schedule.tensor(node.src[0]).ne[2].constant
            self.obligations += 1
            if span is None or count is None:
                continue
            low = span[0] < 0 and not node.param("negative_ids", False)
            if span[1] > count or low:
                text = (
                    f"{node.dst!r} selects among {count} experts with ids from {span[0]} "
                    f"to {span[1] - 1}"
                )
                yield Broken(
                    "CE006", text, f"$.nodes[{position}]",
                    (("experts", count), ("least id", span[0]), ("greatest id", span[1] - 1)),
                )  # fmt: skip

    # OR005: each wait of the last pass has a record before it;  OR006: its queue can wait for it
    def waits(self) -> Iterator[Broken]:
        assert self.schedule.program is not None
        self.obligations += sum(
            1 for c in self.schedule.program if c.do in ("wait", "sync_event")
        )
        if self.schedule.repeat >= 2:
            for command, iteration in self.order.unmet_waits:
                event = self.schedule.program[command].event  # type: ignore[attr-defined]
                yield Broken(
                    "OR005",
                    f"in pass {iteration} nothing has recorded event {event!r} that is waited for",
                    f"$.program[{command}]",
                    (("event", event),),
                    self.regime.sample,
                )
        for command, _ in self.order.void_waits:
            wait = self.schedule.program[command]
            event, queue = wait.event, wait.queue  # type: ignore[attr-defined]
            yield Broken(
                "OR006",
                f"queue {queue} cannot wait for event {event!r}: the wait orders nothing",
                f"$.program[{command}]",
                (("event", event), ("queue", queue)),
            )


def readable(device: Device, memory: str) -> bool:
    return memory in device.reads or memory == device.memory


def operands_of(schedule: Schedule, node: Node) -> dict[str, Tensor]:
    """The operands of a node by the names that capability patterns use."""
    found = {"dst": schedule.tensor(node.dst)}
    for index, source in enumerate(node.src):
        found[f"src{index}"] = schedule.tensor(source)
    return found


def capability(
    schedule: Schedule, node: Node, device: Device
) -> Iterator[tuple[str, str | int]]:
    """The row of the capability table that decides, in words."""
    operands = operands_of(schedule, node)
    types = ", ".join(f"{name} {tensor.dtype}" for name, tensor in operands.items())
    yield f"{node.op} on {device.name}", types
    if node.supported_by is not None:
        yield "supported by", ", ".join(node.supported_by) or "nobody"
    for pattern in device.deny:
        if pattern.op in ("*", node.op):
            yield f"{device.name} denies", pattern_text(pattern)
    if device.ops is not None:
        rows = [pattern_text(p) for p in device.ops if p.op in ("*", node.op)]
        yield f"{device.name} allows", "; ".join(rows) or "nothing of this op"


def pattern_text(pattern: OpPattern) -> str:
    """A capability pattern as it stands in a document."""
    parts = [pattern.op, *(f"{operand} {dtype}" for operand, dtype in pattern.dtypes)]
    for operand, dimension, span in pattern.ne:
        bounds = f"{span.low if span.low is not None else ''}..{span.high or ''}"
        parts.append(f"{operand}.ne{dimension} {bounds}")
    return " ".join(parts)


__all__ = ["Broken", "FillBank", "Statics", "capability", "operands_of", "readable"]
