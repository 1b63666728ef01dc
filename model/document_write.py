"""From the IR back to a document: pretty for people, canonical for the digest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache
from typing import Any, get_args

import msgspec

from . import command as ir
from . import document_form as form
from .device import CopyRule, Device, OpPattern, SizeRange
from .graph import Bank, Node
from .schedule import Schedule, Split
from .symbol import Condition, Expr
from .tensor import Tensor


def to_dict(schedule: Schedule) -> dict[str, Any]:
    """The document of a schedule; ``from_dict`` of it gives an equal schedule back.

    What has its default value is left out.
    """
    return _brief(_document(schedule))


def dumps(schedule: Schedule) -> str:
    """The document as JSON text: what is small stands on one line; a line feed ends it."""
    return _pretty(to_dict(schedule), "", 0) + "\n"


def canonical(schedule: Schedule) -> bytes:
    """The document as bytes that depend on its meaning alone.

    Defaults are filled in, keys sorted, sizes in normal form; ``name`` is dropped.
    """
    document = _document(schedule)
    del document["name"]
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(schedule: Schedule) -> str:
    """SHA-256 of the canonical document, in hexadecimal."""
    return hashlib.sha256(canonical(schedule)).hexdigest()


# -- every key, defaults included -------------------------------------------------------------


def _document(schedule: Schedule) -> dict[str, Any]:
    graph = schedule.graph
    document: dict[str, Any] = {
        "format": form.FORMAT,
        "name": schedule.name,
        "symbols": {name: [low, high] for name, low, high in graph.symbols},
        "memories": {m.name: {"host": m.host, "bytes": m.bytes} for m in graph.memories},
        "devices": [_device(d) for d in graph.devices],
        "buffers": {
            b.name: {"memory": b.memory, "usage": str(b.usage), "bytes": b.bytes}
            for b in graph.buffers
        },
        "tensors": {t.name: _tensor(t) for t in graph.tensors},
        "nodes": [_node(n) for n in graph.nodes],
        "banks": {b.name: _bank(b) for b in graph.banks},
        "op_offload": graph.op_offload,
        "n_copies": graph.n_copies,
    }
    if schedule.splits is not None or schedule.assignment or schedule.placements:
        document["assignment"] = dict(schedule.assignment)
        document["placements"] = {
            name: [buffer, _size(offset)] for name, buffer, offset in schedule.placements
        }
    if schedule.splits is not None:
        document["splits"] = [_split(s) for s in schedule.splits]
    if schedule.program is not None:
        document["program"] = [_command(c) for c in schedule.program]
    document["repeat"] = schedule.repeat
    return document


def _size(expr: Expr) -> int | str:
    constant = expr.constant
    return constant if constant is not None else str(expr)


def _sizes(exprs: tuple[Expr, ...] | None) -> list[int | str] | None:
    return None if exprs is None else [_size(e) for e in exprs]


def _when(condition: Condition) -> str | None:
    return str(condition) if condition.parts else None


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _device(device: Device) -> dict[str, Any]:
    over_read: dict[str, dict[str, int]] = {}
    for op, kind, count in device.over_read:
        over_read.setdefault(op, {})[kind] = count
    return {
        "name": device.name,
        "memory": device.memory,
        "reads": list(device.reads),
        "async": device.asynchronous,
        "copy": _copy_rules(device.copy),
        "events": device.events,
        "queues": list(device.queues),
        "ops": None if device.ops is None else [_pattern(p) for p in device.ops],
        "deny": [_pattern(p) for p in device.deny],
        "offload_min_tokens": device.offload_min_tokens,
        "over_read": over_read,
        "waits_for": _list(device.waits_for),
        "in_place": [{"op": p.op, "src": p.source} for p in device.in_place],
    }


def _copy_rules(rules: tuple[CopyRule, ...]) -> str | list[dict[str, str]]:
    if len(rules) == 1 and rules[0].source is None and rules[0].target is None:
        return str(rules[0].contract)
    pairs = ((("from", r.source), ("to", r.target), ("is", str(r.contract))) for r in rules)
    return [{key: value for key, value in pair if value is not None} for pair in pairs]


def _pattern(pattern: OpPattern) -> dict[str, Any]:
    written: dict[str, Any] = {"op": pattern.op, **dict(pattern.dtypes)}
    ne: dict[str, list[int | str | None]] = {}
    for operand, dim, bound in pattern.ne:
        sizes = ne.setdefault(operand, [])
        sizes.extend([None] * (dim + 1 - len(sizes)))
        sizes[dim] = _bound(bound)
    if ne:
        written["ne"] = ne
    return written


def _bound(bound: SizeRange) -> int | str | None:
    if bound.low is not None and bound.low == bound.high:
        return bound.low
    low = None if bound.low is None else f">= {bound.low}"
    high = None if bound.high is None else f"<= {bound.high}"
    return " and ".join(part for part in (low, high) if part is not None) or None


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "dtype": tensor.dtype,
        "shape": _sizes(tensor.shape) or None,
        "strides": _sizes(tensor.strides),
        "view_of": tensor.view_of,
        "buffer": tensor.buffer,
        "offset": None if tensor.offset is None else _size(tensor.offset),
        "input": tensor.input,
        "output": tensor.output,
        "pin": tensor.pin,
        "values": None if tensor.values is None else list(tensor.values),
        "about": tensor.about,
        "bytes": tensor.bytes,
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "op": node.op,
        "dst": node.dst,
        "src": list(node.src),
        "params": {k: list(v) if isinstance(v, tuple) else v for k, v in node.params},
        "when": _when(node.when),
        "supported_by": _list(node.supported_by),
        "wanted_by": _list(node.wanted_by),
        "reads": _list(node.reads),
        "writes": _list(node.writes),
    }


def _bank(bank: Bank) -> dict[str, Any]:
    return {
        "caches": bank.caches,
        "layer": bank.layer,
        "role": bank.role,
        "group": bank.group,
        "slots": bank.slots,
        "policy": bank.policy,
        "ids": bank.ids,
        "slot_ids": bank.slot_ids,
        "slot_map": bank.slot_map,
        "when": _when(bank.when),
    }


def _split(split: Split) -> dict[str, Any]:
    callbacks = []
    for callback in split.callbacks:
        written = _command(callback)
        # What it is, and where it is called, is said by where it stands.
        del written["do"], written["split"]
        callbacks.append(written)
    return {
        "device": split.device,
        "nodes": [split.start, split.end],
        "inputs": list(split.inputs),
        "callbacks": callbacks,
    }


def _command(command: ir.Command) -> dict[str, Any]:
    written: dict[str, Any] = {"do": command.do}
    for key in _KEYS[type(command)]:
        value = getattr(command, key)
        if key == "bind":
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        written[key] = value
    written["split"] = command.split
    written["when"] = _when(command.when)
    return written


#: The keys of each command in a document are the fields of its class.
_KEYS: dict[type[ir.Command], tuple[str, ...]] = {
    kind: tuple(f.name for f in dataclasses.fields(kind) if f.name not in ("when", "split"))
    for kind in ir.COMMANDS.values()
}

# -- defaults left out ------------------------------------------------------------------------


def _brief(document: dict[str, Any]) -> dict[str, Any]:
    """The document without what has its default value: the struct of each entry says which."""
    brief = dict(document)
    for key, struct in (
        ("memories", form.MemoryForm),
        ("buffers", form.BufferForm),
        ("tensors", form.TensorForm),
        ("banks", form.BankForm),
    ):
        brief[key] = {name: _drop(entry, struct) for name, entry in document[key].items()}
    brief["devices"] = [_drop(entry, form.DeviceForm) for entry in document["devices"]]
    brief["nodes"] = [_drop(entry, form.NodeForm) for entry in document["nodes"]]
    if "splits" in brief:
        brief["splits"] = [_brief_split(entry) for entry in document["splits"]]
    for key in ("assignment", "placements"):
        if not brief.get(key):
            brief.pop(key, None)
    if "program" in brief:
        brief["program"] = [_drop(c, _STRUCTS[c["do"]]) for c in document["program"]]
    return _drop(brief, form.DocumentForm)


def _brief_split(split: dict[str, Any]) -> dict[str, Any]:
    callbacks = [_drop(entry, form.SplitCallbackForm) for entry in split["callbacks"]]
    return _drop({**split, "callbacks": callbacks}, form.SplitForm)


def _drop(entry: dict[str, Any], struct: type) -> dict[str, Any]:
    defaults = _defaults(struct)
    return {k: v for k, v in entry.items() if k not in defaults or v != defaults[k]}


@cache
def _defaults(struct: type) -> dict[str, Any]:
    defaults = {}
    for field in msgspec.structs.fields(struct):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.encode_name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.encode_name] = field.default_factory()
    return defaults


_STRUCTS: dict[str, type] = {
    struct.__struct_config__.tag: struct for struct in get_args(form.AnyCommandForm)
}

# -- text -------------------------------------------------------------------------------------

_WIDTH = 100


def _pretty(value: Any, indent: str, before: int) -> str:
    """JSON with everything on one line that fits there; ``before``: columns already taken."""
    deeper = indent + "  "
    if isinstance(value, dict | list) and value:
        small = len(value) <= 40 and indent
        line = _line(value) if small else None
        if line is not None and len(indent) + before + len(line) < _WIDTH:
            return line
        if isinstance(value, list):
            items = [deeper + _pretty(item, deeper, 0) for item in value]
            return "[\n" + ",\n".join(items) + f"\n{indent}]"
        items = []
        for key, item in value.items():
            name = _line(key) + ": "
            items.append(deeper + name + _pretty(item, deeper, len(name)))
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
