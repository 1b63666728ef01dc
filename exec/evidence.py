"""Evidence for static findings: the rule evaluated on concrete sizes.

Each rule is a plain function over the schedule, written apart from the checker's encoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from ..model.report import Finding
from ..model.schedule import Schedule
from . import static_banks, static_cost, static_order, static_placement
from .scene import Fact, Fault, Place, Scene

RULES: dict[str, Callable[[Scene], Iterator[Fault]]] = {
    "PF007": static_banks.staging_off_device,
    "PL001": static_placement.op_unsupported,
    "PL002": static_placement.source_unreadable,
    "PL003": static_placement.result_immovable,
    "PL004": static_placement.input_list_wrong,
    "PL005": static_placement.node_unassigned,
    "PL006": static_cost.declared_not_realised,
    "PL007": static_placement.not_computed_once,
    "AL002": static_placement.out_of_bounds,
    "AL003": static_placement.over_capacity,
    "AL004": static_placement.in_place_unsafe,
    "BK001": static_order.cached_matmul_off_bank,
    "BK004": static_order.working_set_exceeds,
    "BK005": static_order.index_space_mismatch,
    "BK010": static_banks.bank_on_wrong_device,
    "BK011": static_banks.bank_never_hits,
    "CE006": static_order.id_out_of_range,
    "OR005": static_order.wait_never_satisfied,
    "OR006": static_order.event_kind_mismatch,
    "CO001": static_order.bank_copied,
    "CO003": static_cost.split_ping_pong,
    "CO004": static_cost.serial_upload,
    "CO005": static_cost.prefetch_moves_more,
    "CO006": static_cost.selective_copy_useless,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """``confirmed``: the rule is broken where the finding says; ``facts``: what shows it."""

    confirmed: bool
    facts: tuple[Fact, ...]


def examine(schedule: Schedule, finding: Finding, symbols: Mapping[str, int]) -> Evidence:
    """Evaluate a finding's rule at concrete values of the symbols.

    Symbols that ``symbols`` leaves out are tried: their bounds first, then up to 256 values
    between.  A finding whose place is of a sort that the rule names must be found there;
    otherwise any fault of the rule confirms it.  ``KeyError`` for a rule that is not here.
    """
    tried = 0
    for values in _choices(schedule, symbols):
        tried += 1
        fault = _fault(schedule, finding, values)
        if fault is not None:
            at: tuple[Fact, ...] = tuple(values.items())
            return Evidence(True, (*fault.facts, *at))
    asked = ", ".join(f"{name} = {value}" for name, value in symbols.items()) or f"{tried} sizes"
    return Evidence(False, (("not found", f"{finding.rule} holds at {finding.place}, {asked}"),))


def _choices(schedule: Schedule, symbols: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Values for all symbols: the given ones, and several for those that are not given."""
    free = {n: bounds for n, bounds in schedule.graph.ranges.items() if n not in symbols}
    given = {n: v for n, v in symbols.items() if n in schedule.graph.ranges}
    yield {n: low for n, (low, _) in free.items()} | given
    if not free:
        return
    yield {n: high for n, (_, high) in free.items()} | given
    inner = [range(low, min(high, low + 256) + 1) for low, high in free.values()]
    for values in islice(product(*inner), 256):
        yield dict(zip(free, values, strict=True)) | given


def _fault(schedule: Schedule, finding: Finding, values: Mapping[str, int]) -> Fault | None:
    """The fault that the finding tells of at these sizes, if there is one."""
    faults = list(RULES[finding.rule](Scene.of(schedule, values)))
    place = _place(finding.place)
    here = [fault for fault in faults if place in fault.places]
    sorts = {sort for fault in faults for sort, _ in fault.places}
    if not here and (place is None or place[0] not in sorts):
        here = faults
    return here[0] if here else None


def evidence(schedule: Schedule, finding: Finding, symbols: Mapping[str, int]) -> tuple[Fact, ...]:
    """The facts of :func:`examine`."""
    return examine(schedule, finding, symbols).facts


def _place(path: str) -> Place | None:
    """``$.nodes[3].src[0]`` is ``("nodes", 3)``; ``$.banks.b.when`` is ``("banks", "b")``."""
    indexed = re.match(r"\$\.(\w+)\[(\d+)\]", path)
    if indexed is not None:
        return indexed[1], int(indexed[2])
    named = re.match(r"\$\.(\w+)\.(.+)$", path) or re.match(r"\$\.(\w+)\[[\"'](.+?)[\"']\]", path)
    if named is None:
        return None
    name = re.sub(r"\.(shape|offset|buffer|when|slots|view_of|strides)(\[\d+\])?$", "", named[2])
    return named[1], name
