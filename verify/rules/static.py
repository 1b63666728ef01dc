"""Static rules: what no execution is needed to see, decided for the whole range of sizes.

Each family module lists its own under ``STATIC``; this is what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...model.command import Compute
from ...model.device import HOST, Device
from ...model.graph import Node
from ...model.schedule import Schedule
from ..encode import Solver
from ..order import Order
from ..regime import Regime
from ..term import Bool, Scope, Values, conj


@dataclass(frozen=True, slots=True)
class Broken:
    """A static rule that does not hold, and where.  ``values``: symbols at which it fails."""

    rule: str
    message: str
    place: str
    evidence: tuple[tuple[str, str | int], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """One compute of the program: its node, and the device that runs it."""

    index: int
    command: Compute
    node: Node
    device: Device

    @property
    def place(self) -> str:
        return f"$.program[{self.index}]"


@dataclass(slots=True)
class Statics:
    """One regime, as the static rules see it.  They count what they decide."""

    schedule: Schedule
    regime: Regime
    order: Order
    solver: Solver
    undecided: list[str] = field(default_factory=list)
    obligations: int = 0
    scope: Scope = field(init=False)
    assume: Bool = field(init=False)
    _sites: list[Site] | None = None
    _expert_readers: dict[str, Node] | None = None

    def __post_init__(self) -> None:
        self.scope = self.solver.scope(self.regime.ranges, {})
        self.assume = self.scope.condition(self.regime.condition)

    def possible(self, term: Bool) -> Values | None:
        """Values of the symbols in this regime at which the term holds, if there are any."""
        self.obligations += 1
        answer = self.solver.model(conj([self.assume, term]), self.regime.ranges)
        if answer.found is None:
            self.undecided.append(answer.reason)
        return answer.values if answer.found else None

    def holds(self, fact: bool) -> bool:
        """A fact that hangs on no symbol, counted."""
        self.obligations += 1
        return fact

    def expert_reader(self, weight: str) -> Node | None:
        """The first matmul that selects among the experts of a weight."""
        if self._expert_readers is None:
            matmuls = [n for n in self.schedule.graph.nodes if n.op == "mul_mat_id"]
            self._expert_readers = {node.src[0]: node for node in reversed(matmuls)}
        return self._expert_readers.get(weight)

    def sites(self) -> list[Site]:
        """The computes that exist, each once.  One without a device is PL005's."""
        if self._sites is None:
            self._sites = list(self._computes())
        return self._sites

    def _computes(self) -> Iterator[Site]:
        assert self.schedule.program is not None
        for index in dict.fromkeys(command for command, _ in self.order.by_command):
            command = self.schedule.program[index]
            if not isinstance(command, Compute):
                continue
            name = self.schedule.compute_device(command)
            if name is not None:
                graph = self.schedule.graph
                device = graph.devices[-1] if name == HOST else graph.device(name)
                yield Site(index, command, graph.node(command.node), device)


#: one static rule
StaticRule = Callable[[Statics], Iterator[Broken]]


def readable(device: Device, memory: str) -> bool:
    return memory in device.reads or memory == device.memory
