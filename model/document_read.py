"""From the structs of a document to the IR: names stay names, sizes become expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from . import command as ir
from . import document_form as form
from .device import (
    Buffer,
    Contract,
    CopyRule,
    Device,
    InPlace,
    Memory,
    OpPattern,
    SizeRange,
    Usage,
)
from .fault import Fault, Path, meant, quote
from .graph import Bank, Graph, Node
from .ops import OPS
from .schedule import Schedule, Split
from .symbol import ALWAYS, Condition, Expr, SymbolError
from .tensor import COMMON, Tensor, dtypes


def read_schedule(document: form.DocumentForm) -> Schedule:
    """The schedule of a decoded document.  ``Fault`` names the place of what does not fit."""
    _check_level(document)
    graph = Graph(
        symbols=tuple((name, low, high) for name, (low, high) in document.symbols.items()),
        memories=tuple(Memory(name, m.host, m.bytes) for name, m in document.memories.items()),
        devices=tuple(_device(d, ("devices", i)) for i, d in enumerate(document.devices)),
        buffers=tuple(
            Buffer(name, b.memory, Usage(b.usage), b.bytes) for name, b in document.buffers.items()
        ),
        tensors=_tensors(document.tensors),
        nodes=tuple(_node(n, ("nodes", i)) for i, n in enumerate(document.nodes)),
        banks=tuple(_bank(name, b, ("banks", name)) for name, b in document.banks.items()),
        op_offload=document.op_offload,
        n_copies=document.n_copies,
    )
    splits = program = None
    if document.splits is not None:
        splits = tuple(_split(s, i) for i, s in enumerate(document.splits))
    if document.program is not None:
        program = tuple(_command(c, ("program", i)) for i, c in enumerate(document.program))
    return Schedule(
        graph=graph,
        name=document.name,
        assignment=tuple((document.assignment or {}).items()),
        splits=splits,
        placements=tuple(
            (name, buffer, _expr(offset, ("placements", name, 1)))
            for name, (buffer, offset) in (document.placements or {}).items()
        ),
        program=program,
        repeat=document.repeat,
    )


def _check_level(document: form.DocumentForm) -> None:
    """A level has the keys of the levels below it."""
    if document.splits is not None:
        return
    for key in ("program", "assignment", "placements"):
        if getattr(document, key) is not None:
            raise Fault((key,), f'{quote(key)} goes with "splits", which is missing')


def _expr(value: int | str, path: Path) -> Expr:
    try:
        return Expr.of(value)
    except SymbolError as error:
        raise Fault(path, str(error)) from None


def _exprs(values: list[int | str], path: Path) -> tuple[Expr, ...]:
    try:
        return tuple(map(Expr.of, values))
    except SymbolError:
        return tuple(_expr(v, (*path, i)) for i, v in enumerate(values))


def _when(text: str | None, path: Path) -> Condition:
    if text is None:
        return ALWAYS
    try:
        return Condition.of(text)
    except SymbolError as error:
        raise Fault((*path, "when"), str(error)) from None


def _names(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _dtype(name: str, path: Path) -> str:
    lower = name.lower()
    if lower not in COMMON and lower not in dtypes():
        raise Fault(path, f"unknown dtype {quote(name)}{meant(lower, dtypes())}")
    return lower


def known_op(name: str, path: Path) -> str:
    if name not in OPS:
        raise Fault(path, f"unknown op {quote(name)}{meant(name.lower(), OPS)}")
    return name


# -- devices ----------------------------------------------------------------------------------


def _device(device: form.DeviceForm, path: Path) -> Device:
    copy = device.copy
    if isinstance(copy, str):
        rules: tuple[CopyRule, ...] = (CopyRule(None, None, Contract(copy)),)
    else:
        rules = tuple(CopyRule(c.source, c.target, Contract(c.contract)) for c in copy)
    return Device(
        name=device.name,
        memory=device.memory,
        reads=tuple(device.reads),
        asynchronous=device.asynchronous,
        copy=rules,
        events=device.events,
        queues=tuple(device.queues),
        ops=None if device.ops is None else _patterns(device.ops, (*path, "ops")),
        deny=_patterns(device.deny, (*path, "deny")),
        offload_min_tokens=device.offload_min_tokens,
        over_read=tuple(
            (
                known_op(op, (*path, "over_read", op)),
                _dtype(kind, (*path, "over_read", op, kind)),
                count,
            )
            for op, kinds in device.over_read.items()
            for kind, count in kinds.items()
        ),
        waits_for=_names(device.waits_for),
        in_place=tuple(
            InPlace(known_op(p.op, (*path, "in_place", i, "op")), p.src)
            for i, p in enumerate(device.in_place)
        ),
    )


def _patterns(patterns: list[Any], path: Path) -> tuple[OpPattern, ...]:
    return tuple(_pattern(p, (*path, i)) for i, p in enumerate(patterns))


def _pattern(pattern: Any, path: Path) -> OpPattern:
    if pattern.op != "*":
        known_op(pattern.op, (*path, "op"))
    kinds = ((operand, getattr(pattern, operand)) for operand in form.OPERANDS)
    ne: list[tuple[str, int, SizeRange]] = []
    for operand, bounds in pattern.ne.items():
        at = (*path, "ne", operand)
        if operand not in form.OPERANDS:
            raise Fault(at, f"unknown operand {quote(operand)}; dst, src0, src1, … was due")
        if len(bounds) > 4:
            raise Fault(at, f"{len(bounds)} sizes; a tensor has at most 4")
        for dim, bound in enumerate(bounds):
            if bound is not None:
                ne.append((operand, dim, _size_range(bound, (*at, dim))))
    return OpPattern(
        pattern.op,
        tuple((operand, _dtype(k, (*path, operand))) for operand, k in kinds if k is not None),
        tuple(ne),
    )


_BOUND = re.compile(r"\s*(<=|>=|==|<|>)\s*(\d{1,18})\s*")


def _size_range(bound: int | str, path: Path) -> SizeRange:
    """``"<= 256"``, ``">= 2 and <= 8"``, or one size."""
    if isinstance(bound, int):
        return SizeRange(bound, bound)
    low: int | None = None
    high: int | None = None
    for part in bound.split(" and "):
        match = _BOUND.fullmatch(part)
        if match is None:
            raise Fault(path, f'{quote(bound)} is no bound; one such as "<= 256" was due')
        op, size = match[1], int(match[2])
        if op in (">", ">=", "=="):
            least = size + (op == ">")
            low = least if low is None else max(low, least)
        if op in ("<", "<=", "=="):
            most = size - (op == "<")
            high = most if high is None else min(high, most)
    if low is not None and high is not None and low > high:
        raise Fault(path, f"{quote(bound)} holds for no size")
    return SizeRange(low, high)


# -- tensors, nodes, banks ------------------------------------------------------------------


def _tensors(forms: dict[str, form.TensorForm]) -> tuple[Tensor, ...]:
    return tuple(_tensor(name, t, forms) for name, t in forms.items())


def _tensor(name: str, tensor: form.TensorForm, forms: dict[str, form.TensorForm]) -> Tensor:
    path: Path = ("tensors", name)
    offset = tensor.offset
    if offset is None and tensor.view_of is not None and not tensor.about:
        offset = 0
    return Tensor(
        name=name,
        dtype=_tensor_dtype(name, tensor, forms),
        shape=() if tensor.shape is None else _exprs(tensor.shape, (*path, "shape")),
        strides=None if tensor.strides is None else _exprs(tensor.strides, (*path, "strides")),
        view_of=tensor.view_of,
        buffer=tensor.buffer,
        offset=None if offset is None else _expr(offset, (*path, "offset")),
        input=tensor.input,
        output=tensor.output,
        pin=tensor.pin,
        values=tensor.values,
        about=tensor.about,
        bytes=tensor.bytes,
    )


def _tensor_dtype(name: str, tensor: form.TensorForm, forms: dict[str, form.TensorForm]) -> str:
    """Its own dtype, or for a view without one its base's; ``f32`` if only its size is known."""
    chain = [name]
    while tensor.dtype is None:
        base = tensor.view_of
        if base is None:
            if tensor.about:
                return "f32"
            raise Fault(("tensors", chain[-1]), 'the key "dtype" is missing')
        at: Path = ("tensors", chain[-1], "view_of")
        if base not in forms:
            raise Fault(at, f"there is no tensor {quote(base)}{meant(base, forms)}")
        if base in chain:
            raise Fault(at, "a view of itself: " + " → ".join([*chain, base]))
        chain.append(base)
        tensor = forms[base]
    return _dtype(tensor.dtype, ("tensors", chain[-1], "dtype"))


def _node(node: form.NodeForm, path: Path) -> Node:
    return Node(
        op=known_op(node.op, (*path, "op")),
        dst=node.dst,
        src=tuple(node.src),
        params=tuple((k, _param(v, (*path, "params", k))) for k, v in node.params.items()),
        when=_when(node.when, path),
        supported_by=_names(node.supported_by),
        wanted_by=_names(node.wanted_by),
        reads=_names(node.reads),
        writes=_names(node.writes),
    )


def _param(value: Any, path: Path) -> Any:
    if isinstance(value, list):
        return tuple(_param(v, (*path, i)) for i, v in enumerate(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise Fault(path, f"{value} is not finite")
    return value


def _bank(name: str, bank: form.BankForm, path: Path) -> Bank:
    return Bank(
        name=name,
        caches=bank.caches,
        layer=bank.layer,
        role=bank.role,
        group=bank.group,
        slots=bank.slots,
        ids=bank.ids,
        policy=bank.policy,
        slot_ids=bank.slot_ids,
        slot_map=bank.slot_map,
        when=_when(bank.when, path),
    )


# -- splits and commands ----------------------------------------------------------------------


def _split(split: form.SplitForm, index: int) -> Split:
    callbacks = tuple(
        ir.Callback(
            name=c.name, reads=_names(c.reads), writes=_names(c.writes), split=index,
            when=_when(c.when, ("splits", index, "callbacks", i)),
        )
        for i, c in enumerate(split.callbacks)
    )  # fmt: skip
    return Split(split.device, split.nodes[0], split.nodes[1], tuple(split.inputs), callbacks)


def _command(command: form.AnyCommandForm, path: Path) -> ir.Command:
    return _READ[type(command)](command, _when(command.when, path))


def _compute(c: form.ComputeForm, when: Condition) -> ir.Command:
    return ir.Compute(
        node=c.node, queue=c.queue, bind=tuple(c.bind.items()), copy=c.copy,
        split=c.split, when=when,
    )  # fmt: skip


def _copy(c: form.CopyCommandForm, when: Condition) -> ir.Command:
    return ir.Copy(
        src=c.src, dst=c.dst, queue=c.queue, for_split=c.for_split, split=c.split, when=when
    )


def _prefetch(c: form.PrefetchForm, when: Condition) -> ir.Command:
    return ir.Prefetch(
        src=c.src, dst=c.dst, queue=c.queue, for_split=c.for_split, split=c.split, when=when
    )


def _copy_experts(c: form.CopyExpertsForm, when: Condition) -> ir.Command:
    return ir.CopyExperts(
        src=c.src, dst=c.dst, queue=c.queue, ids=c.ids, padding=c.padding,
        used_from=c.used_from, for_split=c.for_split, split=c.split, when=when,
    )  # fmt: skip


def _fill_bank(c: form.FillBankForm, when: Condition) -> ir.Command:
    return ir.FillBank(
        banks=tuple(c.banks), ids=c.ids, queue=c.queue, slot_ids=c.slot_ids,
        slot_map=c.slot_map, split=c.split, when=when,
    )  # fmt: skip


def _callback(c: form.CallbackForm, when: Condition) -> ir.Command:
    return ir.Callback(
        name=c.name, reads=_names(c.reads), writes=_names(c.writes), split=c.split, when=when
    )


_READ: dict[type, Callable[[Any, Condition], ir.Command]] = {
    form.ComputeForm: _compute,
    form.CopyCommandForm: _copy,
    form.PrefetchForm: _prefetch,
    form.CopyExpertsForm: _copy_experts,
    form.FillBankForm: _fill_bank,
    form.CallbackForm: _callback,
    form.SetInputForm: lambda c, w: ir.SetInput(tensor=c.tensor, split=c.split, when=w),
    form.GetOutputForm: lambda c, w: ir.GetOutput(tensor=c.tensor, split=c.split, when=w),
    form.RecordForm: lambda c, w: ir.Record(event=c.event, queue=c.queue, split=c.split, when=w),
    form.WaitForm: lambda c, w: ir.Wait(event=c.event, queue=c.queue, split=c.split, when=w),
    form.SyncEventForm: lambda c, w: ir.SyncEvent(event=c.event, split=c.split, when=w),
    form.SyncQueueForm: lambda c, w: ir.SyncQueue(queue=c.queue, split=c.split, when=w),
}
