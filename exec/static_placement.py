"""The static rules of placement and allocation, on concrete sizes, by plain code."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.command import Compute, CopyExperts
from ..model.ops import OPS
from ..model.schedule import Split
from .evaluate import bank_of, read_tensors, selects_slots, written_tensors
from .reference import output_tensors
from .scene import Execution, Fact, Fault, Scene, refusal
from .script import exists


def op_unsupported(scene: Scene) -> Iterator[Fault]:
    """PL001: a device's capability rows refuse a node that runs there."""
    for run in scene.executions():
        row = refusal(scene, run.device, run.node)
        if row is not None:
            yield Fault(
                run.places,
                (
                    ("node", f"{run.node.op} {run.node.dst}"),
                    ("device", run.device.name),
                    ("operands", operands_text(scene, run)),
                    ("capability row", row),
                ),
            )


def operands_text(scene: Scene, run: Execution) -> str:
    words = [f"dst {scene.text(run.node.dst)}"]
    words += [f"src{i} {scene.text(name)}" for i, name in enumerate(run.node.src)]
    return ", ".join(words)


def source_unreadable(scene: Scene) -> Iterator[Fault]:
    """PL002: what a node reads lies in a memory that its device cannot read."""
    for run in scene.executions():
        for source, bound in zip(run.node.src, run.bound, strict=True):
            memory = scene.memory(bound)
            if memory is not None and memory not in run.device.reads:
                yield Fault((*run.places, ("tensors", source)), _reach(run, source, bound, memory))


def _reach(run: Execution, source: str, bound: str, memory: str) -> tuple[Fact, ...]:
    return (
        ("node", f"{run.node.op} {run.node.dst}"),
        ("device", run.device.name),
        ("reads memories", ", ".join(run.device.reads)),
        ("source", source),
        ("read as", bound),
        ("lies in", memory),
    )


def result_immovable(scene: Scene) -> Iterator[Fault]:
    """PL003: a result has its place in a memory that the node's device cannot reach."""
    for run in scene.executions():
        for name in written_tensors(run.node):
            location = scene.schedule.location(name)
            if location.memory is None or location.memory in run.device.reads:
                continue
            base = scene.schedule.base(name).name
            yield Fault(
                (*run.places, ("tensors", name)),
                (
                    ("node", f"{run.node.op} {run.node.dst}"),
                    ("device", run.device.name),
                    ("reads memories", ", ".join(run.device.reads)),
                    ("result", name if base == name else f"{name}, a view of {base}"),
                    ("buffer", location.space),
                    ("lies in", str(location.memory)),
                ),
            )


def input_list_wrong(scene: Scene) -> Iterator[Fault]:
    """PL004: a split does not list a source from another memory, or lists what it never reads."""
    for number, split in enumerate(scene.schedule.splits or ()):
        yield from _missing_inputs(scene, number, split)
        nodes = scene.schedule.graph.nodes[split.start : split.end]
        sources = {source for node in nodes for source in node.src}
        for name in split.inputs:
            if name not in sources:
                yield Fault(
                    (("splits", number), ("tensors", name)),
                    (
                        ("split", number),
                        ("input", name),
                        ("read by nodes of the split", 0),
                        ("nodes of the split", ", ".join(n.dst for n in nodes)),
                    ),
                )


def _missing_inputs(scene: Scene, number: int, split: Split) -> Iterator[Fault]:
    graph = scene.schedule.graph
    device = graph.device(split.device)
    for position in range(split.start, min(split.end, len(graph.nodes))):
        node = graph.nodes[position]
        if node.op in OPS and OPS[node.op].view:
            continue
        for source in node.src:
            memory = scene.memory(source)
            if source in split.inputs or memory is None or memory in device.reads:
                continue
            yield Fault(
                (("splits", number), ("nodes", position), ("tensors", source)),
                (
                    ("split", number),
                    ("node", f"{node.op} {node.dst}"),
                    ("device", device.name),
                    ("reads memories", ", ".join(device.reads)),
                    ("source", source),
                    ("lies in", memory),
                    ("inputs listed", ", ".join(split.inputs) or "none"),
                ),
            )


def node_unassigned(scene: Scene) -> Iterator[Fault]:
    """PL005: a node without a device, or splits that do not partition the nodes."""
    schedule = scene.schedule
    nodes = schedule.graph.nodes
    covered = [0] * len(nodes)
    for number, split in enumerate(schedule.splits or ()):
        for position in range(split.start, min(split.end, len(nodes))):
            covered[position] += 1
        due = schedule.splits[number - 1].end if schedule.splits and number else 0
        if split.start != due or split.end < split.start or split.end > len(nodes):
            yield Fault(
                (("splits", number),),
                (
                    ("split", number),
                    ("range", f"[{split.start}, {split.end})"),
                    ("due start", due),
                    ("nodes", len(nodes)),
                ),
            )
    for position, node in enumerate(nodes):
        view = node.op in OPS and OPS[node.op].view
        if not view and schedule.device_of(node.dst) is None:
            facts: tuple[Fact, ...] = (("node", f"{node.op} {node.dst}"), ("device", "none"))
            yield Fault((("nodes", position), ("assignment", node.dst)), facts)
        if schedule.splits is not None and covered[position] != 1:
            facts = (("node", f"{node.op} {node.dst}"), ("splits that hold it", covered[position]))
            yield Fault((("nodes", position),), facts)
    for number, split in enumerate(schedule.splits or ()):
        for position in range(split.start, min(split.end, len(nodes))):
            yield from _strays(scene, number, position)


def _strays(scene: Scene, number: int, position: int) -> Iterator[Fault]:
    """A node of a split that is assigned to another device than the split."""
    node, split = scene.schedule.graph.nodes[position], (scene.schedule.splits or ())[number]
    device = scene.schedule.device_of(node.dst)
    view = node.op in OPS and OPS[node.op].view
    if device is not None and device != split.device and not view:
        yield Fault(
            (("splits", number), ("nodes", position)),
            (("node", f"{node.op} {node.dst}"), ("assigned to", device),
             ("its split", f"{number}, on {split.device}")),
        )  # fmt: skip


def not_computed_once(scene: Scene) -> Iterator[Fault]:
    """PL007: in some pass a needed node has no compute, or several."""
    schedule = scene.schedule
    if schedule.program is None:
        return
    needed = _needed(scene)
    for at in scene.passes():
        count: dict[str, int] = {}
        commands: dict[str, list[int]] = {}
        for index, command in enumerate(schedule.program):
            if isinstance(command, Compute) and exists(schedule, command, at):
                count[command.node] = count.get(command.node, 0) + 1
                commands.setdefault(command.node, []).append(index)
        for position, node in enumerate(schedule.graph.nodes):
            view = node.op in OPS and OPS[node.op].view
            if view or node.dst not in needed or not node.when.holds(at):
                continue
            if count.get(node.dst, 0) != 1:
                places = [("program", index) for index in commands.get(node.dst, ())]
                yield Fault(
                    (("nodes", position), *places),
                    (
                        ("node", f"{node.op} {node.dst}"),
                        ("pass", at["pass"]),
                        ("computes", count.get(node.dst, 0)),
                        ("due", 1),
                    ),
                )


def _needed(scene: Scene) -> set[str]:
    """The nodes that an output needs: through what they read, and through shared bytes."""
    schedule = scene.schedule
    graph = schedule.graph
    writers: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in written_tensors(node):
            writers.setdefault(schedule.base(name).name, []).append(node.dst)
    open_tensors = list(output_tensors(schedule))
    needed: set[str] = set()
    seen: set[str] = set()
    while open_tensors:
        base = schedule.base(open_tensors.pop()).name
        if base in seen:
            continue
        seen.add(base)
        for dst in writers.get(base, ()):
            needed.add(dst)
            node = graph.node(dst)
            open_tensors += [*node.src, *read_tensors(node)]
            bank = bank_of(graph, node)
            if bank is not None and any(selects_slots(schedule, bank, s) for s in node.src):
                open_tensors += [bank.caches, bank.ids]
    return needed


# -- allocation -------------------------------------------------------------------------------


def out_of_bounds(scene: Scene) -> Iterator[Fault]:
    """AL002: a tensor, view, slot or copied expert reaches past what holds it."""
    schedule = scene.schedule
    for tensor in schedule.graph.tensors:
        layout = scene.layouts.placed(tensor.name)
        place = (("tensors", tensor.name), ("placements", tensor.name))
        if not layout.space.startswith("own:"):
            size = schedule.graph.buffer(layout.space).bytes
            if layout.offset < 0 or layout.end > size:
                yield Fault(place, _bounds(tensor.name, layout.space, layout, 0, size))
        if tensor.view_of is not None and not tensor.about:
            base = scene.layouts.placed(tensor.view_of)
            if layout.offset < base.offset or layout.end > base.end:
                facts = _bounds(tensor.name, tensor.view_of, layout, base.offset, base.end)
                yield Fault(place, facts)
    for bank in schedule.graph.banks:
        held = scene.layouts.placed(bank.name).ne[2]
        if bank.slots > held:
            short: tuple[Fact, ...] = (("bank", bank.name), ("slots", bank.slots), ("holds", held))
            yield Fault((("banks", bank.name), ("tensors", bank.name)), short)
    for index, command in enumerate(schedule.program or ()):
        if isinstance(command, CopyExperts):
            source, target = (scene.layouts.placed(n) for n in (command.src, command.dst))
            if target.nbytes < source.nbytes:
                sizes: tuple[Fact, ...] = (
                    ("copy", f"{command.src} to {command.dst}"),
                    ("bytes of the source", source.nbytes),
                    ("bytes of the destination", target.nbytes),
                )
                yield Fault((("program", index), ("tensors", command.dst)), sizes)


def _bounds(name: str, holder: str, layout: object, first: int, last: int) -> tuple[Fact, ...]:
    offset, end = (getattr(layout, field) for field in ("offset", "end"))
    return (
        ("tensor", name),
        ("inside", holder),
        ("first byte", offset),
        ("end", end),
        ("allowed", f"[{first}, {last})"),
        ("bytes outside", max(first - offset, 0) + max(end - last, 0)),
    )


def over_capacity(scene: Scene) -> Iterator[Fault]:
    """AL003: the buffers of a memory take more bytes than it has."""
    graph = scene.schedule.graph
    for memory in graph.memories:
        buffers = [b for b in graph.buffers if b.memory == memory.name]
        total = sum(b.bytes for b in buffers)
        if memory.bytes is not None and total > memory.bytes:
            yield Fault(
                (("memories", memory.name), *(("buffers", b.name) for b in buffers)),
                (
                    ("memory", memory.name),
                    ("capacity", memory.bytes),
                    ("buffers", ", ".join(f"{b.name} {b.bytes}" for b in buffers)),
                    ("total", total),
                    ("too many", total - memory.bytes),
                ),
            )


def in_place_unsafe(scene: Scene) -> Iterator[Fault]:
    """AL004: a result lies over a source where the device does not allow that."""
    for run in scene.executions():
        op = OPS.get(run.node.op)
        target = scene.layouts.placed(run.node.dst)
        for index, bound in enumerate(run.bound):
            source = scene.layouts.placed(bound)
            apart = source.end <= target.offset or target.end <= source.offset
            # The destination of these is named as a source: it is meant to be the same bytes.
            meant = (op is not None and op.updates) or (run.node.op == "cpy" and index == 1)
            if source.space != target.space or apart or meant:
                continue
            allowed = any(p.op == run.node.op and p.source == index for p in run.device.in_place)
            if allowed and source.offset == target.offset and source.nb == target.nb:
                continue
            rows = ", ".join(f"{p.op} over source {p.source}" for p in run.device.in_place)
            yield Fault(
                (*run.places, ("tensors", run.node.dst)),
                (
                    ("node", f"{run.node.op} {run.node.dst}"),
                    ("device", run.device.name),
                    ("source", f"{index}: {bound}"),
                    ("source bytes", f"{source.space} [{source.offset}, {source.end})"),
                    ("result bytes", f"{target.space} [{target.offset}, {target.end})"),
                    ("in_place of the device", rows or "none"),
                ),
            )
