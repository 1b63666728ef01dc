"""What must hold of a document before it means anything: names, ranges, sizes, order.

Whether the schedule is *right* is the checker's to say.  What is refused here has no meaning
at all: nothing could be checked or run.
"""

from __future__ import annotations

from .device import Device
from .document_check_graph import check_banks, check_nodes
from .document_check_program import check_contract, check_footprint, check_program
from .document_check_tensor import check_placements, check_tensors
from .document_scope import Scope, dangling, unique
from .fault import Fault, Path, quote
from .schedule import Schedule, Split
from .symbol import is_symbol_name


def check_document(schedule: Schedule) -> None:
    """Raise ``Fault`` at the first place where the schedule has no meaning."""
    scope = Scope(schedule)
    _check_symbols(scope)
    _check_names(scope)
    for i, device in enumerate(schedule.graph.devices):
        _check_device(scope, device, ("devices", i))
    for buffer in schedule.graph.buffers:
        scope.memory(buffer.memory, ("buffers", buffer.name, "memory"))
    check_tensors(scope)
    check_nodes(scope)
    check_banks(scope)
    _check_assignment(scope)
    check_placements(scope)
    for i, split in enumerate(schedule.splits or ()):
        _check_split(scope, split, ("splits", i))
    if schedule.level == "program":
        check_program(scope)
    elif schedule.level == "split":
        _check_lowered_copies(scope)


def _check_symbols(scope: Scope) -> None:
    for name, (low, high) in scope.ranges.items():
        path: Path = ("symbols", name)
        if not is_symbol_name(name):
            raise Fault(
                path,
                f"{quote(name)} is no name of a symbol; letters, digits and _ were due, "
                "and neither 'pass' nor 'and'",
                at_key=True,
            )
        if low > high:
            raise Fault(path, f"the range is empty: {low} is greater than {high}")


def _check_names(scope: Scope) -> None:
    graph = scope.graph
    for key, names in (
        ("memories", scope.memories),
        ("buffers", scope.buffers),
        ("tensors", (t.name for t in graph.tensors)),
    ):
        if "" in names:
            raise Fault((key, ""), "a name is empty", at_key=True)
    unique((d.name for d in graph.devices), lambda i: ("devices", i, "name"), "devices")


def _check_device(scope: Scope, device: Device, path: Path) -> None:
    name_at = (*path, "name")
    if device.name == "host":
        raise Fault(name_at, 'a device is not called "host": that is the host\'s queue')
    if "#" in device.name:
        raise Fault(name_at, "a device's name has no '#': DEVICE#TENSOR names a copy")
    scope.memory(device.memory, (*path, "memory"))
    for i, memory in enumerate(device.reads):
        scope.memory(memory, (*path, "reads", i))
    for i, queue in enumerate(device.queues):
        if "." in queue:
            at = (*path, "queues", i)
            raise Fault(at, f"{quote(queue)} has a dot; DEVICE.QUEUE is split at the last one")
    unique(device.queues, lambda i: (*path, "queues", i), "queues")
    pairs: set[tuple[str | None, str | None]] = set()
    for i, rule in enumerate(device.copy):
        at = (*path, "copy", i)
        for key, memory_name in (("from", rule.source), ("to", rule.target)):
            if memory_name is not None:
                scope.memory(memory_name, (*at, key))
        if (rule.source, rule.target) in pairs:
            raise Fault(at, "a second contract for the same pair of memories")
        pairs.add((rule.source, rule.target))
    scope.each_device(device.waits_for, (*path, "waits_for"))


def _check_assignment(scope: Scope) -> None:
    for name, device in scope.schedule.assignment:
        path: Path = ("assignment", name)
        if scope.graph.find_tensor(name) is None:
            known = (t.name for t in scope.graph.tensors)
            fault = dangling("tensor", name, path, known)
            raise Fault(path, fault.message, at_key=True)
        scope.device(device, path)


def _check_split(scope: Scope, split: Split, path: Path) -> None:
    scope.device(split.device, (*path, "device"))
    count = len(scope.graph.nodes)
    if not split.start <= split.end <= count:
        at = (*path, "nodes")
        raise Fault(at, f"[{split.start}, {split.end}) is no range of the {count} node(s)")
    for i, name in enumerate(split.inputs):
        scope.declared(name, (*path, "inputs", i))
    for i, callback in enumerate(split.callbacks):
        at = (*path, "callbacks", i)
        scope.guard(callback.when, at)
        check_footprint(scope, callback, at)


def _check_lowered_copies(scope: Scope) -> None:
    """The copies that the plain lowering makes of the inputs have a contract."""
    for i, split in enumerate(scope.schedule.splits or ()):
        device = scope.devices[split.device]
        for j, name in enumerate(split.inputs):
            source = scope.schedule.location(name).memory
            runs_on: Device | None = device
            if not device.asynchronous:
                runs_on = next((d for d in scope.graph.devices if d.memory == source), None)
            check_contract(runs_on, source, device.memory, ("splits", i, "inputs", j))
