"""Reading GGUF files: held against the ``gguf`` package, and everything that can be wrong."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from nano import MODELS, llama_tensors, model_path, tiny_llama, write_gguf
from splitproof.model.decoder.architectures import build
from splitproof.model.decoder.net import Batch
from splitproof.model.read.gguf import ModelError, is_gguf, read_gguf

BATCH = Batch(tokens=3, outputs=1, cells=8, capacity=16)


def read_and_build(path: Path) -> None:
    build(read_gguf(path), BATCH)


def test_the_same_as_the_package_reads(tmp_path: Path) -> None:
    same(tiny_llama(tmp_path, experts=4))


@pytest.mark.parametrize("name", MODELS)
def test_recorded_models_as_the_package_reads_them(name: str) -> None:
    same(model_path(name))


def same(path: Path) -> None:
    due = gguf.GGUFReader(path)
    found = read_gguf(path)
    assert list(found.tensors) == [tensor.name for tensor in due.tensors]
    for tensor in due.tensors:
        mine = found.tensors[tensor.name]
        assert mine.dtype == tensor.tensor_type.name.lower()
        assert mine.shape == tuple(int(size) for size in tensor.shape)
        assert (mine.offset, mine.nbytes) == (tensor.data_offset, tensor.n_bytes)
    keys = {k: f.contents() for k, f in due.fields.items() if not k.startswith("GGUF.")}
    assert dict(found.keys) == keys
    assert is_gguf(path)


def test_a_vocabulary_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "words.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"word{i}" for i in range(5000)])
    writer.add_token_scores([0.5] * 5000)
    writer.add_array("llama.short", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    keys = read_gguf(path).keys
    assert keys["llama.short"] == [1, 2, 3]
    assert "tokenizer.ggml.tokens" not in keys and "tokenizer.ggml.scores" not in keys


def test_every_kind_of_value(tmp_path: Path) -> None:
    path = tmp_path / "kinds.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in KINDS.items():
        getattr(writer, f"add_{name}")(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_gguf(path).keys
    assert {name: found[name] for name in KINDS} == KINDS
    assert {name: type(found[name]) for name in KINDS} == {n: type(v) for n, v in KINDS.items()}


KINDS: dict[str, object] = {
    "uint8": 200, "int8": -100, "uint16": 60_000, "int16": -30_000, "uint32": 2**32 - 1,
    "int32": -(2**31), "uint64": 2**63, "int64": -(2**63), "float32": 0.5, "float64": 0.1,
    "bool": True, "string": "ü",
}  # fmt: skip


def test_tensors_start_where_the_alignment_says(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(4096)
    for name in ("a", "b"):
        writer.add_tensor(name, np.arange(5, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    same(path)
    assert [tensor.offset for tensor in read_gguf(path).tensors.values()] == [4096, 8192]


def described(*tensors: tuple[str, tuple[int, ...], int], version: int = 3) -> bytes:
    """A file of so many ``(name, shape, number of its type)``, written down by hand."""
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), 0)]
    for name, shape, kind in tensors:
        parts.append(struct.pack("<Q", len(name)) + name.encode())
        parts.append(struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", kind, 0))
    return b"".join(parts) + bytes(4096)


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions(tmp_path: Path, version: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(described(("a", (64, 2), 8), version=version))
    (tensor,) = read_gguf(path).tensors.values()
    assert (tensor.dtype, tensor.shape, tensor.nbytes) == ("q8_0", (64, 2), 2 * 2 * 34)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([("a", (8,), 0), ("a", (8,), 0)], "tensor a is described twice"),
        ([("a", (33,), 8)], "tensor a: rows of 33 elements; q8_0 needs a multiple of 32"),
        ([("a", (8,), 999)], "tensor a has the unknown type number 999"),
        ([("a", (1, 1, 1, 1, 1), 0)], "tensor a has 5 dimensions; 1 to 4 was due"),
        ([("a", (), 0)], "tensor a has 0 dimensions; 1 to 4 was due"),
        ([("a", (2**40, 2**40), 0)], "cut off: tensor a ends at byte"),
    ],
)
def test_wrong_descriptions(
    tmp_path: Path, tensors: list[tuple[str, tuple[int, ...], int]], message: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(described(*tensors))
    with pytest.raises(ModelError, match=message):
        read_gguf(path)


# -- what can be wrong --------------------------------------------------------------------------


def test_every_cut_is_named(tmp_path: Path) -> None:
    whole = tiny_llama(tmp_path).read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [*range(0, 600, 7), *range(600, len(whole), len(whole) // 40), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf: (cut off|not a GGUF)"):
            read_gguf(path)


def test_damage_is_an_error_or_another_model(tmp_path: Path) -> None:
    """Whatever a changed byte does, it is no other exception, and it ends."""
    whole = bytearray(tiny_llama(tmp_path, experts=4).read_bytes())
    path, rng, told = tmp_path / "damaged.gguf", random.Random(3), 0
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[rng.randrange(2500)] = rng.choice([0, 1, 255, rng.randrange(256)])
        path.write_bytes(damaged)
        try:
            read_and_build(path)
        except ModelError as error:
            told += 1
            assert str(path) in str(error)
    assert told > 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a GGUF file: it is empty"),
        (b"{}", "not a GGUF file: it begins with b'{}'"),
        (b"GGUF\x09\0\0\0" + bytes(16), "GGUF version 9; 2 or 3"),
        (b"GGUF\0\0\0\x03" + bytes(16), "it may be big-endian"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message.replace("(", r"\(")):
        read_gguf(path)


def test_another_architecture(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), architecture="mamba")
    with pytest.raises(ModelError, match="architecture mamba is not supported; known: qwen3moe"):
        read_and_build(path)


def test_a_missing_tensor(tmp_path: Path) -> None:
    values = llama_tensors()
    del values["blk.1.attn_k.weight"]
    with pytest.raises(ModelError, match=r"tensor blk\.1\.attn_k\.weight \[32, 16\] is missing"):
        read_and_build(write_gguf(tmp_path / "m.gguf", values))


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    values = llama_tensors()
    values["blk.0.attn_q.weight"] = np.zeros((31, 32), np.float32)
    message = r"tensor blk\.0\.attn_q\.weight has shape \[32, 31\]; \[32, 32\] was due"
    with pytest.raises(ModelError, match=message):
        read_and_build(write_gguf(tmp_path / "m.gguf", values))


def test_a_tensor_that_has_no_place(tmp_path: Path) -> None:
    values = llama_tensors() | {"blk.0.attn_q_norm.weight": np.ones(8, np.float32)}
    message = r"blk\.0\.attn_q_norm\.weight has no place in a llama model"
    with pytest.raises(ModelError, match=message):
        read_and_build(write_gguf(tmp_path / "m.gguf", values))


def test_a_type_that_is_not_supported(tmp_path: Path) -> None:
    name = "blk.0.attn_q.weight"
    values = llama_tensors() | {name: np.zeros((32, 32), np.int8)}
    with pytest.raises(ModelError, match=rf"tensor {name} has type i8, which is not supported"):
        read_and_build(write_gguf(tmp_path / "m.gguf", values))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", 0, "block_count is 0; an integer from 1 on was due"),
        ("block_count", 1.5, "block_count is 1.5; an integer from 1 on was due"),
        ("expert_count", 4, "expert_used_count is missing"),
    ],
)
def test_wrong_keys(tmp_path: Path, key: str, value: int | float, message: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), keys={key: value})
    with pytest.raises(ModelError, match=message):
        read_and_build(path)
