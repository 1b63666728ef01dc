"""``splitproof run MODEL.gguf`` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from nano import llama_tensors, model_path, recorded, tiny_llama, tokens, write_gguf
from splitproof.main import invoke

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *arguments: str | Path) -> tuple[int, str, str]:
    code = invoke(["run", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_tokens_and_phases(capsys: Captured, tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, 4)
    code, out, err = run(capsys, path, "--tokens", "1,5,17", "--decode", "3", "--threads", "2")
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert len(first.split()) == 3 and all(word.isdigit() for word in first.split())
    text = "\n".join(rest)
    assert "proved    2 programs" in text and "0 by the NumPy reference" in text
    assert "prompt" in text and "3 tokens" in text
    assert "decode" in text and "2 tokens" in text  # the third is not fed again


def test_quiet_is_the_tokens_alone(capsys: Captured, tmp_path: Path) -> None:
    code, out, _ = run(capsys, tiny_llama(tmp_path), "-q", "--tokens", "1, 5", "--decode", "2")
    assert code == 0
    assert len(out.split()) == 2


def test_logits_and_json_of_a_recorded_model(capsys: Captured, tmp_path: Path) -> None:
    name = "olmoe-A-q4_0"
    due, target = tokens(name), tmp_path / "logits.npy"
    prompt = ",".join(map(str, due["prompt"]))
    code, out, _ = run(
        capsys, model_path(name), "--tokens", prompt, "--decode", "8", "--logits", target,
        "--format", "json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["tokens"] == due["greedy"][:8]
    np.testing.assert_allclose(
        np.load(target), np.load(recorded("logits", f"{name}.npy")), atol=1e-4
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs --tokens"),
        (("--tokens", "1,x"), "numbers of tokens, such as 1,2,3"),
        (("--tokens", "1,400"), "token 400: the model has tokens 0 to 39"),
        (("--tokens", "1", "--decode", "64"), "65 tokens, prompt and decoded; the model's context"),
        (("--tokens", "1", "--symbol", "n=1"), "--symbol are for documents"),
        (("--tokens", "1", "--logits", "absent/x.npy"), "there is no directory absent"),
    ],
)
def test_wrong_usage(
    capsys: Captured, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, tiny_llama(tmp_path), *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err


def test_models_that_cannot_be_run(capsys: Captured, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "other.gguf", llama_tensors(), architecture="mamba")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(other.read_bytes()[:-100])
    for path, message in ((other, "architecture mamba is not supported"), (cut, "cut off")):
        code, out, err = run(capsys, path, "--tokens", "1")
        assert (code, out) == (2, "")
        assert err.startswith(f"splitproof: {path}: {message}") and err.count("\n") == 1


def test_a_document_takes_no_tokens(capsys: Captured) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "pf001-repaired.json"
    code, _, err = run(capsys, example, "--tokens", "1")
    assert code == 2 and "are for GGUF models" in err
