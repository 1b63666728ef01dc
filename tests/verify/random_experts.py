"""Random small documents about experts: banks that are filled, weights of which some are copied.

One or two layers, each a ``mul_mat_id`` on gpu0 whose weights come through a bank (slot ids, or a
slot map), by selective or whole copies; ids from the user or computed; then something that goes
wrong with every other document: a wait dropped, commands swapped, a guard, another queue.
"""

from __future__ import annotations

import random
from typing import Any

from splitproof.model.schedule import Schedule

Document = dict[str, Any]

EXPERTS = 3
CONTRACTS = ("stream", "stream", "sync", "staged", "unordered")
#: bytes of one expert: two floats
EXPERT = 8


def random_document(rng: random.Random) -> Document:
    """A document of gpu0 and the CPU with one or two layers of experts."""
    return _Maker(rng).document()


def random_start(schedule: Schedule, rng: random.Random) -> tuple[Any, ...]:
    """Random contents of the slots, in the form of a counterexample's ``banks``."""
    found = []
    for bank in {bank.group: bank for bank in schedule.graph.banks}.values():
        layers = sorted({b.layer for b in schedule.graph.banks if b.group == bank.group})
        experts = [(layer, expert) for layer in layers for expert in range(EXPERTS)]
        count = rng.randint(0, min(bank.slots, len(experts)))
        slots = rng.sample(range(bank.slots), count)
        chosen = rng.sample(experts, count)
        found.append((bank.group, tuple((s, *e) for s, e in zip(slots, chosen, strict=True))))
    return tuple(found)


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.n: Any = "n" if rng.random() < 0.4 else 1
        self.k = rng.choice([1, 1, 2])
        self.tensors: Document = {}
        self.banks: Document = {}
        self.nodes: list[Document] = []
        self.assignment: dict[str, str] = {}
        self.splits: list[Document] = []
        self.program: list[Document] = []
        self.slots = rng.choice([1, 2, 3, 4, 6])
        self.spare = rng.choice([0, 0, 1])
        self.events = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def document(self) -> Document:
        rng = self.rng
        self.tensors["x"] = {"dtype": "f32", "shape": [2, 1, self.n], "input": True}
        layers = rng.choice([1, 1, 2])
        self.program.append({"do": "set_input", "tensor": "x"})
        for layer in range(layers):
            self._layer(layer)
        self._sum(layers)
        self._mutate()
        return self._whole()

    def _whole(self) -> Document:
        rng = self.rng
        contract: Any = rng.choice(CONTRACTS)
        if self.chance(0.3):
            contract = [
                {"from": "host", "to": "v0", "is": rng.choice(CONTRACTS)},
                {"from": "v0", "to": "host", "is": rng.choice(CONTRACTS)},
                {"from": "v0", "to": "v0", "is": rng.choice(CONTRACTS)},
                {"from": "host", "to": "host", "is": rng.choice(CONTRACTS)},
            ]
        gpu = {
            "name": "gpu0", "memory": "v0", "reads": ["v0", "host"], "async": True,
            "copy": contract, "queues": ["compute", "copy"],
        }  # fmt: skip
        self._place()
        document = {
            "format": "splitproof/1", "name": "random experts",
            "symbols": {"n": [1, rng.choice([1, 2])]} if self.n == "n" else {},
            "memories": {"host": {"host": True}, "v0": {}},
            "devices": [gpu, {"name": "cpu", "memory": "host", "reads": ["host"]}],
            "buffers": {
                "w": {"memory": "host", "usage": "weights", "bytes": 256},
                "b": {"memory": "v0", "usage": "weights", "bytes": 256},
                "c_v0": {"memory": "v0", "usage": "compute", "bytes": 1024},
                "c_host": {"memory": "host", "usage": "compute", "bytes": 1024},
            },
            "tensors": self.tensors, "banks": self.banks, "nodes": self.nodes,
            "assignment": self.assignment, "splits": self.splits, "program": self.program,
            "repeat": rng.choice([1, 2, 2, 3]),
        }  # fmt: skip
        if self.chance(0.3):
            self._over_read(gpu)
        return document

    def _over_read(self, gpu: Document) -> None:
        """A device that reads past experts, slots that leave room for it, or one in all."""
        gpu["over_read"] = {"mul_mat_id": {"f32": self.rng.choice([4, 4, 8, 12])}}
        kind = self.rng.choice(["packed", "packed", "padded", "single"])
        for name, bank in self.banks.items():
            held = self.tensors[name]
            if kind == "padded":
                held |= {"strides": [4, EXPERT, 2 * EXPERT], "offset": 2 * held["offset"]}
            elif kind == "single":
                bank["slots"] = 1

    # -- a layer ----------------------------------------------------------------------------------

    def _layer(self, layer: int) -> None:
        rng, index = self.rng, len(self.splits)
        ids, weight = f"ids{layer}", f"w{layer}"
        self.tensors[ids] = {"dtype": "i32", "shape": [self.k, self.n], "values": [0, EXPERTS]}
        if layer and self.chance(0.2):
            self.tensors[ids] |= {"view_of": "ids0", "offset": 0}
        elif self.chance(0.75):
            self.tensors[ids]["input"] = True
            self.program.insert(0, {"do": "set_input", "tensor": ids})
        else:
            self._router(ids)
            index = len(self.splits)
        roles = rng.choice([["up"], ["up"], ["up", "gate"]])
        for place, role in enumerate(roles):
            name = f"{weight}{role}"
            self.tensors[name] = {
                "dtype": "f32", "shape": [2, 1, EXPERTS], "buffer": "w",
                "offset": (2 * layer + place) * EXPERT * EXPERTS,
            }  # fmt: skip
        start = len(self.nodes)
        if self.chance(0.1):
            writes = [rng.choice(["usage:weights", f"{weight}up", ids, "x"])]
            self.program.append({
                "do": "callback", "name": f"cb{layer}", "reads": [], "writes": writes,
                "split": index,
            })  # fmt: skip
        kind = rng.choice(["slot_ids", "slot_ids", "slot_map", "experts", "experts", "copy"])
        split: Document = {"device": "gpu0", "nodes": [start, start], "inputs": []}
        self.splits.append(split)
        if kind in ("slot_ids", "slot_map"):
            self._banked(layer, ids, roles, kind, split, index)
        else:
            self._copied(layer, ids, roles, kind, split, index)
        split["nodes"][1] = len(self.nodes)
        for node in self.nodes[start:]:
            if node["op"] != "reshape":
                self.program.append({"do": "compute", "node": node["dst"], "split": index})
        if self.chance(0.5):
            self.program.append({"do": "sync_queue", "queue": "gpu0.compute"})

    def _router(self, ids: str) -> None:
        device = self.rng.choice(["cpu", "gpu0"])
        index = len(self.splits)
        self.nodes.append({"op": "custom", "dst": ids, "src": ["x"]})
        self.assignment[ids] = device
        self.splits.append({"device": device, "nodes": [len(self.nodes) - 1, len(self.nodes)],
                            "inputs": []})  # fmt: skip
        self.program.append({"do": "compute", "node": ids, "split": index})

    def _await(self, queue: str) -> None:
        """Make gpu0.compute, or the host, wait for a queue, or forget it."""
        if queue == "gpu0.compute" and self.chance(0.6):
            return
        kind = self.rng.choice(["sync", "event", "event", "sync_event", "none"])
        if kind == "sync":
            self.program.append({"do": "sync_queue", "queue": queue})
        elif kind != "none":
            self.events += 1
            event = f"e{self.events}"
            self.program.append({"do": "record", "event": event, "queue": queue})
            wait = {"do": "wait", "event": event, "queue": "gpu0.compute"}
            self.program.append(wait if kind == "event" else {"do": "sync_event", "event": event})

    def _host_ids(self, ids: str, index: int) -> str:
        """The name under which the host reads the ids, brought there if gpu0 computes them."""
        base = self.tensors[ids].get("view_of", ids)
        if self.assignment.get(base) != "gpu0":
            return ids
        if self.chance(0.8):
            self.program.append({"do": "copy", "src": ids, "dst": f"cpu#{ids}",
                                 "queue": "gpu0.compute", "split": index})  # fmt: skip
            if self.chance(0.8):
                self.program.append({"do": "sync_queue", "queue": "gpu0.compute"})
            return f"cpu#{ids}"
        if self.chance(0.8):
            self.program.append({"do": "sync_queue", "queue": "gpu0.compute"})
        return ids

    # -- through a bank ---------------------------------------------------------------------------

    def _banked(
        self, layer: int, ids: str, roles: list[str], kind: str, split: Document, index: int
    ) -> None:
        rng = self.rng
        published = f"{'s' if kind == 'slot_ids' else 'm'}{layer}"
        shape = [self.k, self.n] if kind == "slot_ids" else [1, EXPERTS]
        self.tensors[published] = {"dtype": "i32", "shape": shape}
        if self.chance(0.5):
            offset = 512 + 64 * rng.randrange(2)
            self.tensors[published] |= {"buffer": rng.choice(["c_v0", "c_host"]), "offset": offset}
        for place, role in enumerate(roles):
            room = (self.slots + self.spare) * EXPERT
            self.tensors[f"b{layer}{role}"] = {
                "dtype": "f32", "shape": [2, 1, self.slots + self.spare], "buffer": "b",
                "offset": place * room,
            }  # fmt: skip
            self.banks[f"b{layer}{role}"] = {
                "caches": f"w{layer}{role}", "layer": layer, "role": role, "group": "g",
                "slots": self.slots, "ids": ids, kind: published,
            }  # fmt: skip
        chosen = published
        if kind == "slot_map":
            chosen = f"r{layer}"
            self.tensors[chosen] = {"dtype": "i32", "shape": [1, self.k, self.n]}
            self.nodes.append({"op": "get_rows", "dst": chosen, "src": [published, ids]})
            self.assignment[chosen] = "gpu0"
            shape = [self.k, self.n]
            self.tensors[f"v{layer}"] = {"dtype": "i32", "shape": shape, "view_of": chosen,
                                         "offset": 0}  # fmt: skip
            self.nodes.append({"op": "reshape", "dst": f"v{layer}", "src": [chosen]})
            self.assignment[f"v{layer}"] = "gpu0"
            chosen = f"v{layer}"
        fills = [[f"b{layer}{role}" for role in roles]]
        if len(roles) == 2 and self.chance(0.15):
            fills = [[name] for name in fills[0]]
        read = self._host_ids(ids, index)
        for banks in fills:
            queue = rng.choice(["gpu0.compute", "gpu0.copy"])
            self.program.append({"do": "fill_bank", "banks": banks, "ids": read, kind: published,
                                 "queue": queue, "split": index})  # fmt: skip
            self._await(queue)
        if kind == "slot_ids" and self.chance(0.3):
            split["inputs"].append(published)
            self.program.append({"do": "copy", "src": published, "dst": f"gpu0#{published}",
                                 "queue": "gpu0.compute", "split": index})  # fmt: skip
        for role in roles:
            self._matmul(layer, role, [f"b{layer}{role}", "x", chosen])

    def _matmul(self, layer: int, role: str, sources: list[str]) -> None:
        name = f"o{layer}{role}"
        self.tensors[name] = {"dtype": "f32", "shape": [1, self.k, self.n]}
        self.nodes.append({"op": "mul_mat_id", "dst": name, "src": sources})
        self.assignment[name] = "gpu0"

    # -- by copies --------------------------------------------------------------------------------

    def _copied(
        self, layer: int, ids: str, roles: list[str], kind: str, split: Document, index: int
    ) -> None:
        rng, first = self.rng, None
        read = self._host_ids(ids, index)
        for role in roles:
            name = f"w{layer}{role}"
            split["inputs"].append(name)
            queue = rng.choice(["gpu0.compute", "gpu0.compute", "gpu0.copy"])
            command = {"do": "copy", "src": name, "dst": f"gpu0#{name}", "queue": queue,
                       "split": index}  # fmt: skip
            if kind == "experts":
                command["do"] = "copy_experts"
                command["padding"] = rng.choice([0, 0, 4, 12])
                command |= {"ids": read} if first is None else {"used_from": f"gpu0#{first}"}
                first = first or (name if self.chance(0.7) else None)
            elif index and self.chance(0.5):
                command |= {"do": "prefetch", "split": index - 1, "for_split": index}
            self.program.append(command)
            self._await(queue)
            self._matmul(layer, role, [name, "x", ids])
        if self.assignment.get(ids) == "cpu" and self.chance(0.3):
            split["inputs"].append(ids)
            self.program.append({"do": "copy", "src": ids, "dst": f"gpu0#{ids}",
                                 "queue": "gpu0.compute", "split": index})  # fmt: skip

    # -- the rest ---------------------------------------------------------------------------------

    def _sum(self, layers: int) -> None:
        device = self.rng.choice(["cpu", "gpu0", "gpu0"])
        outputs = [n["dst"] for n in self.nodes if n["op"] == "mul_mat_id"]
        self.tensors["y"] = {"dtype": "f32", "shape": [1, self.k, self.n], "output": True}
        self.nodes.append({"op": "custom", "dst": "y", "src": outputs})
        self.assignment["y"] = device
        count, index = len(self.nodes), len(self.splits)
        split: Document = {"device": device, "nodes": [count - 1, count], "inputs": []}
        self.splits.append(split)
        if device == "cpu":
            split["inputs"] = outputs
            for name in outputs:
                self.program.append({"do": "copy", "src": name, "dst": f"cpu#{name}",
                                     "queue": "gpu0.compute", "split": index})  # fmt: skip
            self.program.append({"do": "sync_queue", "queue": "gpu0.compute"})
        self.program.append({"do": "compute", "node": "y", "split": index})
        if self.chance(0.9):
            self.program.append({"do": "sync_queue", "queue": "gpu0.compute"})
            if self.chance(0.7):
                self.program.append({"do": "sync_queue", "queue": "gpu0.copy"})
        self.program.append({"do": "get_output", "tensor": "y"})

    def _place(self) -> None:
        """Copies of weights on shared bytes of the device, now and then."""
        for command in list(self.program):
            target = command.get("dst", "")
            if target.startswith("gpu0#w") and target not in self.tensors and self.chance(0.4):
                offset = self.rng.choice([0, 24, 24, 48])
                self.tensors[target] = {"dtype": "f32", "shape": [2, 1, EXPERTS],
                                        "buffer": "c_v0", "offset": offset}  # fmt: skip

    def _mutate(self) -> None:
        rng, out = self.rng, self.program
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            kind = rng.choice(["drop", "swap", "move", "guard", "guard"])
            index = rng.randrange(len(out))
            free = [i for i, c in enumerate(out) if c["do"] in ("sync_queue", "wait", "fill_bank")]
            if kind == "drop" and free:
                del out[rng.choice(free)]
            elif kind == "swap" and index + 1 < len(out):
                out[index], out[index + 1] = out[index + 1], out[index]
            elif kind == "move":
                out.insert(max(0, index - rng.randint(1, 4)), out.pop(index))
            elif kind == "guard":
                guards = ["pass == 0", "pass % 2 == 0"] + ["n <= 1"] * (self.n == "n")
                fills = [i for i, c in enumerate(out) if c["do"] in ("fill_bank", "copy_experts")]
                chosen = rng.choice(fills or free or [index])
                out[chosen]["when"] = rng.choice(guards)
