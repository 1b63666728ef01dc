"""The program of a small schedule, unrolled at given numbers: what each part waits for and touches.

Memory is cut into *cells*: runs of as many bytes as divide every offset, stride and size of the
document, so that each footprint is a whole number of them.  A version is a number: one for each
cell of each write of the sequential run, and one for each cell that a buffer holds at the start.

It is written from ``docs/semantics.md`` alone and shares no code with the checker.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..model.command import Callback, Command, SetInput
from ..model.device import Usage
from ..model.graph import Node
from ..model.ops import OPS
from ..model.schedule import Schedule
from ..model.symbol import PASS, Expr

Cells = tuple[int, ...]
#: ``(group, ((slot, layer, expert), …))``: full slots, from least to most recently used
Start = tuple[str, tuple[tuple[int, int, int], ...]]
#: what a cell holds that nobody wrote, or that somebody is writing
NOTHING = 0


class CannotExplore(Exception):
    """A construct whose bytes are not known; the message says which."""


@dataclass(slots=True)
class World:
    """Numbers for everything: symbols, cells, versions, and the integers that versions stand for.

    ``integers``: contents of integer inputs by (tensor, pass), flat and innermost first; the
    others are drawn from ``seed``.
    """

    schedule: Schedule
    symbols: Mapping[str, int]
    integers: Mapping[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    seed: int = 0
    grain: int = 0
    cells: dict[tuple[str, int], int] = field(default_factory=dict)
    _versions: dict[Hashable, int] = field(default_factory=dict)
    _next: int = NOTHING + 1
    _known: dict[str, Cells] = field(default_factory=dict)
    _written: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.grain = math.gcd(*self._steps())

    def _steps(self) -> Iterator[int]:
        names = {t.name for t in self.schedule.graph.tensors}
        for device in self.schedule.graph.devices:
            yield from (count for _, _, count in device.over_read)
        for command in self.schedule.program or ():
            yield getattr(command, "padding", 0)
            names |= {n for n in (getattr(command, a, None) for a in ("src", "dst", "ids")) if n}
        for name in sorted(names):
            tensor = self.schedule.tensor(name)
            if not tensor.shape or tensor.about:
                raise CannotExplore(f"the bytes of tensor {name!r} are not known")
            yield self.value(self.schedule.location(name).offset)
            yield tensor.type.block_bytes
            yield from (self.value(stride) for stride in tensor.nb)

    def value(self, expr: Expr) -> int:
        return expr.value(self.symbols)

    def at(self, iteration: int) -> dict[str, int]:
        return {**self.symbols, PASS: iteration}

    def exists(self, command: Command, iteration: int) -> bool:
        if not command.when.holds(self.at(iteration)):
            return False
        name = getattr(command, "node", None)
        return name is None or self.schedule.graph.node(name).when.holds(self.at(iteration))

    # -- cells --------------------------------------------------------

    def cell(self, space: str, address: int) -> int:
        return self.cells.setdefault((space, address), len(self.cells))

    def addresses(self, name: str) -> list[int]:
        """Addresses of a tensor's cells relative to its first byte, in logical order."""
        tensor = self.schedule.tensor(name)
        block = tensor.type.block
        counts = [self.value(size) for size in tensor.shape]
        counts[0] //= block
        steps = [self.value(stride) for stride in tensor.nb]
        within = range(0, tensor.type.block_bytes, self.grain)
        found = []
        for index in product(*(range(count) for count in reversed(counts))):
            first = sum(i * step for i, step in zip(reversed(index), steps, strict=True))
            found += [first + inner for inner in within]
        return found

    def placed(self, name: str) -> Cells:
        """Where the program keeps a tensor's cells, in logical order."""
        if name not in self._known:
            place = self.schedule.location(name)
            first = self.value(place.offset)
            self._known[name] = tuple(
                self.cell(place.space, first + a) for a in self.addresses(name)
            )
        return self._known[name]

    def logical(self, name: str) -> list[tuple[str, int]]:
        """Where the sequential run keeps them: shared bytes only in weights and any buffers."""
        base = self.schedule.base(name).name
        own, place = self.schedule.location(base), self.schedule.location(name)
        first = self.value(place.offset)
        if own.usage in (None, Usage.COMPUTE):
            first -= self.value(own.offset)
            return [(f"base {base}", first + a) for a in self.addresses(name)]
        return [(place.space, first + a) for a in self.addresses(name)]

    def planes(self, name: str, cells: Sequence[int]) -> list[Cells]:
        """A tensor's cells by expert: its third dimension."""
        count = self.value(self.schedule.tensor(name).ne[2])
        size = len(cells) // count if count else 0
        return [tuple(cells[i * size : (i + 1) * size]) for i in range(count)]

    # -- versions --------------------------------------------------------

    def versions(self, event: Hashable, count: int) -> Cells:
        """The versions that one write gives to its cells, in logical order."""
        if event not in self._versions:
            self._versions[event] = self._next
            self._next += count
        first = self._versions[event]
        return tuple(range(first, first + count))

    def initial(self, space: str, address: int) -> int:
        """What a byte holds at the start: something in weights and any buffers, else nothing."""
        if space.startswith(("own:", "base ")):
            return NOTHING
        if self.schedule.graph.buffer(space).usage is Usage.COMPUTE:
            return NOTHING
        return self.versions(("start", space, address), 1)[0]

    def store(self, event: Hashable, name: str, iteration: int) -> Cells:
        """Versions of a write to a tensor; integer tensors get their numbers with it."""
        cells = self.addresses(name)
        versions = self.versions((event, name), len(cells))
        tensor = self.schedule.tensor(name)
        if tensor.type.integer and versions and versions[0] not in self._written:
            each = tensor.type.block_bytes // self.grain
            numbers = self._numbers(name, iteration, len(cells) // each)
            for place, number in enumerate(numbers):
                self._written[versions[place * each]] = number
        return versions

    def _numbers(self, name: str, iteration: int, count: int) -> Sequence[int]:
        given = self.integers.get((name, iteration))
        if given is not None:
            return given
        tensor = self.schedule.tensor(name)
        low, high = tensor.values or self.schedule.base(name).values or (0, 2)
        rng = random.Random(f"{self.seed}/{name}/{iteration}")
        return [rng.randrange(low, high) for _ in range(count)]

    def ids(self, name: str, versions: Sequence[int]) -> list[int]:
        """The integers that a tensor's cells stand for; unwritten ones count as 0."""
        each = self.schedule.tensor(name).type.block_bytes // self.grain
        return [self._written.get(version, 0) for version in versions[::each]]


# -- the sequential run ---------------------------------------------------------------------------


@dataclass(slots=True)
class Meaning:
    """What each read is due: versions in logical order, by ``(kind, who, tensor, pass)``."""

    due: dict[tuple[str, str | int, str, int], Cells] = field(default_factory=dict)


def meaning(world: World) -> Meaning:
    """Run the graph pass after pass: inputs, nodes with the callbacks before them, outputs."""
    schedule, found = world.schedule, Meaning()
    graph, program = schedule.graph, schedule.program or ()
    memory: dict[tuple[str, int], int] = {}

    def read(name: str) -> Cells:
        return tuple(memory.get(place, world.initial(*place)) for place in world.logical(name))

    def write(name: str, versions: Cells) -> None:
        memory.update(zip(world.logical(name), versions, strict=True))

    for iteration in range(schedule.repeat):
        present = [(i, c) for i, c in enumerate(program) if world.exists(c, iteration)]
        last = {c.tensor: i for i, c in present if isinstance(c, SetInput)}
        for index in sorted(last.values()):
            name = program[index].tensor  # type: ignore[attr-defined]
            write(name, world.store(("input", index, iteration), name, iteration))
        users: dict[int, list[tuple[int, Callback]]] = {}
        for index, command in present:
            if isinstance(command, Callback):
                assert command.split is not None and schedule.splits is not None
                users.setdefault(schedule.splits[command.split].start, []).append((index, command))
        for position in range(len(graph.nodes) + 1):
            for index, user in users.get(position, ()):
                for name in user_names(schedule, user.reads):
                    found.due["callback", index, name, iteration] = read(name)
                for name in user_names(schedule, user.writes):
                    write(name, world.store(("callback", index, iteration), name, iteration))
            if position == len(graph.nodes):
                break
            node = graph.nodes[position]
            if OPS[node.op].view or not node.when.holds(world.at(iteration)):
                continue
            for name in meant_reads(schedule, node):
                found.due["node", node.dst, name, iteration] = read(name)
            for name in node.writes if node.writes is not None else (node.dst,):
                write(name, world.store(("node", node.dst, iteration), name, iteration))
        for _, command in present:
            if command.do == "get_output":
                name = command.tensor  # type: ignore[attr-defined]
                found.due["output", "", name, iteration] = read(name)
    return found


def user_names(schedule: Schedule, names: tuple[str, ...] | None) -> list[str]:
    """What a callback touches: tensors, or all base tensors of a usage but banks and copies."""
    graph, found = schedule.graph, []
    for name in names if names is not None else ("usage:weights", "usage:compute", "usage:any"):
        if not name.startswith("usage:"):
            found.append(name)
            continue
        for tensor in graph.tensors:
            if tensor.view_of or graph.find_bank(tensor.name) or schedule.copy_of(tensor.name):
                continue
            usage = schedule.location(tensor.name).usage or Usage.COMPUTE
            if usage.value == name.removeprefix("usage:"):
                found.append(tensor.name)
    return list(dict.fromkeys(found))


def meant_reads(schedule: Schedule, node: Node) -> list[str]:
    """Tensors that the sequential run reads for a node: for a bank's reader those it means."""
    if node.reads is not None:
        return list(node.reads)
    names = [name for index, name in enumerate(node.src) if not only_names_target(node, index)]
    if OPS[node.op].updates:
        names.append(node.dst)
    for bank in schedule.graph.banks:
        if bank.name in node.src or bank.slot_map in node.src:
            names += [bank.caches, bank.ids]
    return list(dict.fromkeys(names))


def only_names_target(node: Node, index: int) -> bool:
    """Whether a source only says where the result goes (ggml's ``set_rows`` and ``cpy``)."""
    return (node.op, index) in (("set_rows", 2), ("cpy", 1))
