"""What is computed: nodes over tensors, and the banks that cache experts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .device import Buffer, Device, Memory
from .symbol import ALWAYS, Condition
from .tensor import Tensor


@dataclass(frozen=True, slots=True)
class Node:
    """One op.  ``dst`` names the node; each tensor is the destination of at most one.

    ``supported_by``/``wanted_by`` replace the devices' patterns where they are given.
    ``reads``/``writes``: the footprint of a ``custom`` op if it is not its sources and its
    destination, whole (names of tensors).
    """

    op: str
    dst: str
    src: tuple[str, ...] = ()
    params: tuple[tuple[str, Any], ...] = ()
    when: Condition = ALWAYS
    supported_by: tuple[str, ...] | None = None
    wanted_by: tuple[str, ...] | None = None
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None

    def param(self, name: str, default: Any = None) -> Any:
        for key, value in self.params:
            if key == name:
                return value
        return default


@dataclass(frozen=True, slots=True)
class Bank:
    """A cache of experts in slots of a device's memory.

    ``name``: the tensor of the slots, ``[…, slots (+ spare)]``.  ``caches``: the host tensor
    ``[…, n_expert]``.  Banks of one ``group`` share one map from (layer, expert) to slots; a
    fill of a layer fills all roles of it.  Operands reach the slots through ``slot_ids``
    (same shape as ``ids``) or ``slot_map`` (i32 ``[1, n_expert]``).
    """

    name: str
    caches: str
    layer: int
    role: str
    group: str
    slots: int
    ids: str
    policy: str = "lru-slots"
    slot_ids: str | None = None
    slot_map: str | None = None
    when: Condition = ALWAYS


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in topological order, with everything that they need named.

    Its meaning is the sequential execution of the nodes.  ``symbols``: ``(name, low, high)``,
    both ends included.
    """

    symbols: tuple[tuple[str, int, int], ...] = ()
    memories: tuple[Memory, ...] = ()
    devices: tuple[Device, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    nodes: tuple[Node, ...] = ()
    banks: tuple[Bank, ...] = ()
    op_offload: bool = True
    n_copies: int = 1
    _index: dict[str, dict[str, Any]] = field(
        init=False, repr=False, compare=False, hash=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._index["memory"] = {m.name: m for m in self.memories}
        self._index["device"] = {d.name: d for d in self.devices}
        self._index["buffer"] = {b.name: b for b in self.buffers}
        self._index["tensor"] = {t.name: t for t in self.tensors}
        self._index["node"] = {n.dst: n for n in self.nodes}
        self._index["position"] = {n.dst: i for i, n in enumerate(self.nodes)}
        self._index["bank"] = {b.name: b for b in self.banks}
        self._index["slot_map"] = {b.slot_map: b for b in reversed(self.banks) if b.slot_map}
        self._index["slot_ids"] = {b.slot_ids: b for b in reversed(self.banks) if b.slot_ids}

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The range of each symbol, both ends included."""
        return {name: (low, high) for name, low, high in self.symbols}

    def memory(self, name: str) -> Memory:
        return self._index["memory"][name]  # type: ignore[no-any-return]

    def device(self, name: str) -> Device:
        return self._index["device"][name]  # type: ignore[no-any-return]

    def buffer(self, name: str) -> Buffer:
        return self._index["buffer"][name]  # type: ignore[no-any-return]

    def tensor(self, name: str) -> Tensor:
        """The declared tensor; ``KeyError`` otherwise (copies: see ``Schedule.tensor``)."""
        return self._index["tensor"][name]  # type: ignore[no-any-return]

    def find_tensor(self, name: str) -> Tensor | None:
        return self._index["tensor"].get(name)

    def find_bank(self, name: str) -> Bank | None:
        return self._index["bank"].get(name)

    def find_slot_map(self, name: str) -> Bank | None:
        """The first bank that has this tensor as its slot map."""
        return self._index["slot_map"].get(name)

    def find_slot_ids(self, name: str) -> Bank | None:
        """The first bank that has this tensor as its slot ids."""
        return self._index["slot_ids"].get(name)

    def node(self, dst: str) -> Node:
        return self._index["node"][dst]  # type: ignore[no-any-return]

    def find_node(self, dst: str) -> Node | None:
        return self._index["node"].get(dst)

    def position(self, dst: str) -> int:
        """Index of the node in graph order."""
        return self._index["position"][dst]  # type: ignore[no-any-return]

    def base(self, name: str) -> Tensor:
        """The tensor that owns the bytes of ``name`` (itself if it is no view)."""
        tensor = self.tensor(name)
        while tensor.view_of is not None:
            tensor = self.tensor(tensor.view_of)
        return tensor
