"""What a node reads, means and writes: shared by the sequential run and by replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model.graph import Bank, Graph, Node
from ..model.ops import OPS
from ..model.schedule import Schedule
from .data import UNBOUNDED
from .functions import Operand, UnsupportedOp, apply, mixed, name_bytes, rows_set
from .layout import Layout
from .memory import POISON_BYTE
from .quant import Bytes, from_array


@dataclass(frozen=True, slots=True)
class Written:
    """New bytes of one tensor, in logical order.

    ``mask``: which were written (``None``: all).  ``undefined``: they are poison.
    """

    raw: Bytes
    mask: NDArray[np.bool_] | None = None
    undefined: bool = False


def undefined(targets: Sequence[Layout]) -> tuple[Written, ...]:
    """What a node leaves whose ids index nothing: whatever a kernel does, it is not defined."""
    return tuple(Written(np.full(t.nbytes, POISON_BYTE, np.uint8), None, True) for t in targets)


def read_tensors(node: Node) -> tuple[str, ...]:
    """The tensors that a node names as read: its sources, or what a ``custom`` op declares."""
    return node.src if node.reads is None else node.reads


def written_tensors(node: Node) -> tuple[str, ...]:
    """The tensors that a node writes: its destination, or what a ``custom`` op declares."""
    return (node.dst,) if node.writes is None else node.writes


def names_target(node: Node, index: int) -> bool:
    """Whether a source only says which bytes the node writes into, and is not read."""
    return (node.op, index) in (("set_rows", 2), ("cpy", 1))


def bank_of(graph: Graph, node: Node) -> Bank | None:
    """The bank that a node reads as a source, if any."""
    for source in node.src:
        bank = graph.find_bank(source)
        if bank is not None:
            return bank
    return None


def remaps(graph: Graph, node: Node) -> bool:
    """Whether a node looks up slots: ``get_rows(slot_map, ids)``.  It has no meaning of its own."""
    return node.op == "get_rows" and any(node.src[0] == bank.slot_map for bank in graph.banks)


def selects_slots(schedule: Schedule, bank: Bank, source: str) -> bool:
    """Whether a tensor holds slots of ``bank``: its ``slot_ids``, or looked up in its map."""
    tensor: str | None = source
    while tensor is not None:
        if tensor == bank.slot_ids:
            return True
        node = schedule.graph.find_node(tensor)
        if node is not None and node.op == "get_rows" and node.src[0] == bank.slot_map:
            return bank.slot_map is not None
        tensor = schedule.tensor(tensor).view_of
    return False


def meant_tensors(schedule: Schedule, node: Node) -> tuple[str, ...]:
    """What a node reads in the sequential run: a bank stands for the tensor that it caches,
    its slot ids for the ids."""
    bank = bank_of(schedule.graph, node)
    names = read_tensors(node)
    if bank is None:
        return names
    meant = []
    for name in names:
        if name == bank.name:
            meant.append(bank.caches)
        elif selects_slots(schedule, bank, name):
            meant.append(bank.ids)
        else:
            meant.append(name)
    return tuple(meant)


def evaluate(
    node: Node,
    operands: Sequence[Operand],
    targets: Sequence[Layout],
    old: Bytes | None = None,
    rounded: bool = False,
) -> tuple[Written, ...]:
    """The bytes that a node writes to each of its written tensors.

    ``old``: what the destination holds, for an op that updates it.  ``rounded``: activations are
    rounded where the weights are quantised, as kernels do.  ``UnsupportedOp`` for an op
    without a reference, ``OutOfRange`` for an id that indexes nothing.
    """
    for layout in targets:
        if not layout.known:
            raise UnsupportedOp(f"{node.op} {node.dst}: only the size of {layout.name} is known")
    if node.op == "custom":
        raws = [operand.raw for operand in operands]
        return tuple(
            Written(
                from_array(
                    t.dtype,
                    mixed(
                        [name_bytes(t.name), *raws],
                        t.ne,
                        t.dtype.integer,
                        t.values or (0, UNBOUNDED),
                    ),
                )
            )
            for t in targets
        )
    target = targets[0]
    if node.op == "set_rows":
        assert old is not None
        return (_update_rows(node, operands, target, old),)
    if node.op not in OPS:
        raise UnsupportedOp(f"{node.op} ({node.dst}) is no op of the table")
    return (Written(from_array(target.dtype, apply(operands, node, target.ne, rounded))),)


def _update_rows(node: Node, operands: Sequence[Operand], target: Layout, old: Bytes) -> Written:
    row_bytes = target.counts[0] * target.dtype.block_bytes
    rows = old.copy().reshape(target.ne[3], target.ne[2], target.ne[1], row_bytes)
    mask = np.zeros(rows.shape, bool)
    for row, plane, cube, values in rows_set(operands, node, target.ne):
        rows[cube, plane, row] = from_array(target.dtype, values.reshape(-1, 1, 1, 1))
        mask[cube, plane, row] = True
    return Written(rows.reshape(-1), mask.reshape(-1))
