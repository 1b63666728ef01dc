"""Speed of the products beside what this machine can read, in the same rounds.

    python tests/bench/kernels.py [--rounds 9] [--experts 128] [--threads 1,2] [--types q8_0,…]

*decode*: 1 and 4 tokens with 8 experts of 768 x 2048 each, until every expert was used once; a
round reads the weights with a streaming sum, then multiplies.  *prefill*: 256 tokens with 8
experts each, and a matrix of 2048 x 2048 with 512 tokens.  Believe the ratios of rounds, not the
single numbers.  ``SPLITPROOF_CPU`` chooses the instruction set.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time

import numpy as np
from numba import njit
from splitproof.exec.arena import allocate
from splitproof.exec.cpu.native import NAMES, native_path
from splitproof.exec.cpu.table import choose
from splitproof.exec.data import initial_bytes
from splitproof.exec.layout import Layout
from splitproof.exec.operand import Operand, scratch
from splitproof.exec.panels import PANEL_TYPES, pack, panel_type
from splitproof.exec.parallel import Team
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

WIDTH, ROWS, USED = 2048, 768, 8
SIDE, PROMPT = 2048, 512
TYPES = ("q8_0", "q4_0", "q4_k", "q6_k", "f16", "bf16", "f32")
Work = Callable[[], None]


@njit(nogil=True)
def read(words: np.ndarray) -> np.uint64:
    """Touch every word once."""
    total = np.uint64(0)
    for k in range(len(words)):
        total += words[k]
    return total


def tensor(name: str, kind: str, *ne: int) -> Operand:
    """A packed operand: small made-up numbers, or blocks of random bytes that are no NaN."""
    a, b, c, d = [*ne, 1, 1, 1][:4]
    layout = Layout(name, dtype(kind), (a, b, c, d), (1, 1, 1, 1), "bench", 0, (0, 1))
    raw = allocate(
        layout.nbytes, 0
    )  # as memories of a run are: at the start of a line of the cache
    if kind in ("f32", "i32"):
        raw[:] = initial_bytes(0, layout)
    else:
        raw[:] = np.random.default_rng(0).integers(0, 60, layout.nbytes, np.uint8)
    return scratch(layout, raw)


def weights(kind: str, *ne: int) -> Operand:
    """As a model's weights stand in memory once they are loaded."""
    w = tensor("w", kind, *ne)
    if w.dtype not in PANEL_TYPES:
        return w
    pack(w.data, w.layout.dtype, w.ne)
    return Operand(replace(w.layout, dtype=panel_type(w.layout.dtype)), w.data)


def seconds(work: Work, threads: int, cpu: bool) -> float:
    """How long it takes, or the time of the processor that it takes, shared by its threads."""
    clock = process_time if cpu else perf_counter
    start = clock()
    work()
    return (clock() - start) / (threads if cpu else 1)


def reader(raw: np.ndarray, threads: int, pool: ThreadPoolExecutor) -> Work:
    parts = np.array_split(raw[: len(raw) // 8 * 8].view(np.uint64), threads)
    return lambda: [task.result() for task in [pool.submit(read, part) for part in parts]].clear()


def experts(w: Operand, tokens: int, team: Team, chosen: np.ndarray) -> Work:
    """A product of tokens with the experts of each row of ``chosen``, row after row."""
    x, y = tensor("x", "f32", WIDTH, 1, tokens), tensor("y", "f32", ROWS, USED, tokens)
    ids = tensor("ids", "i32", USED, tokens)
    node = Node("mul_mat_id", "y", ("w", "x", "ids"))
    kernel = choose(node, [y, w, x, ids]).kernel
    assert kernel is not None

    def work() -> None:
        for few in chosen:
            ids.array[...] = few
            team.run(kernel, node, y, [w, x, ids])

    return work


def decode(kind: str, w: Operand, rounds: int, threads: int, cpu: bool) -> str:
    team, order = Team(threads), np.random.default_rng(0).permutation(w.ne[2]).reshape(-1, USED)
    works = [experts(w, tokens, team, order) for tokens in (1, 4)]
    with ThreadPoolExecutor(threads) as pool:
        limit = reader(w.data, threads, pool)
        for work in (limit, *works):
            work()
        times = [[seconds(work, threads, cpu) for work in (limit, *works)] for _ in range(rounds)]
    team.close()
    size = len(w.data) / 1e9
    best = [size / min(column) for column in zip(*times, strict=True)]
    ratios = [[row[0] / row[k] for row in times] for k in (1, 2)]
    cells = [
        f"{tokens} token{'s'[: tokens > 1]} {speed:5.1f} GB/s, {best_of:.2f} of it "
        f"(median round {median(ratio):.2f})"
        for tokens, speed, best_of, ratio in zip(
            (1, 4), best[1:], (b / best[0] for b in best[1:]), ratios, strict=True
        )
    ]
    return f"decode   {kind:5} {threads} thread(s): read {best[0]:5.1f} GB/s; " + "; ".join(cells)


def prefill(kind: str, w: Operand, rounds: int, threads: int, cpu: bool) -> str:
    team, rng = Team(threads), np.random.default_rng(0)
    chosen = np.stack([rng.permutation(w.ne[2])[:USED] for _ in range(256)])
    many = experts(w, 256, team, chosen[None])
    square, x = weights(kind, SIDE, SIDE), tensor("x", "f32", SIDE, PROMPT)
    y, node = tensor("y", "f32", SIDE, PROMPT), Node("mul_mat", "y", ("w", "x"))
    kernel = choose(node, [y, square, x]).kernel
    assert kernel is not None
    works: tuple[Work, ...] = (many, lambda: team.run(kernel, node, y, [square, x]))
    for work in works:
        work()
    times = [[seconds(work, threads, cpu) for work in works] for _ in range(rounds)]
    team.close()
    counts = (2 * WIDTH * ROWS * USED * 256, 2 * SIDE * SIDE * PROMPT)
    best = map(min, zip(*times, strict=True))
    found = [count / 1e9 / least for count, least in zip(counts, best, strict=True)]
    return (
        f"prefill  {kind:5} {threads} thread(s): mul_mat_id 256 tokens {found[0]:4.0f} GOP/s; "
        f"mul_mat {SIDE}x{SIDE}, {PROMPT} tokens {found[1]:4.0f} GOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--experts", type=int, default=128, help="a multiple of 8")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--types", default="q8_0,q4_0,q4_k,f16")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall",
        help="cpu: processor time over threads, for a machine that does other things too",
    )  # fmt: skip
    options = parser.parse_args()
    path = next(name for name, number in NAMES.items() if number == native_path())
    print(f"{options.experts} experts of {ROWS} x {WIDTH}, {USED} a token; {path}, {options.clock}")
    for kind in options.types.split(","):
        w = weights(kind, WIDTH, ROWS, options.experts)
        for threads in map(int, options.threads.split(",")):
            rest = threads, options.clock == "cpu"
            print(decode(kind, w, options.rounds, *rest), flush=True)
            print(prefill(kind, w, max(options.rounds // 3, 1), *rest), flush=True)
    if find_spec("llama_cpp") is None:
        print("ggml's own kernels: not measured (llama-cpp-python is not installed)")


if __name__ == "__main__":
    main()
