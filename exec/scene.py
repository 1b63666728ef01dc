"""Pieces that the rules of ``exec/evidence.py`` share: faults with facts, and capability rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.command import Compute
from ..model.device import Device, OpPattern
from ..model.graph import Node
from ..model.ops import OPS
from ..model.schedule import Schedule
from ..model.symbol import PASS
from .layout import Layout, Layouts
from .script import exists

Fact = tuple[str, str | int]
#: ``("nodes", 3)``, ``("program", 7)``, ``("banks", "up_bank")``: where a JSON path points.
Place = tuple[str, str | int]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a schedule breaks a rule, with the facts that show it."""

    places: tuple[Place, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Scene:
    """A schedule at concrete values of its symbols."""

    schedule: Schedule
    symbols: Mapping[str, int]
    layouts: Layouts

    @staticmethod
    def of(schedule: Schedule, symbols: Mapping[str, int]) -> Scene:
        return Scene(schedule, symbols, Layouts(schedule, symbols))

    def passes(self) -> Iterator[dict[str, int]]:
        """The symbols of each pass."""
        for number in range(self.schedule.repeat):
            yield {**self.symbols, PASS: number}

    def memory(self, tensor: str) -> str | None:
        return self.schedule.location(tensor).memory

    def executions(self) -> Iterator[Execution]:
        """Each node where it runs: per compute of the program; of a split-level schedule, per
        node of each split.  A guard must hold in some pass."""
        schedule = self.schedule
        graph = schedule.graph
        if schedule.program is not None:
            for index, command in enumerate(schedule.program):
                if not isinstance(command, Compute):
                    continue
                if not any(exists(schedule, command, at) for at in self.passes()):
                    continue
                node = graph.node(command.node)
                device = schedule.compute_device(command)
                places: list[Place] = [("nodes", graph.position(node.dst)), ("program", index)]
                if command.split is not None:
                    places.append(("splits", command.split))
                if device is not None:
                    bound = tuple(schedule.bound(command, i) for i in range(len(node.src)))
                    yield Execution(node, graph.device(device), bound, tuple(places))
            return
        for number, split in enumerate(schedule.splits or ()):
            for position in range(split.start, min(split.end, len(graph.nodes))):
                node = graph.nodes[position]
                runs = any(node.when.holds(at) for at in self.passes())
                if runs and (node.op not in OPS or not OPS[node.op].view):
                    bound = tuple(
                        schedule.copy_name(split.device, s) if s in split.inputs else s
                        for s in node.src
                    )
                    place = (("nodes", position), ("splits", number))
                    yield Execution(node, graph.device(split.device), bound, place)

    def text(self, tensor: str) -> str:
        """``"q8_0 [64, 32, 8]"``."""
        layout = self.layouts.placed(tensor)
        rank = max(len(self.schedule.tensor(tensor).shape), 1)
        return f"{layout.dtype.name} [{', '.join(str(n) for n in layout.ne[:rank])}]"


@dataclass(frozen=True, slots=True)
class Execution:
    """A node on the device that runs it; ``bound``: what it reads for each source."""

    node: Node
    device: Device
    bound: tuple[str, ...]
    places: tuple[Place, ...]


# -- capabilities -----------------------------------------------------------------------------


def refusal(scene: Scene, device: Device, node: Node) -> str | None:
    """The row of the capability table because of which a device cannot run a node; ``None``
    if it can."""
    if node.supported_by is not None:
        if device.name in node.supported_by:
            return None
        return f"supported_by [{', '.join(node.supported_by)}]"
    for pattern in device.deny:
        if _matches(scene, pattern, node):
            return f"deny {row_text(pattern)}"
    if device.ops is None or any(_matches(scene, pattern, node) for pattern in device.ops):
        return None
    rows = [row_text(pattern) for pattern in device.ops if pattern.op in (node.op, "*")]
    return f"ops: {'; '.join(rows)}" if rows else f"ops: no row for {node.op}"


def row_text(pattern: OpPattern) -> str:
    """A capability row as a document has it, in short: ``mul_mat_id src0=q8_0``."""
    words = [pattern.op, *(f"{operand}={kind}" for operand, kind in pattern.dtypes)]
    for operand, dimension, size in pattern.ne:
        low = "" if size.low is None else f"{size.low} <= "
        high = "" if size.high is None else f" <= {size.high}"
        words.append(f"{low}{operand}.ne[{dimension}]{high}")
    return " ".join(words)


def _matches(scene: Scene, pattern: OpPattern, node: Node) -> bool:
    if pattern.op not in (node.op, "*"):
        return False
    for operand, kind in pattern.dtypes:
        layout = _operand(scene, node, operand)
        if layout is None or layout.dtype.name != kind.lower():
            return False
    for operand, dimension, size in pattern.ne:
        layout = _operand(scene, node, operand)
        if layout is None:
            return False
        count = layout.ne[dimension]
        if size.low is not None and count < size.low:
            return False
        if size.high is not None and count > size.high:
            return False
    return True


def _operand(scene: Scene, node: Node, operand: str) -> Layout | None:
    if operand == "dst":
        return scene.layouts.placed(node.dst)
    index = int(operand.removeprefix("src"))
    return scene.layouts.placed(node.src[index]) if index < len(node.src) else None
