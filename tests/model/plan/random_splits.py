"""Random graphs with devices, planned to splits: what a lowering may meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from splitproof.model.command import Callback
from splitproof.model.document import from_dict
from splitproof.model.ops import OPS
from splitproof.model.plan.planner import plan
from splitproof.model.schedule import Schedule, Split

Document = dict[str, Any]

CONTRACTS = "stream", "sync", "staged", "unordered"
MEMORIES = "host", "v0", "v1"
EXPERTS = 4
#: What a callback reads and writes.
CALLS = (("w",), ()), ((), ("w",)), ((), ("usage:weights",)), (("usage:any",), ())
IN_PLACE = [{"op": "custom", "src": 0}]


def split_schedule(rng: Random) -> Schedule:
    """A split-level schedule of up to two devices and the CPU.

    With sources and results of all kinds: user inputs, weights of the host and of devices, a
    cache that nodes write through views, results in the place of their source, experts chosen
    by ids that a node computes; inputs that a split lists although an earlier split of its
    device had them copied, and callbacks between splits.
    """
    return _Maker(rng).schedule()


class _Maker:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.tensors: Document = {}
        self.nodes: list[Document] = []
        #: tensors [4, n] that a node may read, and the memory to which a base is bound
        self.values: list[str] = []
        self.bound: dict[str, str] = {}
        #: bases that nobody may overwrite any more: something reads them later by position
        self.spent: set[str] = set()

    def pick(self, values: Sequence[Any]) -> Any:
        return self.rng.choice(values)

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    # -- devices --------------------------------------------------------------------------------

    def devices(self) -> list[Document]:
        self.names = ["gpu0", "gpu1"][: self.pick((1, 2, 2))]
        found = [self.device(name) for name in self.names]
        return [*found, {"name": "cpu", "memory": "host", "reads": ["host"], "in_place": IN_PLACE}]

    def device(self, name: str) -> Document:
        memory = f"v{name[3:]}"
        device: Document = {
            "name": name, "memory": memory, "reads": [memory], "copy": self.contracts(memory),
            "async": not self.chance(5), "in_place": IN_PLACE, "offload_min_tokens": 1,
        }  # fmt: skip
        if device["async"]:
            device |= {"events": not self.chance(4), "queues": ["compute", "copy"]}
            if self.chance(3):
                device["queues"] = ["compute"]
            if self.chance(3):
                device["waits_for"] = []
            elif self.chance(2):
                device["waits_for"] = list(self.names)
        return device

    def contracts(self, memory: str) -> Any:
        if self.chance(2):
            return self.pick(CONTRACTS)
        up, rest = self.pick(CONTRACTS), self.pick(CONTRACTS)
        return [
            {"from": "host", "to": memory, "is": up},
            *({"from": a, "to": b, "is": rest} for a in MEMORIES for b in MEMORIES
              if (a, b) != ("host", memory)),
        ]  # fmt: skip

    # -- tensors and nodes ----------------------------------------------------------------------

    def schedule(self) -> Schedule:
        devices = self.devices()
        self.homes = {d["name"]: d["memory"] for d in devices}
        for name in ("x0", "x1")[: self.pick((1, 2))]:
            self.value(name, input=True)
        self.weight("w", "host")
        if self.chance(2):
            self.weight("wv", "v0")
        if self.chance(2):
            self.bound["kv"] = self.pick(list(self.homes.values()))
            self.tensors["kv"] = {
                "dtype": "f32", "shape": [4, 4], "buffer": f"any_{self.bound['kv']}", "offset": 0,
            }  # fmt: skip
            self.spent.add("kv")
        for number in range(self.rng.randint(2, 8)):
            self.pick((self.plain, self.plain, self.plain, self.in_place, self.view, self.cache,
                       self.experts))(f"n{number}")  # fmt: skip
        last = [n["dst"] for n in self.nodes if not OPS[n["op"]].view]
        if not last:
            self.plain("end")
            last = ["end"]
        self.tensors[last[-1]]["output"] = True
        graph = from_dict({
            "format": "splitproof/1", "symbols": {"n": [1, self.pick((1, 2))]},
            "memories": {m: {"host": m == "host"} for m in MEMORIES},
            "buffers": {
                f"{usage}_{m}": {"memory": m, "usage": usage, "bytes": 4096}
                for m in MEMORIES for usage in ("weights", "any")
            },
            "devices": devices, "tensors": self.tensors, "nodes": self.nodes,
            "n_copies": self.pick((1, 1, 2, 3)), "repeat": self.rng.randint(1, 3),
        })  # fmt: skip
        return fresh(self.called(self.listed_again(plan(graph))))

    def value(self, name: str, **more: Any) -> None:
        self.tensors[name] = {"dtype": "f32", "shape": [4, "n"], **more}
        self.values.append(name)

    def weight(self, name: str, memory: str) -> None:
        self.tensors[name] = {
            "dtype": "f32", "shape": [4], "buffer": f"weights_{memory}", "offset": 2048,
        }  # fmt: skip

    def sources(self) -> list[str]:
        found = [self.pick(self.values) for _ in range(self.rng.randint(1, 2))]
        weights = [name for name in ("w", "wv", "kv") if name in self.tensors]
        return found + ([self.pick(weights)] if self.chance(3) else [])

    def pin(self) -> str:
        return str(self.pick([*self.names, "cpu"]))

    def plain(self, name: str) -> None:
        self.nodes.append({"op": "custom", "dst": name, "src": self.sources()})
        more = {} if self.chance(4) else {"pin": self.pin()}
        self.value(name, output=self.chance(4), **more)

    def in_place(self, name: str) -> None:
        """A result over its own first source, which nothing reads any more."""
        free = [v for v in self.values if "pin" in self.tensors[v] and v not in self.spent]
        if not free:
            return self.plain(name)
        over = self.pick(free)
        if self.tensors[over].get("view_of") or self.tensors[over].get("output"):
            return self.plain(name)
        family = [v for v in self.values if v == over or self.tensors[v].get("view_of") == over]
        others = [s for s in self.sources() if s not in family]
        self.nodes.append({"op": "custom", "dst": name, "src": [over, *others]})
        self.values = [v for v in self.values if v not in family]
        self.value(name, view_of=over, offset=0, pin=self.tensors[over]["pin"])
        self.spent.add(name)
        return None

    def view(self, name: str) -> None:
        of = self.pick(self.values)
        if "view_of" in self.tensors[of]:
            return self.plain(name)
        self.nodes.append({"op": "view", "dst": name, "src": [of]})
        self.value(name, view_of=of, offset=0)
        self.spent.add(name)
        return None

    def cache(self, name: str) -> None:
        """A node that writes a view of the cache, where the cache lies."""
        if "kv" not in self.tensors:
            return self.plain(name)
        self.nodes.append({"op": "custom", "dst": name, "src": [self.pick(self.values)]})
        self.tensors[name] = {
            "dtype": "f32", "shape": [4], "view_of": "kv", "offset": self.pick((0, 16, 32)),
        }  # fmt: skip
        return None

    def experts(self, name: str) -> None:
        """Ids by sorting, and a product by the experts that they choose."""
        if f"ids_{name}" in self.tensors or self.chance(2):
            return self.plain(name)
        self.tensors[f"e_{name}"] = {
            "dtype": "f32", "shape": [4, 4, EXPERTS], "buffer": "weights_host",
            "offset": 256 * len(self.nodes) % 1024,
        }  # fmt: skip
        order = {"dtype": "i32", "shape": [4, "n"], "values": [0, EXPERTS], "pin": self.pin()}
        self.tensors[f"ids_{name}"] = order
        self.nodes.append({"op": "argsort", "dst": f"ids_{name}", "src": [self.pick(self.values)]})
        source = self.pick(self.values)
        self.tensors[f"x_{name}"] = {
            "dtype": "f32", "shape": [4, 1, "n"], "view_of": source, "offset": 0,
        }  # fmt: skip
        self.nodes.append({"op": "reshape", "dst": f"x_{name}", "src": [source]})
        self.tensors[f"m_{name}"] = {"dtype": "f32", "shape": [4, 4, "n"], "pin": self.pin()}
        product = {"op": "mul_mat_id", "dst": f"m_{name}"}
        self.nodes.append({**product, "src": [f"e_{name}", f"x_{name}", f"ids_{name}"]})
        self.nodes.append({"op": "custom", "dst": name, "src": [f"m_{name}"]})
        self.value(name, pin=self.pin())
        return None

    # -- splits ---------------------------------------------------------------------------------

    def listed_again(self, schedule: Schedule) -> Schedule:
        """Some inputs that an earlier split of the device had copied are copied once more."""
        splits: list[Split] = []
        seen: dict[str, list[str]] = {}
        for split in schedule.splits or ():
            nodes = schedule.graph.nodes[split.start : split.end]
            read = {s for node in nodes if not OPS[node.op].view for s in node.src}
            again = tuple(
                name for name in seen.get(split.device, ())
                if name in read and name not in split.inputs and self.chance(3)
            )  # fmt: skip
            seen.setdefault(split.device, []).extend(split.inputs)
            splits.append(replace(split, inputs=split.inputs + again))
        return replace(schedule, splits=tuple(splits))

    def called(self, schedule: Schedule) -> Schedule:
        """A callback before some split: it reads or writes the host's weight, or nothing."""
        splits = list(schedule.splits or ())
        if not splits or not self.chance(3):
            return schedule
        at = self.rng.randrange(len(splits))
        reads, writes = self.pick(
            ((("w",), ()), ((), ("w",)), ((), ("usage:weights",)), (("usage:any",), ()))
        )
        call = Callback(name="user", reads=reads, writes=writes, split=at)
        splits[at] = replace(splits[at], callbacks=(call,))
        return replace(schedule, splits=tuple(splits))


def fresh(schedule: Schedule) -> Schedule:
    """What was written after a device had it copied is listed, and so copied, again.

    ggml's scheduler copies once per tensor and device, so a split that reads it later would see
    the old bytes: a fault of the splits, whatever the lowering.
    """
    graph = schedule.graph
    splits: list[Split] = []
    copied: set[tuple[str, str]] = set()

    def forget(names: Iterable[str]) -> None:
        bases = {graph.base(name).name for name in names}
        copied.difference_update({pair for pair in copied if graph.base(pair[1]).name in bases})

    for split in schedule.splits or ():
        if any(call.writes for call in split.callbacks):
            forget(name for _, name in tuple(copied))
        nodes = [n for n in graph.nodes[split.start : split.end] if not OPS[n.op].view]
        reads = graph.device(split.device).reads
        missing = tuple(
            name
            for name in dict.fromkeys(s for node in nodes for s in node.src)
            if schedule.location(name).memory not in reads
            and name not in split.inputs
            and (split.device, name) not in copied
        )
        splits.append(replace(split, inputs=split.inputs + missing))
        copied |= {(split.device, name) for name in splits[-1].inputs}
        forget(node.dst for node in nodes)
    return replace(schedule, splits=tuple(splits))
