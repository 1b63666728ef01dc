"""PL006: what is declared has an effect somewhere, at some size, in some pass."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.command import Callback, Command, Compute, Copy, CopyExperts, GetOutput, Prefetch
from ...model.device import Usage
from ...model.schedule import Schedule
from ..order import Order
from .overlap import Chains
from .static import Broken

#: ``("banks", name)``, ``("program", index)``, …: what can be without effect
Declared = tuple[str, str | int]

_N_COPIES: Declared = ("n_copies", "")


# ∀ declared d:  ∃ regime, pass in which d has an effect
def pl006(schedule: Schedule, effective: set[Declared]) -> Iterator[Broken]:
    """What none of the regimes saw an effect of; ``effective`` is all that they did."""
    for thing, message in _declared(schedule):
        if thing not in effective:
            kind, name = thing
            place = f"$.{kind}[{name}]" if isinstance(name, int) else f"$.{kind}.{name}"
            yield Broken("PL006", message, place.rstrip("."), ((kind, name or "none"),))


def _declared(schedule: Schedule) -> Iterator[tuple[Declared, str]]:
    graph = schedule.graph
    for buffer in graph.buffers:
        if buffer.usage is Usage.COMPUTE:
            continue  # room that a planner has reserved
        text = f"nothing lies in buffer {buffer.name!r}: {buffer.bytes} bytes of {buffer.memory}"
        yield ("buffers", buffer.name), text
    for bank in graph.banks:
        yield ("banks", bank.name), f"no node that is computed reads bank {bank.name!r}"
    for tensor in graph.tensors:
        if tensor.pin is not None and graph.find_node(tensor.name) is not None:
            text = f"{tensor.name!r} is pinned to {tensor.pin}, and another device computes it"
            yield ("tensors", tensor.name), text
    if graph.n_copies > 1:
        yield (
            _N_COPIES,
            f"n_copies is {graph.n_copies}, and no command reads a numbered copy of an input",
        )
    for index, command in enumerate(schedule.program or ()):
        if isinstance(command, Copy | CopyExperts):
            if isinstance(command, Prefetch):
                text = f"the prefetch of {command.src!r} is in the queue of what it should overlap"
                yield ("program", index), text
            elif _is_upload(schedule, command.dst):
                yield ("program", index), f"nobody reads {command.dst!r}, which is copied"


def _is_upload(schedule: Schedule, target: str) -> bool:
    """Whether a transfer ends in a copy that is not in host memory, where the user may read it."""
    memory = schedule.location(target).memory
    copy = schedule.copy_of(target) is not None
    return copy and memory is not None and not schedule.graph.memory(memory).host


def effects(schedule: Schedule, order: Order) -> set[Declared]:
    """What has an effect in one regime."""
    graph, found = schedule.graph, set[Declared]()
    for name in (*(t.name for t in graph.tensors), *(name for name, _, _ in schedule.placements)):
        found.add(("buffers", schedule.location(name).space))
    for tensor in graph.tensors:
        if tensor.pin == schedule.device_of(tensor.name):
            found.add(("tensors", tensor.name))
    commands = {index: (schedule.program or ())[index] for index, _ in order.by_command}
    read = _read_names(schedule, commands)
    for command in commands.values():
        if isinstance(command, Compute):
            found |= {("banks", name) for name in graph.node(command.node).src}
    # One of them is enough: the plain lowering, which no pass overtakes, uses copy 0 alone.
    if any(schedule.copy_index(name) is not None for name in read):
        found.add(_N_COPIES)
    return found | _useful_transfers(schedule, order, commands, read)


def _read_names(schedule: Schedule, commands: dict[int, Command]) -> set[str]:
    """What commands read, by name."""
    names: set[str] = set()
    for command in commands.values():
        if isinstance(command, Compute):
            node = schedule.graph.node(command.node)
            names.update(schedule.bound(command, index) for index in range(len(node.src)))
            names.update(node.reads or ())
        elif isinstance(command, Callback):
            names.update(_read_by_user(schedule, command))
        else:
            read = (getattr(command, key, None) for key in ("src", "ids"))
            names.update(name for name in read if name is not None)
        if isinstance(command, GetOutput):
            names.add(command.tensor)
    return names


def _read_by_user(schedule: Schedule, command: Callback) -> Iterator[str]:
    """What user code reads: tensors, or all that there are where it names a usage or nothing."""
    declared = command.reads
    if declared is not None and not any(name.startswith("usage:") for name in declared):
        yield from declared
        return
    yield from (tensor.name for tensor in schedule.graph.tensors)
    yield from (c.dst for c in schedule.program or () if isinstance(c, Copy | CopyExperts))


def _useful_transfers(
    schedule: Schedule, order: Order, commands: dict[int, Command], read: set[str]
) -> set[Declared]:
    program, chains = schedule.program or (), Chains(order)
    bases = {schedule.base(name).name for name in read}
    shared = {schedule.location(name).space for name in bases}
    computing = {schedule.queue_of(c) for c in commands.values() if isinstance(c, Compute)}
    found: set[Declared] = set()
    for (index, _), parts in order.by_command.items():
        command = program[index]
        if ("program", index) in found:
            continue
        if isinstance(command, Prefetch):
            beside = (program[part.command] for part in chains.beside(parts[-1]))
            useful = command.queue not in computing or any(
                isinstance(other, Compute) for other in beside
            )
        elif isinstance(command, Copy | CopyExperts):
            useful = schedule.location(command.dst).space in shared
        else:
            continue
        if useful:
            found.add(("program", index))
    return found
