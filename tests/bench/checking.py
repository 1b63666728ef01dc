"""Row "checking": a whole ``splitproof check`` of the DeepSeek-V3 shape on three devices.

    python tests/bench/checking.py [--shapes FILE] [--rounds 3] [--times 8]
    python tests/bench/checking.py --commands 1000000

Plans the shape with the project's own planner (decode and prompt; experts cached, or weights
staged ahead; compute memory that is used again), writes the documents and checks each in fresh
processes.  Prints the least processor time of a whole process, and of ``check()`` alone with so
many times the layers, as a ratio.  ``--commands``: instead, a chain of so many commands on 16
queues, its time and the memory of the process.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import process_time

from splitproof.model.command import Command, Compute, GetOutput, Record, SetInput, SyncQueue, Wait
from splitproof.model.device import Contract, CopyRule, Device, Memory
from splitproof.model.document import dumps
from splitproof.model.graph import Graph, Node
from splitproof.model.plan.lowering import Lowering, lower_as
from splitproof.model.plan.planner import plan_regimes
from splitproof.model.plan.policy.expert_cache import cache_experts
from splitproof.model.read.model_config import ModelShape, model_schedule, read_shapes
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.model.symbol import Expr
from splitproof.model.tensor import Tensor
from splitproof.verify.check import check

SHAPES = Path(__file__).parents[3] / "shared" / "data" / "model_shapes.json"
MODEL = "DeepSeek-V3"
CACHE = 60 << 30
PHASES = {"decode": (1, 4), "prompt": (33, 512)}
#: Not measured with many layers: there the planner takes long to place it.
REUSED = "reused memory"
LOWERINGS = {
    "overlapped": Lowering("overlapped"),
    "staged": Lowering("overlapped", "staging", 2),
    REUSED: Lowering("overlapped", place="order"),
}
TARGET, RATIO = 2.0, 9.0


def planned(shape: ModelShape, lowerings: Mapping[str, Lowering]) -> Iterator[tuple[str, Schedule]]:
    """Each phase and lowering; decoding also with its experts cached."""
    for phase, tokens in PHASES.items():
        graph = model_schedule(shape, tokens=tokens, devices=3)
        sources = {"": (graph,)}
        if phase == "decode":
            sources["cached, "] = cache_experts(graph, CACHE).schedules
        for cached, schedules in sources.items():
            for how, lowering in lowerings.items():
                if cached and how == "staged":
                    continue  # nothing is left to stage but small tensors
                for schedule in schedules:
                    for plan in plan_regimes(schedule):
                        yield f"{phase}, {cached}{how}", lower_as(plan.schedule, lowering).schedule


def whole_process(schedule: Schedule, rounds: int) -> float:
    """Least processor seconds of ``splitproof check FILE``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.json"
        path.write_text(dumps(schedule), encoding="utf-8")
        command = [sys.executable, "-m", "splitproof", "check", "-q", str(path)]
        kept = dict(os.environ, PYTHONPYCACHEPREFIX=folder, PYTHONDONTWRITEBYTECODE="")
        times = []
        for _ in range(1 + rounds):  # the first compiles modules
            before = _children()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=kept)
            times.append(_children() - before)
    return min(times[1:])


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def alone(schedule: Schedule, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = process_time()
        report = check(schedule)
        times.append(process_time() - started)
        if report.verdict is not Verdict.PROVED:
            raise SystemExit(f"{schedule.name}: {report.verdict}, not proved")
    return min(times)


def scaled(shape: ModelShape, times: int) -> ModelShape:
    return replace(shape, layers=shape.layers * times, dense=shape.dense * times)


def model_rows(shapes: Path, rounds: int, times: int) -> None:
    if not shapes.is_file():
        print(f"{shapes.name} is absent: not measured")
        return
    shape = next(s for s in read_shapes(shapes) if s.name == MODEL)
    print(f"target {TARGET} s, and {RATIO:.0f} x the time for {times} x the layers")
    print(f"{'':32} {'commands':>9} {'process':>9} {'check':>9} {f'{times} x':>9} {'ratio':>7}")
    grows = {how: lowering for how, lowering in LOWERINGS.items() if how != REUSED}
    large = dict(planned(scaled(shape, times), grows)) if times > 1 else {}
    for name, schedule in planned(shape, LOWERINGS):
        process, one = whole_process(schedule, rounds), alone(schedule, rounds)
        row = f"{name:32} {len(schedule.program or ()):>9,} {process:7.2f} s {one:7.2f} s"
        if name in large:
            many = alone(large.pop(name), max(rounds // 2, 1))
            row += f" {many:7.2f} s {many / one:7.1f}"
        else:
            row += "  not measured"
        print(row, flush=True)


def chain(commands: int, queues: int = 16) -> Schedule:
    """Computes in turn on the queues of one device, each of what another queue made before."""
    names = tuple(f"q{k}" for k in range(queues))
    gpu = Device(
        "gpu0", "vram0", ("vram0", "host"), asynchronous=True, queues=names,
        copy=(CopyRule(None, None, Contract.STREAM),),
    )  # fmt: skip
    size = (Expr.of(64), Expr.of("n"))
    tensors, nodes = [Tensor("t0", shape=size, input=True)], []
    program: list[Command] = [SetInput(tensor="t0")]
    while len(program) < commands - 2:
        number = len(nodes) + 1
        queue, other = f"gpu0.q{number % queues}", f"gpu0.q{(number - 1) % queues}"
        tensors.append(Tensor(f"t{number}", shape=size))
        nodes.append(Node("silu", f"t{number}", (f"t{number - 1}",)))
        if number > 1:
            program.append(Record(event=f"e{number % 64}", queue=other))
            program.append(Wait(event=f"e{number % 64}", queue=queue))
        program.append(Compute(node=f"t{number}", queue=queue, split=0))
    program += [SyncQueue(queue=queue), GetOutput(tensor=tensors[-1].name)]
    tensors[-1] = replace(tensors[-1], output=True)
    graph = Graph(
        (("n", 1, 32),), (Memory("host", True), Memory("vram0")),
        (gpu, Device("cpu", "host", ("host", "vram0"))), (), tuple(tensors), tuple(nodes),
    )  # fmt: skip
    return Schedule(
        graph, f"{len(program)} commands", tuple((n.dst, "gpu0") for n in nodes),
        program=tuple(program),
    )  # fmt: skip


def size_rows(commands: int) -> None:
    schedule = chain(commands)
    print(f"{'commands':>9} {'check':>9} {'memory':>10}")
    seconds = alone(schedule, 1)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(schedule.program or ()):>9,} {seconds:7.2f} s {most:6.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=Path, default=SHAPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--commands", type=int)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.commands:
        size_rows(options.commands)
    else:
        model_rows(options.shapes, options.rounds, options.times)


if __name__ == "__main__":
    main()
