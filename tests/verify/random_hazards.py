"""More hazards for the random documents of custom nodes: layouts, caches, prefetches, events.

Copies of strided and transposed views, a cache in an ``any`` buffer that is written through views
and read over the passes, callbacks on whole usages, nodes with declared footprints, prefetches for
a later split or the next pass, events recorded in the pass before, contracts by pair of memories.
"""

from __future__ import annotations

import random

from random_schedules import CONTRACTS, Document, _Maker


def random_document(rng: random.Random) -> Document:
    """A document of one or two asynchronous devices and the CPU."""
    return _Hazards(rng).document()


class _Hazards(_Maker):
    def document(self) -> Document:
        rng = self.rng
        self.cached = rng.random() < 0.3
        self.views: dict[str, str] = {}
        document = super().document()
        buffers = document["buffers"]
        for name in document["memories"]:
            buffers[f"a_{name}"] = {"memory": name, "usage": "any", "bytes": 128}
        for device in document["devices"]:
            if device["name"] != "cpu" and rng.random() < 0.4:
                memories = list(document["memories"])
                device["copy"] = [
                    {"from": a, "to": b, "is": rng.choice(CONTRACTS)}
                    for a in memories for b in memories
                ]  # fmt: skip
            if rng.random() < 0.2:
                device["waits_for"] = []
        return document

    # -- nodes ------------------------------------------------------------------------------------

    def _node(self, index: int, homes: dict[str, str]) -> None:
        kind = self.rng.choice(["plain", "plain", "plain", "view", "cache", "declared"])
        if kind == "view" and not self.symbolic and self._view(index, homes):
            return
        if kind == "cache" and self.cached:
            self._cache(index, homes)
            return
        super()._node(index, homes)
        node = self.nodes[-1]
        if kind == "declared":
            node["reads"] = node["src"][:1]
        if self.rng.random() < 0.08:
            node["when"] = self.rng.choice(["pass <= 0", "pass <= 1"])

    def _view(self, index: int, homes: dict[str, str]) -> bool:
        """A strided, transposed or shifted view of an earlier result, read by a new node."""
        rng = self.rng
        own = [
            t for t in homes if t.startswith(("t", "x", "w")) and "view_of" not in self.tensors[t]
        ]
        own = [
            t for t in own if self.tensors[t]["shape"] == [4] and "buffer" not in self.tensors[t]
        ]
        if not own:
            return False
        base = rng.choice(own)
        shape, strides, offset = rng.choice([
            ([2], [8], 0), ([2], [8], 4), ([2, 2], [8, 4], 0), ([1, 2], [4, 8], 4), ([3], [4], 4),
            ([2, 2], [4, 8], 0), ([2], [4], 8),
        ])  # fmt: skip
        view, name = f"v{index}", f"t{index}"
        self.tensors[view] = {
            "dtype": "f32", "shape": shape, "strides": strides, "view_of": base, "offset": offset,
        }  # fmt: skip
        device = rng.choice([*self.gpus, "cpu"])
        homes[view] = homes[base]
        self.views[view] = base
        self.tensors[name] = {"dtype": "f32", "shape": self.shape()}
        self.nodes.append({"op": "custom", "dst": name, "src": [view]})
        self.assignment[name] = device
        homes[name] = device
        return True

    def _cache(self, index: int, homes: dict[str, str]) -> None:
        """A result in a cache that outlives the pass; read where another node lies half over it."""
        rng = self.rng
        device = rng.choice([*self.gpus, "cpu"])
        space = f"a_{self.memory(device)}"
        leaf = f"k{self.memory(device)}"
        if leaf not in self.tensors:
            self.tensors[leaf] = {"dtype": "f32", "shape": [8], "buffer": space, "offset": 0}
        known = [s for s in homes if homes[s] == device or s.startswith("x")]
        name = f"t{index}"
        self.tensors[name] = {
            "dtype": "f32", "shape": [4], "view_of": leaf, "offset": rng.choice([0, 4, 8, 16]),
        }  # fmt: skip
        sources = [rng.choice(known)] if known else ["x0"]
        if rng.random() < 0.5:
            sources.append(leaf)
            homes.setdefault(leaf, device)
        self.nodes.append({"op": "custom", "dst": name, "src": sources})
        self.assignment[name] = device
        homes[name] = device

    # -- program ----------------------------------------------------------------------------------

    def _program(self, splits: list[Document]) -> None:
        super()._program(splits)
        rng, out = self.rng, self.program
        for command in out:
            if command["do"] == "callback" and rng.random() < 0.6:
                command["writes"] = [rng.choice(["usage:weights", "usage:any", "x0"])]
                command["reads"] = rng.choice([[], ["x0"], ["usage:weights"]])
            if command["do"] == "copy" and rng.random() < 0.15:
                self._prefetch(command, len(splits))
        if rng.random() < 0.3:
            self._event_of_last_pass()
        if rng.random() < 0.2:
            syncs = [c for c in out if c["do"] == "sync_queue"]
            if syncs:
                self._by_event(rng.choice(syncs))

    def _prefetch(self, command: Document, splits: int) -> None:
        """The same copy, issued while another split is current."""
        used = command["split"]
        command |= {"do": "prefetch", "for_split": used}
        command["split"] = (
            self.rng.randrange(splits) if self.rng.random() < 0.3 else max(0, used - 1)
        )

    def _event_of_last_pass(self) -> None:
        """A wait near the start for a record near the end: in the first pass it orders nothing."""
        rng, out = self.rng, self.program
        queue = f"{rng.choice(self.gpus)}.{rng.choice(['compute', 'copy'])}"
        out.insert(rng.randrange(len(out) // 2 + 1), {
            "do": "wait", "event": "last", "queue": queue,
        })  # fmt: skip
        out.insert(rng.randrange(len(out) // 2, len(out) + 1), {
            "do": "record", "event": "last",
            "queue": f"{self.gpus[0]}.{rng.choice(['compute', 'copy'])}",
        })  # fmt: skip

    def _by_event(self, sync: Document) -> None:
        """A host synchronisation in two steps: a record, and later a wait of the host for it."""
        rng, out = self.rng, self.program
        index = out.index(sync)
        self.events += 1
        event = f"e{self.events}"
        record = {"do": "record", "event": event, "queue": sync["queue"]}
        out[index : index + 1] = [record, {"do": "sync_event", "event": event}]
        if rng.random() < 0.3:
            out.insert(rng.randrange(index + 1), record)
