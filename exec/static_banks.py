"""The static rules of staging places and of where banks lie and whether they hit, by plain code."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.cache import empty_slots, lru_slots
from ..model.command import Copy, CopyExperts
from ..model.device import Usage
from ..model.graph import Bank
from .evaluate import bank_of
from .scene import Fault, Place, Scene

#: Tokens that are decoded to see whether a bank ever hits.
TOKENS = 8


def staging_off_device(scene: Scene) -> Iterator[Fault]:
    """PF007: a weight is staged in a memory that the node which reads it there cannot read."""
    schedule = scene.schedule
    fills: dict[str, tuple[int, str]] = {}
    for index, command in enumerate(schedule.program or ()):
        if isinstance(command, Copy | CopyExperts):
            usage = schedule.location(command.src).usage
            if usage in (Usage.WEIGHTS, Usage.ANY):
                fills[command.dst] = index, command.src
    for run in scene.executions():
        for bound in run.bound:
            memory = scene.memory(bound)
            if bound in fills and memory is not None and memory not in run.device.reads:
                index, weight = fills[bound]
                yield Fault(
                    (*run.places, ("program", index), ("tensors", bound)),
                    (
                        ("node", f"{run.node.op} {run.node.dst}"),
                        ("device", run.device.name),
                        ("reads memories", ", ".join(run.device.reads)),
                        ("weight", weight),
                        ("staged in", f"{bound} ({memory})"),
                    ),
                )


def bank_on_wrong_device(scene: Scene) -> Iterator[Fault]:
    """BK010: a node reads a bank in a memory that its device cannot read, or the banks of a
    memory do not fit it."""
    graph = scene.schedule.graph
    for run in scene.executions():
        bank = bank_of(graph, run.node)
        memory = None if bank is None else scene.memory(bank.name)
        if bank is not None and memory is not None and memory not in run.device.reads:
            yield Fault(
                (*run.places, ("banks", bank.name)),
                (
                    ("node", f"{run.node.op} {run.node.dst}"),
                    ("device", run.device.name),
                    ("reads memories", ", ".join(run.device.reads)),
                    ("bank", f"{bank.name} (memory {memory})"),
                ),
            )
    for place in graph.memories:
        here = [bank for bank in graph.banks if scene.memory(bank.name) == place.name]
        spans: dict[tuple[str, int], int] = {}
        for bank in here:
            layout = scene.layouts.placed(bank.name)
            spans[layout.space, layout.offset] = layout.end - layout.offset
        total = sum(spans.values())
        if place.bytes is not None and total > place.bytes:
            places: list[Place] = [("memories", place.name), *(("banks", b.name) for b in here)]
            yield Fault(
                tuple(places),
                (
                    ("memory", place.name),
                    ("capacity", place.bytes),
                    ("banks", ", ".join(bank.name for bank in here)),
                    ("bytes of the banks", total),
                ),
            )


def bank_never_hits(scene: Scene) -> Iterator[Fault]:
    """BK011: decoded with the same experts for each token, a group's policy never finds one.

    The policy itself is run from empty slots: one token after another through all layers.
    """
    groups: dict[str, dict[int, Bank]] = {}
    for bank in scene.schedule.graph.banks:
        if bank.policy == "lru-slots":
            groups.setdefault(bank.group, {}).setdefault(bank.layer, bank)
    for group, layers in groups.items():
        state, hits, asked = empty_slots(next(iter(layers.values())).slots), 0, 0
        for _ in range(TOKENS):
            for layer, bank in layers.items():
                ids = scene.layouts.placed(bank.ids)
                count = min(ids.ne[0], scene.layouts.placed(bank.caches).ne[2], len(state.owners))
                step = lru_slots(state, layer, range(count))
                state, hits, asked = step.state, hits + step.hits, asked + count
        if not hits and asked:
            names = [bank.name for bank in layers.values()]
            yield Fault(
                tuple(("banks", name) for name in names),
                (
                    ("group", group),
                    ("slots", len(state.owners)),
                    ("look-ups", asked),
                    ("hits", hits),
                ),
            )
