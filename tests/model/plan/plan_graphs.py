"""Random graphs for the planner: devices, capabilities, buffers, views, pins, symbols."""

from __future__ import annotations

from random import Random

from splitproof.model.device import Buffer, Device, Memory, OpPattern, SizeRange, Usage
from splitproof.model.graph import Graph, Node
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor

OPS = (
    "mul_mat", "mul_mat_id", "add", "rope", "get_rows", "flash_attn_ext", "rms_norm", "concat",
)  # fmt: skip
VIEWS = "view", "reshape", "permute", "transpose"
MOST_TOKENS = 64


class GraphMaker:
    """One random graph of about ``size`` nodes."""

    def __init__(self, rng: Random, size: int) -> None:
        self.rng = rng
        self.size = size
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.recorded = rng.random() < 0.4

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def schedule(self) -> Schedule:
        self.memories = [Memory("host", True), Memory("host2", self.chance(0.5))]
        self.memories += [Memory(f"m{k}") for k in range(3)]
        self.devices = self.make_devices()
        self.buffers = [
            Buffer(f"{usage}:{memory.name}", memory.name, usage, 1 << 30)
            for memory in self.memories
            for usage in Usage
        ]
        for k in range(self.rng.randint(2, 8)):
            self.leaf(k)
        while len(self.nodes) < self.size:
            self.node(len(self.nodes))
        graph = Graph(
            symbols=(("n_tokens", 1, MOST_TOKENS),),
            memories=tuple(self.memories),
            devices=self.devices,
            buffers=tuple(self.buffers),
            tensors=tuple(self.rng.sample(self.tensors, len(self.tensors))),
            nodes=tuple(self.nodes),
            op_offload=self.chance(0.7),
            n_copies=self.rng.choice((1, 1, 2)),
        )
        return Schedule(graph=graph, name="random")

    def make_devices(self) -> tuple[Device, ...]:
        devices = []
        for k in range(self.rng.randint(0, 3)):
            memory = self.rng.choice((f"m{k}", f"m{k}", "m0", "host"))
            reads = {memory} | {m.name for m in self.memories if self.chance(0.12)}
            devices.append(self.device(f"d{k}", memory, reads, 0.5))
        reads = {"host"} | {m.name for m in self.memories if self.chance(0.25)}
        return (*devices, self.device("cpu", "host", reads, 0.1))

    def device(self, name: str, memory: str, reads: set[str], fussy: float) -> Device:
        ops = deny = None
        if self.chance(fussy):
            ops = tuple(self.pattern() for _ in range(6))
        if self.chance(fussy):
            deny = tuple(self.pattern() for _ in range(self.rng.randint(1, 3)))
        return Device(
            name, memory, tuple(sorted(reads)), ops=ops, deny=deny or (),
            offload_min_tokens=self.rng.choice((1, 8, 32)),
        )  # fmt: skip

    def pattern(self) -> OpPattern:
        op = self.rng.choice((*OPS, "custom", "*"))
        dtypes = (("src0", self.rng.choice(("f32", "q8_0"))),) if self.chance(0.4) else ()
        ne = ()
        if self.chance(0.4):
            bound = self.rng.choice((2, 8, 33))
            span = SizeRange(bound, None) if self.chance(0.5) else SizeRange(None, bound)
            ne = ((self.rng.choice(("dst", "src1")), self.rng.randint(0, 2), span),)
        return OpPattern(op, dtypes, ne)

    # -- tensors --------------------------------------------------------------------------------

    def add(self, name: str, **facts: object) -> Tensor:
        shape = [Expr.of(self.rng.choice((4, 32)))]
        shape += [
            Expr.symbol("n_tokens") if self.chance(0.4) else Expr.of(self.rng.choice((1, 2, 8, 40)))
            for _ in range(self.rng.randint(0, 2))
        ]
        pinned = self.chance(0.05)
        pin = self.rng.choice(self.devices).name if pinned else None
        tensor = Tensor(name, self.rng.choice(("f32", "q8_0")), tuple(shape), pin=pin, **facts)  # type: ignore[arg-type]
        self.tensors.append(tensor)
        return tensor

    def place(self, *usages: Usage) -> str:
        return self.rng.choice([b.name for b in self.buffers if b.usage in usages])

    def leaf(self, k: int) -> None:
        kind = self.rng.choice(("input", "weight", "weight", "weight", "cache", "bare", "view"))
        if kind == "input":
            self.add(f"in{k}", input=True)
        elif kind == "weight":
            self.add(f"w{k}", buffer=self.place(Usage.WEIGHTS), offset=Expr.of(0))
        elif kind == "cache":
            self.add(f"c{k}", buffer=self.place(Usage.ANY, Usage.COMPUTE), offset=Expr.of(0))
        elif kind == "bare":
            self.add(f"l{k}")
        else:
            hidden = self.place(Usage.WEIGHTS, Usage.ANY) if self.chance(0.7) else None
            self.hide(k, hidden)

    def hide(self, k: int, buffer: str | None) -> None:
        """A view whose base no node reads."""
        base = Tensor(f"b{k}", "f32", (Expr.of(4),), buffer=buffer, offset=Expr.of(0))
        self.add(f"v{k}", view_of=base.name, offset=Expr.of(0))
        self.hidden = [*getattr(self, "hidden", []), base]
        self.tensors.append(base)

    def readable(self) -> list[str]:
        hidden = {t.name for t in getattr(self, "hidden", [])}
        return [t.name for t in self.tensors if t.name not in hidden]

    # -- nodes ----------------------------------------------------------------------------------

    def node(self, k: int) -> None:
        names = self.readable()
        name = f"n{k}"
        recent = names[-6:]
        src = [self.rng.choice(recent if self.chance(0.7) else names)]
        if self.chance(0.25):
            op = self.rng.choice(VIEWS)
            self.add(name, view_of=src[0], offset=Expr.of(0))
        elif self.chance(0.1):
            op = "set_rows"
            src += [self.rng.choice(names), self.rng.choice(names)]
            self.add(name, view_of=src[2], offset=Expr.of(0))
        else:
            op = self.rng.choice(OPS)
            src += [self.rng.choice(names) for _ in range(self.rng.randint(0, 3))]
            place = self.place(Usage.COMPUTE, Usage.ANY) if self.chance(0.03) else None
            self.add(name, buffer=place, input=self.chance(0.02))
        params = ()
        if self.chance(0.1):
            params = (("src_slot", tuple(sorted(self.rng.sample(range(8), len(src))))),)
        self.nodes.append(
            Node(
                op, name, tuple(src), params,
                supported_by=self.some(0.75) if self.recorded else None,
                wanted_by=self.some(0.5) if self.recorded else None,
            )
        )  # fmt: skip

    def some(self, share: float) -> tuple[str, ...]:
        *rest, cpu = (d.name for d in self.devices)
        found = [d for d in rest if self.chance(share)]
        return (*found, cpu) if self.chance(0.95) else tuple(found)


def random_schedule(seed: int, size: int) -> Schedule:
    """The same for the same seed and size."""
    return GraphMaker(Random(seed), size).schedule()
