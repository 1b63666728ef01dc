"""Public models, planned in every way: all proved.

Layers of one kind are alike to the planner, so each model is cut to a few of each kind, and a
few combinations stand for the rest.  With ``SPLITPROOF_ALL_SHAPES=1`` every model has all its
layers, plain, cached, staged and both on one, two and three devices, which takes a quarter of an
hour of a processor; with ``SPLITPROOF_ALL_SHAPES=every`` in every combination, which takes a day.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import pytest
from splitproof.model.command import FillBank, Prefetch
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.options import PlanOptions
from splitproof.model.plan.planner import plan_regimes
from splitproof.model.plan.policy import POLICIES
from splitproof.model.read.model_config import ModelShape, model_schedule, read_shapes
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import Options, check

SHAPES = Path(__file__).parents[4] / "shared" / "data" / "model_shapes.json"
needs_shapes = pytest.mark.skipif(
    not SHAPES.is_file(), reason="../shared/data is absent: no model_shapes.json"
)
FULL = os.environ.get("SPLITPROOF_ALL_SHAPES", "")
#: so that something is staged where the experts are cached: these come from host memory too
ON_HOST = PlanOptions(overrides=((r"attn_output\.weight", "host"),))


#: so many combinations, which so many places of the whole list apart
FEW, STEP = 24, 37


class Variant(NamedTuple):
    """``cache``, ``prefetch``: names of policies."""

    devices: int
    cache: str
    prefetch: str
    copy_experts: bool
    place: str
    n_copies: int


def variants() -> list[Variant]:
    """All combinations that go together."""
    found = product(
        (1, 2, 3), ("", "expert-cache", "expert-cache-ids"), ("none", "one-ahead", "staging"),
        (False, True), ("own", "order"), (1, 2),
    )  # fmt: skip
    return [v for v in map(Variant._make, found) if v.n_copies == 1 or v.prefetch != "staging"]


def main_variants() -> list[Variant]:
    """Plain, cached, staged and both, on one, two and three devices."""
    found = product((1, 2, 3), ("", "expert-cache"), ("none", "staging"))
    return [Variant(*choice, copy_experts=False, place="own", n_copies=1) for choice in found]


def chosen() -> Iterator[tuple[int, Variant]]:
    """Each shape, and each two choices of different kinds together."""
    everything = variants()
    if FULL:
        yield from product(range(24), everything if FULL == "every" else main_variants())
        return
    for k in range(FEW):
        yield k % 24, everything[k * STEP % len(everything)]


def shortened(shape: ModelShape) -> ModelShape:
    """One dense layer, if the model has any, and three with experts."""
    dense = min(shape.dense, 1)
    return replace(shape, layers=dense + 3, dense=dense)


def prepared(shape: ModelShape, variant: Variant) -> tuple[Schedule, ...]:
    """The graph over decode and prompt, with a cache that just avoids flooding."""
    kind = "f16" if shape.hidden % 32 or shape.ffn % 32 else "q8_0"
    graph = model_schedule(shape, tokens=(1, 512), devices=variant.devices, dtype=kind)
    graph = replace(graph, graph=replace(graph.graph, n_copies=variant.n_copies))
    if not variant.cache:
        return (graph,)
    layer = f"blk.{shape.layers - 1}.ffn_"
    each = sum(
        t.nb[2].constant or 0
        for t in graph.graph.tensors
        if t.name.startswith(layer) and "_exps" in t.name
    )
    slots = shape.top_k * (shape.layers - shape.dense) + 1
    prepare = POLICIES[variant.cache].prepare
    assert prepare is not None
    return prepare(graph, each * (slots + 1), frozenset()).schedules


def programs(shape: ModelShape, variant: Variant) -> Iterator[Schedule]:
    choice = Lowering(
        "overlapped", variant.prefetch, 2 if variant.prefetch == "staging" else 0,
        variant.copy_experts, variant.place,
    )  # fmt: skip
    for graph in prepared(shape, variant):
        for planned in plan_regimes(graph, ON_HOST):
            yield lower_as(planned.schedule, choice).schedule


@needs_shapes
@pytest.mark.parametrize(("number", "variant"), list(chosen()))
def test_a_planned_model_is_proved(number: int, variant: Variant) -> None:
    shape = read_shapes(SHAPES)[number]
    found = list(programs(shape if FULL else shortened(shape), variant))
    for program in found:
        report = check(program, Options(seconds=600))
        assert report.verdict is Verdict.PROVED, (shape.name, program.graph.symbols)
    kinds = [{type(c) for c in program.program or ()} for program in found]
    assert (FillBank in kinds[0]) == bool(variant.cache)
    assert all(FillBank not in kind for kind in kinds[1:])
    if variant.prefetch == "staging":
        assert all(Prefetch in kind for kind in kinds)


@pytest.mark.skipif(bool(FULL), reason="not a few were chosen")
def test_the_few_stand_for_all() -> None:
    tried = list(chosen())
    assert {number for number, _ in tried} == set(range(24))
    assert pairs(variant for _, variant in tried) == pairs(variants())


def pairs(found: Iterable[Variant]) -> set[tuple[int, object, int, object]]:
    """Every two fields with their values that occur together."""
    return {
        (j, variant[j], k, variant[k])
        for variant in found
        for j, k in combinations(range(len(Variant._fields)), 2)
    }
