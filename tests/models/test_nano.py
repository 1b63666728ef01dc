"""Logits, tokens and router decisions of llama.cpp, on models that it ran.

``SPLITPROOF_ALL_MODELS=1`` runs every recorded model; else one type of each architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from nano import ALL, MODELS, model_path, prove, recorded, routes, tokens
from splitproof.exec.generate import Generation, Generator, greedy
from splitproof.model.read.gguf import read_gguf

STEPS = 8
CLOSE = 1e-4
#: One rounding that falls the other way moves a position by so much at most.
FLIPPED = 0.5


@dataclass(frozen=True)
class Ran:
    name: str
    generator: Generator
    made: Generation

    @property
    def error(self) -> np.ndarray:
        """Largest difference at each position."""
        due = np.load(recorded("logits", f"{self.name}.npy"))
        assert self.made.logits.shape == due.shape
        worst: np.ndarray = np.abs(self.made.logits - due).max(axis=1)
        return worst


RUNS: dict[str, Ran] = {}


def ran(name: str) -> Ran:
    if name not in RUNS:
        model = read_gguf(model_path(name))
        with Generator(model, prove, context=128, watch=("ffn_moe_topk",)) as generator:
            made = greedy(generator, tokens(name)["prompt"], STEPS, all_logits=True)
        RUNS[name] = Ran(name, generator, made)
    return RUNS[name]


@pytest.mark.parametrize("name", MODELS)
def test_tokens_and_routes(name: str) -> None:
    run = ran(name)
    assert list(run.made.tokens) == tokens(name)["greedy"][:STEPS]
    for layer, due in routes(name).items():
        got = run.generator.watched[f"ffn_moe_topk-{layer}"]
        chosen = np.concatenate([ids[:, :, 0, 0].T for ids in got])
        assert (chosen == np.array(due["selected"])).all(), layer


@pytest.mark.parametrize("name", MODELS)
def test_logits(name: str) -> None:
    worst = ran(name).error.max()
    assert worst <= (CLOSE if name.endswith("f32") else FLIPPED)


def test_most_quantised_models_agree_everywhere() -> None:
    """Three in four, as of the 28 recorded ones 21: what a flipped rounding leaves."""
    quantised = [name for name in MODELS if not name.endswith("f32")]
    clean = [name for name in quantised if ran(name).error.max() <= CLOSE]
    assert len(clean) >= 0.75 * len(quantised)


@pytest.mark.parametrize("name", MODELS)
def test_every_op_had_a_kernel(name: str) -> None:
    for session in ran(name).generator.sessions:
        assert session.result().fallbacks == 0


@pytest.mark.skipif(not ALL, reason="SPLITPROOF_ALL_MODELS is not set")
def test_all_recorded_models_were_meant() -> None:
    files = {path.stem for path in recorded("models").glob("*.gguf")}
    assert files == set(MODELS)
