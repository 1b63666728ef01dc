"""What the metadata of a model says about its rotation, as llama.cpp takes it."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nano import llama_tensors, write_gguf
from splitproof.model.decoder.architectures import build
from splitproof.model.decoder.keys import Keys
from splitproof.model.decoder.net import Batch
from splitproof.model.decoder.rope import read_rope
from splitproof.model.graph import Node
from splitproof.model.read.gguf import ModelFile, read_gguf

PLAIN = {
    "n_dims": 8, "mode": "normal", "n_ctx_orig": 64, "freq_base": 10000.0, "freq_scale": 1.0,
    "ext_factor": 0.0, "attn_factor": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip


def read(given: dict[str, Any], **more: Any) -> tuple[dict[str, object], float]:
    """Parameters of the nodes, and the factor of the scores."""
    keys = {"general.architecture": "llama", "llama.context_length": 64}
    keys |= {f"llama.rope.{key}": value for key, value in given.items()}
    rope = read_rope(Keys(ModelFile("m.gguf", keys, {}, 0)), "normal", 8, **more)
    return rope.params(), rope.kq_scale


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({}, {}),
        ({"freq_base": 5e5}, {"freq_base": 5e5}),
        # A factor without a type is a linear one; 0 is no factor.
        ({"scaling.factor": 4.0}, {"freq_scale": 0.25}),
        ({"scaling.factor": 4.0, "scaling.type": "linear"}, {"freq_scale": 0.25}),
        ({"scaling.factor": 4.0, "scaling.type": "none"}, {}),
        ({"scaling.factor": 0.0}, {}),
        ({"scaling.original_context_length": 16}, {"n_ctx_orig": 16}),
        ({"scaling.attn_factor": 0.5}, {"attn_factor": 0.5}),
        (
            {"scaling.type": "yarn", "scaling.factor": 4.0},
            {"freq_scale": 0.25, "ext_factor": 1.0},
        ),
        (
            {
                "scaling.type": "yarn", "scaling.factor": 4.0, "scaling.yarn_beta_fast": 24.0,
                "scaling.yarn_beta_slow": 2.0, "scaling.yarn_ext_factor": 0.5,
            },
            {"freq_scale": 0.25, "ext_factor": 0.5, "beta_fast": 24.0, "beta_slow": 2.0},
        ),
    ],
)  # fmt: skip
def test_parameters(given: dict[str, Any], due: dict[str, object]) -> None:
    assert read(given) == (PLAIN | due, 1.0)


def test_the_multiplier_goes_from_the_rotation_to_the_scores() -> None:
    yarn = {
        "scaling.type": "yarn", "scaling.factor": 40.0, "scaling.yarn_log_multiplier": 0.0707,
    }  # fmt: skip
    assert read(yarn)[1] == 1.0  # not of this architecture
    params, scores = read(yarn, log_multiplier=True)
    assert params["attn_factor"] == pytest.approx(1 / (1 + 0.1 * log(40)))
    assert scores == pytest.approx((1 + 0.0707 * log(40)) ** 2)


def rotations(path: Path) -> list[Node]:
    schedule = build(read_gguf(path), Batch(tokens=3, outputs=1, cells=8, capacity=16)).schedule
    return [node for node in schedule.graph.nodes if node.op == "rope"]


def test_divisors_of_the_frequencies_are_a_source(tmp_path: Path) -> None:
    plain = rotations(write_gguf(tmp_path / "plain.gguf", llama_tensors()))
    assert {len(node.src) for node in plain} == {2}
    values = llama_tensors() | {"rope_freqs.weight": np.arange(1, 5, dtype=np.float32)}
    divided = rotations(write_gguf(tmp_path / "m.gguf", values))
    assert len(divided) == 4  # queries and keys of two layers
    assert {node.src[2] for node in divided} == {"rope_freqs.weight"}
