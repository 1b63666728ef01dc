"""Hold what a run gave against the sequential reference."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from ..model.ops import OPS
from ..model.schedule import Schedule
from .quant import Array
from .reference import Reference
from .rounding import ROUNDINGS
from .runtime import RunResult

#: Share of an output's largest value that float32 sums and exponentials may differ by.
FLOAT_SHARE = 1e-4
#: The same for a product whose activations are rounded to 8 bits.
ROUNDED_SHARE = 0.03

#: Ops that give the same bits here and in the reference if their sources are the same bits.
_EXACT = frozenset({"add", "sub", "mul", "get_rows", "set_rows", "custom", "cont", "cpy", "dup",
                    "concat", "repeat", "argsort"})  # fmt: skip
#: Of these, the ones of which a small difference of a source makes another result altogether.
_CHAOTIC = frozenset({"custom", "argsort"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One output in one pass.

    ``absolute``: largest difference of two elements; ``relative``: the same as a share of the
    reference's largest; ``tolerance``: the share that is allowed (``None``: see
    :func:`tolerances`).  Elements that are NaN in both, or the same infinity, agree.
    """

    tensor: str
    pass_: int
    absolute: float
    relative: float
    tolerance: float | None

    @property
    def agrees(self) -> bool | None:
        """``None`` where no tolerance can be given."""
        return None if self.tolerance is None else self.relative <= self.tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """All outputs of all passes."""

    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        """Whether no output is outside its tolerance."""
        return all(difference.agrees is not False for difference in self.differences)

    @property
    def undecided(self) -> tuple[Difference, ...]:
        """Outputs for which no tolerance can be given."""
        return tuple(d for d in self.differences if d.tolerance is None)

    @property
    def worst(self) -> Difference | None:
        """The output with the largest relative difference."""
        return max(self.differences, key=lambda d: d.relative, default=None)


def compare(result: RunResult, reference: Reference) -> Comparison:
    """Compare each output of each pass.  ``ValueError`` if the two ran at different symbols.

    The reference multiplies exact activations; kernels for q8_0 and q4_0 weights round them to
    8 bits per block of 32 first, as ggml does.  :func:`tolerances` says what that may cost.
    """
    world = reference.world
    if dict(world.symbols) != dict(result.symbols):
        raise ValueError(f"the run had {dict(result.symbols)}, the reference {dict(world.symbols)}")
    allowed = tolerances(result.schedule)
    return Comparison(
        tuple(
            difference(name, pass_, value, reference.output(name, pass_), allowed.get(name, 0.0))
            for pass_, outputs in enumerate(result.outputs)
            for name, value in outputs.items()
        )
    )


def difference(
    tensor: str, pass_: int, got: Array, due: Array, tolerance: float | None
) -> Difference:
    """Compare two arrays of one shape."""
    left, right = got.astype(np.float64), due.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if same.all():
        return Difference(tensor, pass_, 0.0, 0.0, tolerance)
    with np.errstate(invalid="ignore"):  # infinities of different sign are apart, too
        apart = np.abs(left - right)[~same]
    absolute = float(apart.max()) if np.isfinite(apart).all() else float("inf")
    size = float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    return Difference(tensor, pass_, absolute, absolute / size if size else float("inf"), tolerance)


def tolerances(schedule: Schedule) -> dict[str, float | None]:
    """For each node, the share of its largest value by which a right run may differ.

    0 where only ops stand before it that are the same to the bit.  Each product with q8_0 or q4_0
    weights rounds an activation by at most half a step of ``max / 127`` of its block, and the step
    by 2⁻¹¹: as independent errors, a standard deviation of at most 0.013 of that of the result
    (0.006 for normally distributed activations).  ``ROUNDED_SHARE`` of the *largest* value is more
    than six of these for any output of ten elements or more.  Errors of a chain of products add as
    independent ones do: with the square root of the chain's length.  This is an estimate; the
    tests of the kernels hold each product to a strict bound.  A stale or missing operand, in
    contrast, changes a result by about its own size.

    ``None``: an op that turns small differences into others of any size (``custom``,
    ``argsort``) reads something that is not the same to the bit.
    """
    graph = schedule.graph
    # Per base tensor: (products with rounded activations before it, whether bits may differ).
    state: dict[str, tuple[int, bool] | None] = {}
    banks = {bank.name: bank.caches for bank in graph.banks}

    def base(name: str) -> str:
        return schedule.base(banks.get(name, name)).name

    for _ in range(min(schedule.repeat, 2)):  # what is kept from pass to pass carries its error
        for node in graph.nodes:
            if OPS[node.op].view:
                continue
            before = [state.get(base(s), (0, False)) for s in node.reads or node.src]
            before.append(
                state.get(base(node.dst), (0, False)) if OPS[node.op].updates else (0, False)
            )
            for name in node.writes or (node.dst,):
                state[base(name)] = _after(schedule, node.op, node.src, before)
    return {node.dst: _share(state.get(base(node.dst), (0, False))) for node in graph.nodes}


def _after(
    schedule: Schedule, op: str, src: tuple[str, ...], before: list[tuple[int, bool] | None]
) -> tuple[int, bool] | None:
    known = [item for item in before if item is not None]
    if len(known) < len(before):
        return None
    products, differs = max(n for n, _ in known), any(d for _, d in known)
    if differs and op in _CHAOTIC:
        return None
    if op in ("mul_mat", "mul_mat_id") and schedule.tensor(src[0]).dtype in ROUNDINGS:
        products += 1
    return products, differs or op not in _EXACT


def _share(state: tuple[int, bool] | None) -> float | None:
    if state is None:
        return None
    products, differs = state
    return ROUNDED_SHARE * sqrt(products) + (FLOAT_SHARE if differs else 0.0)
