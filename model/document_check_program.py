"""Commands: names that exist, copies that fit and have a contract, events that are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import command as ir
from .device import HOST, Device, Usage
from .document_scope import Scope, dangling
from .fault import Fault, Path, meant, quote
from .ops import OPS
from .tensor import Tensor


def check_program(scope: Scope) -> None:
    program = scope.schedule.program or ()
    _check_events(scope, program)
    filled: set[str] = set()
    for i, command in enumerate(program):
        path: Path = ("program", i)
        scope.split(command.split, (*path, "split"))
        scope.guard(command.when, path)
        _CHECK[type(command)](scope, command, path)
        if isinstance(command, ir.CopyExperts):
            _check_used_from(command, filled, path)
            filled.add(command.dst)


def check_contract(device: Device | None, source: str | None, target: str | None, at: Path) -> None:
    """A queue's device says how copies between the two memories are ordered."""
    if device is None or not device.asynchronous or source is None or target is None:
        return  # a host command, or bytes that nothing puts anywhere
    if device.contract(source, target) is None:
        raise Fault(
            at,
            f"device {quote(device.name)} has no copy contract from memory {quote(source)} "
            f'to {quote(target)}; add one under its "copy"',
        )


def check_footprint(scope: Scope, callback: Any, path: Path) -> None:
    """What a callback reads and writes: tensors, or all of a usage."""
    for key, names in (("reads", callback.reads), ("writes", callback.writes)):
        for i, name in enumerate(names or ()):
            if name.startswith("usage:"):
                usage = name.removeprefix("usage:")
                if usage not in list(Usage):
                    message = f"unknown usage {quote(usage)}"
                    raise Fault((*path, key, i), message + meant(usage, list(Usage)))
            else:
                scope.tensor(name, (*path, key, i))


def _check_events(scope: Scope, program: tuple[ir.Command, ...]) -> None:
    """Each event is recorded, on queues of one device that has events."""
    devices: dict[str, str] = {}
    for i, command in enumerate(program):
        if not isinstance(command, ir.Record):
            continue
        path: Path = ("program", i)
        device = scope.queue(command.queue, (*path, "queue"))
        if device is not None and not device.events:
            message = f'device {quote(device.name)} has no events ("events": false)'
            raise Fault((*path, "queue"), message)
        name = device.name if device is not None else HOST
        other = devices.setdefault(command.event, name)
        if other != name:
            message = f"event {quote(command.event)} is recorded on {quote(other)} already"
            raise Fault((*path, "queue"), f"{message}; an event belongs to one device")
    for i, command in enumerate(program):
        if isinstance(command, ir.Wait | ir.SyncEvent) and command.event not in devices:
            at = ("program", i, "event")
            message = f"no command records the event {quote(command.event)}"
            raise Fault(at, message + meant(command.event, devices))


def _check_compute(scope: Scope, command: ir.Compute, path: Path) -> None:
    node = scope.graph.find_node(command.node)
    if node is None:
        names = (n.dst for n in scope.graph.nodes)
        raise dangling("node", command.node, (*path, "node"), names)
    if OPS[node.op].view:
        raise Fault((*path, "node"), f"{node.op} is a view: nothing computes it")
    if command.queue is not None:
        scope.queue(command.queue, (*path, "queue"))
    if command.copy is not None and command.copy >= scope.graph.n_copies:
        due = f'"n_copies" is {scope.graph.n_copies}'
        raise Fault((*path, "copy"), f"there is no copy {command.copy}: {due}")
    for source, tensor in command.bind:
        at = (*path, "bind", source)
        if source not in node.src:
            message = f"{quote(source)} is no source of {quote(node.dst)}"
            raise Fault(at, message + meant(source, node.src), at_key=True)
        scope.tensor(tensor, at)
    for index, source in enumerate(node.src):
        _check_stand_in(scope, scope.schedule.bound(command, index), source, path)


def _check_stand_in(scope: Scope, bound: str, source: str, path: Path) -> None:
    """What a compute reads in the place of a source has the source's type and shape."""
    if bound == source:
        return
    found, due = scope.schedule.tensor(bound), scope.schedule.tensor(source)
    if found.shape and due.shape:
        fits = found.dtype == due.dtype and all(map(scope.same, found.ne, due.ne))
    else:
        fits = scope.same(scope.data_bytes(found), scope.data_bytes(due))
    if not fits:
        message = f"{quote(bound)} is {_kind(found)}; it stands for {quote(source)}, {_kind(due)}"
        raise Fault(path, message)


def _kind(tensor: Tensor) -> str:
    sizes = ", ".join(map(str, tensor.shape))
    return f"{tensor.dtype} [{sizes}]" if tensor.shape else f"{tensor.bytes} byte(s)"


def _check_copy(scope: Scope, command: ir.Copy | ir.CopyExperts, path: Path) -> None:
    source = scope.tensor(command.src, (*path, "src"))
    target = scope.tensor(command.dst, (*path, "dst"))
    device = scope.queue(command.queue, (*path, "queue"))
    scope.split(command.for_split, (*path, "for_split"))
    found, due = scope.data_bytes(target), scope.data_bytes(source)
    if not scope.same(found, due):
        message = f"{quote(command.dst)} has {found} byte(s), {quote(command.src)} has {due}"
        raise Fault((*path, "dst"), f"{message}; a copy needs equal sizes")
    if device is not None and device.asynchronous:
        here, there = scope.schedule.location(command.src), scope.schedule.location(command.dst)
        check_contract(device, here.memory, there.memory, (*path, "queue"))


def _check_copy_experts(scope: Scope, command: ir.CopyExperts, path: Path) -> None:
    _check_copy(scope, command, path)
    if command.ids is not None:
        ids = scope.tensor(command.ids, (*path, "ids"))
        scope.integers(ids, (*path, "ids"), "ids")
    elif command.used_from is None:
        raise Fault(path, 'nothing says which experts: "ids" or "used_from" was due')


def _check_used_from(command: ir.CopyExperts, filled: set[str], path: Path) -> None:
    if command.used_from is not None and command.used_from not in filled:
        message = f"no earlier copy_experts has the dst {quote(command.used_from)}"
        raise Fault((*path, "used_from"), message + meant(command.used_from, sorted(filled)))


def _check_fill(scope: Scope, command: ir.FillBank, path: Path) -> None:
    device = scope.queue(command.queue, (*path, "queue"))
    ids = scope.tensor(command.ids, (*path, "ids"))
    scope.integers(ids, (*path, "ids"), "ids")
    if (command.slot_ids is None) == (command.slot_map is None):
        raise Fault(path, 'one of "slot_ids" and "slot_map" was due')
    for key, name in (("slot_ids", command.slot_ids), ("slot_map", command.slot_map)):
        if name is not None:
            tensor = scope.tensor(name, (*path, key))
            scope.integers(tensor, (*path, key), "slots")
    layer: tuple[str, int] | None = None
    for i, name in enumerate(command.banks):
        at = (*path, "banks", i)
        bank = scope.graph.find_bank(name)
        if bank is None:
            raise dangling("bank", name, at, (b.name for b in scope.graph.banks))
        if layer is not None and layer != (bank.group, bank.layer):
            raise Fault(at, "a fill is of one layer and group; this bank is of another")
        layer = bank.group, bank.layer
        source, target = scope.schedule.location(bank.caches), scope.schedule.location(bank.name)
        check_contract(device, source.memory, target.memory, (*path, "queue"))


def _check_tensor(scope: Scope, command: ir.SetInput | ir.GetOutput, path: Path) -> None:
    scope.tensor(command.tensor, (*path, "tensor"))


def _check_queue(scope: Scope, command: ir.Wait | ir.SyncQueue, path: Path) -> None:
    scope.queue(command.queue, (*path, "queue"))


def _check_nothing(scope: Scope, command: ir.Command, path: Path) -> None:
    """Its event was looked at with all the others."""


_CHECK: dict[type[ir.Command], Callable[[Scope, Any, Path], None]] = {
    ir.Compute: _check_compute,
    ir.Copy: _check_copy,
    ir.Prefetch: _check_copy,
    ir.CopyExperts: _check_copy_experts,
    ir.FillBank: _check_fill,
    ir.Callback: check_footprint,
    ir.SetInput: _check_tensor,
    ir.GetOutput: _check_tensor,
    ir.Record: _check_nothing,
    ir.Wait: _check_queue,
    ir.SyncEvent: _check_nothing,
    ir.SyncQueue: _check_queue,
}
