"""Speed of the decoding kernels beside what this machine can read, in the same rounds.

    python tests/bench/kernels.py [--rounds 9] [--megabytes 200] [--tokens 1]

One thread.  A round reads the weights once with a streaming sum, then multiplies one token with
8 experts at a time until every expert was used once; believe the ratio, not the single numbers.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import numpy as np
from numba import njit
from splitproof.exec.cpu.table import choose
from splitproof.exec.data import initial_bytes
from splitproof.exec.layout import Layout
from splitproof.exec.operand import Operand, scratch
from splitproof.model.graph import Node
from splitproof.model.tensor import dtype

WIDTH, ROWS, USED = 2048, 768, 8


@njit(nogil=True)
def read(words: np.ndarray) -> np.uint64:
    """Touch every word once."""
    total = np.uint64(0)
    for k in range(len(words)):
        total += words[k]
    return total


def tensor(name: str, kind: str, *ne: int) -> Operand:
    """A packed operand of made-up values."""
    a, b, c, d = [*ne, 1, 1, 1][:4]
    layout = Layout(name, dtype(kind), (a, b, c, d), (1, 1, 1, 1), "bench", 0, (0, 1))
    return scratch(layout, initial_bytes(0, layout))


def seconds(work: object, *arguments: object) -> float:
    start = perf_counter()
    work(*arguments)  # type: ignore[operator]
    return perf_counter() - start


def measure(kind: str, megabytes: int, rounds: int, tokens: int) -> tuple[float, float, float]:
    """Median GB/s of the streaming read, of the kernel, and the median ratio of the rounds."""
    expert = WIDTH // dtype(kind).block * dtype(kind).block_bytes * ROWS
    experts = max(megabytes * 10**6 // expert // USED, 1) * USED
    w = tensor("w", kind, WIDTH, ROWS, experts)
    x, y = tensor("x", "f32", WIDTH, 1, tokens), tensor("y", "f32", ROWS, USED, tokens)
    ids = tensor("ids", "i32", USED, tokens)
    order = np.random.default_rng(0).permutation(experts).reshape(-1, USED)
    node = Node("mul_mat_id", "y", ("w", "x", "ids"))
    kernel = choose(node, [y, w, x, ids]).kernel
    assert kernel is not None
    words = w.data.view(np.uint64)

    def decode() -> None:
        for chosen in order:
            ids.array[...] = chosen
            kernel(y, [w, x, ids], node)

    read(words)
    decode()
    size = len(w.data) / 1e9
    times = [(seconds(read, words), seconds(decode)) for _ in range(rounds)]
    return (
        median(size / reading for reading, _ in times),
        median(size / decoding for _, decoding in times),
        median(reading / decoding for reading, decoding in times),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=200, help="of weights, per type")
    parser.add_argument("--tokens", type=int, default=1, help="with the same experts each")
    options = parser.parse_args()
    print(f"mul_mat_id, {options.tokens} token(s), {USED} experts of {WIDTH} x {ROWS}, one thread")
    for kind in ("q8_0", "f32"):
        reading, kernel, ratio = measure(kind, options.megabytes, options.rounds, options.tokens)
        print(f"{kind:5} {kernel:6.1f} GB/s of {reading:6.1f} GB/s read: ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
