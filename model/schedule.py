"""A schedule: a graph, who runs what, and the program that the host issues."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .command import Command, Compute
from .device import HOST, Usage
from .graph import Graph
from .ops import OPS
from .symbol import Expr
from .tensor import Tensor, packed_strides


@dataclass(frozen=True, slots=True)
class Split:
    """A run of nodes ``[start, end)`` on one device; ``inputs`` are copied in first.

    ``callbacks`` stand for the user code that the plain lowering calls before the split.
    """

    device: str
    start: int
    end: int
    inputs: tuple[str, ...] = ()
    callbacks: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor's first byte lies.

    ``space``: a buffer's name, or ``own:TENSOR`` for a tensor without a placement.
    ``memory``: the name of the memory, ``None`` if nothing says which.
    ``usage``: ``None`` for bytes of its own (they behave as compute bytes).
    """

    space: str
    offset: Expr
    memory: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The thing that is checked and run.

    ``assignment``: ``(tensor, device)``.  ``placements``: ``(tensor, buffer, offset)``.
    ``program`` is ``None`` for a graph- or split-level schedule, ``splits`` too for a graph.
    ``repeat``: passes that follow each other with nothing between.
    """

    graph: Graph
    name: str = ""
    assignment: tuple[tuple[str, str], ...] = ()
    splits: tuple[Split, ...] | None = None
    placements: tuple[tuple[str, str, Expr], ...] = ()
    program: tuple[Command, ...] | None = None
    repeat: int = 1
    _index: dict[str, Any] = field(
        init=False, repr=False, compare=False, hash=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._index["assignment"] = dict(self.assignment)
        self._index["placement"] = {name: (buffer, off) for name, buffer, off in self.placements}
        self._index["copy"] = {}
        self._index["copied"] = {}
        self._index["location"] = {}

    @property
    def level(self) -> str:
        """``"graph"``, ``"split"`` or ``"program"``."""
        if self.program is not None:
            return "program"
        return "graph" if self.splits is None else "split"

    def device_of(self, name: str) -> str | None:
        """The device that a node (or leaf) is assigned to."""
        return self._index["assignment"].get(name)  # type: ignore[no-any-return]

    # -- copies of tensors in a device's memory ---------------------------------------------

    def copy_name(self, device: str, tensor: str, copy: int | None = None) -> str:
        """``DEVICE#TENSOR``, or ``DEVICE#TENSOR#c`` for copy c of several."""
        return f"{device}#{tensor}" if copy is None else f"{device}#{tensor}#{copy}"

    def copy_of(self, name: str) -> tuple[str, str] | None:
        """``(device, tensor)`` if the name is that of a copy of a declared tensor."""
        known: dict[str, tuple[str, str] | None] = self._index["copy"]
        if name not in known:
            known[name] = self._find_copy(name) if "#" in name else None
        return known[name]

    def _find_copy(self, name: str) -> tuple[str, str] | None:
        for device in self.graph.devices:
            if not name.startswith(device.name + "#"):
                continue
            rest = name[len(device.name) + 1 :]
            if self.graph.find_tensor(rest) is not None:
                return device.name, rest
            original, _, index = rest.rpartition("#")
            if index.isascii() and index.isdigit() and self.graph.find_tensor(original) is not None:
                return device.name, original
        return None

    def copy_index(self, name: str) -> int | None:
        """The c of ``DEVICE#TENSOR#c``; ``None`` for any other name."""
        copy = self.copy_of(name)
        if copy is None or name == self.copy_name(*copy):
            return None
        return int(name.rpartition("#")[2])

    def find_tensor(self, name: str) -> Tensor | None:
        """The tensor of that name: declared, or the copy of a declared one (then packed)."""
        tensor = self.graph.find_tensor(name)
        if tensor is not None:
            return tensor
        copy = self.copy_of(name)
        if copy is None:
            return None
        copies: dict[str, Tensor] = self._index["copied"]
        if name not in copies:
            copies[name] = self._copied(name, self.graph.tensor(copy[1]))
        return copies[name]

    def _copied(self, name: str, original: Tensor) -> Tensor:
        # A copy that nobody declared is packed and owns its bytes.
        return replace(
            original, name=name, view_of=None, buffer=None, offset=None, strides=None,
            input=False, output=False, pin=None, about=original.about and original.view_of is None,
        )  # fmt: skip

    def tensor(self, name: str) -> Tensor:
        """As :meth:`find_tensor`; ``KeyError`` if there is none."""
        tensor = self.find_tensor(name)
        if tensor is None:
            raise KeyError(name)
        return tensor

    def base(self, name: str) -> Tensor:
        """The tensor that owns the bytes of ``name``."""
        tensor = self.tensor(name)
        while tensor.view_of is not None:
            tensor = self.tensor(tensor.view_of)
        return tensor

    # -- where things are -------------------------------------------------------------------

    def location(self, name: str) -> Location:
        """Where the first byte of a tensor lies.  Views start inside their base."""
        known: dict[str, Location] = self._index["location"]
        if name not in known:
            known[name] = self._locate(self.tensor(name))
        return known[name]

    def _locate(self, tensor: Tensor) -> Location:
        if tensor.view_of is not None:
            base = self.location(tensor.view_of)
            return replace(base, offset=base.offset + (tensor.offset or Expr.of(0)))
        placed = self._index["placement"].get(tensor.name)
        if placed is None and tensor.buffer is not None:
            placed = (tensor.buffer, tensor.offset or Expr.of(0))
        if placed is not None:
            buffer = self.graph.buffer(placed[0])
            return Location(buffer.name, placed[1], buffer.memory, buffer.usage)
        return Location(f"own:{tensor.name}", Expr.of(0), self._own_memory(tensor), None)

    def _own_memory(self, tensor: Tensor) -> str | None:
        graph = self.graph
        copy = self.copy_of(tensor.name)  # by its name, whether or not it has an entry
        device = copy[0] if copy else self.device_of(tensor.name) or tensor.pin
        if device is None and not tensor.input:
            device = self._writing_device(tensor.name)
        if device is None and graph.devices and graph.find_node(tensor.name) is None:
            device = graph.devices[-1].name  # an input, or another leaf: the CPU's
        return graph.device(device).memory if device is not None else None

    def _writing_device(self, base: str) -> str | None:
        """The device of the first node that writes a base through a view."""
        if "writers" not in self._index:
            writers: dict[str, str] = {}
            for node in self.graph.nodes:
                device = self.device_of(node.dst)
                known = self.find_tensor(node.dst)
                if device is not None and known is not None and not OPS[node.op].view:
                    writers.setdefault(self.base(node.dst).name, device)
            self._index["writers"] = writers
        return self._index["writers"].get(base)  # type: ignore[no-any-return]

    # -- commands ---------------------------------------------------------------------------

    def queue_device(self, queue: str) -> str:
        """The device of a queue's name; ``"host"`` for the host's."""
        return HOST if queue == HOST else queue.rpartition(".")[0]

    def queue_of(self, command: Command) -> str:
        """The queue that a command is issued on; ``"host"`` for host commands, and for what
        is issued to a synchronous device."""
        queue: str | None = getattr(command, "queue", None)
        if isinstance(command, Compute) and queue is None:
            device = self.device_of(command.node)
            return self.graph.device(device).first_queue if device is not None else HOST
        if queue is None or command.do == "sync_queue":
            return HOST
        name = self.queue_device(queue)
        if name != HOST and not self.graph.device(name).asynchronous:
            return HOST
        return queue

    def compute_device(self, command: Compute) -> str | None:
        """The device that runs a compute: that of the queue named, else the node's."""
        if command.queue is not None and command.queue != HOST:
            return self.queue_device(command.queue)
        return self.device_of(command.node)

    def bound(self, command: Compute, index: int) -> str:
        """The tensor that a compute reads in the place of source number ``index``.

        What the command binds; else, if the source is an input of its split, its copy on the
        split's device; else the source.
        """
        source = self.graph.node(command.node).src[index]
        for name, tensor in command.bind:
            if name == source:
                return tensor
        if self.splits is not None and command.split is not None:
            split = self.splits[command.split]
            if source in split.inputs:
                return self.copy_name(split.device, source, command.copy)
        return source


def same_layout(left: Tensor, right: Tensor) -> bool:
    """Whether the k-th bytes of two tensors lie at equal distances from their first."""
    return left.dtype == right.dtype and left.shape == right.shape and left.nb == right.nb


__all__ = ["Location", "Schedule", "Split", "packed_strides", "same_layout"]
