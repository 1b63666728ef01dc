"""Models on several devices, with caches and prefetches: the same tokens, and bit-equal logits.

Each way to place a model has counters that show that it was really taken.  The full product of
models, places and lengths of prompts runs with ``SPLITPROOF_ALL_PLACEMENTS`` set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from nano import FEW, llama_tensors, model_path, prove, tiny_llama, tokens, write_gguf
from splitproof.devices import read_devices
from splitproof.exec import hardware
from splitproof.exec.generate import Generation, Generator, greedy
from splitproof.exec.monitor import Monitor
from splitproof.exec.programs import Policy, program
from splitproof.exec.runtime import RunResult
from splitproof.model.certificate import Certificate
from splitproof.model.decoder.architectures import build
from splitproof.model.decoder.net import Batch
from splitproof.model.decoder.site import Setting
from splitproof.model.document import digest
from splitproof.model.read.gguf import read_gguf
from splitproof.model.schedule import Schedule

DEVICES = Path(__file__).parents[2] / "docs" / "devices"
LENGTHS = (1, 2, 8, 9, 31, 32, 33, 100)
STEPS = 5
#: A prompt of 100 tokens goes through in pieces.
UBATCH = 40

ONE, TWO = read_devices(None), read_devices(str(DEVICES / "two-devices.json"))
AWAY = replace(ONE, weights=(("_exps\\.", "vram0"),), caches=())
#: The products of attention are brought to the device too.
LEAN = replace(ONE, weights=(("^(?!.*(_exps\\.|attn_(q|k|v|output)\\.))", "vram0"),))
TWO_LEAN = replace(
    TWO, weights=tuple((p.replace("_exps", "(_exps|attn_output)"), m) for p, m in TWO.weights)
)
AMPLE = 64 << 20


@dataclass(frozen=True)
class Seen:
    """Counters of all programs of a run."""

    results: tuple[RunResult, ...]

    def banks(self, what: str) -> int:
        return sum(getattr(count, what) for r in self.results for count in r.banks.values())

    @property
    def prefetches(self) -> int:
        return sum(r.prefetches for r in self.results)

    @property
    def selected(self) -> int:
        return sum(c.experts for r in self.results for c in r.expert_copies.values())

    @property
    def uploaded(self) -> int:
        return sum(m.bytes for r in self.results for m in r.traffic if m.source != m.target)

    @property
    def devices(self) -> set[str]:
        return {split.device for r in self.results for split in r.schedule.splits or ()}


Shows = Callable[[Seen], bool]
PLACES: dict[str, tuple[Setting, Policy, Shows]] = {
    "away": (AWAY, Policy(), lambda s: s.devices == {"gpu0", "cpu"}),
    "home": (ONE, Policy(), lambda s: s.uploaded > 0 == s.prefetches),
    "cached": (ONE, Policy(AMPLE), lambda s: s.banks("hits") > 0 == s.banks("evictions")),
    "tight": (ONE, Policy(1), lambda s: s.banks("hits") > 0 and s.banks("evictions") > 0),
    "ahead": (ONE, Policy(prefetch="one-ahead"), lambda s: s.prefetches > 0),
    "staged": (ONE, Policy(prefetch="staging", slots=2), lambda s: s.prefetches > 0),
    "selected": (ONE, Policy(copy_experts=True), lambda s: s.selected > 0),
    "both": (
        LEAN, Policy(AMPLE, prefetch="staging", slots=2),
        lambda s: s.banks("hits") > 0 and s.prefetches > 0,
    ),
    "two": (TWO, Policy(), lambda s: {"gpu0", "gpu1"} <= s.devices),
    "two-cached": (
        TWO, Policy(AMPLE), lambda s: s.banks("hits") > 0 and {"gpu0", "gpu1"} <= s.devices
    ),
    "two-staged": (TWO, Policy(prefetch="staging", slots=3), lambda s: s.prefetches > 0),
    "two-both": (
        TWO_LEAN, Policy(AMPLE, prefetch="staging", slots=2),
        lambda s: s.banks("hits") > 0 and s.prefetches > 0,
    ),
}  # fmt: skip

#: A cross-section: each place and each model, and for a cache each length of a prompt.
SOME = [
    *((FEW[n % len(FEW)], place, LENGTHS[(3 * n) % 8]) for n, place in enumerate(PLACES)),
    *(("qwen3moe-A-q8_0", "cached", length) for length in LENGTHS if length not in (1, 31)),
]
ALL = [(model, place, length) for model in FEW for place in PLACES for length in LENGTHS]
CASES = ALL if os.environ.get("SPLITPROOF_ALL_PLACEMENTS") else list(dict.fromkeys(SOME))

_proofs: dict[str, Certificate] = {}


def proved(schedule: Schedule) -> Certificate:
    """As :func:`prove`, once for each program."""
    key = digest(schedule)
    if key not in _proofs:
        _proofs[key] = prove(schedule)
    return _proofs[key]


def prompt(name: str, length: int) -> list[int]:
    """A recorded prompt, again and again."""
    given = tokens(name)["prompt"]
    return [given[(i + i // len(given)) % len(given)] for i in range(length)]


@cache
def alone(name: str, length: int) -> Generation:
    """All on the CPU."""
    with generator(name, None, Policy()) as made:
        return greedy(made, prompt(name, length), STEPS, all_logits=True)


def generator(name: str, setting: Setting | None, policy: Policy) -> Generator:
    model = read_gguf(model_path(name))
    if policy.cache == 1:
        policy = replace(policy, cache=few_slots(name))
    return Generator(
        model, proved, context=120, setting=setting, policy=policy, ubatch=UBATCH
    )  # fmt: skip


def few_slots(name: str) -> int:
    """Bytes of a cache for the experts of one token, and for one layer's more."""
    graph = build(read_gguf(model_path(name)), Batch(1, 1, 256, 256), ONE).schedule.graph
    products = [node for node in graph.nodes if node.op == "mul_mat_id"]
    layers = {node.src[2] for node in products}
    weights = {node.src[0] for node in products if node.src[2] == products[0].src[2]}
    each = sum(graph.tensor(weight).nb[2].value({}) for weight in weights)
    chosen = graph.tensor(products[0].src[2]).ne[0].value({})
    return each * (chosen * len(layers) + chosen + 1)


@pytest.mark.parametrize(("name", "place", "length"), CASES)
def test_every_place_gives_the_same_numbers(name: str, place: str, length: int) -> None:
    due = alone(name, length)
    setting, policy, shows = PLACES[place]
    with generator(name, setting, policy) as made:
        for request in range(2):
            got = greedy(made, prompt(name, length), STEPS, all_logits=True)
            assert got.tokens == due.tokens, request
            assert np.array_equal(got.logits, due.logits), np.abs(got.logits - due.logits).max()
        seen = Seen(tuple(session.result() for session in made.sessions))
        assert shows(seen), place
        assert set(made.idle.values()) == {()}
    # Looking up slots may run on the reference; nothing else does.
    slow = {(u.op, u.dtype) for r in seen.results for u in r.kernels if not u.compiled}
    assert slow <= {("get_rows", "i32")}


def test_a_cache_that_caches_nothing_fails_the_test_that_asked_for_it() -> None:
    """The counters tell: without the cache the numbers are the same and the bytes are more."""
    name = "qwen3moe-A-q8_0"
    found = {}
    for place in ("home", "cached"):
        setting, policy, _ = PLACES[place]
        with generator(name, setting, policy) as made:
            greedy(made, prompt(name, 2), STEPS)
            found[place] = Seen(tuple(session.result() for session in made.sessions))
    shows = PLACES["cached"][2]
    assert shows(found["cached"]) and not shows(found["home"])
    assert found["cached"].uploaded < found["home"].uploaded / 2


# -- without recorded models ----------------------------------------------------------------------


def test_a_cache_is_shared_by_programs_and_requests(tmp_path: Path) -> None:
    """What a prompt of two tokens brought is there for the decoding, and for the next request."""
    model = read_gguf(tiny_llama(tmp_path, 4))
    with Generator(model, proved, context=64, setting=ONE, policy=Policy(AMPLE)) as made:
        greedy(made, [1, 5], 6)
        first = Seen(tuple(session.result() for session in made.sessions))
        misses = first.banks("misses")
        assert misses <= 3 * 2 * 4  # up, gate and down of each expert of two layers, once
        greedy(made, [1, 5], 6)
        again = Seen(tuple(session.result() for session in made.sessions))
        assert again.banks("misses") == misses and again.banks("hits") > first.banks("hits")


def test_a_model_under_the_sanitizer(tmp_path: Path) -> None:
    """Two requests with a cache that lasts, on two devices, all in order."""
    model, monitor = read_gguf(tiny_llama(tmp_path, 4)), Monitor()
    with Generator(
        model, proved, context=64, setting=TWO, policy=Policy(AMPLE), watcher=monitor
    ) as made:
        first = greedy(made, [1, 5], 3, all_logits=True)
        again = greedy(made, [1, 5], 3, all_logits=True)
    assert (first.logits == again.logits).all() and monitor.checked > 1000


def test_a_large_batch_goes_the_plain_way(tmp_path: Path) -> None:
    """33 tokens are more than a cache serves; the decoding after them uses it."""
    model = read_gguf(tiny_llama(tmp_path, 4))
    with Generator(model, proved, context=64, setting=ONE, policy=Policy(AMPLE)) as made:
        greedy(made, [(7 * i + 3) % 40 for i in range(33)], 2)
        with_banks = [bool(s.schedule.graph.banks) for s in made.sessions]
    assert with_banks == [False, True]


def test_results_that_share_bytes_on_two_devices(tmp_path: Path) -> None:
    model = read_gguf(tiny_llama(tmp_path, 4))
    with (
        Generator(model, proved, context=64) as own,
        Generator(model, proved, context=64, setting=TWO, compact_from=0) as shared,
    ):
        left, right = (greedy(g, [1, 5, 17], 4, all_logits=True) for g in (own, shared))
        assert (left.logits == right.logits).all()
        buffers = {b.name for s in shared.sessions for b in s.schedule.graph.buffers}
    assert {"compute:gpu0", "compute:gpu1"} <= buffers


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    built = build(read_gguf(tiny_llama(tmp_path)), Batch(1, 1, 256, 256))
    made = program(built.schedule, Policy(AMPLE, prefetch="one-ahead"), 1)
    assert len(made.idle) == 2 and "caches nothing" in made.idle[0]
    assert "no asynchronous device" in made.idle[1]


def test_decoding_asks_for_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first step everything that lasts is there: buffers, slots, results, threads."""
    asked: list[int] = []
    plain = hardware.allocate

    def allocate(count: int, value: int) -> np.ndarray:
        asked.append(count)
        return plain(count, value)

    monkeypatch.setattr(hardware, "allocate", allocate)
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(4), keys=_EXPERTS)
    for policy in (Policy(AMPLE), Policy(prefetch="staging", slots=2), Policy(copy_experts=True)):
        with Generator(read_gguf(path), proved, context=64, setting=ONE, policy=policy) as made:
            greedy(made, [1, 5], 2)
            assert asked
            asked.clear()
            threads = threading.active_count()
            for token in range(20):
                made.feed([token])
            assert asked == [] and threading.active_count() == threads


_EXPERTS = {"expert_count": 4, "expert_used_count": 2}
