"""Selective expert copy: of a host weight only the experts that the router chose.

The ids are read back by the host before the upload, so this pays where few experts are used and
the ids are there early.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...graph import Node
from ...schedule import Schedule
from ..guard import Guard, Off
from ..operands import Operands
from ..transfer import Bring, Input, Policy, Selection, Transfers
from ..written import host_writes, node_writes

#: Bytes that follow each run of experts: CUDA's quantised kernels read past an expert's end.
PADDING = 512


def used_experts(transfers: Transfers, number: int, off: Off) -> Transfers:
    """Host weights whose copy is read by one ``mul_mat_id`` alone, with ids that no node of its
    split computes.

    Weights that the same ids index (gate, up and down of a layer) share one used set, until the
    ids are written again.
    """
    schedule = transfers.schedule
    found: dict[Input, Bring] = {}
    #: used sets by device, ids, their version, and number of experts
    first: dict[tuple[object, ...], str] = {}
    versions = _Versions(schedule)
    for index, split in enumerate(schedule.splits or ()):
        for name, ids in _candidates(schedule, index, off):
            if (index, name) in transfers.brings:
                continue
            tensor = schedule.tensor(name)
            stride = tensor.nb[2].constant if len(tensor.shape) > 2 else None
            if stride is None:
                continue
            key = (
                split.device,
                ids if Guard.SAME_IDS not in off else "",
                versions.of(ids, index) if Guard.SAME_VERSION not in off else 0,
                str(tensor.ne[2]),
            )
            past = schedule.graph.device(split.device).over_read_bytes("mul_mat_id", tensor.dtype)
            padding = max(past, min(PADDING, stride)) if Guard.RUN_TAIL not in off else 0
            found[index, name] = Bring(experts=Selection(ids, first.get(key), padding))
            first.setdefault(key, name)
    idle = "no expert weight is brought from host memory whose ids an earlier split computes"
    return transfers.bring(found, f"copy_experts copies nothing: {idle}")


def _candidates(schedule: Schedule, index: int, off: Off) -> Iterator[tuple[str, str]]:
    """Inputs of a split that can be copied in part, and their ids."""
    assert schedule.splits is not None
    split, operands = schedule.splits[index], Operands(schedule)
    here = node_writes(schedule, split)
    for name in operands.inputs(split):
        if not operands.host_weight(name):
            continue
        node = _reader(operands, index, name, off)
        if node is None or (
            here.meets(schedule, node.src[2]) and Guard.IDS_BEFORE_SPLIT not in off
        ):
            continue
        yield name, node.src[2]


def _reader(operands: Operands, index: int, name: str, off: Off) -> Node | None:
    """The matmul that alone reads a copy: in the split that lists it, and in the later ones of
    the device, which share it until one lists it again."""
    splits = operands.schedule.splits or ()
    readers = []
    for later, split in enumerate(splits[index:], index):
        if split.device == splits[index].device:
            if later > index and name in split.inputs:
                break
            readers += [node for node in operands.nodes(split) if name in node.src]
    if Guard.ONE_MATMUL in off:
        readers = readers[:1]
    if len(readers) != 1 or readers[0].op != "mul_mat_id" or readers[0].src[0] != name:
        return None
    return readers[0]


class _Versions:
    """How often a tensor has been written before the inputs of a split are copied."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        splits = schedule.splits or ()
        self.nodes = [node_writes(schedule, split) for split in splits]
        self.host = [host_writes(schedule, split) for split in splits]

    def of(self, name: str, index: int) -> int:
        written = [*self.nodes[:index], *self.host[: index + 1]]
        return sum(writes.meets(self.schedule, name) for writes in written)


POLICY = Policy(
    "used-experts", "of an expert weight only what the router chose", decide=used_experts
)
