"""The static rules of banks and events, and the bytes that banks cost, by plain code."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.command import Copy, Record, SyncEvent, Wait
from ..model.device import HOST
from ..model.graph import Bank
from .evaluate import bank_of, selects_slots
from .scene import Execution, Fact, Fault, Place, Scene, refusal
from .script import exists
from .static_placement import operands_text


def cached_matmul_off_bank(scene: Scene) -> Iterator[Fault]:
    """BK001: the node that reads a bank does not run where the bank is, or is refused there."""
    graph = scene.schedule.graph
    for run in scene.executions():
        bank = bank_of(graph, run.node)
        if bank is None:
            continue
        memory = scene.memory(bank.name)
        row = refusal(scene, run.device, run.node)
        if run.device.memory == memory and row is None:
            continue
        facts: list[Fact] = [
            ("node", f"{run.node.op} {run.node.dst}"),
            ("runs on", f"{run.device.name} (memory {run.device.memory})"),
            ("bank", f"{bank.name} (memory {memory})"),
            ("operands", operands_text(scene, run)),
        ]
        for device in graph.devices:
            if device.memory == memory:
                answer = refusal(scene, device, run.node) or "supported"
                facts.append((f"capability row of {device.name}", answer))
        facts.append(("bytes of the bank that travel each pass", _travel(scene, bank.name)))
        yield Fault((*run.places, ("banks", bank.name)), tuple(facts))


def _crossings(scene: Scene) -> list[tuple[str, str, str, int, Place]]:
    """``(tensor, from, to, bytes, place)`` of each whole copy between memories in one pass (the
    pass that has most of them); of a split-level schedule, of each input of a split."""
    schedule = scene.schedule
    found: list[tuple[str, str, str, int, Place]] = []
    if schedule.program is None:
        for number, split in enumerate(schedule.splits or ()):
            target = schedule.graph.device(split.device).memory
            for name in split.inputs:
                source = scene.memory(name)
                if source is not None and source != target:
                    size = scene.layouts.placed(name).nbytes
                    found.append((name, source, target, size, ("splits", number)))
        return found
    for at in scene.passes():
        crossing: list[tuple[str, str, str, int, Place]] = []
        for index, command in enumerate(schedule.program):
            if not isinstance(command, Copy) or not exists(schedule, command, at):
                continue
            ends = scene.memory(command.src), scene.memory(command.dst)
            if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
                size = scene.layouts.placed(command.src).nbytes
                crossing.append((command.src, ends[0], ends[1], size, ("program", index)))
        found = max(found, crossing, key=len)
    return found


def _travel(scene: Scene, tensor: str) -> int:
    return sum(size for name, _, _, size, _ in _crossings(scene) if name == tensor)


def bank_copied(scene: Scene) -> Iterator[Fault]:
    """CO001: a bank, or the experts of a layer, cross memories as a whole in each pass."""
    graph = scene.schedule.graph
    experts = {node.src[0] for node in graph.nodes if node.op == "mul_mat_id"}
    readers: dict[str, Execution] = {}
    for run in scene.executions():
        if run.node.op == "mul_mat_id":
            readers.setdefault(run.node.src[0], run)
    for name, source, target, size, place in _crossings(scene):
        reader = readers.get(name)
        if name not in experts and graph.find_bank(name) is None:
            continue
        places: list[Place] = [place, ("tensors", name), ("banks", name)]
        facts: list[Fact] = [
            ("tensor", name),
            ("from", source),
            ("to", target),
            ("bytes each pass", size),
        ]
        if reader is not None:
            places += reader.places
            able = [
                device.name
                for device in graph.devices
                if source in device.reads and refusal(scene, device, reader.node) is None
            ]
            facts.append((f"devices that read {source} and run the op", ", ".join(able) or "none"))
        yield Fault(tuple(places), tuple(facts))


def working_set_exceeds(scene: Scene) -> Iterator[Fault]:
    """BK004: at these sizes a call can need more slots than the bank has, or a node reads the
    bank although its guard is false."""
    graph = scene.schedule.graph
    runs = list(scene.executions())
    for bank in graph.banks:
        ids = scene.layouts.placed(bank.ids)
        count = ids.nbytes // ids.dtype.block_bytes
        experts = scene.layouts.placed(bank.caches).ne[2]
        low, high = ids.values or (0, experts)
        most = min(count, high - max(low, 0), experts)
        guarded = [bank.when.holds(at) for at in scene.passes()]
        facts: tuple[Fact, ...] = (
            ("bank", bank.name),
            ("guard", f"{bank.when} is {'true' if any(guarded) else 'false'}"),
            ("ids", count),
            ("distinct experts at most", most),
            ("slots", bank.slots),
        )
        places: list[Place] = [("banks", bank.name), ("tensors", bank.name)]
        readers = [run for run in runs if bank.name in run.node.src]
        places += [place for run in readers for place in run.places]
        places += _fills(scene, bank)
        if any(guarded) and most > bank.slots:
            yield Fault(tuple(places), facts)
        for run in readers:
            if any(run.node.when.holds(at) and not bank.when.holds(at) for at in scene.passes()):
                reader = ("read by", f"{run.node.op} {run.node.dst}")
                yield Fault(tuple(places), (*facts, reader))


def _fills(scene: Scene, bank: Bank) -> list[Place]:
    return [
        ("program", index)
        for index, command in enumerate(scene.schedule.program or ())
        if bank.name in getattr(command, "banks", ())
    ]


def id_out_of_range(scene: Scene) -> Iterator[Fault]:
    """CE006: the ids of a ``mul_mat_id`` may hold a number that is no expert."""
    schedule = scene.schedule
    for run in scene.executions():
        node = run.node
        if node.op != "mul_mat_id":
            continue
        bank = bank_of(schedule.graph, node)
        weights, ids = (bank.caches, bank.ids) if bank is not None else (node.src[0], node.src[2])
        values = schedule.tensor(ids).values or schedule.base(ids).values
        experts = scene.layouts.placed(weights)
        if values is None:
            continue
        negative = values[0] < 0 and not node.param("negative_ids", False)
        if values[1] <= experts.ne[2] and not negative:
            continue
        size = experts.nbytes // experts.ne[2]
        yield Fault(
            (*run.places, ("tensors", ids)),
            (
                ("node", f"{node.op} {node.dst}"),
                ("experts", experts.ne[2]),
                ("ids", f"{ids} in [{values[0]}, {values[1]})"),
                ("last byte of the experts", experts.nbytes - 1),
                ("last byte that the greatest id reads", values[1] * size - 1),
            ),
        )


#: op → (operand that is indexed, operand that holds the ids)
_INDEXED = {"mul_mat_id": (0, 2), "add_id": (1, 2), "get_rows": (0, 1)}


def index_space_mismatch(scene: Scene) -> Iterator[Fault]:
    """BK005: expert ids index a bank, or slot ids index something else than their bank."""
    schedule = scene.schedule
    for run in scene.executions():
        if run.node.op not in _INDEXED:
            continue
        operand, ids = (run.node.src[i] for i in _INDEXED[run.node.op])
        bank = schedule.graph.find_bank(operand)
        owner = next((b for b in schedule.graph.banks if selects_slots(schedule, b, ids)), None)
        due = None if bank is None else (bank.group, bank.layer)
        found = None if owner is None else (owner.group, owner.layer)
        if due != found:
            yield Fault(
                (*run.places, ("tensors", operand), ("tensors", ids), ("banks", operand)),
                (
                    ("node", f"{run.node.op} {run.node.dst}"),
                    ("indexed operand", operand),
                    ("is indexed by", _space(due)),
                    ("ids", ids),
                    ("hold", _space(found)),
                ),
            )


def _space(owner: tuple[str, int] | None) -> str:
    return "expert ids" if owner is None else f"slots of group {owner[0]}, layer {owner[1]}"


# -- events -----------------------------------------------------------------------------------


def wait_never_satisfied(scene: Scene) -> Iterator[Fault]:
    """OR005: in the last of several passes a wait has no record before it."""
    schedule = scene.schedule
    if schedule.repeat < 2:
        return
    recorded: dict[str, int] = {}
    for at in scene.passes():
        for index, command in enumerate(schedule.program or ()):
            if not exists(schedule, command, at):
                continue
            if isinstance(command, Record):
                recorded[command.event] = recorded.get(command.event, 0) + 1
            last = at["pass"] == schedule.repeat - 1
            if isinstance(command, Wait | SyncEvent) and last and command.event not in recorded:
                records = [
                    str(i)
                    for i, c in enumerate(schedule.program or ())
                    if isinstance(c, Record) and c.event == command.event
                ]
                yield Fault(
                    (("program", index),),
                    (
                        ("command", f"{command.do} {command.event}"),
                        ("pass", at["pass"]),
                        ("records issued before it", 0),
                        ("record commands", ", ".join(records) or "none"),
                    ),
                )


def event_kind_mismatch(scene: Scene) -> Iterator[Fault]:
    """OR006: a queue waits for an event of a device whose events it cannot wait for, or an
    event is recorded on several devices."""
    schedule = scene.schedule
    recorded: dict[str, dict[str, int]] = {}
    for index, command in enumerate(schedule.program or ()):
        if isinstance(command, Record):
            kind = schedule.queue_device(command.queue)
            recorded.setdefault(command.event, {}).setdefault(kind, index)
    for event, kinds in recorded.items():
        if len(kinds) > 1:
            facts: tuple[Fact, ...] = (("event", event), ("recorded on", ", ".join(kinds)))
            yield Fault(tuple(("program", index) for index in kinds.values()), facts)
    for index, command in enumerate(schedule.program or ()):
        if not isinstance(command, Wait) or schedule.queue_of(command) == HOST:
            continue
        waiter = schedule.graph.device(schedule.queue_device(command.queue))
        for kind, record in recorded.get(command.event, {}).items():
            if not waiter.may_wait_for(kind):
                able = dict.fromkeys((waiter.name, *(waiter.waits_for or ()), HOST))
                yield Fault(
                    (("program", index), ("program", record)),
                    (
                        ("command", f"wait {command.event}"),
                        ("on queue", command.queue),
                        ("event recorded on", kind),
                        (f"{waiter.name} can wait for events of", ", ".join(able)),
                    ),
                )
