"""The recorded nano models, and tiny models that the tests write themselves."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from splitproof.model.certificate import Certificate, certify
from splitproof.model.report import Verdict
from splitproof.model.schedule import Schedule
from splitproof.verify.check import check

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "nano"
ARCHITECTURES = ("qwen3moe", "olmoe", "llama", "deepseek2", "deepseek2x", "gpt-oss")
TYPES = ("f32", "q8_0", "q4_0")
#: All recorded models, where else one type of each architecture is run.
ALL = bool(os.environ.get("SPLITPROOF_ALL_MODELS"))
FEW = (
    "qwen3moe-A-q8_0", "olmoe-A-q4_0", "llama-A-f32", "deepseek2-A-q4_0", "deepseek2x-A-f32",
    "gpt-oss-A-q8_0",
)  # fmt: skip
MODELS = tuple(f"{a}-A-{t}" for a in ARCHITECTURES for t in TYPES) if ALL else FEW


def recorded(*parts: str) -> Path:
    """A recorded file, or a skip where the recordings are not beside the checkout."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the recorded data is absent: ../shared/data/nano/{'/'.join(parts)}")
    return path


def model_path(name: str) -> Path:
    return recorded("models", f"{name}.gguf")


def tokens(name: str) -> dict[str, list[int]]:
    """``prompt`` and ``greedy`` of a model."""
    found: dict[str, list[int]] = json.loads(recorded("logits", "tokens.json").read_text())[name]
    return found


def routes(name: str) -> dict[str, Any]:
    with gzip.open(recorded("nodes", f"{name}.routes.json.gz"), "rt") as file:
        layers: dict[str, Any] = json.load(file)["layers"]
    return layers


def prove(schedule: Schedule) -> Certificate:
    """The certificate of a check; what is not proved fails the test."""
    report = check(schedule)
    assert report.verdict is Verdict.PROVED, (schedule.name, report.failures[:3], report.gaps[:3])
    return certify(report)


# -- models that are written here ---------------------------------------------------------------

SIZES = {
    "context_length": 64, "embedding_length": 32, "block_count": 2, "feed_forward_length": 64,
    "attention.head_count": 4, "attention.head_count_kv": 2, "rope.dimension_count": 8,
}  # fmt: skip
VOCABULARY = 40


def llama_tensors(experts: int = 0) -> dict[str, np.ndarray]:
    """Random weights of a llama, outermost dimension first."""
    rng = np.random.default_rng(7)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def factors(size: int) -> np.ndarray:
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)

    found = {
        "token_embd.weight": matrix(VOCABULARY, 32) * np.float32(5),
        "output_norm.weight": factors(32), "output.weight": matrix(VOCABULARY, 32),
    }  # fmt: skip
    for il in range(2):
        parts = {
            "attn_norm.weight": factors(32), "ffn_norm.weight": factors(32),
            "attn_q.weight": matrix(32, 32), "attn_k.weight": matrix(16, 32),
            "attn_v.weight": matrix(16, 32), "attn_output.weight": matrix(32, 32),
        }  # fmt: skip
        lead, suffix = ((), "") if not experts else ((experts,), "_exps")
        parts |= {
            f"ffn_gate{suffix}.weight": matrix(*lead, 64, 32),
            f"ffn_up{suffix}.weight": matrix(*lead, 64, 32),
            f"ffn_down{suffix}.weight": matrix(*lead, 32, 64),
        }
        if experts:
            parts["ffn_gate_inp.weight"] = matrix(experts, 32)
        found |= {f"blk.{il}.{name}": value for name, value in parts.items()}
    return found


def write_gguf(
    path: Path,
    values: Mapping[str, np.ndarray],
    *,
    architecture: str = "llama",
    keys: Mapping[str, int | float] | None = None,
    types: Mapping[str, str] | None = None,
) -> Path:
    """A GGUF of these tensors; ``types`` quantises those that it names."""
    writer = gguf.GGUFWriter(path, architecture)
    epsilon = {"attention.layer_norm_rms_epsilon": 1e-5}
    for key, value in {**SIZES, **epsilon, **(keys or {})}.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    for name, tensor in values.items():
        kind = (types or {}).get(name)
        if kind is None:
            writer.add_tensor(name, tensor)
        else:
            code = gguf.GGMLQuantizationType[kind.upper()]
            writer.add_tensor(name, gguf.quants.quantize(tensor, code), raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_llama(folder: Path, experts: int = 0) -> Path:
    keys = {"expert_count": experts, "expert_used_count": 2} if experts else {}
    return write_gguf(folder / f"tiny-{experts}.gguf", llama_tensors(experts), keys=keys)
