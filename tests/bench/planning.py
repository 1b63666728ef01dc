"""Time of planning per node, on graphs like those of a large model over three devices.

    python tests/bench/planning.py [--rounds 5] [--nodes 1000 10000 100000 1000000]

``passes``: assignment and splits on arrays, compiled (the compilation is not counted).
``plain``: the same in plain Python.  ``plan``: all of ``plan()``, from the document's objects to
the document's objects.  Each is the least CPU time of several rounds.  ``memory``: the most that
the process had so far, graph included.
"""

from __future__ import annotations

import argparse
import resource
from time import process_time

from splitproof.model.device import Buffer, Device, Memory, Usage
from splitproof.model.graph import Graph, Node
from splitproof.model.plan import compiled
from splitproof.model.plan.arrays import graph_arrays
from splitproof.model.plan.assign import assign, empty_assignment, reach
from splitproof.model.plan.capability import Capabilities
from splitproof.model.plan.options import SPLIT_INPUTS
from splitproof.model.plan.planner import plan
from splitproof.model.plan.split import cut, empty_splits
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor

#: Plain Python is measured up to this many nodes.
MOST_PLAIN = 100_000
#: Ops of a layer: (op, weight it reads, whether it is a view).
LAYER = (
    ("rms_norm", None), ("mul", "norm"), ("mul_mat", "q"), ("reshape", None), ("rope", None),
    ("mul_mat", "o"), ("add", None), ("rms_norm", None), ("mul", "norm2"), ("mul_mat", "router"),
    ("soft_max", None), ("argsort", None), ("view", None), ("mul_mat_id", "up_exps"),
    ("mul_mat_id", "gate_exps"), ("swiglu", None), ("mul_mat_id", "down_exps"), ("mul", None),
    ("add", None),
)  # fmt: skip


def layered(nodes: int) -> Schedule:
    """Layers over two devices and the CPU, each fourth with its experts in host memory."""
    memories = Memory("host", True), Memory("vram0"), Memory("vram1")
    devices = (
        Device("gpu0", "vram0", ("vram0",), asynchronous=True),
        Device("gpu1", "vram1", ("vram1",), asynchronous=True),
        Device("cpu", "host", ("host",)),
    )
    buffers = tuple(Buffer(f"w_{m.name}", m.name, Usage.WEIGHTS, 1 << 40) for m in memories)
    square = Expr.of(64), Expr.of(64)
    tensors = [Tensor("x", shape=square, input=True)]
    made: list[Node] = []
    layer = 0
    while len(made) < nodes:
        home = "vram0" if len(made) * 2 < nodes else "vram1"
        for op, weight in LAYER:
            source = [made[-1].dst if made else "x"]
            if op in ("add", "mul", "swiglu") and len(made) > 4:
                source.append(made[-4].dst)
            if op == "mul_mat_id":
                source.append(made[-3].dst)
            if weight is not None:
                where = "host" if "exps" in weight and layer % 4 == 0 else home
                name = f"l{layer}.{weight}"
                tensors.append(Tensor(name, shape=square, buffer=f"w_{where}", offset=Expr.of(0)))
                source.insert(0, name)
            view = op in ("reshape", "view")
            name = f"n{len(made)}"
            tensors.append(Tensor(name, shape=square, view_of=source[0] if view else None))
            made.append(Node(op, name, tuple(source)))
        layer += 1
    graph = Graph((), memories, devices, buffers, tuple(tensors), tuple(made))
    return Schedule(graph=graph, name=f"{len(made)} nodes")


def seconds(work: object, *arguments: object) -> float:
    start = process_time()
    work(*arguments)  # type: ignore[operator]
    return process_time() - start


def measure(nodes: int, rounds: int) -> tuple[float, float, float]:
    """Least CPU seconds of the compiled passes, the plain passes and the whole."""
    schedule = layered(nodes)
    graph = schedule.graph
    arrays = graph_arrays(graph, Capabilities(graph, {}), {}, {})
    machine = compiled.as_arrays(arrays)
    sizes = len(arrays.node), len(arrays.source), len(arrays.base)

    def passes(twin: bool) -> None:
        if twin:
            a, out = compiled.empty_assignment(sizes[2]), compiled.empty_splits(*sizes)
            where = compiled.empty_masks(sizes[2])
            compiled.assign(machine, a)
            compiled.reach(machine, a, where)
            compiled.cut(machine, a, where, out, SPLIT_INPUTS, 1)
        else:
            a, out = empty_assignment(sizes[2]), empty_splits(*sizes)
            where = [0] * sizes[2]
            assign(arrays, a)
            reach(arrays, a, where)
            cut(arrays, a, where, out, SPLIT_INPUTS, 1)

    passes(True)
    fast = min(seconds(passes, True) for _ in range(rounds))
    plain = float("nan")
    if nodes <= MOST_PLAIN:
        plain = min(seconds(passes, False) for _ in range(min(rounds, 3)))
    whole = min(seconds(plan, schedule) for _ in range(min(rounds, 3)))
    return fast, plain, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    options = parser.parse_args()
    print(f"{'nodes':>9}  {'passes':>18}  {'plain':>18}  {'plan':>18}  {'memory':>9}")
    for nodes in options.nodes:
        row = []
        for time in measure(nodes, options.rounds):
            row.append(
                "not measured"
                if time != time
                else f"{time * 1e3:8.2f} ms {time / nodes * 1e9:5.0f} ns"
            )
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{nodes:>9,}  " + "  ".join(f"{cell:>18}" for cell in row) + f"  {most:5.0f} MiB")


if __name__ == "__main__":
    main()
