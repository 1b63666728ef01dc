"""From a graph to its splits: what :func:`plan` does, and what it can tell about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress

from ..fault import meant, quote
from ..graph import Graph
from ..report import Finding, Kind
from ..schedule import Schedule, Split
from ..symbol import Ranges
from .arrays import NONE, graph_arrays, host_weight_nodes
from .capability import Capabilities
from .decide import Decision, decide
from .error import PlanError
from .fill_split import begin_at_fills
from .guard import Guard, Off
from .options import PlanOptions
from .override import move_weights, overrides
from .regime import Box, Cut, boxes, cuts, edges, merged, thresholds, within

_DEFAULT = PlanOptions()

#: Whether a declared thing has an effect is found by planning without it, up to this many nodes.
_MOST_NODES = 400_000


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of one regime.

    ``schedule``: at the split level, over the regime's part of the symbols' ranges.  ``cuts``:
    the decisions that change at the ends of that part.  ``decision``: the passes' own words.
    ``findings``: what was declared and has no effect (PL006); the same for all regimes.
    """

    schedule: Schedule
    decision: Decision
    cuts: tuple[Cut, ...] = ()
    findings: tuple[Finding, ...] = ()


def plan(
    schedule: Schedule, options: PlanOptions = _DEFAULT, *, at: Mapping[str, int] | None = None
) -> Schedule:
    """The schedule with a device for each node, and splits: ggml's decisions, exactly.

    ``at``: values of symbols, besides ``options.at``; their ranges become these values.  A
    schedule that has splits is returned as it is; :func:`unplanned` takes them away.

    ``PlanError`` where ggml aborts, for options that do not fit, and where one plan is not
    right for all values of the symbols (:func:`plan_regimes` gives one for each regime).
    """
    if schedule.splits is not None:
        if options != _DEFAULT or at:
            raise PlanError(
                f"schedule {schedule.name!r} is at the {schedule.level} level already, and "
                "options decide nothing there any more; take its plan away first (unplanned)"
            )
        return schedule
    options = replace(options, at=(*options.at, *(at or {}).items()))
    found = plan_regimes(schedule, options)
    if len(found) > 1:
        changes = sorted({(c.symbol, c.value, c.question) for p in found for c in p.cuts})
        where = "; ".join(f"{s} = {v} ({text})" for s, v, text in changes)
        raise PlanError(
            f"{len(found)} plans are needed, as decisions change at {where}; give a value (at) "
            "or take one plan per regime (plan_regimes)"
        )
    return found[0].schedule


def unplanned(schedule: Schedule) -> Schedule:
    """The graph level of a schedule: no assignment, splits, placements or program."""
    return replace(schedule, assignment=(), splits=None, placements=(), program=None)


def plan_regimes(
    schedule: Schedule, options: PlanOptions = _DEFAULT, *, compiled: bool | None = None
) -> tuple[Planned, ...]:
    """One plan for each part of the symbols' ranges where all decisions are the same.

    ``compiled``: which twin of the passes runs (``None``: by the graph's size).  Errors as in
    :func:`plan`.
    """
    if schedule.splits is not None:
        raise PlanError(
            f"schedule {schedule.name!r} is at the {schedule.level} level; "
            "take its plan away first (unplanned)"
        )
    found, findings = _plans(schedule, options, compiled)
    findings += tuple(_without_effect(schedule, options, found))
    return tuple(replace(p, findings=findings) for p in found)


def declared(
    schedule: Schedule, options: PlanOptions
) -> tuple[Schedule, PlanOptions, tuple[Finding, ...]]:
    """The graph as the options want it, before anything is planned, and the other options.

    For what changes the graph further, as an expert cache does.  The findings tell of overrides
    that move nothing.  Errors as in :func:`plan`.
    """
    _check(schedule, options)
    graph = _declared(schedule.graph, options)
    moves = overrides(graph, options)
    graph, findings = move_weights(graph, moves) if moves else (graph, ())
    rest = replace(options, at=(), overrides=(), cpu_moe=0)
    return replace(schedule, graph=graph), rest, findings


def _plans(
    schedule: Schedule, options: PlanOptions, compiled: bool | None
) -> tuple[tuple[Planned, ...], tuple[Finding, ...]]:
    schedule, options, findings = declared(schedule, options)
    copies = schedule.graph.n_copies
    if copies > 1:
        schedule = replace(schedule, repeat=max(schedule.repeat, copies + 1))
    pins = (*schedule.assignment, *options.pins)
    planner = _Planner(schedule, replace(options, pins=pins), compiled)
    return planner.plans(), findings


def _declared(graph: Graph, options: PlanOptions) -> Graph:
    """The graph with the options that stand in the place of its own words."""
    values = dict(options.at)
    if not values and options.op_offload is None and options.n_copies is None:
        return graph
    return replace(
        graph,
        symbols=tuple(
            (name, values.get(name, low), values.get(name, high))
            for name, low, high in graph.symbols
        ),
        op_offload=graph.op_offload if options.op_offload is None else options.op_offload,
        n_copies=graph.n_copies if options.n_copies is None else options.n_copies,
    )


def _check(schedule: Schedule, options: PlanOptions) -> None:
    graph = schedule.graph
    for name, value in options.at:
        if name not in graph.ranges:
            raise PlanError(f"at {name}={value}: no such symbol{meant(name, graph.ranges)}")
        low, high = graph.ranges[name]
        if not low <= value <= high:
            raise PlanError(f"at {name}={value}: {low} to {high} was due")
    devices = [d.name for d in graph.devices]
    for name, device in options.pins:
        if graph.find_tensor(name) is None:
            known = meant(name, (t.name for t in graph.tensors))
            raise PlanError(f"pin {name}={device}: there is no tensor {quote(name)}{known}")
        if device not in devices:
            raise PlanError(f"pin {name}={device}: no such device{meant(device, devices)}")
    if options.n_copies is not None and options.n_copies < 1:
        raise PlanError(f"n_copies {options.n_copies}: 1 or more was due")
    if options.cpu_moe is not None and options.cpu_moe < 0:
        raise PlanError(f"cpu_moe {options.cpu_moe}: 0 or more was due")
    if options.split_inputs < 1:
        raise PlanError(f"split_inputs {options.split_inputs}: 1 or more was due")


class _Planner:
    """One schedule and its options, for all regimes."""

    def __init__(self, schedule: Schedule, options: PlanOptions, compiled: bool | None) -> None:
        self.schedule = schedule
        self.options = options
        self.compiled = compiled
        self.placements = {name: buffer for name, buffer, _ in schedule.placements}

    def plans(self) -> tuple[Planned, ...]:
        ranges = self.schedule.graph.ranges
        where = self.cuts()
        parts: list[tuple[Box, object]] = []
        decided: list[Planned] = []
        for box in boxes(ranges, where):
            planned = self.planned(box)
            decided.append(planned)
            s = planned.schedule
            parts.append((box, (s.assignment, s.splits, s.graph.nodes, s.graph.banks)))
        regimes = merged(parts)
        if len(regimes) == 1 and len(parts) == 1:
            return tuple(decided)
        return tuple(self.joined(decided[k], box, where, len(regimes)) for box, k in regimes)

    def cuts(self) -> tuple[Cut, ...]:
        """Where decisions may change."""
        graph = self.schedule.graph
        if all(low == high for _, low, high in graph.symbols):
            return ()
        values = {name: low for name, low, _ in graph.symbols}
        capabilities = Capabilities(graph, values, self.options.offload_min_tokens)
        offloaded: list[str] = []
        if graph.op_offload:
            arrays = graph_arrays(graph, capabilities, {}, self.placements)
            offloaded = [node.dst for node in host_weight_nodes(graph, arrays)]
        return cuts(thresholds(graph, capabilities, offloaded), graph.ranges)

    def planned(self, box: Box) -> Planned:
        graph = self.schedule.graph
        if graph.symbols:
            graph = within(graph, box, self.schedule.repeat)
        values = {name: low for name, (low, _) in box.items()}
        decision = decide(graph, values, self.options, self.placements, self.compiled)
        return Planned(_schedule(self.schedule, decision, self.options.off), decision)

    def joined(self, planned: Planned, box: Box, where: tuple[Cut, ...], number: int) -> Planned:
        """A plan over the whole of its regime."""
        symbols = tuple((name, low, high) for name, (low, high) in box.items())
        schedule = planned.schedule
        name = schedule.name
        if number > 1:
            name = f"{name} [{part_text(box, self.schedule.graph.ranges)}]".strip()
        graph = replace(schedule.graph, symbols=symbols)
        return replace(
            planned,
            schedule=replace(schedule, graph=graph, name=name),
            cuts=edges(box, self.schedule.graph.ranges, where),
        )


def part_text(box: Box, ranges: Ranges) -> str:
    """A part of the symbols' ranges in words: ``n_tokens = 1..31``."""
    cut = ((n, span) for n, span in box.items() if ranges[n] != span)
    return ", ".join(f"{n} = {low}" + (f"..{high}" if low < high else "") for n, (low, high) in cut)


def _schedule(schedule: Schedule, decision: Decision, off: Off) -> Schedule:
    """The IR's form of what the arrays say."""
    graph = decision.graph
    names = [t.name for t in graph.tensors]
    devices = [*(d.name for d in graph.devices), ""]  # the last is what has NONE
    found = zip(names, map(devices.__getitem__, decision.assignment.device), strict=True)
    assignment = tuple(compress(found, map(NONE.__ne__, decision.assignment.device)))
    splits = tuple(_splits(decision, names))
    if Guard.IDS_BEFORE_FILL not in off:
        splits = begin_at_fills(graph, splits)
    return replace(schedule, graph=graph, assignment=assignment, splits=splits)


def _splits(decision: Decision, names: list[str]) -> Iterator[Split]:
    nodes, s = len(decision.graph.nodes), decision.splits
    for k in range(decision.count if nodes else 0):
        end = s.start[k + 1] if k + 1 < decision.count else nodes
        inputs = tuple(names[t] for t in s.inputs[s.first[k] : s.first[k + 1]])
        yield Split(decision.graph.devices[s.device[k]].name, s.start[k], end, inputs)


# -- what was declared and changes nothing --------------------------------------------------------


def _without_effect(
    schedule: Schedule, options: PlanOptions, found: tuple[Planned, ...]
) -> Iterator[Finding]:
    variants = list(_variants(options))
    if len(schedule.graph.nodes) * len(found) * len(variants) > _MOST_NODES:
        return
    for text, without in variants:
        try:
            others, _ = _plans(schedule, without, None)
        except PlanError:
            continue  # without it there is no plan at all: that is an effect
        if _outcome(others) == _outcome(found):
            message = f"{text} changes no device and no split"
            yield Finding("PL006", Kind.COST, message, "$.tensors")


def _variants(options: PlanOptions) -> Iterator[tuple[str, PlanOptions]]:
    """Each declared thing, and the options without it."""
    for k, (name, device) in enumerate(options.pins):
        rest = options.pins[:k] + options.pins[k + 1 :]
        yield f"pin {name}={device}", replace(options, pins=rest)
    if options.op_offload is not None:
        yield f"op_offload {str(options.op_offload).lower()}", replace(options, op_offload=None)
    if options.offload_min_tokens is not None:
        text = f"offload_min_tokens {options.offload_min_tokens}"
        yield text, replace(options, offload_min_tokens=None)


def _outcome(found: tuple[Planned, ...]) -> list[object]:
    return [(p.schedule.graph.symbols, p.schedule.assignment, p.schedule.splits) for p in found]
