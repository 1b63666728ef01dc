"""What the devices of a schedule are: threads of this process, or GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..model.command import Compute
from ..model.device import Device
from ..model.graph import Node
from ..model.schedule import Schedule
from .layout import Layout
from .operand import Operand
from .quant import Bytes
from .queue import Job, MakeLane
from .window import RemoteOperand, Window

#: Bytes; a cache line, and the widest vector.
ALIGNMENT = 64


class HardwareError(ValueError):
    """A schedule that GPUs cannot run as it says; the message names the device."""


class MemoryShortError(RuntimeError):
    """More bytes than a GPU has left; the message names the device, the need and what is free."""


class Kernels(Protocol):
    """The kernels of one program on a GPU."""

    def compute(self, index: int, node: Node, target: Operand, sources: Sequence[Operand]) -> Job:
        """A job for command ``index``.  ``NoKernelError``."""

    def begin(self) -> None:
        """Before a run: no command is faulty."""

    def faulty(self) -> int | None:
        """When all has ended: the first command of which a kernel met an id out of range."""


class Gpu(Protocol):
    """A device with a memory of its own, which queues of its own work on."""

    name: str

    def require(self, count: int, purpose: str) -> None:
        """``MemoryShortError`` if so many bytes are not free."""

    def allocate(self, count: int, value: int) -> Window:
        """So many bytes of that value in its memory."""

    def host_bytes(self, count: int, value: int) -> Bytes:
        """Host memory that copies reach without a detour."""

    def make_lane(self, watched: bool) -> MakeLane:
        """Lanes for its queues.  ``watched``: a job has done its work when it ends."""

    def kernels(self, commands: int) -> Kernels:
        """For a program of so many commands."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """``gpus``: by name of device; every other device is a thread for each of its queues."""

    gpus: Mapping[str, Gpu] = field(default_factory=dict)

    def memories(self, devices: Sequence[Device]) -> dict[str, Gpu]:
        """The GPU whose memory it is, by name of memory."""
        return {d.memory: self.gpus[d.name] for d in devices if d.name in self.gpus}

    def host_bytes(self, count: int, value: int) -> Bytes:
        """Host memory; of a kind that copies of GPUs reach without a detour, if there are any."""
        for gpu in self.gpus.values():
            return gpu.host_bytes(count, value)
        return allocate(count, value)

    def allocate(
        self, devices: Sequence[Device], wanted: Mapping[str, Wanted]
    ) -> dict[str, Bytes | Window]:
        """Memory for spaces, by name.  Nothing is taken of a GPU that has too little for all:
        ``MemoryShortError``."""
        owners = self.memories(devices)
        for gpu in dict.fromkeys(owners.values()):
            parts = {n: w.bytes for n, w in wanted.items() if owners.get(str(w.memory)) is gpu}
            gpu.require(sum(parts.values()), ", ".join(_largest(parts)))
        return {
            name: self.host_bytes(want.bytes, want.value)
            if (owner := owners.get(str(want.memory))) is None
            else owner.allocate(want.bytes, want.value)
            for name, want in wanted.items()
        }

    def hold(self, schedule: Schedule) -> None:
        """``HardwareError`` if a kernel would touch a memory that is not its device's."""
        graph, owners = schedule.graph, self.memories(schedule.graph.devices)
        for memory in graph.memories:
            if memory.host and memory.name in owners:
                owner = owners[memory.name].name
                raise HardwareError(f"{owner} has the memory {memory.name}, which is the host's")
        for command in schedule.program or ():
            if isinstance(command, Compute) and self.gpus:
                device = schedule.compute_device(command)
                node = graph.node(command.node)
                sources = [schedule.bound(command, index) for index in range(len(node.src))]
                for name in (node.dst, *sources):
                    place = schedule.location(name).memory
                    if owners.get(str(place)) is not self.gpus.get(str(device)):
                        raise HardwareError(
                            f"{node.op} {node.dst} runs on {device}, and {name} lies in {place}: "
                            "kernels of a GPU work on its own memory, and no others do"
                        )


#: No GPU.
THREADS = Hardware()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bytes of a memory that start as ``value``."""

    memory: str | None
    bytes: int
    value: int


def _largest(parts: Mapping[str, int]) -> list[str]:
    """The three that take most, in words."""
    most = sorted(parts.items(), key=lambda part: -part[1])[:3]
    return [f"{name} ({count:,} bytes)" for name, count in most]


def operand_of(layout: Layout, data: Bytes | Window) -> Operand:
    return RemoteOperand(layout, data) if isinstance(data, Window) else Operand(layout, data)  # type: ignore[arg-type]


def allocate(count: int, value: int) -> Bytes:
    """Aligned bytes.  Filling them also makes the system hand out the pages: a first touch in
    the middle of a run costs more than the kernel that makes it."""
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    raw[start : start + count] = value
    return raw[start : start + count]
