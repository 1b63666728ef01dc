"""Ops of a user's own: what they read, what they mean, and what computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..model.graph import Node
from ..model.ops import OPS, Op, Reads, ShapeRule, add_op
from . import functions
from .cpu.table import Choice, Kernel
from .operand import Operand
from .quant import Array
from .source import Operand as Source
from .source import Shape

#: From arrays of shape ``ne`` (innermost first) and the node's parameters to the result.
Reference = Callable[..., Any]
#: The same, with the array to write first.
UserKernel = Callable[..., None]

_KERNELS: dict[str, Kernel | None] = {}


def register_op(
    name: str,
    *,
    sources: int,
    footprint: Sequence[str] | None,
    reference: Reference,
    kernel: UserKernel | None = None,
    like: int | None = None,
) -> None:
    """Make ``name`` an op that documents can use, for as long as this process runs.

    ``footprint``: per source ``whole``, or ``experts`` (those that source 2 selects, of source
    0), the last one repeated; the destination is written whole.  ``None`` says nothing, and then
    ``check`` says ``unsupported``.  ``reference(*sources, **parameters)`` returns the result, and
    is what the op means.  ``kernel(result, *sources, **parameters)`` writes it, and must give the
    same but for rounding; without one the reference computes.  Arrays stand innermost first, as
    the shapes of a document, in four dimensions, and sources must not be written to.  ``like``:
    number of the source whose shape the result has; else the document says.

    A certificate speaks of ops by their names: it is for this footprint too.

    ``ValueError`` for a name that is taken, and for a footprint that does not fit.
    """
    kinds = tuple(Reads(kind) for kind in footprint) if footprint is not None else (Reads.WHOLE,)
    if sources < 0 or not kinds or len(kinds) > max(sources, 1):
        raise ValueError(
            f"op {name}: {sources} sources with footprints {', '.join(kinds) or 'of none'}; "
            "one for each source was due (the last one is repeated)"
        )
    if Reads.EXPERTS in kinds[1:] or (kinds[0] is Reads.EXPERTS and sources < 3):
        raise ValueError(f"op {name}: experts are read from source 0, and source 2 selects them")
    if like is not None and not 0 <= like < sources:
        raise ValueError(f"op {name}: there is no source {like} whose shape it could have")
    shape: ShapeRule | None = None if like is None else (lambda given: given[like].ne)
    add_op(Op(name, (sources, sources), shape, kinds, declared=footprint is not None))
    functions.FUNCTIONS[name] = functions.ROUNDED_FUNCTIONS[name] = _meaning(reference)
    _KERNELS[name] = None if kernel is None else _kernel(kernel)


def forget_op(name: str) -> None:
    """Undo :func:`register_op`.  ``KeyError`` for another op."""
    del _KERNELS[name]
    del OPS[name], functions.FUNCTIONS[name], functions.ROUNDED_FUNCTIONS[name]


def user_choice(node: Node) -> Choice | None:
    """What computes a node of a user's op; ``None`` for the project's own ops."""
    return Choice(node.op, "user", _KERNELS[node.op]) if node.op in _KERNELS else None


def _meaning(reference: Reference) -> functions.Function:
    def function(src: Sequence[Source], node: Node, ne: Shape) -> Array:
        result: Array = reference(*(s.array for s in src), **dict(node.params))
        return result.reshape(ne, order="F")

    return function


def _kernel(kernel: UserKernel) -> Kernel:
    def run(dst: Operand, sources: Sequence[Operand], node: Node) -> None:
        kernel(dst.array.T, *(s.array.T for s in sources), **dict(node.params))

    return run
