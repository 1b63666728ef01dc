"""What devices support and want, at given sizes, and where in the symbols that changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..device import Device, OpPattern
from ..graph import Graph, Node
from ..ops import OPS
from ..symbol import Expr
from ..tensor import Tensor
from .error import PlanError


@dataclass(frozen=True, slots=True)
class Threshold:
    """A question that a decision hangs on: whether ``size >= bound``.

    ``kind``: ``"offload"`` or ``"capability"``; ``node`` and ``device``: who asks it first.
    """

    kind: str
    size: Expr
    bound: int
    node: str
    device: str


def batch(node: Node, graph: Graph) -> Expr:
    """The batch by which a device decides whether an op is worth its weights' transfer.

    As in the offload test of ggml's GPU backends: the columns of a product, the tokens of a
    product by experts or a rotation, nothing for a look-up, and otherwise the rows.
    """
    dst = graph.tensor(node.dst)
    ne = dst.ne
    if node.op == "get_rows":
        return Expr.of(0)
    if node.op == "mul_mat":
        return ne[1]
    if node.op in ("mul_mat_id", "rope"):
        return ne[2]
    return ne[1] * ne[2] * ne[3]


class Capabilities:
    """Masks of the devices that support and that want a node.

    ``values``: a value for each symbol.  ``minimum``: a batch that replaces each device's own.
    """

    def __init__(self, graph: Graph, values: Mapping[str, int], minimum: int | None = None) -> None:
        self.graph = graph
        self.values = values
        self.minimum = minimum
        self.bit = {d.name: 1 << j for j, d in enumerate(graph.devices)}
        self.everyone = (1 << len(graph.devices)) - 1
        self._lists: dict[tuple[str, ...], int] = {}
        self._signatures: dict[object, int] = {}
        self._plain: dict[str, bool] = {}

    def supported(self, nodes: Iterable[Node]) -> Iterator[int]:
        """:meth:`supports` of many nodes; an op that nobody has a question about is asked once."""
        settled: dict[str, int] = {}
        for node in nodes:
            op = node.op
            if node.supported_by is not None:
                yield self.listed(node.supported_by)
            elif op in settled:
                yield settled[op]
            else:
                mask = self.supports(node)
                if OPS[op].view or self.plain(op):
                    settled[op] = mask
                yield mask

    def supports(self, node: Node) -> int:
        """The devices that can run a node.  A view needs no command, so all can."""
        if node.supported_by is not None:
            return self.listed(node.supported_by)
        if OPS[node.op].view:
            return self.everyone
        key = self.signature(node)
        if key not in self._signatures:
            self._signatures[key] = sum(
                self.bit[d.name] for d in self.graph.devices if self.runs(d, node)
            )
        return self._signatures[key]

    def wants(self, node: Node) -> int:
        """The devices that take a node together with its host weights, if they support it."""
        if node.wanted_by is not None and self.minimum is None:
            return self.listed(node.wanted_by)
        tokens = self.value(node, node.dst, batch(node, self.graph))
        return sum(self.bit[d.name] for d in self.graph.devices if tokens >= self.least(d))

    def least(self, device: Device) -> int:
        return device.offload_min_tokens if self.minimum is None else self.minimum

    def listed(self, names: tuple[str, ...]) -> int:
        if names not in self._lists:
            self._lists[names] = sum(self.bit[name] for name in set(names))
        return self._lists[names]

    def signature(self, node: Node) -> object:
        """Nodes of equal signatures are supported by the same devices."""
        if self.plain(node.op):
            return node.op
        operands = [self.graph.tensor(name) for name in (node.dst, *node.src)]
        return node.op, tuple((t.dtype, t.shape) for t in operands)

    def plain(self, op: str) -> bool:
        """Whether no device asks about types or sizes of this op."""
        if op not in self._plain:
            self._plain[op] = not any(
                p.op in ("*", op) and (p.dtypes or p.ne)
                for d in self.graph.devices
                for p in (*(d.ops or ()), *d.deny)
            )
        return self._plain[op]

    def runs(self, device: Device, node: Node) -> bool:
        if any(self.matches(pattern, node) for pattern in device.deny):
            return False
        return device.ops is None or any(self.matches(p, node) for p in device.ops)

    def matches(self, pattern: OpPattern, node: Node) -> bool:
        if not self.may_match(pattern, node):
            return False
        for operand, dimension, span in pattern.ne:
            tensor = self.operand(node, operand)
            assert tensor is not None
            size = self.value(node, tensor.name, tensor.ne[dimension])
            if span.low is not None and size < span.low:
                return False
            if span.high is not None and size > span.high:
                return False
        return True

    def may_match(self, pattern: OpPattern, node: Node) -> bool:
        """Whether a pattern matches at some sizes: op, operands and types fit."""
        if pattern.op not in ("*", node.op):
            return False
        for operand, dtype in pattern.dtypes:
            tensor = self.operand(node, operand)
            if tensor is None or tensor.dtype.lower() != dtype.lower():
                return False
        return all(self.operand(node, operand) is not None for operand, _, _ in pattern.ne)

    def operand(self, node: Node, name: str) -> Tensor | None:
        """``"dst"`` or ``"src0"``…: the slot's number, where a slot before it is empty."""
        if name == "dst":
            return self.graph.tensor(node.dst)
        slots = node.param("src_slot") or range(len(node.src))
        number = int(name.removeprefix("src"))
        for source, slot in zip(node.src, slots, strict=True):
            if slot == number:
                return self.graph.tensor(source)
        return None

    def value(self, node: Node, name: str, size: Expr) -> int:
        tensor = self.graph.tensor(name)
        if not tensor.shape and tensor.bytes is not None:
            raise PlanError(
                f"where {node.dst!r} ({node.op}) runs hangs on the shape of {name!r}, of which "
                "only the size in bytes is known; give its shape, or list the node's "
                "supported_by and wanted_by",
                tensor=name, op=node.op,
            )  # fmt: skip
        constant = size.constant
        return size.value(self.values) if constant is None else constant

    # -- where answers change -----------------------------------------------------------------

    def thresholds(self, node: Node, offload: bool) -> Iterator[Threshold]:
        """The questions about sizes with symbols that the masks of a node hang on.

        ``offload``: whether it is asked who wants the node.
        """
        if offload and (node.wanted_by is None or self.minimum is not None):
            size = batch(node, self.graph)
            if size.constant is None:
                for device in self.graph.devices[:-1]:
                    yield Threshold("offload", size, self.least(device), node.dst, device.name)
        if node.supported_by is not None or OPS[node.op].view or self.plain(node.op):
            return
        for device in self.graph.devices:
            for pattern in (*(device.ops or ()), *device.deny):
                if pattern.ne and self.may_match(pattern, node):
                    yield from self.bounds(pattern, node, device.name)

    def bounds(self, pattern: OpPattern, node: Node, device: str) -> Iterator[Threshold]:
        for operand, dimension, span in pattern.ne:
            tensor = self.operand(node, operand)
            assert tensor is not None
            size = tensor.ne[dimension]
            if size.constant is not None:
                continue
            if span.low is not None:
                yield Threshold("capability", size, span.low, node.dst, device)
            if span.high is not None:
                yield Threshold("capability", size, span.high + 1, node.dst, device)
