"""What a right schedule wastes, on concrete sizes, by plain code."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ..model.command import Callback, Command, Compute, Copy, CopyExperts, GetOutput, Prefetch
from ..model.device import HOST, Device, Usage
from ..model.graph import Node
from .evaluate import read_tensors, written_tensors
from .interleave import Machine
from .layout import Layout
from .scene import Execution, Fact, Fault, Place, Scene, refusal
from .script import Place as Where
from .script import Script, exists, unroll

#: (splits, the device, what they run)
_Run = tuple[list[int], Device, list[Execution]]


def split_ping_pong(scene: Scene) -> Iterator[Fault]:
    """CO003: what lies between two splits of a device, or ahead of a chain of devices, could be
    on that device, and no more bytes would cross."""
    runs = _runs(scene)
    for number, (splits, device, inside) in enumerate(runs):
        target = _neighbour(runs, number)
        if target is None or target == scene.schedule.graph.devices[-1]:
            continue
        if any(refusal(scene, target, run.node) for run in inside):
            continue
        made = {scene.schedule.base(run.node.dst).name for run in inside}
        fixed = _fixed(scene, inside, target)
        host_weights = fixed and number > 0 and not device.asynchronous
        if host_weights or not _fits(scene, fixed, target):
            continue
        now, then = (_bytes_in_and_out(scene, inside, made, d, fixed) for d in (device, target))
        if then > now or (number == 0 and then == now):
            continue
        places: list[Place] = [("splits", split) for split in splits]
        places += [place for run in inside for place in run.places]
        yield Fault(
            tuple(places),
            (
                ("splits", ", ".join(map(str, splits))), ("run on", device.name),
                (f"{target.name} runs", ", ".join(run.node.op for run in inside)),
                ("changes of device", len(runs) - 1),
                ("changes without it", len(runs) - (2 if number == 0 else 3)),
                ("bytes each pass", now), ("bytes each pass without it", then),
                ("weights and state to move", ", ".join(sorted(fixed)) or "none"),
            ),
        )  # fmt: skip


def _runs(scene: Scene) -> list[_Run]:
    """Executions by the splits that they are in, joined as long as the device is the same."""
    schedule, by_split = scene.schedule, dict[int, list[Execution]]()
    for run in scene.executions():
        for kind, number in run.places:
            if kind == "splits" and isinstance(number, int):
                by_split.setdefault(number, []).append(run)
    device = {n: schedule.graph.device(s.device) for n, s in enumerate(schedule.splits or ())}
    found: list[_Run] = []
    for _, group in groupby(sorted(by_split), key=lambda n: device[n].name):
        numbers = list(group)
        found.append((numbers, device[numbers[0]], [r for n in numbers for r in by_split[n]]))
    return found


def _neighbour(runs: list[_Run], number: int) -> Device | None:
    device, later = runs[number][1], [run[1] for run in runs[number + 1 : number + 3]]
    if number == 0:
        chain = len(later) == 2 and all(d.asynchronous for d in later)
        return later[0] if chain and not device.asynchronous else None
    if not later or later[0].name != runs[number - 1][1].name:
        return None
    return later[0]


def _operands(node: Node) -> list[str]:
    return [*node.src, *read_tensors(node), *written_tensors(node)]


def _fixed(scene: Scene, inside: list[Execution], target: Device) -> set[str]:
    """Weights and state of these nodes that the device does not reach where they are."""
    schedule = scene.schedule
    bases = {schedule.base(name).name for run in inside for name in _operands(run.node)}
    return {
        name
        for name in bases
        if schedule.location(name).usage in (Usage.WEIGHTS, Usage.ANY)
        and schedule.location(name).memory not in target.reads
    }


def _fits(scene: Scene, fixed: set[str], target: Device) -> bool:
    graph = scene.schedule.graph
    capacity = graph.memory(target.memory).bytes
    used = sum(buffer.bytes for buffer in graph.buffers if buffer.memory == target.memory)
    needed = sum(scene.layouts.placed(name).nbytes for name in fixed)
    return not fixed or (capacity is not None and used + needed <= capacity)


def _bytes_in_and_out(
    scene: Scene, inside: list[Execution], made: set[str], device: Device, fixed: set[str]
) -> int:
    """Bytes that a pass carries to these nodes and from them, if the device runs them."""
    schedule, arriving, leaving = scene.schedule, set[str](), set[tuple[str, str]]()
    near = fixed if device.name != inside[0].device.name else set()
    for run in inside:
        for name in run.node.src:
            memory, base = scene.memory(name), schedule.base(name).name
            if base not in made | near and memory is not None and memory not in device.reads:
                arriving.add(name)
    nodes = {run.node.dst for run in inside}
    for run in scene.executions():
        if run.node.dst not in nodes and device.memory not in run.device.reads:
            results = [name for name in run.node.src if schedule.base(name).name in made]
            leaving |= {(run.device.memory, name) for name in results}
    names = [*arriving, *(name for _, name in leaving)]
    return sum(scene.layouts.placed(name).nbytes for name in names)


# -- what could run at the same time --------------------------------------------------------------


def starts_without(script: Script, part: int, other: int) -> bool:
    """Whether some execution starts a part while the other has not ended: all that can happen
    does, but the other never ends."""
    machine = Machine(script)
    while True:
        ready = machine.startable()
        if part in ready:
            return True
        moved = [p for p in ready if p != other]
        if other in ready:
            machine.start(other)
        for one in moved:
            machine.start(one)
            machine.end(one)
        if not ready:
            return False


def serial_upload(scene: Scene) -> Iterator[Fault]:
    """CO004: an upload cannot start before the computes of the split before it have ended, though
    it shares no byte with them."""
    schedule, program = scene.schedule, scene.schedule.program
    if program is None:
        return
    script = unroll(schedule, scene.symbols)
    for index, command in enumerate(program):
        if not isinstance(command, Copy | CopyExperts) or isinstance(command, Prefetch):
            continue
        made = [p for p, part in enumerate(script.parts) if part.command == index]
        if not command.split or not made or not _from_host(scene, command):
            continue
        first = script.parts[made[0]].iteration
        parts = [p for p in made if script.parts[p].iteration == first]
        before = [
            p
            for p, part in enumerate(script.parts)
            if part.iteration == first and _computes(program[part.command], command)
        ]
        if not before or not _beside(scene, command, parts, script):
            continue
        if any(starts_without(script, parts[-1], p) for p in before):
            continue
        between = {script.parts[p].command for p in range(before[0], parts[0])} - {index}
        if any(_meet(scene, command, program[other]) for other in between):
            continue
        size = scene.layouts.placed(command.src).nbytes
        yield Fault(
            (("program", index),),
            (
                ("upload", f"{command.src} to {command.dst}"), ("bytes", size),
                ("waits for the end of", ", ".join(_node(program[script.parts[p].command])
                                                   for p in before)),
                ("bytes that both touch", 0),
            ),
        )  # fmt: skip


def _node(command: Command) -> str:
    return command.node if isinstance(command, Compute) else command.do


def _computes(other: Command, command: Command) -> bool:
    assert command.split is not None
    return isinstance(other, Compute) and other.split == command.split - 1


def _from_host(scene: Scene, command: Copy | CopyExperts) -> bool:
    source, target = scene.memory(command.src), scene.memory(command.dst)
    return source is not None and source != target and scene.schedule.graph.memory(source).host


def _beside(scene: Scene, command: Copy | CopyExperts, parts: list[int], script: Script) -> bool:
    """Whether there is a second queue for it; or the host makes it, for another device than the
    one that it waits for."""
    splits, graph = scene.schedule.splits or (), scene.schedule.graph
    assert command.split is not None
    here, before = (graph.device(splits[n].device) for n in (command.split, command.split - 1))
    by_host = script.parts[parts[-1]].place is Where.HOST
    if not (here.asynchronous and before.asynchronous):
        return False
    return by_host if here.name != before.name else len(here.queues) > 1 and not by_host


def _touched(scene: Scene, command: Command) -> tuple[list[Layout], list[Layout]]:
    """What a command reads and writes by name; of a callback the tensors that it declares."""
    schedule = scene.schedule
    read: list[str] = []
    written: list[str] = []
    if isinstance(command, Compute):
        node = schedule.graph.node(command.node)
        read = [schedule.bound(command, i) for i in range(len(node.src))] + [*read_tensors(node)]
        written = [*written_tensors(node)]
    elif isinstance(command, Copy | CopyExperts):
        ids = getattr(command, "ids", None)
        read, written = [command.src, *([ids] if ids is not None else [])], [command.dst]
    elif isinstance(command, Callback):
        read, written = (
            [name for name in names or () if not name.startswith("usage:")]
            for names in (command.reads, command.writes)
        )
    elif hasattr(command, "tensor"):
        (read if isinstance(command, GetOutput) else written).append(command.tensor)
    placed = scene.layouts.placed
    return [placed(name) for name in read], [placed(name) for name in written]


def _meet(scene: Scene, left: Command, right: Command) -> bool:
    read, written = _touched(scene, left)
    other_read, other_written = _touched(scene, right)
    pairs = [(a, b) for a in written for b in (*other_read, *other_written)]
    pairs += [(a, b) for a in read for b in other_written]
    return any(a.space == b.space and a.offset < b.end and b.offset < a.end for a, b in pairs)


# -- experts ------------------------------------------------------------------------------------


def _chosen(scene: Scene, weight: str) -> tuple[int, int, int, str] | None:
    """Experts of a weight, experts per token, tokens, and the ids tensor of its reader."""
    for run in scene.executions():
        if run.node.op == "mul_mat_id" and run.node.src[0] == weight:
            ids = scene.layouts.placed(run.node.src[2])
            tokens = ids.ne[1] * ids.ne[2] * ids.ne[3]
            return scene.layouts.placed(weight).ne[2], ids.ne[0], tokens, run.node.src[2]
    return None


def prefetch_moves_more(scene: Scene) -> Iterator[Fault]:
    """CO005: at these sizes a prefetch brings at least twice the experts that can be used."""
    for index, command in enumerate(scene.schedule.program or ()):
        chosen = _chosen(scene, command.src) if isinstance(command, Prefetch) else None
        if chosen is None or not isinstance(command, Prefetch):
            continue
        experts, each, tokens, _ = chosen
        if 2 * each * tokens <= experts:
            size = scene.layouts.placed(command.src).nbytes
            yield Fault(
                (("program", index),),
                (
                    ("experts brought", experts), ("experts used at most", each * tokens),
                    ("bytes moved", size), ("bytes that could do", size // experts * each * tokens),
                ),
            )  # fmt: skip


#: Less than this share of the weight saved is not worth a wait of the host for a device.
_WORTH_IT = 1 / 20


def selective_copy_useless(scene: Scene) -> Iterator[Fault]:
    """CO006: at these sizes hardly an expert is expected to be left out, and the ids come from a
    device."""
    for index, command in enumerate(scene.schedule.program or ()):
        if not isinstance(command, CopyExperts) or command.ids is None:
            continue
        chosen = _chosen(scene, command.src)
        memory = scene.memory(chosen[3]) if chosen is not None else None
        if chosen is None or memory is None or scene.schedule.graph.memory(memory).host:
            continue
        experts, each, tokens, ids = chosen
        left_out = 1.0
        for _ in range(tokens):
            left_out *= (experts - each) / experts
        if left_out < _WORTH_IT:
            size = scene.layouts.placed(command.src).nbytes
            yield Fault(
                (("program", index),),
                (
                    ("ids", f"{ids} in {memory}"), ("tokens", tokens),
                    ("experts", f"{each} of {experts} a token"),
                    ("experts expected to be used", f"{experts * (1 - left_out):.2f}"),
                    ("bytes", size), ("bytes expected to be saved", round(size * left_out)),
                ),
            )  # fmt: skip


# -- declarations -------------------------------------------------------------------------------


def declared_not_realised(scene: Scene) -> Iterator[Fault]:
    """PL006: a declaration that changes nothing at these sizes."""
    schedule, graph = scene.schedule, scene.schedule.graph
    names = [t.name for t in graph.tensors] + [name for name, _, _ in schedule.placements]
    lying = {schedule.location(name).space for name in names}
    for buffer in graph.buffers:
        if buffer.name not in lying and buffer.usage is not Usage.COMPUTE:
            facts: tuple[Fact, ...] = (("tensors in it", 0), ("bytes", buffer.bytes))
            yield Fault((("buffers", buffer.name),), (("buffer", buffer.name), *facts))
    runs = list(scene.executions())
    for bank in graph.banks:
        if not any(bank.name in run.node.src for run in runs):
            facts = (("nodes that read it", 0), ("bytes", scene.layouts.placed(bank.name).nbytes))
            yield Fault((("banks", bank.name),), (("bank", bank.name), *facts))
    for run in runs:
        pin = schedule.tensor(run.node.dst).pin
        if pin not in (None, run.device.name):
            facts = (("pinned to", str(pin)), ("runs on", run.device.name))
            yield Fault((*run.places, ("tensors", run.node.dst)), facts)
    if schedule.program is not None:
        yield from _idle_transfers(scene)


def _idle_transfers(scene: Scene) -> Iterator[Fault]:
    schedule, program = scene.schedule, scene.schedule.program or ()
    script = unroll(schedule, scene.symbols)
    present = [c for c in program if any(exists(schedule, c, at) for at in scene.passes())]
    read = [layout for command in present for layout in _touched(scene, command)[0]]
    if schedule.graph.n_copies > 1 and not any(
        schedule.copy_index(layout.name) is not None for layout in read
    ):
        facts: tuple[Fact, ...] = (
            ("n_copies", schedule.graph.n_copies), ("numbered copies that are read", 0)
        )  # fmt: skip
        yield Fault((("n_copies", ""),), facts)
    for index, command in enumerate(program):
        parts = [p for p, part in enumerate(script.parts) if part.command == index]
        if not isinstance(command, Copy | CopyExperts) or not parts:
            continue
        if isinstance(command, Prefetch):
            yield from _queued_prefetch(script, index, parts)
        elif schedule.copy_of(command.dst) is not None:
            space, memory = scene.layouts.placed(command.dst).space, scene.memory(command.dst)
            used = any(layout.space == space for layout in read)
            if (
                not used
                and not any(map(_reads_at_will, present))
                and memory
                and not schedule.graph.memory(memory).host
            ):
                facts = (("copied", command.dst), ("commands that read it", 0))
                yield Fault((("program", index),), facts)


def _reads_at_will(command: Command) -> bool:
    """Whether it is user code that may read more than the tensors that it names."""
    if not isinstance(command, Callback):
        return False
    return command.reads is None or any(name.startswith("usage:") for name in command.reads)


def _queued_prefetch(script: Script, index: int, parts: list[int]) -> Iterator[Fault]:
    """A prefetch in a queue of computes, that none of them all may run beside."""
    program = script.schedule.program or ()
    computes = [
        p for p, part in enumerate(script.parts) if isinstance(program[part.command], Compute)
    ]
    queue = script.parts[parts[-1]].queue
    if queue == HOST or not any(script.parts[p].queue == queue for p in computes):
        return
    for part in parts:
        for other in computes:
            if starts_without(script, part, other) and starts_without(script, other, part):
                return
    facts: tuple[Fact, ...] = (
        ("queue", queue), ("computes", len(computes)), ("computes that it may run beside", 0)
    )  # fmt: skip
    yield Fault((("program", index),), facts)
