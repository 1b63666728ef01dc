"""PL: each node runs once, on a device that can, and finds its sources where it can read them."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import Compute, Copy, CopyExperts, GetOutput
from ...model.device import Device, OpPattern, Usage
from ...model.graph import Node
from ...model.ops import OPS
from ...model.schedule import Schedule
from ...model.tensor import Tensor
from ..access import TARGET_SOURCES, bank_of_node
from ..term import Bool, conj, disj, neg, number, size
from .static import Broken, Site, StaticRule, Statics, readable


# ∀ symbols:  supports(device, node)
def pl001(s: Statics) -> Iterator[Broken]:
    for site in s.sites():
        if reads_bank(s.schedule, site.node):
            continue  # BK001 asks the same
        values = s.possible(unsupported(s, site.node, site.device))
        if values is not None:
            yield Broken(
                "PL001",
                f"{site.device.name} cannot run {site.node.op} {site.node.dst!r} with these types "
                "and sizes",
                site.place,
                tuple(capability(s.schedule, site.node, site.device)),
                tuple(values.symbols.items()),
            )


# ∀ source s of a compute on d:  memory(bound(s)) ∈ reads(d)
def pl002(s: Statics) -> Iterator[Broken]:
    staged = staging_places(s.schedule)
    for site in s.sites():
        for index, bound, memory in _unreadable(s, site):
            if index == 0 and reads_bank(s.schedule, site.node):
                continue  # BK001 or BK010 tells
            if bound in staged:
                continue  # PF007 tells
            yield Broken(
                "PL002",
                f"{site.node.dst!r} on {site.device.name} reads {bound!r} in {memory}, "
                "which it cannot read",
                site.place,
                (("reads", ", ".join(site.device.reads)), ("memory", memory)),
            )


def _unreadable(s: Statics, site: Site) -> Iterator[tuple[int, str, str]]:
    """``(source, tensor read for it, its memory)`` where the site's device does not read that."""
    for index in range(len(site.node.src)):
        bound = s.schedule.bound(site.command, index)
        memory = s.schedule.location(bound).memory
        if memory is not None and not s.holds(readable(site.device, memory)):
            yield index, bound, memory


def staging_places(schedule: Schedule) -> frozenset[str]:
    """The tensors that some command copies a weight to."""
    return frozenset(
        command.dst
        for command in schedule.program or ()
        if isinstance(command, Copy | CopyExperts)
        and schedule.location(command.src).usage in (Usage.WEIGHTS, Usage.ANY)
        and schedule.graph.find_bank(command.src) is None
    )


def staged_off_device(s: Statics) -> Iterator[tuple[Site, str, str]]:
    """Computes that read a staged weight where their device does not: place and its memory."""
    staged = staging_places(s.schedule)
    for site in s.sites():
        for _, bound, memory in _unreadable(s, site):
            if bound in staged:
                yield site, bound, memory


# ∀ compute on d:  memory(dst) ∈ reads(d)
def pl003(s: Statics) -> Iterator[Broken]:
    for site in s.sites():
        memory = s.schedule.location(site.node.dst).memory
        if s.holds(memory is None or readable(site.device, memory)):
            continue
        yield Broken(
            "PL003",
            f"{site.node.dst!r} lies in {memory}, but {site.device.name}, which cannot reach it, "
            "computes it",
            site.place,
            (("reads", ", ".join(site.device.reads)), ("memory", memory or "")),
        )


# ∀ split, source s of its nodes in an unreadable memory:  s ∈ inputs, here or in an earlier
# split of the device (they share the copy);  each input has a reader
def pl004(s: Statics) -> Iterator[Broken]:
    schedule, copied = s.schedule, dict[str, set[str]]()
    for index, split in enumerate(schedule.splits or ()):
        device, needed = schedule.graph.device(split.device), set[str]()
        here = copied.setdefault(split.device, set())
        here.update(split.inputs)
        for node in schedule.graph.nodes[split.start : split.end]:
            if OPS[node.op].view:
                continue
            needed.update(node.src)
            for position, source in enumerate(node.src):
                memory = schedule.location(source).memory
                if s.holds(memory is None or readable(device, memory) or source in here):
                    continue
                if TARGET_SOURCES.get(node.op) != position:
                    text = f"{node.dst!r} reads {source!r} in {memory}, no input of split {index}"
                    yield Broken("PL004", text, f"$.splits[{index}].inputs")
        for name in split.inputs:
            if not s.holds(name in needed):
                text = f"input {name!r} of split {index} has no reader there"
                yield Broken("PL004", text, f"$.splits[{index}].inputs")


# splits partition [0, nodes), and each node has the device of its split
def pl005(s: Statics) -> Iterator[Broken]:
    schedule, expected = s.schedule, 0
    for position, node in enumerate(schedule.graph.nodes):
        if not s.holds(OPS[node.op].view or schedule.device_of(node.dst) is not None):
            yield Broken("PL005", f"node {node.dst!r} has no device", f"$.nodes[{position}]")
    if schedule.splits is None:
        return
    for index, split in enumerate(schedule.splits):
        place = f"$.splits[{index}]"
        if not s.holds(split.start == expected):
            text = f"split {index} starts at node {split.start}; {expected} was due"
            yield Broken("PL005", text, f"{place}.nodes")
        expected = split.end
        for node in schedule.graph.nodes[split.start : split.end]:
            device = schedule.device_of(node.dst)
            if not OPS[node.op].view and device is not None and device != split.device:
                text = f"node {node.dst!r} is assigned to {device}, its split to {split.device}"
                yield Broken("PL005", text, place)
    if not s.holds(expected == len(schedule.graph.nodes)):
        text = f"the splits end at node {expected} of {len(schedule.graph.nodes)}"
        yield Broken("PL005", text, "$.splits")


# ∀ pass, needed node n:  exactly one compute(n)
def pl007(s: Statics) -> Iterator[Broken]:
    schedule, counts = s.schedule, dict[tuple[str, int], int]()
    assert schedule.program is not None
    for command, iteration in s.order.by_command:
        compute = schedule.program[command]
        if isinstance(compute, Compute):
            key = (compute.node, iteration)
            counts[key] = counts.get(key, 0) + 1
    for iteration in range(schedule.repeat):
        for position in _needed(s, iteration):
            node = schedule.graph.nodes[position]
            found = counts.get((node.dst, iteration), 0)
            if not s.holds(found == 1):
                yield Broken(
                    "PL007",
                    f"node {node.dst!r} is computed {found} times in pass {iteration}, not once",
                    f"$.nodes[{position}]",
                    (("computes", found), ("pass", iteration)),
                    s.regime.sample,
                )


def _needed(s: Statics, iteration: int) -> list[int]:
    """Positions of the nodes that an output needs: through sources, and through bytes."""
    schedule, graph = s.schedule, s.schedule.graph
    writers: dict[str, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        if not OPS[node.op].view and s.regime.holds(node.when, iteration):
            for name in node.writes if node.writes is not None else (node.dst,):
                writers.setdefault(schedule.base(name).name, []).append(position)
    wanted = [schedule.base(t.name).name for t in graph.tensors if t.output]
    for command in schedule.program or ():
        if isinstance(command, GetOutput):
            wanted.append(schedule.base(command.tensor).name)
    seen, needed = set(wanted), set[int]()
    while wanted:
        for position in writers.get(wanted.pop(), ()):
            if position in needed:
                continue
            needed.add(position)
            node = graph.nodes[position]
            for source in _meant(s, node):
                base = schedule.base(source).name
                if base not in seen:
                    seen.add(base)
                    wanted.append(base)
    return sorted(needed)


def _meant(s: Statics, node: Node) -> tuple[str, ...]:
    """What a node reads; for a bank also the tensor that it caches and its ids."""
    names = node.reads if node.reads is not None else node.src
    bank = bank_of_node(s.schedule, node)
    return names if bank is None else (*names, bank.caches, bank.ids)


# -- capabilities -------------------------------------------------------------------------------


def reads_bank(schedule: Schedule, node: Node) -> bool:
    """Whether BK001 is the rule for a node's device: it multiplies by a bank."""
    return node.op == "mul_mat_id" and bank_of_node(schedule, node) is not None


def unsupported(s: Statics, node: Node, device: Device) -> Bool:
    """Where (in the symbols) the device does not support the node."""
    if node.supported_by is not None:
        return device.name not in node.supported_by
    denied = disj(_matches(s, node, pattern) for pattern in device.deny)
    if device.ops is None:
        return denied
    allowed = disj(_matches(s, node, pattern) for pattern in device.ops)
    return disj([denied, neg(allowed)])


def _matches(s: Statics, node: Node, pattern: OpPattern) -> Bool:
    if pattern.op not in ("*", node.op):
        return False
    operands = operands_of(s.schedule, node)
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
            parts.append(s.scope.le(number(span.low), extent))
        if span.high is not None:
            parts.append(s.scope.le(extent, number(span.high)))
    return conj(parts)


def operands_of(schedule: Schedule, node: Node) -> dict[str, Tensor]:
    """The operands of a node by the names that capability patterns use."""
    found = {"dst": schedule.tensor(node.dst)}
    for index, source in enumerate(node.src):
        found[f"src{index}"] = schedule.tensor(source)
    return found


def capability(schedule: Schedule, node: Node, device: Device) -> Iterator[tuple[str, str | int]]:
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


STATIC: tuple[StaticRule, ...] = (pl001, pl002, pl003, pl004, pl005, pl007)

__all__ = ["STATIC", "Site", "capability", "operands_of", "reads_bank", "unsupported"]
