"""What must hold of the rows of a recorded graph before anything is made of them."""

from __future__ import annotations

from ..fault import quote
from .ggml_rows import DumpError, GraphRow


def check_row(row: GraphRow, source: str, line: int) -> None:
    """Hold indices, lengths and views against what they speak of; ``DumpError`` names the key."""
    _Check(row, source, line).all()


class _Check:
    def __init__(self, row: GraphRow, source: str, line: int) -> None:
        self.row = row
        self.source = source
        self.line = line

    def error(self, key: str, message: str) -> DumpError:
        return DumpError(message, f"$.{key}", self.line, 1, self.source)

    def within(self, index: int | None, count: int, key: str, what: str) -> None:
        if index is not None and index >= count:
            raise self.error(key, f"there is no {what} {index}; there are {count}")

    def bits(self, text: str, count: int, key: str, what: str) -> None:
        if len(text) != count or set(text) - {"0", "1"}:
            raise self.error(
                key, f"{quote(text)}: {count} characters 0 or 1 were due, one per {what}"
            )

    def all(self) -> None:
        for i in range(len(self.row.tensors)):
            self.tensor(i)
            self.view(i)
        self.order("nodes", self.row.nodes)
        self.order("leafs", self.row.leafs)
        self.backends()
        self.result()

    def tensor(self, i: int) -> None:
        row, tensor, key = self.row, self.row.tensors[i], f"tensors[{i}]"
        for j, index in enumerate(tensor.src):
            self.within(index, len(row.tensors), f"{key}.src[{j}]", "tensor")
        self.within(tensor.view_of, len(row.tensors), f"{key}.view_of", "tensor")
        self.within(tensor.buf, len(row.bufts), f"{key}.buf", "buffer type")
        self.within(tensor.pin, len(row.backends), f"{key}.pin", "backend")
        if tensor.buf is not None and tensor.usage is None:
            raise self.error(key, "the key `usage` is missing; a placed tensor has one")
        if tensor.src_slot is not None and len(tensor.src_slot) != len(tensor.src):
            found, due = len(tensor.src_slot), len(tensor.src)
            raise self.error(f"{key}.src_slot", f"{found} slots for {due} sources")

    def view(self, i: int) -> None:
        chain = {i}
        base = self.row.tensors[i].view_of
        while base is not None:
            if base in chain:
                raise self.error(f"tensors[{i}].view_of", "a view of itself")
            self.within(base, len(self.row.tensors), f"tensors[{i}].view_of", "tensor")
            chain.add(base)
            base = self.row.tensors[base].view_of

    def order(self, key: str, indices: list[int]) -> None:
        for j, index in enumerate(indices):
            self.within(index, len(self.row.tensors), f"{key}[{j}]", "tensor")
        if len(set(indices)) != len(indices):
            raise self.error(key, "a tensor stands here twice")

    def backends(self) -> None:
        row, tensors = self.row, len(self.row.tensors)
        for j, backend in enumerate(row.backends):
            self.within(backend.buft, len(row.bufts), f"backends[{j}].buft", "buffer type")
            self.bits(backend.supports, tensors, f"backends[{j}].supports", "tensor")
            self.bits(backend.offload, tensors, f"backends[{j}].offload", "tensor")
        for j, buft in enumerate(row.bufts):
            self.bits(buft.supported_by, len(row.backends), f"bufts[{j}].supported_by", "backend")

    def result(self) -> None:
        row, result = self.row, self.row.result
        if len(result.backend) != len(row.tensors):
            found, due = len(result.backend), len(row.tensors)
            raise self.error("result.backend", f"{found} entries; {due} were due, one per tensor")
        for i, backend in enumerate(result.backend):
            self.within(backend, len(row.backends), f"result.backend[{i}]", "backend")
        for j, split in enumerate(result.splits):
            key = f"result.splits[{j}]"
            self.within(split.backend, len(row.backends), f"{key}.backend", "backend")
            if not split.start <= split.end <= len(row.nodes):
                raise self.error(
                    key, f"nodes {split.start} to {split.end} of a graph of {len(row.nodes)} nodes"
                )
            for k, index in enumerate(split.inputs):
                self.within(index, len(row.tensors), f"{key}.inputs[{k}]", "tensor")
