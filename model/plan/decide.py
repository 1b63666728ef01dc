"""Assignment and splits of one graph at one point of its symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Graph
from . import assign as passes
from . import split as splitting
from .arrays import MOST_DEVICES, NONE, GraphArrays, graph_arrays
from .assign import Assignment
from .capability import Capabilities
from .error import PlanError
from .options import PlanOptions
from .split import Splits

#: From so many nodes the compiled twin is worth its loading time.
LARGE = 20_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What the five passes decided, on lists.  ``count``: of splits."""

    graph: Graph
    arrays: GraphArrays
    assignment: Assignment
    splits: Splits
    count: int


def decide(
    graph: Graph,
    values: Mapping[str, int],
    options: PlanOptions,
    placements: Mapping[str, str],
    compiled: bool | None = None,
) -> Decision:
    """Run the passes.

    ``values``: of all symbols.  ``compiled``: which twin runs (``None``: by the graph's size).
    ``PlanError`` where ggml aborts: a placed tensor that no device can compute in place, a node
    that no device supports, a source that stays without a device, a full input list.
    """
    capabilities = Capabilities(graph, values, options.offload_min_tokens)
    arrays = graph_arrays(graph, capabilities, dict(options.pins), placements)
    return decide_arrays(graph, arrays, options, compiled)


def decide_arrays(
    graph: Graph, arrays: GraphArrays, options: PlanOptions, compiled: bool | None = None
) -> Decision:
    """The same from arrays that are there already."""
    if compiled is None:
        compiled = len(arrays.node) >= LARGE
    run = _compiled if compiled and arrays.devices <= MOST_DEVICES else _plain
    assignment, splits, count, stuck = run(arrays, options)
    _complain(graph, arrays, assignment, stuck, options)
    return Decision(graph, arrays, assignment, splits, count)


#: A node that nobody supports, a placed tensor that cannot be computed, a bad source.
_Stuck = tuple[int, int, int]


def _plain(g: GraphArrays, options: PlanOptions) -> tuple[Assignment, Splits, int, _Stuck]:
    tensors = len(g.base)
    a = passes.empty_assignment(tensors)
    node, tensor = passes.assign(g, a)
    splits = splitting.empty_splits(len(g.node), len(g.source), tensors)
    if node != NONE or tensor != NONE:
        return a, splits, 0, (node, tensor, NONE)
    reach = [0] * tensors
    passes.reach(g, a, reach)
    count, source = splitting.cut(g, a, reach, splits, options.split_inputs, int(options.grows))
    return a, splitting.trimmed(splits, count), count, (NONE, NONE, source)


def _compiled(g: GraphArrays, options: PlanOptions) -> tuple[Assignment, Splits, int, _Stuck]:
    from . import compiled as twin

    tensors = len(g.base)
    arrays = twin.as_arrays(g)
    a = twin.empty_assignment(tensors)
    node, tensor = twin.assign(arrays, a)
    splits = twin.empty_splits(len(g.node), len(g.source), tensors)
    if node != NONE or tensor != NONE:
        return a, splits, 0, (node, tensor, NONE)
    reach = twin.empty_masks(tensors)
    twin.reach(arrays, a, reach)
    count, source = twin.cut(arrays, a, reach, splits, options.split_inputs, int(options.grows))
    lists = Assignment(*map(twin.as_list, a))  # type: ignore[arg-type]
    cuts = Splits(*map(twin.as_list, splitting.trimmed(splits, count)))  # type: ignore[arg-type]
    return lists, cuts, count, (NONE, NONE, source)


def _complain(
    graph: Graph, g: GraphArrays, a: Assignment, stuck: _Stuck, options: PlanOptions
) -> None:
    node, placed, source = stuck
    if node != NONE:
        name, op = graph.nodes[node].dst, graph.nodes[node].op
        raise PlanError(
            f"no device supports {name!r} ({op}); let the last device, or another, support it",
            tensor=name, op=op,
        )  # fmt: skip
    if placed != NONE:
        raise _immovable(graph, g, placed)
    if source == NONE:
        return
    name = graph.tensors[source].name
    if a.device[source] == NONE:
        raise PlanError(
            f"{name!r} is read and has no device: it is a view of "
            f"{graph.base(name).name!r}, which nothing reads, computes or places; "
            "place the base in a buffer",
            tensor=name,
        )
    raise PlanError(
        f"{name!r} does not fit in the input list of its split, which has "
        f"{options.split_inputs} places and may not grow",
        tensor=name,
    )


def _immovable(graph: Graph, g: GraphArrays, index: int) -> PlanError:
    tensor = graph.tensors[index]
    owner = tensor if g.base[index] == NONE else graph.tensors[g.base[index]]
    node = graph.find_node(tensor.name)
    buffer = owner.buffer or "?"
    memory = graph.buffer(buffer).memory if owner.buffer else "?"
    readers = [d.name for d in graph.devices if memory in d.reads]
    if node is None:
        return PlanError(
            f"{tensor.name!r} lies in buffer {buffer!r} (memory {memory!r}), which no device "
            "reads; let one read it, or place the tensor elsewhere",
            tensor=tensor.name, buffer=buffer,
        )  # fmt: skip
    op = node.op
    seen = f"its readers are {', '.join(readers)}" if readers else "no device reads it"
    return PlanError(
        f"{tensor.name!r} lies in buffer {buffer!r} (memory {memory!r}), where no device can "
        f"run {op}: {seen}; place it elsewhere, or let a reader of that memory support {op}",
        tensor=tensor.name, buffer=buffer, op=op,
    )  # fmt: skip
