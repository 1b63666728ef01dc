"""``splitproof run MODEL.gguf`` as a person meets it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from nano import llama_tensors, model_path, recorded, tiny_llama, tokens, write_gguf
from splitproof.devices import DEFAULT, read_devices
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
        (("--tokens", "1", "--symbol", "n=1"), "for documents, not for a GGUF: --symbol"),
        (("--tokens", "1", "--seed", "1"), "for documents, not for a GGUF: --seed"),
        (("--tokens", "1", "--logits", "-"), "a file was due"),
        (("--tokens", "1", "--logits", "x", "--trace", "./x"), "written by another option"),
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


@pytest.mark.parametrize(
    ("key", "value", "due"),
    [
        ("rope.freq_base", math.nan, "a finite number above 1 was due"),
        ("rope.freq_base", 1.0, "a finite number above 1 was due"),
        ("rope.scaling.factor", -2.0, "a finite number above 0 was due"),
        ("attention.layer_norm_rms_epsilon", math.inf, "a finite number above 0 was due"),
        ("rope.dimension_count", 7, "an even number up to 8 was due"),
        ("rope.dimension_count", 16, "an even number up to 8 was due"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with(
    capsys: Captured, tmp_path: Path, key: str, value: float, due: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), keys={key: value})
    code, out, err = run(capsys, path, "--tokens", "1")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert f"llama.{key} is {value}; {due}" in err


def test_the_model_is_not_written_over(capsys: Captured, tmp_path: Path) -> None:
    path = tiny_llama(tmp_path)
    before = path.read_bytes()
    code, _, err = run(capsys, path, "--tokens", "1", "--logits", path)
    assert code == 2 and "is to be written, and is read" in err
    assert path.read_bytes() == before


def test_a_document_takes_no_tokens(capsys: Captured) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "pf001-repaired.json"
    code, _, err = run(capsys, example, "--tokens", "1")
    assert code == 2 and "for GGUF models, and" in err and "is none: --tokens" in err
    code, _, err = run(capsys, "absent.gguf", "--tokens", "1")
    assert code == 2 and "absent.gguf" in err and err.count("\n") == 1


# -- devices, caches, prefetches ----------------------------------------------------------------

DEVICES = Path(__file__).parents[2] / "docs" / "devices"
ASKED = ("--tokens", "1,5,17", "--decode", "6")


def test_the_default_devices_are_the_example() -> None:
    assert (DEVICES / "one-device.json").read_text() == DEFAULT
    assert read_devices(str(DEVICES / "one-device.json")) == read_devices(None)


def test_a_cache_and_a_prefetch_are_counted(capsys: Captured, tmp_path: Path) -> None:
    path = tiny_llama(tmp_path, 4)
    _, plain, _ = run(capsys, path, *ASKED)
    code, out, err = run(
        capsys, path, *ASKED, "--moe-cache", "64MiB", "--prefetch", "one-ahead",
        "--devices", DEVICES / "two-devices.json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == plain.splitlines()[0]
    for words in ("cache     gpu0.0: 4 slots", "0 evictions", "prefetch ", "host → vram1: "):
        assert words in out
    code, out, _ = run(
        capsys, path, *ASKED, "--moe-cache", "64MiB", "--prefetch", "one-ahead", "--format", "json"
    )  # fmt: skip
    value = json.loads(out)
    (use,) = value["caches"].values()
    assert code == 0 and use["hits"] > 0 and use["misses"] <= 8 and value["prefetches"] > 0
    assert value["traffic"][0]["bytes"] > use["uploaded"] > 0


def test_what_ran_follows_what_was_proved(capsys: Captured, tmp_path: Path) -> None:
    path, trace, folder = tiny_llama(tmp_path, 4), tmp_path / "trace.json", tmp_path / "programs"
    folder.mkdir()
    code, _, err = run(
        capsys, path, *ASKED, "--prefetch", "staging:2", "--trace", trace, "--programs", folder,
        "--sanitize", "--ubatch", "2",
    )  # fmt: skip
    assert code == 0 and "accesses in order" in err
    programs = sorted(folder.iterdir())
    assert len(programs) == 2  # a prompt in pieces of two tokens and one, then decoding
    for program in programs:
        assert invoke(["check", "--trace", str(trace), str(program)]) == 0
        assert capsys.readouterr().out.startswith("FOLLOWED")


def test_what_has_no_effect_is_told(capsys: Captured, tmp_path: Path) -> None:
    code, _, err = run(capsys, tiny_llama(tmp_path), *ASKED, "--moe-cache", "1MiB")
    assert code == 0 and err.startswith("splitproof: PL006: moe-cache caches nothing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [["(", "vram0"]]}, r"$.weights[0][0]: '(' is no regular expression"),
        ({"cache": [["", "vram9"]]}, "$.cache[0][1]: there is no memory 'vram9'"),
        ({"memory": {}}, "$.memory: unknown key"),
        ({"devices": []}, "$.devices"),
        ({"devices": [{"name": "cpu", "memory": "ram", "reads": ["ram"]}]}, "$.devices[0].memory"),
    ],
)
def test_wrong_devices(
    capsys: Captured, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "devices.json"
    path.write_text(json.dumps({**json.loads(DEFAULT), **change}))
    code, out, err = run(capsys, tiny_llama(tmp_path), *ASKED, "--devices", path)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


def test_the_last_device_is_the_cpu(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    value = json.loads(DEFAULT)
    path.write_text(json.dumps({**value, "devices": value["devices"][::-1]}))
    code, _, err = run(capsys, tiny_llama(tmp_path), *ASKED, "--devices", path)
    assert code == 2 and "$.devices[1]: the last device is the CPU" in err
    code, _, err = run(capsys, tiny_llama(tmp_path, 4), *ASKED, "--moe-cache", "1KiB")
    assert code == 2 and "holds less than one token's experts" in err
