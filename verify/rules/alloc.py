"""AL: tensors that are live at once share no bytes."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.fault import show_path
from ..footprint import TARGET_SOURCES
from ..region import region_of
from ..term import conj, disj, number, size
from .case import Case, Test
from .static import Broken, StaticRule, Statics


# ∀ tensors a ≠ b of compute memory live at once in the concurrent order:  bytes(a) ∩ bytes(b) = ∅
def al001(case: Case) -> bool:
    return case.foreign_write and case.relation in ("unordered", "stale")


TESTS: dict[str, Test] = {"AL001": al001}


# ∀ placed tensor t:  0 ≤ offset(t)  ∧  offset(t) + extent(t) ≤ bytes(buffer)
def al002(s: Statics) -> Iterator[Broken]:
    schedule = s.schedule
    for tensor in schedule.graph.tensors:
        region = region_of(schedule, tensor.name)
        if tensor.view_of is not None or region.space.startswith("own:"):
            continue
        buffer = schedule.graph.buffer(region.space)
        start, end = size(region.start), size(region.start + region.extent)
        outside = disj([s.scope.lt(start, number(0)), s.scope.lt(number(buffer.bytes), end)])
        values = s.possible(outside)
        if values is not None:
            yield Broken(
                "AL002",
                f"{tensor.name!r} ends at byte {values.value(end)} of buffer {buffer.name!r}, "
                f"which has {buffer.bytes}",
                show_path(("tensors", tensor.name)),
                (
                    ("start", values.value(start)),
                    ("end", values.value(end)),
                    ("buffer", buffer.bytes),
                ),
                tuple(values.symbols.items()),
            )
    for bank in schedule.graph.banks:
        count = schedule.tensor(bank.name).ne[2].constant
        if not s.holds(count is None or bank.slots <= count):
            text = f"bank {bank.name!r} has {bank.slots} slots in room for {count}"
            yield Broken("AL002", text, show_path(("banks", bank.name)))


# ∀ memory m:  Σ bytes(buffers in m) ≤ capacity(m)
def al003(s: Statics) -> Iterator[Broken]:
    graph = s.schedule.graph
    for memory in graph.memories:
        total = sum(b.bytes for b in graph.buffers if b.memory == memory.name)
        if memory.bytes is not None and not s.holds(total <= memory.bytes):
            yield Broken(
                "AL003",
                f"the buffers of {memory.name} take {total} bytes of {memory.bytes}",
                show_path(("memories", memory.name)),
                (("buffers", total), ("capacity", memory.bytes)),
            )


# ∀ source s whose bytes meet dst:  (op, s, device) declared in-place safe
def al004(s: Statics) -> Iterator[Broken]:
    for site in s.sites():
        node, target = site.node, region_of(s.schedule, site.node.dst)
        safe = {(rule.op, rule.source) for rule in site.device.in_place}
        for index in range(len(node.src)):
            if TARGET_SOURCES.get(node.op) == index or (node.op, index) in safe:
                continue
            source = region_of(s.schedule, s.schedule.bound(site.command, index))
            if source.space != target.space or not (source.exact and target.exact):
                continue
            meet = conj(
                [
                    s.scope.lt(size(source.start), size(target.start + target.extent)),
                    s.scope.lt(size(target.start), size(source.start + source.extent)),
                ]
            )
            values = s.possible(meet)
            if values is not None:
                yield Broken(
                    "AL004",
                    f"{node.op} writes {node.dst!r} over its source {index} "
                    f"({source.tensor.name!r}); {site.device.name} does not declare that safe",
                    site.place,
                    (("declared in place", ", ".join(f"{o}:{i}" for o, i in sorted(safe))),),
                    tuple(values.symbols.items()),
                )


STATIC: tuple[StaticRule, ...] = (al002, al003, al004)
