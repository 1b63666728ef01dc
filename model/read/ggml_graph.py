"""From the rows of a recorded ggml graph to a split-level schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from ..device import Buffer, Contract, CopyRule, Device, Memory, Usage
from ..fault import meant, quote
from ..graph import Graph, Node
from ..ops import OPS, ShapeError, check_shapes
from ..schedule import Schedule, Split
from ..symbol import Expr
from ..tensor import Tensor, dtypes, packed_bytes, packed_strides
from .ggml_check import check_row
from .ggml_rows import DumpError, GraphRow

#: ggml's ``GGML_TENSOR_FLAG_INPUT`` and ``GGML_TENSOR_FLAG_OUTPUT``.
_INPUT, _OUTPUT = 1, 2
#: Offsets in the buffers that are made here are multiples of it (CUDA's buffers ask for 128).
_ALIGNMENT = 128
_USAGE = {"w": Usage.WEIGHTS, "c": Usage.COMPUTE, "any": Usage.ANY}
#: Ops that go by the name in ``desc``: ``UNARY`` is ``silu``, ``GLU`` is ``swiglu``, …
_FAMILIES = ("UNARY", "GLU")
#: Where the row numbers of an op stand, and which dimension of which operand they count.
_ROW_NUMBERS = {"get_rows": (1, 0, 1), "mul_mat_id": (2, 0, 2), "add_id": (2, 1, 1)}


def graph_schedule(row: GraphRow, source: str, line: int) -> Schedule:
    """The schedule of one line.  ``DumpError`` names the key that does not fit."""
    return _Import(row, source, line).schedule()


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the elements of a tensor lie in its base; ``strides`` ``None``: packed."""

    offset: int
    strides: tuple[int, ...] | None


class _Import:
    """One graph on its way in."""

    def __init__(self, row: GraphRow, source: str, line: int) -> None:
        self.row = row
        self.source = source
        self.line = line
        check_row(row, source, line)
        self.names = _unique([t.name for t in row.tensors])
        self.devices = _unique([b.name for b in row.backends])
        self.memories = _unique([b.name for b in row.bufts])
        self.ops = [self.op(i) for i in range(len(row.tensors))]
        operands = [self.operands(i) for i in range(len(row.tensors))]
        self.sources = [[source for _, source in found] for found in operands]
        self.slots = [tuple(slot for slot, _ in found) for found in operands]
        self.shapes = [_shape(t.ne) for t in row.tensors]
        self.check_order()
        self.places = self.placements()

    def error(self, key: str, message: str) -> DumpError:
        return DumpError(message, f"$.{key}", self.line, 1, self.source)

    # -- operands -----------------------------------------------------------------------------

    def op(self, i: int) -> str:
        tensor = self.row.tensors[i]
        family = tensor.op in _FAMILIES
        if family and tensor.desc is None:
            raise self.error(f"tensors[{i}]", f"the key `desc` is missing; {tensor.op} needs it")
        name = (tensor.desc if family and tensor.desc else tensor.op).lower()
        if name not in OPS:
            key = f"tensors[{i}].{'desc' if family else 'op'}"
            raise self.error(key, f"unknown op {quote(name)}{meant(name, OPS)}")
        return name

    def operands(self, i: int) -> list[tuple[int, int]]:
        """``(slot, source)`` of each slot that is not empty, but for the destination itself.

        ``ggml_cast`` makes a ``CPY`` whose second source is its own result: a place, no operand.
        """
        tensor = self.row.tensors[i]
        slots = tensor.src_slot or range(len(tensor.src))
        return [
            (slot, s)
            for slot, s in zip(slots, tensor.src, strict=True)
            if s is not None and s >= 0 and not (s == i and self.ops[i] == "cpy")
        ]

    def check_order(self) -> None:
        position = {i: k for k, i in enumerate(self.row.nodes)}
        for k, i in enumerate(self.row.nodes):
            for s in self.sources[i]:
                if position.get(s, -1) >= k:
                    message = f"{self.names[i]!r} reads {self.names[s]!r}, which comes no earlier"
                    raise self.error(f"nodes[{k}]", message)

    # -- tensors ------------------------------------------------------------------------------

    def tensors(self) -> list[Tensor]:
        layouts, ranges = self.layouts(), self.value_ranges()
        return [self.tensor(i, layouts.get(i), ranges.get(i)) for i in range(len(self.names))]

    def tensor(self, i: int, layout: _Layout | None, values: tuple[int, int] | None) -> Tensor:
        row = self.row.tensors[i]
        buffer, offset = self.places.get(i, (None, None))
        if row.view_of is not None and layout is not None:
            offset = layout.offset
        strides = layout.strides if layout else None
        return Tensor(
            name=self.names[i],
            dtype=self.dtype(i),
            shape=tuple(map(Expr.of, self.shapes[i])),
            strides=None if strides is None else tuple(map(Expr.of, strides)),
            view_of=None if row.view_of is None else self.names[row.view_of],
            buffer=buffer,
            offset=None if offset is None else Expr.of(offset),
            input=bool(row.flags & _INPUT),
            output=bool(row.flags & _OUTPUT),
            pin=None if row.pin is None else self.devices[row.pin],
            values=values,
            about=layout is None,
        )

    def dtype(self, i: int) -> str:
        name = self.row.tensors[i].type
        if name.lower() not in dtypes():
            known = meant(name.lower(), dtypes())
            raise self.error(f"tensors[{i}].type", f"unknown dtype {quote(name)}{known}")
        return name.lower()

    def layouts(self) -> dict[int, _Layout]:
        """The layout of each tensor of which it is certain; the others are views."""
        layouts: dict[int, _Layout] = {}
        nodes = set(self.row.nodes)
        leafs = [i for i in range(len(self.row.tensors)) if i not in nodes]
        for i in [*leafs, *self.row.nodes]:
            layout = self.layout(i, layouts)
            if layout is not None:
                layouts[i] = layout
        return layouts

    def layout(self, i: int, known: dict[int, _Layout]) -> _Layout | None:
        row, shape = self.row.tensors[i], self.shapes[i]
        packed, strides = self.packed(i)
        if row.nb is not None and len(row.nb) < len(shape):
            raise self.error(f"tensors[{i}].nb", f"{len(row.nb)} strides for {len(shape)} sizes")
        recorded = None if row.nb is None else tuple(row.nb[: len(shape)])
        if recorded == strides:
            recorded = None
        if row.view_of is None:
            if row.nb is None and row.nbytes != packed:
                message = f"{row.nbytes}; a packed {row.type} of {list(row.ne)} has {packed} bytes"
                raise self.error(f"tensors[{i}].nbytes", message)
            return _Layout(0, recorded)
        if row.view_offs is not None and row.nb is not None:
            base = self.row.tensors[row.view_of]
            if row.view_offs + row.nbytes > base.nbytes:
                message = f"{row.nbytes} bytes from {row.view_offs} in a base of {base.nbytes}"
                raise self.error(f"tensors[{i}].view_offs", message)
            return _Layout(row.view_offs, recorded)
        return self.implied(i, known)

    def implied(self, i: int, known: dict[int, _Layout]) -> _Layout | None:
        """Where a view lies by the meaning of its op, if its place is not recorded.

        A ``reshape`` has the bytes of its packed source, in order; the result of ``set_rows``
        is what it updates, whole.  The others depend on parameters.
        """
        operand = {"reshape": 0, "set_rows": 2}.get(self.ops[i])
        if operand is None or operand >= len(self.sources[i]):
            return None
        j = self.sources[i][operand]
        row, other = self.row.tensors[i], self.row.tensors[j]
        same_base = row.view_of == (j if other.view_of is None else other.view_of)
        layout = known.get(j)
        if layout is None or not same_base or (row.type, row.nbytes) != (other.type, other.nbytes):
            return None
        if self.shapes[i] == self.shapes[j]:
            return layout
        packed = layout.strides is None and row.nbytes == self.packed(i)[0]
        return layout if packed else None

    def packed(self, i: int) -> tuple[int, tuple[int, ...]]:
        """Bytes and strides of the tensor if it is packed."""
        kind, shape = self.dtype(i), tuple(map(Expr.of, self.shapes[i]))
        try:
            size, strides = packed_bytes(kind, shape), packed_strides(kind, shape)
        except ValueError as error:
            raise self.error(f"tensors[{i}].ne", str(error)) from None
        return size.value({}), tuple(s.value({}) for s in strides)

    # -- where tensors lie ----------------------------------------------------------------------

    def buffer_name(self, i: int) -> str | None:
        row = self.row.tensors[i]
        if row.buf is None or row.usage is None:
            return None
        return f"{_USAGE[row.usage]}:{self.memories[row.buf]}"

    def placements(self) -> dict[int, tuple[str, int]]:
        """Buffer and offset of each placed tensor: the recording has the buffer type only."""
        places: dict[int, tuple[str, int]] = {}
        ends: dict[str, int] = {}
        for i, row in enumerate(self.row.tensors):
            buffer = self.buffer_name(i)
            if buffer is None:
                continue
            if row.view_of is not None:  # it lies where its base does
                if self.row.tensors[row.view_of].buf is None:
                    raise self.error(f"tensors[{i}].buf", "a view is placed and its base is not")
                continue
            offset = -(-ends.get(buffer, 0) // _ALIGNMENT) * _ALIGNMENT
            places[i] = buffer, offset
            ends[buffer] = offset + row.nbytes
        return places

    def buffers(self) -> tuple[Buffer, ...]:
        buffers: dict[str, Buffer] = {}
        for i, (name, offset) in self.places.items():
            row = self.row.tensors[i]
            assert row.buf is not None and row.usage is not None
            end = offset + row.nbytes
            buffers[name] = Buffer(name, self.memories[row.buf], _USAGE[row.usage], end)
        return tuple(buffers.values())

    # -- what ids hold --------------------------------------------------------------------------

    def value_ranges(self) -> dict[int, tuple[int, int]]:
        """``[low, high)`` of the elements of integer tensors of which the graph tells it.

        The result of ``argsort`` and ``top_k`` holds positions in a row of their source.  An
        input that is read as row numbers must hold such: ggml asserts it.
        """
        ranges: dict[int, tuple[int, int]] = {}
        for i in self.row.nodes:
            if self.ops[i] in ("argsort", "top_k") and self.sources[i]:
                ranges[i] = (0, self.row.tensors[self.sources[i][0]].ne[0])
            for ids, rows in self.row_numbers(i):
                if self.row.tensors[ids].flags & _INPUT:
                    low, high = ranges.get(ids, (0, rows))
                    ranges[ids] = (low, min(high, rows))
        integers = {i for i in range(len(self.names)) if dtypes()[self.dtype(i)].integer}
        rewritten = {
            self.row.tensors[i].view_of for i in self.row.nodes if not OPS[self.ops[i]].view
        }
        ranges = {i: r for i, r in ranges.items() if i in integers and i not in rewritten}
        for i in range(len(self.names)):
            base = self.row.tensors[i].view_of
            if base in ranges and i in integers:
                ranges[i] = ranges[base]
        return ranges

    def row_numbers(self, i: int) -> list[tuple[int, int]]:
        """Tensors that node ``i`` reads as row numbers, each with the number of rows."""
        operands = self.sources[i]
        if self.ops[i] == "set_rows" and len(operands) > 1:
            ne = self.row.tensors[i].ne
            return [(operands[1], ne[1] if len(ne) > 1 else 1)]
        if self.ops[i] not in _ROW_NUMBERS:
            return []
        ids, table, dim = _ROW_NUMBERS[self.ops[i]]
        if max(ids, table) >= len(operands):
            return []
        ne = self.row.tensors[operands[table]].ne
        return [(operands[ids], ne[dim] if len(ne) > dim else 1)]

    # -- the whole ------------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        tensors = self.tensors()
        nodes = tuple(self.node(i) for i in self.row.nodes)
        graph = Graph(
            memories=tuple(
                Memory(name, bool(b.host))
                for name, b in zip(self.memories, self.row.bufts, strict=True)
            ),
            devices=tuple(self.device(j) for j in range(len(self.devices))),
            buffers=self.buffers(),
            tensors=tuple(_believed(tensors, nodes, [t.nbytes for t in self.row.tensors])),
            nodes=nodes,
            op_offload=bool(self.row.op_offload),
            n_copies=self.row.n_copies,
        )
        return Schedule(
            graph=graph,
            name=self.title(),
            assignment=tuple(
                (self.names[i], self.devices[backend])
                for i, backend in enumerate(self.row.result.backend)
                if backend >= 0
            ),
            splits=tuple(
                Split(
                    self.devices[s.backend], s.start, s.end,
                    tuple(self.names[i] for i in s.inputs),
                )
                for s in self.row.result.splits
            ),
        )  # fmt: skip

    def title(self) -> str:
        told = [t for t in (self.row.model, self.row.placement, self.row.pass_) if t]
        return " ".join(told) or f"{PurePath(self.source).name}, graph {self.line}"

    def node(self, i: int) -> Node:
        given = self.row.tensors[i].params
        if "src_slot" in given:
            raise self.error(f"tensors[{i}].params", "`src_slot` stands beside `src`, not in here")
        params = tuple((k, _plain(v)) for k, v in given.items())
        if self.slots[i] != tuple(range(len(self.slots[i]))):
            params = (*params, ("src_slot", self.slots[i]))
        backends = list(zip(self.devices, self.row.backends, strict=True))
        return Node(
            op=self.ops[i],
            dst=self.names[i],
            src=tuple(self.names[s] for s in self.sources[i]),
            params=params,
            supported_by=tuple(d for d, b in backends if b.supports[i] == "1"),
            wanted_by=tuple(d for d, b in backends if b.offload[i] == "1"),
        )

    def device(self, j: int) -> Device:
        backend = self.row.backends[j]
        # What computes in host memory (the CPU, BLAS) has no queue; the others are driven.
        synchronous = bool(self.row.bufts[backend.buft].host)
        return Device(
            name=self.devices[j],
            memory=self.memories[backend.buft],
            reads=tuple(
                name
                for name, buft in zip(self.memories, self.row.bufts, strict=True)
                if buft.supported_by[j] == "1"
            ),
            asynchronous=not synchronous,
            copy=() if synchronous else (CopyRule(None, None, Contract.STREAM),),
            events=not synchronous,
            waits_for=None if synchronous else self.driven(j),
        )

    def driven(self, j: int) -> tuple[str, ...] | None:
        """The other devices with queues: backends of one kind await each other's events."""
        others = tuple(
            name
            for k, name in enumerate(self.devices)
            if k != j and not self.row.bufts[self.row.backends[k].buft].host
        )
        return others or None


def _believed(tensors: list[Tensor], nodes: Sequence[Node], sizes: list[int]) -> list[Tensor]:
    """Reduce a result to its size in bytes where its op gives another shape."""
    known = {t.name: t for t in tensors}
    size_of = {t.name: size for t, size in zip(tensors, sizes, strict=True)}
    for node in nodes:
        dst = known[node.dst]
        try:
            check_shapes(OPS[node.op], dst, [known[s] for s in node.src])
        except ShapeError:
            known[node.dst] = replace(
                dst, shape=(), strides=None, about=True, bytes=size_of[node.dst], values=None
            )
    return [known[t.name] for t in tensors]


def _unique(names: list[str]) -> list[str]:
    """The names, the second and later of equal ones with ``@`` and their index."""
    taken = set(names)
    seen: set[str] = set()
    result = []
    for i, name in enumerate(names):
        if name in seen or not name:
            name = f"{name}@{i}"
            while name in taken:
                name = f"{name}@{i}"
            taken.add(name)
        seen.add(name)
        result.append(name)
    return result


def _shape(ne: list[int]) -> tuple[int, ...]:
    """Without the ones at the end."""
    rank = max((d + 1 for d, size in enumerate(ne) if size != 1), default=1)
    return tuple(ne[:rank])


def _plain(value: object) -> object:
    return tuple(map(_plain, value)) if isinstance(value, list) else value
