"""Nodes and banks: sources before results, shapes that fit, banks that mirror what they cache."""

from __future__ import annotations

from collections.abc import Iterable

from .document_scope import Scope
from .fault import Fault, Path, meant, quote
from .graph import Bank, Node
from .ops import OPS, ShapeError, check_shapes
from .tensor import Tensor


def check_nodes(scope: Scope) -> None:
    nodes = scope.graph.nodes
    first: dict[str, int] = {}
    for i, node in enumerate(nodes):
        path: Path = ("nodes", i)
        scope.declared(node.dst, (*path, "dst"))
        if node.dst in first:
            at = (*path, "dst")
            raise Fault(at, f"node {first[node.dst]} computes {quote(node.dst)} already")
        first[node.dst] = i
    for i, node in enumerate(nodes):
        _check_node(scope, node, i)


def _check_node(scope: Scope, node: Node, index: int) -> None:
    path: Path = ("nodes", index)
    sources: list[Tensor] = []
    for j, name in enumerate(node.src):
        sources.append(scope.declared(name, (*path, "src", j)))
        later = scope.graph._index["position"].get(name, -1)
        if later >= index:
            raise Fault((*path, "src", j), _order_message(scope, node, index, name, later))
    scope.guard(node.when, path)
    scope.each_device(node.supported_by, (*path, "supported_by"))
    scope.each_device(node.wanted_by, (*path, "wanted_by"))
    for key, names in (("reads", node.reads), ("writes", node.writes)):
        if names is not None and node.op != "custom":
            raise Fault((*path, key), f'only the op "custom" declares {key}')
        for j, name in enumerate(names or ()):
            scope.declared(name, (*path, key, j))
    slots = node.param("src_slot")
    if slots is not None and not _are_slots(slots, len(node.src)):
        due = f"{len(node.src)} different numbers of slots, one per source, were due"
        raise Fault((*path, "params", "src_slot"), f"found {slots!r}; {due}")
    dst = scope.graph.tensor(node.dst)
    try:
        check_shapes(OPS[node.op], _settled(scope, dst), [_settled(scope, s) for s in sources])
    except ShapeError as error:
        raise Fault(path, str(error)) from None
    if OPS[node.op].view and sources:
        _check_view_node(scope, node, path)


def _are_slots(found: object, sources: int) -> bool:
    return (
        isinstance(found, tuple)
        and all(type(slot) is int and slot >= 0 for slot in found)
        and len(found) == len(set(found)) == sources
    )


def _settled(scope: Scope, tensor: Tensor) -> Tensor:
    """The tensor with symbols of a single value put in, so that equal sizes look equal."""
    if not scope.fixed:
        return tensor
    shape = tuple(size.substitute(scope.fixed) for size in tensor.shape)
    return tensor if shape == tensor.shape else Tensor(tensor.name, tensor.dtype, shape)


def _order_message(scope: Scope, node: Node, index: int, source: str, later: int) -> str:
    """Whether a source that stands later can stand earlier at all."""
    came_from: dict[str, str] = {source: node.dst}
    waiting = [source]
    while waiting:
        name = waiting.pop()
        if name == node.dst:
            chain = [name]
            while chain[-1] != node.dst or len(chain) == 1:
                chain.append(came_from[chain[-1]])
            return "the nodes form a cycle: " + " reads ".join(_cut(reversed(chain)))
        before = scope.graph.find_node(name)
        for other in before.src if before is not None else ():
            if other not in came_from:
                came_from[other] = name
                waiting.append(other)
    return (
        f"node {later} computes {quote(source)}, after node {index} that reads it; "
        "nodes stand in topological order"
    )


def _cut(names: Iterable[str], limit: int = 8) -> list[str]:
    shown = list(names)
    return shown if len(shown) <= limit else [*shown[: limit - 2], "…", shown[-1]]


def _check_view_node(scope: Scope, node: Node, path: Path) -> None:
    """The result of a view op is a view of what its source is a view of."""
    at = (*path, "dst")
    if scope.graph.tensor(node.dst).view_of is None:
        raise Fault(at, f'{node.op} computes nothing: {quote(node.dst)} needs "view_of"')
    found, due = scope.graph.base(node.dst).name, scope.graph.base(node.src[0]).name
    if found != due:
        raise Fault(at, f"it is a view of {quote(found)}, its source of {quote(due)}")


# -- banks ------------------------------------------------------------------------------------


def check_banks(scope: Scope) -> None:
    roles: dict[tuple[str, int, str], str] = {}
    models: dict[tuple[str, str], Bank] = {}
    groups: dict[str, Bank] = {}
    for bank in scope.graph.banks:
        path: Path = ("banks", bank.name)
        _check_bank(scope, bank, path)
        key = bank.group, bank.layer, bank.role
        if key in roles:
            message = f"{quote(roles[key])} has role {bank.role} of layer {bank.layer} already"
            raise Fault((*path, "role"), message)
        roles[key] = bank.name
        group = groups.setdefault(bank.group, bank)
        for field in ("slots", "policy"):
            found, due = getattr(bank, field), getattr(group, field)
            if found != due:
                message = f"{found}; {quote(group.name)} of the same group has {due}"
                raise Fault((*path, field), message)
        _check_same_slots(scope, bank, models.setdefault((bank.group, bank.role), bank), path)


def _check_bank(scope: Scope, bank: Bank, path: Path) -> None:
    if scope.graph.find_tensor(bank.name) is None:
        known = (t.name for t in scope.graph.tensors)
        message = f'the bank is no tensor: {quote(bank.name)} has no entry in "tensors"'
        raise Fault(path, message + meant(bank.name, known), at_key=True)
    slots = scope.graph.tensor(bank.name)
    cached = scope.declared(bank.caches, (*path, "caches"))
    ids = scope.declared(bank.ids, (*path, "ids"))
    scope.integers(ids, (*path, "ids"), "ids")
    scope.guard(bank.when, path)
    if (bank.slot_ids is None) == (bank.slot_map is None):
        raise Fault(path, 'one of "slot_ids" and "slot_map" was due')
    if cached.shape and slots.shape:
        if slots.dtype != cached.dtype or slots.shape[:-1] != cached.shape[:-1]:
            due = f"{cached.dtype} of {_shape(cached, 'slots')}"
            found = f"{slots.dtype} of {_shape(slots)}"
            raise Fault(path, f"the slots are {found}; experts of {quote(cached.name)} need {due}")
        last = slots.shape[-1].constant
        if last is None or last < bank.slots:
            message = f"{bank.slots} slots in a tensor of {slots.shape[-1]}"
            raise Fault((*path, "slots"), message)
    if bank.slot_ids is not None:
        at = (*path, "slot_ids")
        slot_ids = scope.declared(bank.slot_ids, at)
        scope.integers(slot_ids, at, "slot ids")
        if slot_ids.shape and ids.shape and slot_ids.ne != ids.ne:
            raise Fault(
                at, f"its shape is {_shape(slot_ids)}; that of the ids, {_shape(ids)}, was due"
            )
    if bank.slot_map is not None:
        _check_slot_map(scope, bank.slot_map, cached, (*path, "slot_map"))


def _check_slot_map(scope: Scope, name: str, cached: Tensor, path: Path) -> None:
    slot_map = scope.declared(name, path)
    experts = cached.shape[-1] if cached.shape else None
    if slot_map.dtype != "i32" or (
        slot_map.shape and (slot_map.ne[0].constant != 1 or experts not in (None, slot_map.ne[1]))
    ):
        due = f"i32 of [1, {experts}]"
        raise Fault(path, f"{slot_map.dtype} of {_shape(slot_map)}; {due} was due")


def _check_same_slots(scope: Scope, bank: Bank, model: Bank, path: Path) -> None:
    """Banks of one group and role are the same bytes."""
    mine, due = scope.graph.tensor(bank.name), scope.graph.tensor(model.name)
    if mine.dtype != due.dtype or mine.shape != due.shape:
        found = f"{mine.dtype} of {_shape(mine)}"
        raise Fault(
            path, f"{found}; {quote(due.name)} of its group is {due.dtype} of {_shape(due)}"
        )
    here, there = scope.schedule.location(bank.name), scope.schedule.location(model.name)
    if bank is not model and (here.space, here.offset) != (there.space, there.offset):
        message = f"its slots are not the bytes of {quote(due.name)}, of the same group and role"
        raise Fault(path, message)


def _shape(tensor: Tensor, last: str | None = None) -> str:
    sizes = [str(size) for size in tensor.shape]
    if last is not None:
        sizes[-1] = last
    return "[" + ", ".join(sizes) + "]"
