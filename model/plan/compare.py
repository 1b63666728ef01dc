"""The planner held against what ggml's scheduler was recorded to decide."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ..read.ggml_dump import read_recorded
from ..schedule import Schedule, Split
from .assign import recorded_name
from .error import PlanError
from .options import PlanOptions
from .planner import Planned, plan_regimes, unplanned


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """One recorded graph: whether the plan has the same devices, the same split ranges (with
    their devices) and the same inputs, in how many tensors the causes agree, and the first
    difference in words (``None``: no difference)."""

    name: str
    nodes: int
    splits: int
    assignment: bool
    ranges: bool
    inputs: bool
    causes: int
    causes_recorded: int
    first_difference: str | None

    @property
    def agrees(self) -> bool:
        return self.first_difference is None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All graphs of one dump, in its order."""

    source: str
    graphs: tuple[GraphComparison, ...]

    @property
    def agrees(self) -> bool:
        return all(graph.agrees for graph in self.graphs)

    def count(self, what: str) -> int:
        """How many graphs agree in ``"assignment"``, ``"ranges"`` or ``"inputs"``."""
        return sum(getattr(graph, what) for graph in self.graphs)

    @property
    def causes(self) -> tuple[int, int]:
        """How many causes agree, of how many that are recorded."""
        agree = sum(graph.causes for graph in self.graphs)
        return agree, sum(graph.causes_recorded for graph in self.graphs)


def compare_dump(
    source: str | os.PathLike[str] | Iterable[str | bytes],
    *,
    compiled: bool | None = None,
) -> Comparison:
    """Plan each graph of a dump anew and compare.

    Input lists are compared with the limit of newer versions of ggml (they grow).  Errors as in
    ``read_dump``; a graph that cannot be planned differs.
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "<lines>"
    return Comparison(
        name,
        tuple(
            compare(recorded, causes, compiled=compiled)
            for recorded, causes in read_recorded(source)
        ),
    )


def compare(
    recorded: Schedule, causes: tuple[str, ...] = (), *, compiled: bool | None = None
) -> GraphComparison:
    """One split-level schedule against the plan of its graph."""
    nodes, count = len(recorded.graph.nodes), len(recorded.splits or ())
    try:
        planned = plan_regimes(unplanned(recorded), PlanOptions(), compiled=compiled)[0]
    except PlanError as error:
        return GraphComparison(
            recorded.name, nodes, count, False, False, False, 0, len(causes), str(error)
        )
    devices = _first_device(recorded, planned.schedule)
    ranges = _first_range(recorded.splits or (), planned.schedule.splits or ())
    inputs = None if ranges else _first_input(recorded.splits or (), planned.schedule.splits or ())
    return GraphComparison(
        name=recorded.name, nodes=nodes, splits=count,
        assignment=devices is None, ranges=ranges is None,
        inputs=ranges is None and inputs is None,
        causes=_equal_causes(planned, causes), causes_recorded=len(causes),
        first_difference=devices or ranges or inputs,
    )  # fmt: skip


def _first_device(recorded: Schedule, planned: Schedule) -> str | None:
    for tensor in recorded.graph.tensors:
        there, here = recorded.device_of(tensor.name), planned.device_of(tensor.name)
        if there != here:
            return f"{tensor.name!r} is recorded on {there}, and planned on {here}"
    return None


def _first_range(recorded: tuple[Split, ...], planned: tuple[Split, ...]) -> str | None:
    for k, (there, here) in enumerate(zip(recorded, planned, strict=False)):
        left, right = (there.device, there.start, there.end), (here.device, here.start, here.end)
        if left != right:
            return f"split {k} is recorded as {_text(there)}, and planned as {_text(here)}"
    if len(recorded) != len(planned):
        return f"{len(recorded)} splits are recorded, and {len(planned)} planned"
    return None


def _first_input(recorded: tuple[Split, ...], planned: tuple[Split, ...]) -> str | None:
    for k, (there, here) in enumerate(zip(recorded, planned, strict=True)):
        if there.inputs != here.inputs:
            return (
                f"split {k} is recorded with inputs [{', '.join(there.inputs)}], and planned "
                f"with [{', '.join(here.inputs)}]"
            )
    return None


def _text(split: Split) -> str:
    return f"nodes {split.start} to {split.end} on {split.device}"


def _equal_causes(planned: Planned, causes: tuple[str, ...]) -> int:
    found = planned.decision.assignment.cause
    return sum(recorded_name(cause) == name for cause, name in zip(found, causes, strict=False))
