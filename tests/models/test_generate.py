"""Generation: cache, sessions, devices, threads; tiny models that need no recorded data."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from nano import VOCABULARY, llama_tensors, model_path, prove, tiny_llama, tokens, write_gguf
from splitproof.exec.generate import GenerateError, Generator, greedy
from splitproof.exec.session import Session, SessionError
from splitproof.model.certificate import Certificate, CertificateError, certify
from splitproof.model.decoder.architectures import build
from splitproof.model.decoder.net import Batch
from splitproof.model.decoder.site import Setting
from splitproof.model.device import Contract, CopyRule, Device, Memory
from splitproof.model.plan.allocate import result_bytes
from splitproof.model.plan.lower import lower
from splitproof.model.plan.planner import plan
from splitproof.model.read.gguf import read_gguf
from splitproof.model.report import Report, Verdict
from splitproof.model.schedule import Schedule

PROMPT = [1, 5, 17, 33, 2, 9, 9, 30]

# -- against a forward pass of its own ----------------------------------------------------------


def forward(weights: dict[str, np.ndarray], ids: Sequence[int], experts: int) -> np.ndarray:
    """A llama written down plainly: logits ``[tokens, vocabulary]``, in float64, no cache."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    heads, kv_heads, size = 4, 2, 8

    def norm(x: np.ndarray, factor: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * factor

    def turned(x: np.ndarray) -> np.ndarray:  # [tokens, heads, size]
        angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size)
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    def soft(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def gated(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        g = x @ gate.T
        return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T

    x = w["token_embd.weight"][list(ids)]
    for il in range(2):
        p = {n.split(".", 2)[2][:-7]: v for n, v in w.items() if n.startswith(f"blk.{il}.")}
        h = norm(x, p["attn_norm"])
        q = turned((h @ p["attn_q"].T).reshape(-1, heads, size))
        k = turned((h @ p["attn_k"].T).reshape(-1, kv_heads, size))
        v = (h @ p["attn_v"].T).reshape(-1, kv_heads, size)
        k, v = (np.repeat(a, heads // kv_heads, 1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(size)
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        mixed = np.einsum("hij,jhd->ihd", soft(scores), v).reshape(len(x), -1)
        x = x + mixed @ p["attn_output"].T
        h = norm(x, p["ffn_norm"])
        if not experts:
            x = x + gated(h, p["ffn_gate"], p["ffn_up"], p["ffn_down"])
            continue
        probs = soft(h @ p["ffn_gate_inp"].T)
        for t in range(len(x)):
            best = np.argsort(-probs[t])[:2]
            for e in best:
                y = gated(h[t], p["ffn_gate_exps"][e], p["ffn_up_exps"][e], p["ffn_down_exps"][e])
                x[t] += probs[t, e] / probs[t, best].sum() * y
    return norm(x, w["output_norm.weight"]) @ w["output.weight"].T


@pytest.mark.parametrize("experts", [0, 4])
def test_a_llama_by_hand(tmp_path: Path, experts: int) -> None:
    generator = Generator(read_gguf(tiny_llama(tmp_path, experts)), prove, context=64)
    made = greedy(generator, PROMPT, 5, all_logits=True)
    due = forward(llama_tensors(experts), [*PROMPT, *made.tokens], experts)
    np.testing.assert_allclose(made.logits, due, atol=1e-4)
    first = len(PROMPT) - 1
    assert made.tokens == tuple(int(t) for t in due[first : first + 5].argmax(1))


def test_an_output_head_that_is_the_embedding(tmp_path: Path) -> None:
    values = llama_tensors()
    values["output.weight"] = values["token_embd.weight"]
    own = Generator(read_gguf(write_gguf(tmp_path / "own.gguf", values)), prove, context=64)
    del values["output.weight"]
    tied = Generator(read_gguf(write_gguf(tmp_path / "tied.gguf", values)), prove, context=64)
    assert (own.feed(PROMPT) == tied.feed(PROMPT)).all()


def test_types_without_a_kernel_run_on_the_reference(tmp_path: Path) -> None:
    values = llama_tensors()
    types = {"output.weight": "q5_1", "blk.0.attn_q.weight": "q5_0", "blk.1.attn_q.weight": "q4_1"}
    path = write_gguf(tmp_path / "m.gguf", values, types=types)
    generator = Generator(read_gguf(path), prove, context=64)
    got = generator.feed(PROMPT)
    due = forward(values, PROMPT, 0)[-1]
    assert 1e-4 < np.abs(got - due).max() < 0.3
    assert sum(session.result().fallbacks for session in generator.sessions) == 3


# -- the cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 8, 9, 31, 32, 33])
def test_a_prompt_at_once_or_token_by_token(tmp_path: Path, count: int) -> None:
    prompt = [(7 * i + 3) % VOCABULARY for i in range(count)]
    generator = Generator(read_gguf(tiny_llama(tmp_path, 4)), prove, context=64)
    whole = generator.feed(prompt, all_logits=True)
    generator.reset()
    single = np.concatenate([generator.feed([token]) for token in prompt])
    np.testing.assert_allclose(whole, single, atol=1e-4)


def test_more_cells_than_one_step_of_the_cache(tmp_path: Path) -> None:
    """Past 256 cells attention looks at 512: another program on the same cache."""
    path = write_gguf(
        tmp_path / "long.gguf", llama_tensors(), keys={"context_length": 512, "block_count": 2}
    )
    generator = Generator(read_gguf(path), prove, context=300)
    prompt = [(7 * i + 3) % VOCABULARY for i in range(258)]
    generator.feed(prompt[:250])
    got = np.concatenate([generator.feed([token]) for token in prompt[250:]])
    due = forward(llama_tensors(), prompt, 0)[250:]
    np.testing.assert_allclose(got, due, atol=2e-4)


def test_a_second_request_gives_the_same_numbers(tmp_path: Path) -> None:
    generator = Generator(read_gguf(tiny_llama(tmp_path, 4)), prove, context=64)
    first = greedy(generator, PROMPT, 6, all_logits=True)
    other = greedy(generator, PROMPT[::-1], 3, all_logits=True)
    again = greedy(generator, PROMPT, 6, all_logits=True)
    assert (first.logits == again.logits).all() and first.tokens == again.tokens
    assert not np.array_equal(other.logits[: len(PROMPT)], first.logits[: len(PROMPT)])


def test_a_generator_that_nobody_closes_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    generator = Generator(
        read_gguf(tiny_llama(tmp_path, 4)), prove, context=64, setting=EXPERTS_AWAY, threads=2
    )
    generator.feed(PROMPT)
    assert set(threading.enumerate()) > before
    del generator
    gc.collect()
    assert set(threading.enumerate()) == before


def test_threads_do_not_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitproof.exec.parallel.LEAST_WORK", 0)
    model = read_gguf(tiny_llama(tmp_path, 4))
    with (
        Generator(model, prove, context=64) as one,
        Generator(model, prove, context=64, threads=3) as three,
    ):
        left, right = (greedy(g, PROMPT, 4, all_logits=True) for g in (one, three))
        assert (left.logits == right.logits).all()


@pytest.mark.parametrize("experts", [0, 4])
def test_results_that_share_bytes_are_the_same(tmp_path: Path, experts: int) -> None:
    model = read_gguf(tiny_llama(tmp_path, experts))
    own = Generator(model, prove, context=64)
    shared = Generator(model, prove, context=64, compact_from=0)
    left, right = (greedy(g, PROMPT, 4, all_logits=True) for g in (own, shared))
    assert (left.logits == right.logits).all()
    graphs = [g.sessions[0].schedule.graph for g in (own, shared)]
    sizes = [{b.name: b.bytes for b in graph.buffers}.get("compute:cpu", 0) for graph in graphs]
    assert sizes[0] == 0 < sizes[1]
    plain = plan(build(model, Batch(8, 8, 256, 256)).schedule)
    assert sizes[1] < result_bytes(plain) / 2


# -- two devices --------------------------------------------------------------------------------

GPU = Device(
    "gpu0", "vram0", ("vram0",), asynchronous=True, copy=(CopyRule(None, None, Contract.STREAM),),
    offload_min_tokens=1,
)  # fmt: skip
CPU = Device("cpu", "host", ("host",), events=False)
MEMORIES = (Memory("host", host=True), Memory("vram0"))
EXPERTS_AWAY = Setting(MEMORIES, (GPU, CPU), weights=((r"_exps\.", "vram0"),))
#: Everything on the device but the experts' weights, which are copied to it in each pass.
EXPERTS_AT_HOME = Setting(
    MEMORIES, (GPU, CPU), weights=((r"^(?!.*_exps\.)", "vram0"),), cache="vram0"
)


def settings_agree(path: Path, prompt: Sequence[int], count: int) -> None:
    model = read_gguf(path)
    one = greedy(Generator(model, prove, context=64), prompt, count, all_logits=True)
    for setting in (EXPERTS_AWAY, EXPERTS_AT_HOME):
        generator = Generator(model, prove, context=64, setting=setting)
        for _ in range(2):
            two = greedy(generator, prompt, count, all_logits=True)
            assert (two.logits == one.logits).all() and two.tokens == one.tokens
        session = generator.sessions[0]
        splits = session.schedule.splits or ()
        devices = {split.device for split in splits}
        assert devices == ({"gpu0", "cpu"} if setting is EXPERTS_AWAY else {"gpu0"})
        moved = {(m.source, m.target): m.bytes for m in session.result().traffic}
        assert moved["host", "vram0"] > 0
        experts = any("_exps" in name for split in splits for name in split.inputs)
        assert experts == (setting is EXPERTS_AT_HOME)


def test_experts_on_another_device(tmp_path: Path) -> None:
    settings_agree(tiny_llama(tmp_path, 4), PROMPT, 4)


@pytest.mark.parametrize("name", ["gpt-oss-A-q8_0", "deepseek2x-A-q4_0"])
def test_recorded_models_with_experts_on_another_device(name: str) -> None:
    settings_agree(model_path(name), tokens(name)["prompt"], 4)


# -- refusals -----------------------------------------------------------------------------------


def test_without_a_proof_nothing_runs(tmp_path: Path) -> None:
    def doubtful(schedule: Schedule) -> Certificate:
        return certify(Report(Verdict.UNKNOWN, digest="0"))

    generator = Generator(read_gguf(tiny_llama(tmp_path)), doubtful, context=64)
    with pytest.raises(CertificateError, match="unknown, not proved"):
        generator.feed(PROMPT)


def test_a_proof_of_another_program_is_refused(tmp_path: Path) -> None:
    model = read_gguf(tiny_llama(tmp_path))
    one, two = (plan(build(model, Batch(n, 1, 256, 256)).schedule) for n in (1, 2))
    with pytest.raises(CertificateError, match="check it again"):
        Session(lower(two), prove(lower(one)))


def test_inputs_are_named(tmp_path: Path) -> None:
    generator = Generator(read_gguf(tiny_llama(tmp_path)), prove, context=64)
    generator.feed(PROMPT)
    with pytest.raises(SessionError, match="missing or unknown: attn_inp_k_idxs, attn_inp_kq_mask"):
        generator.sessions[0].run({"inp_tokens": np.array(PROMPT)})


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "at least one was due"),
        ([1, VOCABULARY], "token 40: the model has tokens 0 to 39"),
        ([-1], "token -1"),
        ([1] * 65, "65 tokens; the context holds 64"),
    ],
)
def test_wrong_tokens(tmp_path: Path, prompt: list[int], message: str) -> None:
    generator = Generator(read_gguf(tiny_llama(tmp_path)), prove, context=64)
    with pytest.raises(GenerateError, match=message):
        generator.feed(prompt)
