"""Where a model is to run: devices, and in which memory weights and caches lie."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..device import Buffer, Device, Memory, Usage
from ..read.gguf import FileTensor

#: The buffer of weights that stay where the file is mapped; offsets in it are those of the file.
FILE = "file"
_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class Setting:
    """``weights``: ``(regular expression, memory)``; the first that is found in a tensor's name
    says where it is loaded to, the others stay in the mapped file, in host memory.  ``cache``:
    the memory of the KV cache; ``caches``: the same as for weights, for parts of it by name
    (``cache_k_l0``, …)."""

    memories: tuple[Memory, ...] = (Memory("host", host=True),)
    devices: tuple[Device, ...] = (Device("cpu", "host", ("host",), events=False),)
    weights: tuple[tuple[str, str], ...] = ()
    cache: str = "host"
    caches: tuple[tuple[str, str], ...] = ()

    @property
    def host(self) -> str:
        """The memory of the last device, the CPU's."""
        return self.devices[-1].memory


@dataclass(slots=True)
class Site:
    """Hands out places while a graph is built."""

    setting: Setting
    file_size: int
    ends: dict[str, int] = field(default_factory=dict)
    loaded: dict[str, tuple[str, int]] = field(default_factory=dict)

    def place(self, entry: FileTensor) -> tuple[str, int]:
        """Buffer and offset of a weight."""
        for pattern, memory in self.setting.weights:
            if re.search(pattern, entry.name):
                place = self._append(f"weights:{memory}", entry.nbytes)
                self.loaded[entry.name] = place
                return place
        return FILE, entry.offset

    def reserve(self, name: str, nbytes: int) -> tuple[str, int]:
        """Buffer and offset of a cache."""
        found = (memory for pattern, memory in self.setting.caches if re.search(pattern, name))
        return self._append(f"cache:{next(found, self.setting.cache)}", nbytes)

    def _append(self, buffer: str, nbytes: int) -> tuple[str, int]:
        offset = -(-self.ends.get(buffer, 0) // _ALIGNMENT) * _ALIGNMENT
        self.ends[buffer] = offset + nbytes
        return buffer, offset

    def buffers(self) -> tuple[Buffer, ...]:
        found = [Buffer(FILE, self.setting.host, Usage.WEIGHTS, self.file_size)]
        for name, end in self.ends.items():
            kind, _, memory = name.partition(":")
            usage = Usage.WEIGHTS if kind == "weights" else Usage.ANY
            found.append(Buffer(name, memory, usage, end))
        return tuple(found)
