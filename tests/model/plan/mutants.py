"""Recorded graphs with something else in them: what a user may have, and what no one should."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

Row = dict[str, Any]


def _pin(rng: Random, row: Row) -> None:
    for tensor in rng.sample(row["tensors"], min(6, len(row["tensors"]))):
        tensor["pin"] = rng.randrange(len(row["backends"]))
    for tensor in rng.sample(row["tensors"], min(6, len(row["tensors"]))):
        tensor.pop("pin", None)


def _capability(rng: Random, row: Row) -> None:
    """One op of one backend, for all tensors."""
    backend = rng.choice(row["backends"])
    op, answer = rng.choice(row["tensors"])["op"], rng.choice("01")
    bits = zip(row["tensors"], backend["supports"], strict=False)
    backend["supports"] = "".join(answer if t["op"] == op else bit for t, bit in bits)


def _bits(rng: Random, row: Row) -> None:
    key = rng.choice(("supports", "offload"))
    share = rng.choice((0.02, 0.2, 0.5))
    backend = rng.choice(row["backends"])
    backend[key] = "".join(
        rng.choice("01") if rng.random() < share else bit for bit in backend[key]
    )


def _memories(rng: Random, row: Row) -> None:
    buft = rng.choice(row["bufts"])
    if rng.random() < 0.5:
        buft["host"] = 1 - buft["host"]
    else:
        buft["supported_by"] = "".join(rng.choice("01") for _ in row["backends"])


def _places(rng: Random, row: Row) -> None:
    for tensor in rng.sample(row["tensors"], min(4, len(row["tensors"]))):
        tensor["buf"] = rng.choice((None, *range(len(row["bufts"]))))
        tensor["usage"] = rng.choice(("w", "c", "any"))


def _views(rng: Random, row: Row) -> None:
    tensor = rng.choice(row["tensors"])
    tensor["view_of"] = rng.choice((None, rng.randrange(len(row["tensors"]))))
    tensor.pop("nb", None)


def _sources(rng: Random, row: Row) -> None:
    tensor = rng.choice(row["tensors"])
    rng.shuffle(tensor["src"])
    if rng.random() < 0.5:
        tensor["src"] = [*tensor["src"], None][rng.choice((0, 1)) :]


def _backends(rng: Random, row: Row) -> None:
    rng.shuffle(row["backends"])
    if rng.random() < 0.5:
        row["backends"].append(dict(rng.choice(row["backends"])))
        for buft in row["bufts"]:
            buft["supported_by"] += rng.choice("01")


def _orders(rng: Random, row: Row) -> None:
    row["leafs"] = rng.sample(row["leafs"], rng.randint(0, len(row["leafs"])))
    row["n_copies"] = rng.choice((1, 2, 4))
    row["op_offload"] = rng.choice((0, 1))
    rng.choice(row["tensors"])["flags"] = rng.choice((0, 1, 2, 3, 16))


#: What another model, placement or machine may give.
PLAUSIBLE: tuple[Callable[[Random, Row], None], ...] = (
    _pin, _capability, _bits, _memories, _places, _views, _sources, _backends, _orders,
)  # fmt: skip

#: What a value may be instead, when a file is broken.
NONSENSE = (
    None, -1, 0, 1, 7, 2**62, 2**63, 1.5, 1e308, True, "", "x", "host", "a#b", "é" * 80, "\x00",
    [], [0], [None], [1, 1, 1, 1, 1], {}, {"x": {"y": 1}}, {"x": 1}, "01", "2" * 12,
)  # fmt: skip


def plausible(rng: Random, row: Row) -> None:
    for _ in range(rng.randint(1, 4)):
        rng.choice(PLAUSIBLE)(rng, row)


def broken(rng: Random, row: Row) -> None:
    """One value, somewhere, is missing or another."""
    owner: Any = row
    while True:
        keys = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
        key = rng.choice(keys)
        value = owner[key]
        if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
            break
        owner = value
    if rng.random() < 0.25:
        del owner[key]
    else:
        owner[key] = rng.choice(NONSENSE)


def torn(rng: Random, line: bytes) -> bytes:
    """A line of which a part is missing, or some bytes are others."""
    at = rng.randrange(len(line))
    if rng.random() < 0.5:
        return line[:at] + line[at + rng.randint(1, 200) :]
    changed = bytearray(line)
    for _ in range(rng.choice((1, 8))):
        changed[rng.randrange(len(line))] = rng.randrange(256)
    return bytes(changed)


def as_line(row: Row) -> bytes:
    return json.dumps(row).encode()
