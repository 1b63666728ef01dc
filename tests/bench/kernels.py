"""Speed of the products beside what this machine can read and beside ggml, in the same rounds.

    python tests/bench/kernels.py [--rounds 9] [--experts 128] [--threads 1,2] [--types q8_0,…]

*decode*: 1 and 4 tokens with 8 experts of 768 x 2048 each, until every expert was used once; a
round reads the weights with a streaming sum, then multiplies, then lets ggml multiply.  *prefill*:
256 tokens with 8 experts each, and a matrix of 2048 x 2048 with 512 tokens.  Of each op the best
round counts, so that moments of rest are enough on a machine that does other things too.  Rows are
those of the tables in ``docs/performance.md``.  ``SPLITPROOF_CPU`` chooses the instruction set.

ggml's kernels are those of the package ``llama-cpp-python``, the quicker of its two forms of
weights: as in a file, or (r) rearranged, where it does that.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numba import carray, cfunc
from peer import PLAIN, REPACKED, Library, library, product
from splitproof.exec.cpu.jobs import KERNEL, Job
from splitproof.exec.cpu.native import NAMES, address, native_path, pointer
from splitproof.exec.cpu.table import choose
from splitproof.exec.data import initial_bytes
from splitproof.exec.hardware import allocate
from splitproof.exec.layout import Layout
from splitproof.exec.operand import Operand, scratch
from splitproof.exec.panels import PANEL_TYPES, pack, panel_type
from splitproof.exec.parallel import Team
from splitproof.exec.queue import Crew
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

WIDTH, ROWS, USED = 2048, 768, 8
SIDE, PROMPT, MANY = 2048, 512, 256
Piece = Callable[[], None]
#: Bytes that a thread reads at once.
CHUNK = 1 << 17


@cfunc(KERNEL)
def read(arguments: Any, unit: Any, thread: Any) -> None:
    """Touch every word of a chunk once.  Arguments: where they are, how many, room for sums."""
    start, words, sums = carray(pointer(arguments), 3, np.int64)
    first = unit * (CHUNK // 8)
    here = carray(pointer(start + 8 * first), min(CHUNK // 8, words - first), np.uint64)
    total = np.uint64(0)
    for k in range(len(here)):
        total += here[k]
    carray(pointer(sums), unit + 1, np.uint64)[unit] = total


def reading(raw: np.ndarray, team: Team) -> Piece:
    units = -(-len(raw) // CHUNK)
    sums = np.zeros(units, np.uint64)
    arguments = np.array([address(raw), len(raw) // 8, address(sums)])
    held = raw, sums, arguments  # the kernel knows only where they are
    job = Job(read.address, address(arguments), units)
    return lambda: team.share(job) if held else None


def tensor(name: str, kind: str, *ne: int) -> Operand:
    """A packed operand: small made-up numbers, or blocks of random bytes, no scale a NaN."""
    a, b, c, d = [*ne, 1, 1, 1][:4]
    layout = Layout(name, dtype(kind), (a, b, c, d), (1, 1, 1, 1), "bench", 0, (0, 1))
    # As memories of a run are: from the start of a line of the cache on.
    raw = allocate(layout.nbytes, 0)
    if kind in ("f32", "i32"):
        raw[:] = initial_bytes(0, layout)
    else:
        raw[:] = np.random.default_rng(0).integers(0, 60, layout.nbytes, np.uint8)
        if kind == "mxfp4":  # exponents near that of 1
            raw[:: layout.dtype.block_bytes] |= 96
    return scratch(layout, raw)


@dataclass(frozen=True)
class Weights:
    """``raw``: as in a file; ``operand``: as they stand in memory once they are loaded."""

    kind: str
    raw: np.ndarray
    operand: Operand


def weights(kind: str, *ne: int) -> Weights:
    w = tensor("w", kind, *ne)
    if w.dtype not in PANEL_TYPES:
        return Weights(kind, w.data, w)
    raw = w.data.copy()
    pack(w.data, w.layout.dtype, w.ne)
    packed = Operand(replace(w.layout, dtype=panel_type(w.layout.dtype)), w.data)
    return Weights(kind, raw, packed)


def best(works: Mapping[str, Sequence[Piece]], rounds: int, clock: Clock) -> dict[str, float]:
    """Seconds for all pieces of each, the best round of every piece.

    Ours run as they do in the runtime, in a thread that is pinned to a core (as ggml's would be
    for all that it starts, were they run there too).
    """
    least = {name: [float("inf")] * len(pieces) for name, pieces in works.items()}
    with Crew() as crew:
        lane = crew.lane("bench")
        for _ in range(rounds + 1):  # the first compiles, and touches all memory
            for name, pieces in works.items():
                once = partial(one_round, pieces, least[name], clock)
                if name.endswith((PLAIN, REPACKED)):
                    once()
                else:
                    lane.reach(lane.put(once))
    return {name: sum(times) for name, times in least.items()}


def one_round(pieces: Sequence[Piece], least: list[float], clock: Clock) -> None:
    for index, piece in enumerate(pieces):
        start = clock()
        piece()
        least[index] = min(least[index], clock() - start)


Clock = Callable[[], float]


def clock_of(cpu: bool, threads: int) -> Clock:
    """Wall time, or the time of the processor over threads."""
    return (lambda: process_time() / threads) if cpu else perf_counter


def expert_ops(w: Operand, chosen: np.ndarray, team: Team) -> tuple[list[Piece], Operand, Operand]:
    """A product for each matrix of ``chosen`` (``[ops, tokens, used]``); its x and y."""
    tokens = chosen.shape[1]
    x, y = tensor("x", "f32", WIDTH, 1, tokens), tensor("y", "f32", ROWS, USED, tokens)
    ids = tensor("ids", "i32", USED, tokens)
    node = Node("mul_mat_id", "y", ("w", "x", "ids"))
    kernel = choose(node, [y, w, x, ids]).kernel
    assert kernel is not None

    def piece(few: np.ndarray) -> None:
        ids.array[...] = few
        team.run(kernel, node, y, [w, x, ids])

    return [partial(piece, few) for few in chosen], x, y


def peers(
    ggml: Library | None, kind: str, raw: np.ndarray, ne: Sequence[int], x: np.ndarray,
    chosen: np.ndarray | None, threads: int,
) -> dict[str, Any]:  # fmt: skip
    """ggml's products, by where its weights lie."""
    if ggml is None:
        return {}
    found = {
        place: product(ggml, place, kind, raw, ne, x, chosen, threads)
        for place in (PLAIN, REPACKED)
    }
    return {place: made for place, made in found.items() if made is not None}


def against(times: Mapping[str, float], name: str, amount: float) -> tuple[str, str]:
    """ggml's speed, and ours over it."""
    theirs = {place: times[f"{name} {place}"] for place in (PLAIN, REPACKED)
              if f"{name} {place}" in times}  # fmt: skip
    if not theirs:
        return "not measured", ""
    place = min(theirs, key=lambda place: theirs[place])
    mark = " r" if place == REPACKED else ""
    return f"{amount / theirs[place]:.1f}{mark}", f"{theirs[place] / times[name]:.2f}"


def agree(ours: Operand, theirs: Any) -> None:
    """Both have computed the same: else the comparison says nothing."""
    due = theirs.last_result(ours.array.size).reshape(ours.array.shape)
    error = np.abs(due - ours.array).max() / np.abs(due).max()
    if not error < 2e-2:
        raise ValueError(f"ggml's result differs by {error:.2g} of the largest value")


def decode(w: Weights, rounds: int, threads: int, cpu: bool, ggml: Library | None) -> str:
    team, count = Team(threads), w.operand.ne[2]
    order = np.random.default_rng(0).permutation(count).reshape(-1, 1, USED)
    raw, part = w.operand.data, len(w.operand.data) // len(order)
    works = {"read": [reading(raw[at : at + part], team) for at in range(0, len(raw), part)]}
    made, amount = [], len(raw) / 1e9
    for tokens in (1, 4):
        chosen = np.repeat(order, tokens, axis=1)
        works[str(tokens)], x, y = expert_ops(w.operand, chosen, team)
        others = peers(ggml, w.kind, w.raw, w.operand.ne[:3], x.array[0, :, 0], chosen, threads)
        works.update({f"{tokens} {place}": other.pieces for place, other in others.items()})
        made += [(y, other) for other in others.values()]
    times = best(works, rounds, clock_of(cpu, threads))
    for y, other in made:
        agree(y, other)
        other.close()
    team.close()
    cells = [w.kind, str(threads), f"{amount / times['read']:.1f}"]
    for name in ("1", "4"):
        cells += [f"{amount / times[name]:.1f}", f"{times['read'] / times[name]:.2f}"]
        cells += against(times, name, amount)
    return row(cells)


def prefill(w: Weights, rounds: int, threads: int, cpu: bool, ggml: Library | None) -> str:
    team, rng = Team(threads), np.random.default_rng(0)
    chosen = np.stack([rng.permutation(w.operand.ne[2])[:USED] for _ in range(MANY)])[None]
    works: dict[str, Sequence[Piece]] = {}
    works["experts"], x, y = expert_ops(w.operand, chosen, team)
    square = weights(w.kind, SIDE, SIDE)
    right, result = tensor("x", "f32", SIDE, PROMPT), tensor("y", "f32", SIDE, PROMPT)
    node = Node("mul_mat", "y", ("w", "x"))
    kernel = choose(node, [result, square.operand, right]).kernel
    assert kernel is not None
    works["square"] = [lambda: team.run(kernel, node, result, [square.operand, right])]
    made = []
    for name, mine, left, ids, out in (
        ("experts", w, x.array[0, :, 0], chosen, y),
        ("square", square, right.array[0, 0], None, result),
    ):
        ne = mine.operand.ne[: 2 if ids is None else 3]
        others = peers(ggml, w.kind, mine.raw, ne, left, ids, threads)
        works.update({f"{name} {place}": other.pieces for place, other in others.items()})
        made += [(out, other) for other in others.values()]
    times = best(works, rounds, clock_of(cpu, threads))
    for out, other in made:
        agree(out, other)
        other.close()
    team.close()
    cells = [w.kind, str(threads)]
    counts = {"experts": 2 * WIDTH * ROWS * USED * MANY, "square": 2 * SIDE * SIDE * PROMPT}
    for name, count in counts.items():
        cells += [f"{count / 1e9 / times[name]:.0f}", *against(times, name, count / 1e9)]
    return row(cells)


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(*titles: str) -> None:
    print("\n" + row(titles) + "\n" + "|---" * len(titles) + "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--experts", type=int, default=128, help="a multiple of 8")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--types", default="q8_0,q4_0,q4_k,mxfp4,f16")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall",
        help="cpu: processor time over threads, for a machine that does other things too",
    )  # fmt: skip
    options = parser.parse_args()
    path = next(name for name, number in NAMES.items() if number == native_path())
    print(f"{options.experts} experts of {ROWS} x {WIDTH}, {USED} a token; {path}, {options.clock}")
    ggml, cpu = library(), options.clock == "cpu"
    if ggml is None:
        print("ggml's own kernels: not measured (llama-cpp-python is not installed)")
    threads = [int(count) for count in options.threads.split(",")]
    table("decode", "threads", "read GB/s", "1 token: GB/s", "of read", "ggml GB/s", "over ggml",
          "4 tokens: GB/s", "of read", "ggml GB/s", "over ggml")  # fmt: skip
    kinds = options.types.split(",")
    for kind in kinds:
        w = weights(kind, WIDTH, ROWS, options.experts)
        for count in threads:
            print(decode(w, options.rounds, count, cpu, ggml), flush=True)
    table("prefill", "threads", f"`mul_mat_id`, {MANY} tokens: GOP/s", "ggml", "over ggml",
          f"`mul_mat` {SIDE}×{SIDE}, {PROMPT} tokens: GOP/s", "ggml", "over ggml")  # fmt: skip
    for kind in kinds:
        w = weights(kind, WIDTH, ROWS, options.experts)
        for count in threads:
            print(prefill(w, max(options.rounds // 3, 2), count, cpu, ggml), flush=True)


if __name__ == "__main__":
    main()
