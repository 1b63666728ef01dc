"""A recorded ggml graph as typed rows: the keys of a line, and what a wrong one is called.

Keys that are not named here are ignored: the format belongs to others.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from ..document_form import Scalar
from ..fault import DocumentError

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class DumpError(DocumentError):
    """A dump that cannot be read: the file, the line (from 1), and the key on that line."""


class TensorRow(Struct):
    """A tensor.  ``src`` and ``view_of``: indices of tensors; a null is an empty source slot.

    ``src_slot``: the slots of the sources where one is skipped.  ``nb`` and ``view_offs``:
    strides and offset in bytes, absent in older recordings.  ``pin``: a backend's index.
    """

    name: str
    op: str
    type: str
    ne: Annotated[list[Count], Meta(min_length=1, max_length=4)]
    nbytes: Count
    flags: int
    src: list[int | None]
    desc: str | None = None
    nb: Annotated[list[Count], Meta(min_length=1, max_length=4)] | None = None
    view_of: Count | None = None
    view_offs: Count | None = None
    buf: Count | None = None
    usage: Literal["w", "c", "any"] | None = None
    pin: Count | None = None
    params: dict[str, Scalar | list[Scalar]] = msgspec.field(default_factory=dict)
    src_slot: list[Count] | None = None


class BackendRow(Struct):
    """A backend.  ``supports``, ``offload``: one character, 0 or 1, per tensor."""

    name: str
    buft: Count
    supports: str
    offload: str


class BuftRow(Struct):
    """A buffer type.  ``supported_by``: one character, 0 or 1, per backend."""

    name: str
    host: int
    supported_by: str


class SplitRow(Struct):
    """Nodes ``[start, end)`` on a backend; ``inputs``: indices of the tensors copied in."""

    backend: Count
    start: Count
    end: Count
    inputs: list[Count]


class ResultRow(Struct):
    """The scheduler's answer; a negative backend means that it assigned none.  ``cause``: why,
    in the words of ggml's debug output, per tensor (empty: not recorded)."""

    backend: list[int]
    splits: list[SplitRow]
    cause: list[str] = []


class GraphRow(Struct):
    """One line.  ``nodes`` and ``leafs``: indices of tensors, in graph order."""

    tensors: list[TensorRow]
    nodes: list[Count]
    leafs: list[Count]
    backends: Annotated[list[BackendRow], Meta(min_length=1)]
    bufts: Annotated[list[BuftRow], Meta(min_length=1)]
    result: ResultRow
    op_offload: int = 1
    n_copies: Annotated[int, Meta(ge=1, le=2**63 - 1)] = 1
    model: str | None = None
    placement: str | None = None
    pass_: str | None = msgspec.field(name="pass", default=None)
