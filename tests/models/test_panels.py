"""Weights that are brought into panels when a model is loaded."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
import splitproof.exec.weights as weights
from gguf import GGMLQuantizationType, quants
from nano import llama_tensors, prove, write_gguf
from splitproof.exec.arena import Arena
from splitproof.exec.generate import Generator
from splitproof.exec.panels import PanelBuffer, panel_weights, with_copies
from splitproof.model.command import Copy, CopyExperts
from splitproof.model.decoder.architectures import build
from splitproof.model.decoder.net import Batch
from splitproof.model.decoder.site import FILE, Setting
from splitproof.model.graph import Bank, Graph
from splitproof.model.read.gguf import read_gguf
from splitproof.model.schedule import Schedule
from test_generate import EXPERTS_AT_HOME, EXPERTS_AWAY, PROMPT

PACKED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_exps", "ffn_down_exps")


def quantised_llama(folder: Path) -> Path:
    types = {f"blk.{il}.{role}.weight": "q8_0" for il in (0, 1) for role in PACKED}
    types |= {f"blk.{il}.ffn_up_exps.weight": "q4_0" for il in (0, 1)}
    types |= {f"blk.{il}.ffn_gate_exps.weight": "mxfp4" for il in (0, 1)}
    types["token_embd.weight"] = "q8_0"
    keys = {"expert_count": 4, "expert_used_count": 2}
    return write_gguf(folder / "m.gguf", llama_tensors(4), keys=keys, types=types)


def test_weights_of_products_stand_as_panels(tmp_path: Path) -> None:
    """In place: the file is mapped privately, the embedding (rows are looked up in it) is left."""
    model = read_gguf(quantised_llama(tmp_path))
    built = build(model, Batch(4, 4, 256, 256), Setting())
    found = weights.model_buffers(model, built.schedule.graph, built.loaded)
    file = found[FILE]
    assert isinstance(file, PanelBuffer)
    roles = (*PACKED, "ffn_up_exps")
    assert file.panels == {f"blk.{il}.{role}.weight" for il in (0, 1) for role in roles}
    raw = np.fromfile(model.path, np.uint8)
    changed = np.flatnonzero(raw != file)
    inside = np.zeros(len(raw), bool)
    for name in file.panels:
        entry = model.tensors[name]
        part = slice(entry.offset, entry.offset + entry.nbytes)
        inside[part] = True
        assert sorted(raw[part]) == sorted(file[part])
    assert len(changed) and inside[changed].all()
    arena = Arena(built.schedule, {}, given=found)
    assert arena.operand("blk.0.attn_q.weight").dtype == "q8_0x16"
    assert arena.operand("token_embd.weight").dtype == "q8_0"


@pytest.mark.parametrize("setting", [Setting(), EXPERTS_AWAY, EXPERTS_AT_HOME])
def test_panels_give_the_bits_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    """Also where panels are copied from device to device in each pass."""
    model = read_gguf(quantised_llama(tmp_path))
    panels = Generator(model, prove, context=64, setting=setting).feed(PROMPT, all_logits=True)

    def none(graph: Graph, names: Collection[str]) -> frozenset[str]:
        return frozenset()

    monkeypatch.setattr(weights, "panel_weights", none)
    rows = Generator(model, prove, context=64, setting=setting).feed(PROMPT, all_logits=True)
    assert (panels == rows).all()


def test_mxfp4_means_what_the_gguf_package_says(tmp_path: Path) -> None:
    """Experts in mxfp4, and in f32 with the values that these have: only activations differ, which
    are rounded to 8 bits."""
    values, code = llama_tensors(4), GGMLQuantizationType.MXFP4
    names = [name for name in values if "_exps" in name]
    keys = {"expert_count": 4, "expert_used_count": 2}
    types = dict.fromkeys(names, "mxfp4")
    packed = write_gguf(tmp_path / "packed.gguf", values, keys=keys, types=types)
    for name in names:
        values[name] = quants.dequantize(quants.quantize(values[name], code), code)
    plain = write_gguf(tmp_path / "plain.gguf", values, keys=keys)
    got, due = (
        Generator(read_gguf(path), prove, context=64).feed(PROMPT, all_logits=True)
        for path in (packed, plain)
    )
    error = np.abs(got - due).max() / np.abs(due).max()
    assert 0 < error < 0.02


def test_what_is_read_otherwise_is_left(tmp_path: Path) -> None:
    """An embedding that is the output head too is looked up by rows."""
    values = llama_tensors()
    del values["output.weight"]
    path = write_gguf(tmp_path / "m.gguf", values, types={"token_embd.weight": "q8_0"})
    graph = build(read_gguf(path), Batch(4, 4, 256, 256), Setting()).schedule.graph
    assert not panel_weights(graph, ["token_embd.weight"])


def test_copies_of_panels_are_panels() -> None:
    bank = Bank("bank", caches="w", layer=0, role="up", slots=2, ids="ids", group="g")
    copies = (
        CopyExperts(src="staged", dst="device", queue="q"), Copy(src="w", dst="staged", queue="q"),
        Copy(src="x", dst="x1", queue="q"),
    )  # fmt: skip
    schedule = Schedule(Graph(banks=(bank,)), "copies", program=copies)
    assert with_copies(schedule, {"w"}) == {"w", "staged", "device", "bank"}
    assert not with_copies(schedule, ())
