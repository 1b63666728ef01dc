"""The sequential run: what a schedule's graph means, pass after pass, in NumPy.

Inputs first, then the nodes in graph order with each split's callbacks just before the split's
first node, then the outputs.  Placement does not count, except that what lies in ``weights``
and ``any`` buffers shares bytes there and keeps them from pass to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..model.command import Callback, Command, Compute, GetOutput, SetInput
from ..model.device import Usage
from ..model.graph import Node
from ..model.ops import OPS
from ..model.schedule import Schedule
from ..model.symbol import PASS
from . import data
from .evaluate import Written, evaluate, meant_tensors, remaps, undefined, written_tensors
from .functions import Operand, OutOfRange, UnsupportedOp
from .layout import Layout, Layouts
from .memory import Content, Memory, Versions
from .quant import Array, Bytes, from_array, to_array

Integers = Iterable[tuple[str, int, tuple[int, ...]]]
#: ``function(pass, {tensor read: array}) -> {tensor written: array}``, arrays of shape ``ne``;
#: a flat ``uint8`` array of as many bytes as the tensor has is taken as these bytes.
CallbackFunction = Callable[[int, Mapping[str, Array]], Mapping[str, Array]]

__all__ = ["OutOfRange", "Reference", "UnsupportedOp", "World", "run_reference"]


@dataclass(frozen=True)
class World:
    """Everything that a run takes from outside: sizes, made-up data, user code.

    ``touched``: further tensors that callbacks without declared footprints read and write.
    ``lenient``: an id that indexes nothing gives poison, where else ``OutOfRange`` is raised.
    ``rounded``: products round their activations as kernels for quantised weights do.
    """

    schedule: Schedule
    symbols: Mapping[str, int]
    seed: int = 0
    integers: Mapping[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    callbacks: Mapping[str, CallbackFunction] = field(default_factory=dict)
    inputs: Mapping[tuple[str, int], Array] = field(default_factory=dict)
    touched: tuple[str, ...] = ()
    lenient: bool = False
    rounded: bool = False
    layouts: Layouts = field(init=False)
    versions: Versions = field(init=False)

    def __post_init__(self) -> None:
        absent = [name for name in self.schedule.graph.ranges if name not in self.symbols]
        if absent:
            raise ValueError(f"no value for the symbol(s) {', '.join(absent)}")
        object.__setattr__(self, "layouts", Layouts(self.schedule, self.symbols))
        object.__setattr__(self, "versions", Versions())

    def at(self, pass_: int) -> dict[str, int]:
        """The symbols of one pass, ``pass`` included."""
        return {**self.symbols, PASS: pass_}

    def input(self, name: str, pass_: int, earlier: int = 0) -> Bytes:
        """What the user sets an input to."""
        layout = self.layouts.sequential(name)
        given = self.inputs.get((name, pass_)) if not earlier else None
        if given is not None:
            return _given_bytes(layout, np.asarray(given))
        bounds = data.integer_bounds(self.layouts, name) if layout.dtype.integer else None
        raw = data.input_bytes(self.seed, layout, pass_, bounds, earlier)
        return raw if earlier else self.with_integers(layout, raw, pass_)

    def with_integers(self, layout: Layout, raw: Bytes, pass_: int) -> Bytes:
        """The bytes of a tensor with the fixed integers in it (those of its views included)."""
        for (name, when), values in self.integers.items():
            part = self.layouts.sequential(name)
            inside = part.space == layout.space and (
                layout.offset <= part.offset and part.end <= layout.end
            )
            if when == pass_ and inside and part.dtype.integer:
                array = np.array(values, np.int64).reshape(part.ne[::-1]).T
                raw = raw.copy()
                places = np.searchsorted(layout.addresses, part.addresses)
                raw[places] = from_array(part.dtype, array)
        return raw

    def footprint(self, declared: tuple[str, ...] | None) -> tuple[str, ...]:
        """The tensors of a callback's footprint.  One that was not declared is taken to be all
        weights and ``any`` buffers; copies, banks and their maps are no part of ``usage:…``."""
        graph = self.schedule.graph
        cache = {n for b in graph.banks for n in (b.name, b.slot_ids, b.slot_map)}
        items = ("usage:weights", "usage:any", *self.touched) if declared is None else declared
        names: dict[str, None] = {}
        for item in items:
            if not item.startswith("usage:"):
                names[item] = None
                continue
            usage = Usage(item.removeprefix("usage:"))
            for tensor in graph.tensors:
                place = self.schedule.location(tensor.name).usage
                if tensor.view_of is not None or tensor.name in cache or place is not usage:
                    continue
                if self.schedule.copy_of(tensor.name) is None:
                    names[tensor.name] = None
        return tuple(names)

    def callback(
        self, command: Callback, pass_: int, reads: Mapping[str, Content]
    ) -> dict[str, Bytes]:
        """The bytes that user code writes, given what it reads."""
        layout = self.layouts.sequential
        written = self.footprint(command.writes)
        function = self.callbacks.get(command.name)
        if function is None:
            return {
                name: self.with_integers(
                    layout(name),
                    data.callback_bytes(self.seed, command.name, layout(name), pass_),
                    pass_,
                )
                for name in written
            }
        arrays = {n: to_array(layout(n).dtype, c.raw, layout(n).ne) for n, c in reads.items()}
        result = {}
        for name, array in function(pass_, arrays).items():
            if name not in written:
                declared = ", ".join(written) or "nothing"
                raise ValueError(f"callback {command.name} wrote {name}; it declares {declared}")
            result[name] = _given_bytes(layout(name), np.asarray(array))
        return result

    def memory(self, place: Callable[[str], Layout], names: Iterable[str]) -> Memory:
        """A memory for the tensors named, poisoned but for the initial contents."""
        graph = self.schedule.graph
        sizes: dict[str, int] = {}
        for name in names:
            sizes[place(name).space] = max(sizes.get(place(name).space, 0), place(name).end)
        memory = Memory(sizes)
        for space in sizes:
            usage = None if space.startswith("own:") else graph.buffer(space).usage
            if usage in (Usage.WEIGHTS, Usage.ANY):
                memory.data[space][:] = 0
                memory.version[space][:] = self.versions.of("initial", space, 0, sizes[space])
        for name in names:
            layout = place(name)
            tensor = self.schedule.tensor(name)
            lasting = self.schedule.location(name).usage in (Usage.WEIGHTS, Usage.ANY)
            if not lasting or tensor.view_of is not None:
                continue
            if tensor.input or graph.find_bank(name) is not None:
                memory.poison(layout)
            else:
                memory.data[layout.space][layout.where] = data.initial_bytes(self.seed, layout)
        return memory


def _given_bytes(layout: Layout, array: Array) -> Bytes:
    """What a user's array holds, as the bytes of a tensor."""
    if array.dtype == np.uint8 and array.shape == (layout.nbytes,):
        return array
    if array.size != int(np.prod(layout.ne)):
        raise ValueError(
            f"{layout.name} has {int(np.prod(layout.ne))} elements (shape {list(layout.ne)}, "
            f"innermost first), the array given has shape {list(array.shape)}"
        )
    return from_array(layout.dtype, array.reshape(layout.ne, order="F"))


@dataclass(frozen=True)
class Reference:
    """What the sequential run read and wrote.

    ``reads``: per (node, pass), what it read of each tensor of :func:`meant_tensors`.
    ``results``: per (node, pass), the content of each tensor that it wrote, whole, afterwards.
    ``outputs``: per (tensor, pass), its content at the end of the pass.
    ``user_reads``: per (callback number, pass), what the callback read.
    """

    world: World
    reads: Mapping[tuple[str, int], tuple[Content, ...]]
    results: Mapping[tuple[str, int], Mapping[str, Content]]
    outputs: Mapping[tuple[str, int], Content]
    user_reads: Mapping[tuple[int, int], Mapping[str, Content]]

    def value(self, node: str, pass_: int) -> Array:
        """The value of a node, of shape ``ne``; ``KeyError`` if it did not run in that pass."""
        return self._array(node, self.results[node, pass_][node])

    def output(self, tensor: str, pass_: int) -> Array:
        """An output at the end of a pass, of shape ``ne``."""
        return self._array(tensor, self.outputs[tensor, pass_])

    def _array(self, name: str, content: Content) -> Array:
        layout = self.world.layouts.sequential(name)
        return to_array(layout.dtype, content.raw, layout.ne)


def run_reference(
    schedule: Schedule,
    symbols: Mapping[str, int],
    *,
    seed: int = 0,
    integers: Integers = (),
    callbacks: Mapping[str, CallbackFunction] | None = None,
    inputs: Mapping[tuple[str, int], Array] | None = None,
    rounded: bool = False,
) -> Reference:
    """Run a schedule's graph sequentially, ``repeat`` passes.

    ``integers``: ``(tensor, pass, values)``, flat and innermost first, in the place of made-up
    inputs; ``inputs``: arrays by (tensor, pass).  ``rounded``: activations are rounded to q8_0
    before they meet q8_0 and q4_0 weights, as ggml's kernels do.  ``UnsupportedOp`` names an op
    without a reference, ``OutOfRange`` an id that indexes nothing, ``ValueError`` a symbol
    without a value.
    """
    fixed = {(name, pass_): values for name, pass_, values in integers}
    world = World(schedule, symbols, seed, fixed, callbacks or {}, inputs or {}, rounded=rounded)
    return sequential(world)


def sequential(world: World) -> Reference:
    """The sequential run in a given world."""
    run = _Run(world)
    for pass_ in range(world.schedule.repeat):
        run.one_pass(pass_)
    return Reference(world, run.reads, run.results, run.outputs, run.user_reads)


def input_commands(schedule: Schedule, at: Mapping[str, int]) -> list[tuple[int, str, int]]:
    """``(command, tensor, how many of the same follow)`` of each ``set_input`` of a pass."""
    if schedule.program is None:
        return [(-1, t.name, 0) for t in schedule.graph.tensors if t.input]
    found: list[tuple[int, str, int]] = []
    following: dict[str, int] = {}
    for index in reversed(range(len(schedule.program))):
        command = schedule.program[index]
        if isinstance(command, SetInput) and command.when.holds(at):
            found.append((index, command.tensor, following.get(command.tensor, 0)))
            following[command.tensor] = following.get(command.tensor, 0) + 1
    return found[::-1]


def output_tensors(schedule: Schedule) -> tuple[str, ...]:
    names = dict.fromkeys(t.name for t in schedule.graph.tensors if t.output)
    for command in schedule.program or ():
        if isinstance(command, GetOutput):
            names[command.tensor] = None
    return tuple(names)


def numbered_callbacks(schedule: Schedule) -> list[tuple[int, int, Callback]]:
    """``(position of the node that it precedes, number, callback)``, in sequential order.

    The number is the command's index in the program (its ordinal if there is none yet).
    """
    if schedule.program is None:
        split_level = [
            (split.start, callback)
            for split in schedule.splits or ()
            for callback in split.callbacks
            if isinstance(callback, Callback)
        ]
        return [(start, number, callback) for number, (start, callback) in enumerate(split_level)]
    starts = _split_starts(schedule, schedule.program)
    end = len(schedule.graph.nodes)
    found = []
    for number, command in enumerate(schedule.program):
        if isinstance(command, Callback):
            later = [at for split, at in starts.items() if split >= (command.split or 0)]
            found.append((min(later, default=end), number, command))
    return sorted(found, key=lambda item: (item[0], item[2].split or 0, item[1]))


def _split_starts(schedule: Schedule, program: tuple[Command, ...]) -> dict[int, int]:
    if schedule.splits is not None:
        return {index: split.start for index, split in enumerate(schedule.splits)}
    starts: dict[int, int] = {}
    for command in program:
        if isinstance(command, Compute) and command.split is not None:
            position = schedule.graph.position(command.node)
            starts[command.split] = min(position, starts.get(command.split, position))
    return starts


class _Run:
    """The state of a sequential run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.layout = world.layouts.sequential
        graph = world.schedule.graph
        self.memory = world.memory(self.layout, [t.name for t in graph.tensors])
        self.callbacks = numbered_callbacks(world.schedule)
        self.reads: dict[tuple[str, int], tuple[Content, ...]] = {}
        self.results: dict[tuple[str, int], dict[str, Content]] = {}
        self.outputs: dict[tuple[str, int], Content] = {}
        self.user_reads: dict[tuple[int, int], dict[str, Content]] = {}

    def one_pass(self, pass_: int) -> None:
        at = self.world.at(pass_)
        schedule = self.world.schedule
        for _, name, following in input_commands(schedule, at):
            if following == 0:
                self._write(name, self.world.input(name, pass_), "input", name, pass_)
        waiting = [item for item in self.callbacks if item[2].when.holds(at)]
        for position, node in enumerate(schedule.graph.nodes):
            while waiting and waiting[0][0] <= position:
                self._call(*waiting.pop(0)[1:], pass_)
            if not OPS[node.op].view and not remaps(schedule.graph, node) and node.when.holds(at):
                self._compute(node, pass_)
        for _, number, command in waiting:
            self._call(number, command, pass_)
        for name in output_tensors(schedule):
            self.outputs[name, pass_] = self.memory.read(self.layout(name))

    def _write(self, name: str, raw: Bytes, kind: str, writer: str, pass_: int) -> None:
        layout = self.layout(name)
        version = self.world.versions.of(kind, writer, pass_, layout.nbytes)
        self.memory.write(layout, raw, version)

    def _call(self, number: int, command: Callback, pass_: int) -> None:
        names = self.world.footprint(command.reads)
        reads = {name: self.memory.read(self.layout(name)) for name in names}
        self.user_reads[number, pass_] = reads
        for name, raw in self.world.callback(command, pass_, reads).items():
            self._write(name, raw, "callback", callback_write(number, command, name), pass_)

    def _compute(self, node: Node, pass_: int) -> None:
        names = meant_tensors(self.world.schedule, node)
        contents = tuple(self.memory.read(self.layout(name)) for name in names)
        operands = [operand(self.layout(n), c.raw) for n, c in zip(names, contents, strict=True)]
        targets = [self.layout(name) for name in written_tensors(node)]
        old = [self.memory.read(target) for target in targets]
        self.reads[node.dst, pass_] = contents
        results = self.results[node.dst, pass_] = {}
        for target, before, new in zip(
            targets, old, self._evaluated(node, operands, targets, old), strict=True
        ):
            writer = node_write(node, target.name)
            version = self.world.versions.of("node", writer, pass_, target.nbytes)
            if new.mask is not None:
                version = np.where(new.mask, version, before.version)
            if new.undefined:
                version = np.zeros_like(version)
            raw = self.world.with_integers(target, new.raw, pass_)
            self.memory.write(target, raw, version)
            results[target.name] = Content(raw, version)

    def _evaluated(
        self, node: Node, operands: list[Operand], targets: list[Layout], old: list[Content]
    ) -> tuple[Written, ...]:
        try:
            with np.errstate(all="ignore"):
                return evaluate(
                    node, operands, targets, old[0].raw if old else None, self.world.rounded
                )
        except OutOfRange:
            if not self.world.lenient:
                raise
            return undefined(targets)


def operand(layout: Layout, raw: Bytes) -> Operand:
    """A tensor's bytes as a function of ``exec/functions.py`` takes them."""
    if not layout.known:
        raise UnsupportedOp(f"only the size of {layout.name} is known: it cannot be computed with")
    return Operand(layout.name, layout.dtype, layout.ne, raw)


def callback_write(number: int, command: Callback, tensor: str) -> str:
    """The name of a callback's write, for its version."""
    return f"{command.name} (command {number}) of {tensor}"


def node_write(node: Node, tensor: str) -> str:
    """The name of a node's write, for its version."""
    return node.dst if tensor == node.dst else f"{node.dst} of {tensor}"
