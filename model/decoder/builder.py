"""A graph in the making: tensors and nodes, named and laid out as ggml does.

Sizes are plain integers, innermost first.  A tensor has no ones at the end of its shape, and a
view is one of the tensor that owns the bytes, at an offset from that one's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph import Node
from ..read.gguf import FileTensor, ModelError, ModelFile
from ..symbol import Expr
from ..tensor import Tensor, packed_strides
from .site import Site

#: Types of weights that the runtime can multiply with.
WEIGHT_TYPES = frozenset({
    "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1",
    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "mxfp4",
})  # fmt: skip

Sizes = tuple[int, int, int, int]


def sizes(tensor: Tensor) -> Sizes:
    """The shape as four integers."""
    a, b, c, d = (size.value({}) for size in tensor.ne)
    return a, b, c, d


def steps(tensor: Tensor) -> Sizes:
    """The strides in bytes, four of them."""
    found = [stride.value({}) for stride in tensor.nb]
    ne = sizes(tensor)
    while len(found) < 4:
        last = len(found) - 1
        count = ne[last] if last else ne[0] // tensor.type.block
        found.append(found[-1] * count)
    return found[0], found[1], found[2], found[3]


class Builder:
    """Collects a graph.  Weights are taken from ``model`` and held against the shape due."""

    def __init__(self, model: ModelFile, site: Site) -> None:
        self.model, self.site = model, site
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.used: set[str] = set()

    # -- leafs ------------------------------------------------------------------------------

    def weight(self, name: str, *shape: int) -> Tensor:
        """A tensor of the file.  ``ModelError`` if it is missing, or of another shape or type."""
        found = self.find_weight(name, *shape)
        if found is None:
            raise ModelError(f"{self.model.path}: tensor {name} {list(shape)} is missing")
        return found

    def find_weight(self, name: str, *shape: int) -> Tensor | None:
        """The same for one that a model may lack."""
        if name in self.tensors:
            return self.tensors[name]
        entry = self.model.tensors.get(name)
        if entry is None:
            return None
        self.check_weight(entry, shape)
        self.used.add(name)
        buffer, offset = self.site.place(entry)
        tensor = Tensor(
            name, entry.dtype, _exprs(_trimmed(shape)), buffer=buffer, offset=Expr.of(offset)
        )
        return self.keep(tensor)

    def check_weight(self, entry: FileTensor, shape: Sequence[int]) -> None:
        where = f"{self.model.path}: tensor {entry.name}"
        if _trimmed(entry.shape) != _trimmed(shape):
            raise ModelError(f"{where} has shape {list(entry.shape)}; {list(shape)} was due")
        if entry.dtype not in WEIGHT_TYPES:
            known = ", ".join(sorted(WEIGHT_TYPES))
            raise ModelError(f"{where} has type {entry.dtype}, which is not supported ({known})")

    def input(
        self, name: str, *shape: int, dtype: str = "f32", values: tuple[int, int] | None = None
    ) -> Tensor:
        """Something that the user sets in each pass; asked for again, it is the same tensor."""
        if name in self.tensors:
            return self.tensors[name]
        tensor = Tensor(name, dtype, _exprs(_trimmed(shape)), input=True, values=values)
        return self.keep(tensor)

    def cache(self, name: str, *shape: int) -> Tensor:
        """An f32 leaf that keeps its content from pass to pass."""
        buffer, offset = self.site.reserve(name, 4 * shape[0] * shape[1])
        shape = _trimmed(shape)
        return self.keep(Tensor(name, "f32", _exprs(shape), buffer=buffer, offset=Expr.of(offset)))

    def keep(self, tensor: Tensor) -> Tensor:
        self.tensors[tensor.name] = tensor
        return tensor

    # -- nodes ------------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """The name; with ``@`` and the node's number if it is taken."""
        return name if name not in self.tensors else f"{name}@{len(self.nodes)}"

    def op(
        self,
        op: str,
        name: str,
        shape: Sequence[int],
        *src: Tensor,
        dtype: str = "f32",
        values: tuple[int, int] | None = None,
        output: bool = False,
        **params: Any,
    ) -> Tensor:
        """A node that owns its bytes."""
        name, exprs = self.unique(name), _exprs(_trimmed(shape))
        tensor = self.keep(Tensor(name, dtype, exprs, values=values, output=output))
        self.node(op, tensor, *src, **params)
        return tensor

    def node(self, op: str, dst: Tensor, *src: Tensor, **params: Any) -> None:
        self.nodes.append(Node(op, dst.name, tuple(s.name for s in src), tuple(params.items())))

    def view(
        self,
        of: Tensor,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        offset: int = 0,
        name: str | None = None,
        op: str = "view",
        **params: Any,
    ) -> Tensor:
        """Other sizes over the bytes of ``of`` from byte ``offset`` on; packed by default."""
        tensor = self.window(of, shape, strides, offset, name or f"{_plain(of)} (view)")
        self.node(op, tensor, of, **params)
        return tensor

    def window(
        self,
        of: Tensor,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        offset: int,
        name: str,
    ) -> Tensor:
        shape = _trimmed(shape)
        base = of if of.view_of is None else self.tensors[of.view_of]
        inner = of.offset.value({}) if of.view_of is not None and of.offset is not None else 0
        given = None if strides is None else _exprs(strides[: len(shape)])
        if given == packed_strides(of.dtype, _exprs(shape)):
            given = None
        return self.keep(
            Tensor(
                self.unique(name), of.dtype, _exprs(shape), given, base.name,
                offset=Expr.of(inner + offset), values=of.values,
            )
        )  # fmt: skip

    def reshape(self, of: Tensor, *shape: int, name: str | None = None) -> Tensor:
        """The packed elements in another shape."""
        assert of.packed
        return self.view(of, shape, name=name or f"{_plain(of)} (reshaped)", op="reshape")

    def permute(self, of: Tensor, *axes: int, name: str | None = None) -> Tensor:
        """Dimension i becomes dimension ``axes[i]``."""
        ne, nb = [1] * 4, [1] * 4
        for old, new in enumerate(axes):
            ne[new], nb[new] = sizes(of)[old], steps(of)[old]
        name = name or f"{_plain(of)} (permuted)"
        return self.view(of, ne, nb, name=name, op="permute", axes=axes)

    def transpose(self, of: Tensor) -> Tensor:
        ne, nb = sizes(of), steps(of)
        shape, strides = (ne[1], ne[0], *ne[2:]), (nb[1], nb[0], *nb[2:])
        return self.view(of, shape, strides, name=f"{_plain(of)} (transposed)", op="transpose")

    def set_rows(self, into: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Rows written into ``into`` at ``ids``; the result is a view of it."""
        given = None if into.strides is None else steps(into)
        tensor = self.window(into, sizes(into), given, 0, f"{_plain(into)} (view)")
        self.node("set_rows", tensor, rows, ids, into)
        return tensor

    # -- arithmetic -------------------------------------------------------------------------

    def mul_mat(self, name: str, weight: Tensor, x: Tensor, **params: Any) -> Tensor:
        shape = (sizes(weight)[1], *sizes(x)[1:])
        return self.op("mul_mat", name, shape, weight, x, **params)

    def mul_mat_id(self, name: str, weight: Tensor, x: Tensor, ids: Tensor) -> Tensor:
        used, tokens = sizes(ids)[:2]
        return self.op("mul_mat_id", name, (sizes(weight)[1], used, tokens), weight, x, ids)

    def like(self, op: str, name: str, x: Tensor, *more: Tensor, **params: Any) -> Tensor:
        """An op whose result has the shape of its first source."""
        return self.op(op, name, sizes(x), x, *more, **params)

    def get_rows(self, name: str, table: Tensor, ids: Tensor) -> Tensor:
        return self.op("get_rows", name, (sizes(table)[0], *sizes(ids)[:3]), table, ids)

    def cont(self, name: str, x: Tensor, *shape: int) -> Tensor:
        """A packed copy, in the shape given (default: its own)."""
        return self.op("cont", name, shape or sizes(x), x)


def _plain(tensor: Tensor) -> str:
    """The name without the number that made it unique."""
    head, mark, number = tensor.name.rpartition("@")
    return head if mark and number.isdigit() else tensor.name


def _trimmed(shape: Sequence[int]) -> tuple[int, ...]:
    rank = max((d + 1 for d, size in enumerate(shape) if size != 1), default=1)
    return tuple(shape[:rank])


def _exprs(numbers: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(Expr.of(number) for number in numbers)
