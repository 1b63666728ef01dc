"""The document as typed structs: the one place that says which keys there are.

Decoding, the messages about wrong types and the JSON Schema all come from here.  Names and
sizes are still plain text and numbers: ``document_read`` makes the IR of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

FORMAT = "splitproof/1"
#: Counts of bytes, slots, … end where 64 bits do.
MOST = 2**63 - 1
#: Each pass is looked at by itself: of more no machine would see the end.
MOST_PASSES = 100_000
#: Of each input; ggml has at most 4 (``GGML_SCHED_MAX_COPIES``).
MOST_COPIES = 1024

Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Integer = Annotated[int, Meta(ge=-MOST, le=MOST)]
Size = Annotated[
    Integer | Annotated[str, Meta(min_length=1, max_length=1000)],
    Meta(description="An integer, or a linear expression in the symbols: 8*n_tokens"),
]
When = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4000,
        description="Comparisons of linear expressions, joined by 'and': "
        "2*n_tokens <= 4 and pass % 2 == 1",
    ),
]
Index = Annotated[int, Meta(ge=0, le=MOST, description="Index of a split")]
Queue = Annotated[str, Meta(min_length=1, description="'host', or DEVICE.QUEUE")]
TensorName = Annotated[
    str, Meta(min_length=1, description="A declared tensor, or DEVICE#TENSOR for its copy there")
]
Footprint = Annotated[
    list[Name],
    Meta(description="Tensors, or usage:weights, usage:compute, usage:any for all of a usage"),
]
Scalar = bool | Integer | float | str


class Form(Struct, frozen=True, forbid_unknown_fields=True):
    """What all structs of a document share."""


class MemoryForm(Form, frozen=True, kw_only=True):
    """A place for bytes."""

    host: Annotated[bool, Meta(description="Whether the host program reads it")] = False
    bytes: Annotated[Count, Meta(description="Capacity in bytes")] | None = None


class BufferForm(Form, frozen=True, kw_only=True):
    """One allocation in a memory."""

    memory: Name
    usage: Literal["weights", "compute", "any"]
    bytes: Annotated[Count, Meta(description="Length in bytes")]


ContractName = Literal["stream", "sync", "staged", "unordered"]


class CopyForm(Form, frozen=True, kw_only=True):
    """The contract of copies between two memories; without 'from' or 'to': all of them."""

    source: Name | None = msgspec.field(name="from", default=None)
    target: Name | None = msgspec.field(name="to", default=None)
    contract: ContractName = msgspec.field(name="is")


SizeBound = Annotated[
    Integer | str,
    Meta(description="A size, or bounds on it: '<= 256', '>= 2 and <= 8'"),
]
#: Sources that a capability pattern can speak of.
PATTERN_SOURCES = tuple(f"src{i}" for i in range(10))
OPERANDS = ("dst", *PATTERN_SOURCES)

PatternForm: Any = msgspec.defstruct(
    "PatternForm",
    [
        ("op", Annotated[str, Meta(min_length=1, description="An op, or '*' for all")]),
        *((operand, Annotated[str, Meta(description="Its dtype")] | None, None)
          for operand in OPERANDS),
        ("ne", dict[str, list[SizeBound | None]], msgspec.field(default_factory=dict)),
    ],
    bases=(Form,),
    namespace={"__doc__": "Nodes by op, operand types ('dst', 'src0', …) and sizes."},
    frozen=True, kw_only=True, forbid_unknown_fields=True,
)  # fmt: skip


class InPlaceForm(Form, frozen=True, kw_only=True):
    """An op whose result may lie over one of its sources."""

    op: Name
    src: Annotated[int, Meta(ge=0, le=9)]


class DeviceForm(Form, frozen=True, kw_only=True):
    """Something that runs ops.  Devices stand in priority order, the CPU last."""

    name: Name
    memory: Name
    reads: Annotated[list[Name], Meta(description="Memories that its kernels read")]
    asynchronous: Annotated[
        bool, Meta(description="Whether what it runs is queued; else it is a host command")
    ] = msgspec.field(name="async", default=False)
    copy: ContractName | list[CopyForm] = msgspec.field(default_factory=list)
    events: bool = True
    queues: Annotated[list[Name], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["compute"]
    )
    ops: list[PatternForm] | None = None
    deny: list[PatternForm] = msgspec.field(default_factory=list)
    offload_min_tokens: Count = 32
    over_read: Annotated[
        dict[str, dict[str, Count]],
        Meta(description="Bytes read past an expert, by op and dtype"),
    ] = msgspec.field(default_factory=dict)
    waits_for: list[Name] | None = None
    in_place: list[InPlaceForm] = msgspec.field(default_factory=list)


class TensorForm(Form, frozen=True, kw_only=True):
    """An array; sizes innermost first, strides and offsets in bytes."""

    dtype: Name | None = None
    shape: Annotated[list[Size], Meta(min_length=1, max_length=4)] | None = None
    strides: Annotated[list[Size], Meta(min_length=1, max_length=4)] | None = None
    view_of: Name | None = None
    buffer: Name | None = None
    offset: Size | None = None
    input: bool = False
    output: bool = False
    pin: Annotated[str, Meta(min_length=1, description="The device that the user chose")] | None = (
        None
    )
    values: Annotated[
        tuple[Integer, Integer], Meta(description="Each element lies in [low, high)")
    ] | None = None  # fmt: skip
    about: Annotated[
        bool, Meta(description="Only the size is known, or of a view only its base")
    ] = False
    bytes: Count | None = None


class NodeForm(Form, frozen=True, kw_only=True):
    """One op; its 'dst' names it."""

    op: Name
    dst: Name
    src: list[Name] = msgspec.field(default_factory=list)
    params: dict[str, Scalar | list[Scalar]] = msgspec.field(default_factory=dict)
    when: When | None = None
    supported_by: list[Name] | None = None
    wanted_by: list[Name] | None = None
    reads: list[Name] | None = None
    writes: list[Name] | None = None


class BankForm(Form, frozen=True, kw_only=True):
    """Slots that cache experts of a host tensor; its key names the tensor of the slots."""

    caches: Name
    layer: Count
    role: Literal["up", "gate", "down", "gate_up"]
    group: Name
    slots: Positive
    ids: Name
    policy: Literal["lru-slots", "lru-bytes"] = "lru-slots"
    slot_ids: Name | None = None
    slot_map: Name | None = None
    when: When | None = None


class SplitCallbackForm(Form, frozen=True, kw_only=True):
    """User code that the plain lowering calls before a split."""

    name: Name
    reads: Footprint | None = None
    writes: Footprint | None = None
    when: When | None = None


class SplitForm(Form, frozen=True, kw_only=True):
    """A run of nodes [start, end) on one device."""

    device: Name
    nodes: tuple[Count, Count]
    inputs: list[Name] = msgspec.field(default_factory=list)
    callbacks: list[SplitCallbackForm] = msgspec.field(default_factory=list)


class CommandForm(Form, frozen=True, kw_only=True, tag_field="do"):
    """What all commands share."""

    when: When | None = None


class ComputeForm(CommandForm, frozen=True, kw_only=True, tag="compute"):
    """Run a node."""

    node: Name
    split: Index
    queue: Queue | None = None
    bind: dict[str, TensorName] = msgspec.field(default_factory=dict)
    copy: Count | None = None


class CopyCommandForm(CommandForm, frozen=True, kw_only=True, tag="copy"):
    """All bytes of one tensor to all bytes of another."""

    src: TensorName
    dst: TensorName
    queue: Queue
    split: Index
    for_split: Index | None = None


class PrefetchForm(CommandForm, frozen=True, kw_only=True, tag="prefetch"):
    """A copy that is issued while an earlier split is current."""

    src: TensorName
    dst: TensorName
    queue: Queue
    split: Index
    for_split: Index


class CopyExpertsForm(CommandForm, frozen=True, kw_only=True, tag="copy_experts"):
    """The experts that the ids use, with 'padding' further bytes after each run."""

    src: TensorName
    dst: TensorName
    queue: Queue
    split: Index
    ids: TensorName | None = None
    padding: Count = 0
    used_from: TensorName | None = None
    for_split: Index | None = None


class FillBankForm(CommandForm, frozen=True, kw_only=True, tag="fill_bank"):
    """Bring the experts that the ids use into slots of each bank named."""

    banks: Annotated[list[Name], Meta(min_length=1)]
    ids: TensorName
    queue: Queue
    split: Index
    slot_ids: TensorName | None = None
    slot_map: TensorName | None = None


class CallbackForm(CommandForm, frozen=True, kw_only=True, tag="callback"):
    """User code on the host; without footprints it may touch everything but banks."""

    name: Name
    split: Index
    reads: Footprint | None = None
    writes: Footprint | None = None


class SetInputForm(CommandForm, frozen=True, kw_only=True, tag="set_input"):
    """The user writes an input."""

    tensor: TensorName
    split: Index | None = None


class GetOutputForm(CommandForm, frozen=True, kw_only=True, tag="get_output"):
    """The user reads an output."""

    tensor: TensorName
    split: Index | None = None


class RecordForm(CommandForm, frozen=True, kw_only=True, tag="record"):
    """Mark this place of a queue."""

    event: Name
    queue: Queue
    split: Index | None = None


class WaitForm(CommandForm, frozen=True, kw_only=True, tag="wait"):
    """What follows on the queue starts after the event's latest record."""

    event: Name
    queue: Queue
    split: Index | None = None


class SyncEventForm(CommandForm, frozen=True, kw_only=True, tag="sync_event"):
    """The host waits for the event's latest record."""

    event: Name
    split: Index | None = None


class SyncQueueForm(CommandForm, frozen=True, kw_only=True, tag="sync_queue"):
    """The host waits until what was issued on the queue has ended."""

    queue: Queue
    split: Index | None = None


AnyCommandForm = (
    ComputeForm | CopyCommandForm | PrefetchForm | CopyExpertsForm | FillBankForm | CallbackForm
    | SetInputForm | GetOutputForm | RecordForm | WaitForm | SyncEventForm | SyncQueueForm
)  # fmt: skip


class DocumentForm(Form, frozen=True, kw_only=True):
    """A schedule at one of three levels: graph; with 'splits' split; with 'program' program."""

    format: Literal["splitproof/1"]
    name: str = ""
    symbols: Annotated[
        dict[str, tuple[Count, Count]],
        Meta(description="Least and greatest value of each symbol, both included"),
    ] = msgspec.field(default_factory=dict)
    memories: dict[str, MemoryForm]
    devices: Annotated[list[DeviceForm], Meta(min_length=1)]
    buffers: dict[str, BufferForm] = msgspec.field(default_factory=dict)
    tensors: dict[str, TensorForm]
    nodes: Annotated[list[NodeForm], Meta(description="In topological order")]
    banks: dict[str, BankForm] = msgspec.field(default_factory=dict)
    op_offload: bool = True
    n_copies: Annotated[int, Meta(ge=1, le=MOST_COPIES)] = 1
    assignment: dict[str, Name] | None = None
    splits: list[SplitForm] | None = None
    placements: Annotated[
        dict[str, tuple[Name, Size]], Meta(description="Buffer and offset of tensors")
    ] | None = None  # fmt: skip
    program: list[AnyCommandForm] | None = None
    repeat: Annotated[
        int, Meta(ge=1, le=MOST_PASSES, description="Passes that follow each other")
    ] = 1
