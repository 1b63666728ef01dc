"""How many bytes moved between memories, in how many transfers."""

from __future__ import annotations

import threading

from .arena import Arena


class Traffic:
    """Counts per (from memory, to memory)."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._lock = threading.Lock()  # queues count at the same time
        self.bytes: dict[tuple[str, str], int] = {}
        self.transfers: dict[tuple[str, str], int] = {}

    def add(self, source: str, target: str, count: int, transfers: int = 1) -> None:
        """``count`` bytes, in all, from a tensor to a tensor."""
        key = self._arena.memory_of(source), self._arena.memory_of(target)
        with self._lock:
            self.bytes[key] = self.bytes.get(key, 0) + count
            self.transfers[key] = self.transfers.get(key, 0) + transfers
