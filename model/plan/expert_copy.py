"""Selective expert copy: of a host weight only the experts that the router chose.

The ids are read back by the host before the upload, so this pays where few experts are used and
the ids are there early.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Node
from ..schedule import Schedule, Split
from .operands import Operands

#: Bytes that follow each run of experts: CUDA's quantised kernels read past an expert's end.
PADDING = 512


@dataclass(frozen=True, slots=True)
class Selection:
    """How one input is copied: by these ids, or by the used set of another input's copy.

    ``padding``: bytes after each run.
    """

    ids: str
    same_as: str | None
    padding: int


@dataclass(frozen=True, slots=True)
class CopyGuards:
    """What makes a selective copy right; each can be switched off in a test."""

    #: ids that the same split computes cannot choose its inputs
    ids_before_split: bool = True
    #: a used set serves the weights that the same ids index, and no others
    same_ids: bool = True


ALL_COPY_GUARDS = CopyGuards()


def selections(
    schedule: Schedule, guards: CopyGuards = ALL_COPY_GUARDS
) -> dict[tuple[int, str], Selection]:
    """The inputs that can be copied selectively, by ``(split, tensor)``.

    An input qualifies if it is a host weight whose only reader in the split is one
    ``mul_mat_id``, and if no node of the split computes the ids.  Weights that the same ids
    index (gate, up and down of a layer) share one used set.
    """
    operands = Operands(schedule)
    found: dict[tuple[int, str], Selection] = {}
    #: used sets by (device, ids, number of experts)
    first: dict[tuple[str, str, str], str] = {}
    for index, split in enumerate(schedule.splits or ()):
        for name in operands.inputs(split):
            node = _reader(operands, split, name)
            if node is None or not operands.host_weight(name):
                continue
            ids = node.src[2]
            if guards.ids_before_split and _computed_here(schedule, split, ids):
                continue
            tensor = schedule.tensor(name)
            key = split.device, ids if guards.same_ids else "", str(tensor.ne[2])
            stride = tensor.nb[2].constant if len(tensor.shape) > 2 else None
            if stride is None:
                continue
            found[index, name] = Selection(ids, first.get(key), min(PADDING, stride))
            first.setdefault(key, name)
    return found


def _reader(operands: Operands, split: Split, name: str) -> Node | None:
    readers = [node for node in operands.nodes(split) if name in node.src]
    if len(readers) != 1 or readers[0].op != "mul_mat_id" or readers[0].src[0] != name:
        return None
    return readers[0]


def _computed_here(schedule: Schedule, split: Split, ids: str) -> bool:
    base = schedule.base(ids).name
    nodes = schedule.graph.nodes[split.start : split.end]
    return any(schedule.base(node.dst).name == base for node in nodes)
