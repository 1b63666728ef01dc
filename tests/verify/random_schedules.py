"""Random small program-level documents: close to right, with something often missing."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]

CONTRACTS = ("stream", "stream", "sync", "staged", "unordered")


def random_document(rng: random.Random) -> Document:
    """A document of one or two asynchronous devices and the CPU, two to five custom nodes."""
    return _Maker(rng).document()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.gpus = ["gpu0", "gpu1"][: rng.choice([1, 1, 2])]
        self.symbolic = rng.random() < 0.5
        self.tensors: Document = {}
        self.nodes: list[Document] = []
        self.assignment: dict[str, str] = {}
        self.program: list[Document] = []
        self.events = 0

    def shape(self) -> list[Any]:
        return [4, "n"] if self.symbolic else [4]

    def memory(self, device: str) -> str:
        return "host" if device == "cpu" else f"v{device[3:]}"

    def document(self) -> Document:
        rng = self.rng
        for name in ("x0", "x1")[: rng.choice([1, 2])]:
            self.tensors[name] = {"dtype": "f32", "shape": self.shape(), "input": True}
        self.tensors["w"] = {
            "dtype": "f32", "shape": [4], "buffer": "w_host", "offset": 0,
        }  # fmt: skip
        homes = dict.fromkeys(self.tensors, "cpu")
        for index in range(rng.randint(2, 5)):
            self._node(index, homes)
        splits = self._splits(homes)
        self._program(splits)
        self._mutate()
        last = self.nodes[-1]["dst"]
        self.tensors[last]["output"] = True
        self._place(homes)
        contract = rng.choice(CONTRACTS)
        devices: list[Document] = [
            {
                "name": gpu, "memory": self.memory(gpu), "reads": [self.memory(gpu)],
                "async": True, "copy": contract, "queues": ["compute", "copy"],
                "waits_for": [g for g in self.gpus if g != gpu],
                "in_place": [{"op": "custom", "src": 0}, {"op": "custom", "src": 1}],
            }
            for gpu in self.gpus
        ]  # fmt: skip
        in_place = [{"op": "custom", "src": 0}, {"op": "custom", "src": 1}]
        devices.append({"name": "cpu", "memory": "host", "reads": ["host"], "in_place": in_place})
        memories: Document = {"host": {"host": True}}
        memories |= {self.memory(g): {} for g in self.gpus}
        buffers: Document = {"w_host": {"memory": "host", "usage": "weights", "bytes": 64}}
        for name in memories:
            buffers[f"c_{name}"] = {"memory": name, "usage": "compute", "bytes": 4096}
        return {
            "format": "splitproof/1", "name": "random",
            "symbols": {"n": [1, 3]} if self.symbolic else {},
            "memories": memories, "devices": devices, "buffers": buffers,
            "tensors": self.tensors, "nodes": self.nodes, "assignment": self.assignment,
            "splits": splits, "program": self.program, "repeat": rng.choice([1, 2, 2, 3]),
        }  # fmt: skip

    def _node(self, index: int, homes: dict[str, str]) -> None:
        rng = self.rng
        device = rng.choice([*self.gpus, "cpu"])
        known = list(homes)
        sources = rng.sample(known, k=min(len(known), rng.choice([1, 1, 2])))
        if sources == ["w"]:  # nothing that changes from pass to pass: a stale read would not show
            sources.append("x0")
        name = f"t{index}"
        own = [s for s in known if s.startswith("t") and homes[s] == device]
        if own and not self.symbolic and rng.random() < 0.25:
            base = rng.choice(own)
            base = self.tensors[base].get("view_of", base)
            half = rng.random() < 0.5
            shape, offset = ([2], 8) if half else ([4], 0)
            self.tensors[name] = {
                "dtype": "f32", "shape": shape, "view_of": base, "offset": offset,
            }  # fmt: skip
        else:
            self.tensors[name] = {"dtype": "f32", "shape": self.shape()}
        self.nodes.append({"op": "custom", "dst": name, "src": sources})
        self.assignment[name] = device
        homes[name] = device

    def _splits(self, homes: dict[str, str]) -> list[Document]:
        splits: list[Document] = []
        for index, node in enumerate(self.nodes):
            device = self.assignment[node["dst"]]
            if not splits or splits[-1]["device"] != device or self.rng.random() < 0.3:
                splits.append({"device": device, "nodes": [index, index], "inputs": []})
            split = splits[-1]
            split["nodes"][1] = index + 1
            for source in node["src"]:
                far = self.memory(homes[source]) != self.memory(device)
                if far and source not in split["inputs"]:
                    split["inputs"].append(source)
        return splits

    def _program(self, splits: list[Document]) -> None:
        rng, out = self.rng, self.program
        for name, tensor in self.tensors.items():
            if tensor.get("input"):
                out.append({"do": "set_input", "tensor": name})
        for index, split in enumerate(splits):
            device = split["device"]
            if rng.random() < 0.15:
                out.append({
                    "do": "callback", "name": f"cb{index}", "reads": [], "writes": ["w"],
                    "split": index,
                })  # fmt: skip
            for source in split["inputs"]:
                self._copy(source, device, index)
            for node in self.nodes[slice(*split["nodes"])]:
                out.append({"do": "compute", "node": node["dst"], "split": index})
            if device != "cpu" and rng.random() < 0.6:
                out.append({"do": "sync_queue", "queue": f"{device}.compute"})
        if rng.random() < 0.8:
            for gpu in self.gpus:
                out.append({"do": "sync_queue", "queue": f"{gpu}.compute"})
                if rng.random() < 0.5:
                    out.append({"do": "sync_queue", "queue": f"{gpu}.copy"})
        out.append({"do": "get_output", "tensor": self.nodes[-1]["dst"]})

    def _copy(self, source: str, device: str, index: int) -> None:
        rng, out = self.rng, self.program
        runner = device if device != "cpu" else self.assignment.get(source, self.gpus[0])
        if runner == "cpu":
            runner = self.gpus[0]
        if rng.random() < 0.1 and self.assignment.get(source, "cpu") != "cpu":
            runner = self.assignment[source]
        side = rng.random() < 0.3
        queue = f"{runner}.copy" if side else f"{runner}.compute"
        out.append({
            "do": "copy", "src": source, "dst": f"{device}#{source}", "queue": queue,
            "split": index,
        })  # fmt: skip
        if device == "cpu" or rng.random() < 0.1:
            if rng.random() < 0.9:
                out.append({"do": "sync_queue", "queue": queue})
        elif side or runner != device:
            self.events += 1
            event = f"e{self.events}"
            out.append({"do": "record", "event": event, "queue": queue})
            if rng.random() < 0.85:
                out.append({"do": "wait", "event": event, "queue": f"{device}.compute"})

    def _mutate(self) -> None:
        rng, out = self.rng, self.program
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            kind = rng.choice(["drop", "swap", "move", "guard"])
            index = rng.randrange(len(out))
            free = [i for i, c in enumerate(out) if c["do"] in ("sync_queue", "wait")]
            if kind == "drop" and free:
                del out[rng.choice(free)]
            elif kind == "swap" and index + 1 < len(out):
                out[index], out[index + 1] = out[index + 1], out[index]
            elif kind == "move":
                command = out.pop(index)
                out.insert(max(0, index - rng.randint(1, 3)), command)
            elif kind == "guard" and free:
                guard = "pass >= 1" if not self.symbolic else rng.choice(["n <= 2", "pass == 0"])
                out[rng.choice(free)]["when"] = guard

    def _place(self, homes: dict[str, str]) -> None:
        """Put some compute tensors on shared bytes: room for a few, handed out at random."""
        rng = self.rng
        if rng.random() < 0.4:
            return
        slots = rng.choice([2, 3, 6])
        size = 48 if self.symbolic else 16
        for name, tensor in list(self.tensors.items()):
            if "view_of" in tensor or "buffer" in tensor:
                continue
            memory = self.memory(homes[name])
            tensor["buffer"] = f"c_{memory}"
            tensor["offset"] = rng.randrange(slots) * size + rng.choice([0, 0, 0, 8])
        for command in self.program:
            if command["do"] != "copy" or command["dst"] in self.tensors or rng.random() < 0.5:
                continue
            device, _, source = command["dst"].partition("#")
            shape = self.tensors[source]["shape"]
            self.tensors[command["dst"]] = {
                "dtype": "f32", "shape": shape, "buffer": f"c_{self.memory(device)}",
                "offset": rng.randrange(slots) * size,
            }  # fmt: skip
