"""Which version of each byte a pass is to read: the sequential run, without its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..model.command import Callback
from ..model.ops import OPS
from ..model.schedule import Schedule
from .evaluate import meant_tensors, remaps, written_tensors
from .layout import Layout
from .memory import POISON, VersionArray, Versions
from .reference import (
    World,
    callback_write,
    input_commands,
    node_write,
    numbered_callbacks,
    output_tensors,
)


@dataclass(slots=True)
class Due:
    """What the parts of one pass are to read.

    ``nodes``: by node, the versions of :func:`.evaluate.meant_tensors`, by name, in logical
    order, and (under ``None``) of what an op that updates its destination finds there.
    ``callbacks``: by command, by tensor.  ``outputs``: by tensor, at the end of the pass.
    """

    nodes: dict[str, dict[str | None, VersionArray]] = field(default_factory=dict)
    callbacks: dict[int, dict[str, VersionArray]] = field(default_factory=dict)
    outputs: dict[str, VersionArray] = field(default_factory=dict)


class DueVersions:
    """Walks through the passes of one run, in the sequential order."""

    def __init__(
        self, world: World, versions: Versions, start: Mapping[str, VersionArray], run: int
    ) -> None:
        """``start``: versions of the spaces that have a content, as they are now."""
        self.world, self.versions, self.run = world, versions, run
        self.schedule: Schedule = world.schedule
        self._layout = world.layouts.sequential
        self._spaces = {space: version.copy() for space, version in start.items()}
        self._callbacks = numbered_callbacks(self.schedule)
        self._due = Due()

    def write(self, kind: str, writer: str, layout: Layout, pass_: int) -> VersionArray:
        """The versions that a write of this run gives, in logical order."""
        return self.versions.of(kind, f"{writer} of run {self.run}", pass_, layout.nbytes)

    def node_write(self, node: str, tensor: str, pass_: int) -> VersionArray:
        writer = node_write(self.schedule.graph.node(node), tensor)
        return self.write("node", writer, self._layout(tensor), pass_)

    def input_write(self, tensor: str, following: int, pass_: int) -> VersionArray:
        later = f" ({following} before the last)" if following else ""
        return self.write("input", tensor + later, self._layout(tensor), pass_)

    def callback_write(
        self, number: int, command: Callback, tensor: str, pass_: int
    ) -> VersionArray:
        writer = callback_write(number, command, tensor)
        return self.write("callback", writer, self._layout(tensor), pass_)

    def one_pass(self, pass_: int) -> Due:
        """Go through the pass; what earlier passes left in ``any`` buffers stays."""
        at, schedule = self.world.at(pass_), self.schedule
        due = self._due = Due()
        for _, name, following in input_commands(schedule, at):
            if following == 0:
                self._set(name, self.input_write(name, 0, pass_))
        waiting = [item for item in self._callbacks if item[2].when.holds(at)]
        for position, node in enumerate(schedule.graph.nodes):
            while waiting and waiting[0][0] <= position:
                self._call(*waiting.pop(0)[1:], pass_)
            if OPS[node.op].view or remaps(schedule.graph, node) or not node.when.holds(at):
                continue
            reads: dict[str | None, VersionArray] = {
                name: self._get(name) for name in meant_tensors(schedule, node)
            }
            if OPS[node.op].updates:
                reads[None] = self._get(node.dst)
            due.nodes[node.dst] = reads
            for name in written_tensors(node):
                self._set(name, self.node_write(node.dst, name, pass_))
        for _, number, command in waiting:
            self._call(number, command, pass_)
        due.outputs.update({name: self._get(name) for name in output_tensors(schedule)})
        return due

    def _call(self, number: int, command: Callback, pass_: int) -> None:
        reads = self.world.footprint(command.reads)
        self._due.callbacks[number] = {name: self._get(name) for name in reads}
        for name in self.world.footprint(command.writes):
            self._set(name, self.callback_write(number, command, name, pass_))

    def _space(self, layout: Layout) -> VersionArray:
        known = self._spaces.get(layout.space)
        if known is None or len(known) < layout.end:
            grown = np.full(layout.end, POISON, np.int64)
            if known is not None:
                grown[: len(known)] = known
            self._spaces[layout.space] = known = grown
        return known

    def _get(self, name: str) -> VersionArray:
        layout = self._layout(name)
        found: VersionArray = self._space(layout)[layout.where].copy()
        return found

    def _set(self, name: str, version: VersionArray) -> None:
        layout = self._layout(name)
        self._space(layout)[layout.where] = version
