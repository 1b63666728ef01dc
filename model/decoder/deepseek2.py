"""deepseek2: attention over a latent (absorbed form), shared experts, leading dense layers."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from ..read.gguf import ModelError
from ..tensor import Tensor
from .builder import sizes, steps
from .experts import Experts, mixture, read_experts
from .net import OUT, Net
from .rope import Rope, read_rope

_GATES = {1: "softmax", 2: "sigmoid"}


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes of the attention: per head ``nope`` numbers that are not rotated and ``rope`` that
    are, ``value`` of the result; ``latent`` is what the cache holds besides the rotated key."""

    query: int
    latent: int
    nope: int
    value: int
    rope: Rope


def decoder(net: Net) -> Tensor:
    """The logits."""
    b, keys = net.b, net.keys
    sizes_ = _latent(net)
    experts = _experts(net)
    shared = experts.width * keys.size("expert_shared_count")
    dense_layers = keys.size("leading_dense_block_count", 0, least=0)
    x = net.embed()
    for il in range(net.layers):
        blk, inner = f"blk.{il}", f"norm-{il}"
        h = net.norm(x, f"{blk}.attn_norm.weight", f"attn_norm-{il}", inner)
        a = _attention(net, il, h, sizes_)
        a, x = net.residual_rows(il, a, x)
        x = b.like("add", f"ffn_inp-{il}", a, x)
        h = net.norm(x, f"{blk}.ffn_norm.weight", f"ffn_norm-{il}", inner)
        if il < dense_layers:
            y = net.feed_forward(il, h, keys.size("feed_forward_length"), "", f"ffn_out-{il}")
        else:
            routed = mixture(net, il, h, experts)
            always = net.feed_forward(il, h, shared, "_shexp", f"ffn_shexp-{il}")
            y = b.like("add", f"ffn_out-{il}", routed, always)
        x = b.like("add", f"l_out-{il}", y, x)
    return net.logits(x)


def _latent(net: Net) -> Latent:
    keys = net.keys
    rotated = keys.size("rope.dimension_count")
    key = keys.size("attention.key_length_mla")
    if key <= rotated:
        raise ModelError(
            f"{net.b.model.path}: attention.key_length_mla is {key}; more than "
            f"rope.dimension_count ({rotated}) was due"
        )
    return Latent(
        keys.size("attention.q_lora_rank"), keys.size("attention.kv_lora_rank"), key - rotated,
        keys.size("attention.value_length_mla"),
        read_rope(keys, "normal", rotated, log_multiplier=True),
    )  # fmt: skip


def _experts(net: Net) -> Experts:
    keys = net.keys
    gate = keys.size("expert_gating_func", 1)
    if gate not in _GATES:
        raise ModelError(
            f"{net.b.model.path}: the key deepseek2.expert_gating_func is {gate}; 1 (softmax) or "
            "2 (sigmoid) was due"
        )
    groups = keys.size("expert_group_count", 1, least=0) or 1
    experts = read_experts(
        net, "expert_feed_forward_length", scores=_GATES[gate],
        normed=keys.flag("expert_weights_norm"), scale=keys.number("expert_weights_scale", 1.0),
        groups=groups, groups_used=keys.size("expert_group_used_count", 1, least=0) or 1,
    )  # fmt: skip
    if experts.count % groups or experts.groups_used > groups:
        raise ModelError(
            f"{net.b.model.path}: {experts.count} experts in {groups} groups, of which "
            f"{experts.groups_used} are used"
        )
    return experts


def _attention(net: Net, il: int, h: Tensor, s: Latent) -> Tensor:
    """The keys of the cache are [latent | rotated], one head; its values are the latents."""
    b, blk, tokens, batch = net.b, f"blk.{il}", net.batch.tokens, net.batch
    q = _queries(net, il, h, s)
    both = net.linear(il, "attn_kv_a_mqa", h, s.latent + s.rope.n_dims, f"kv_cmpr_pe-{il}")
    row = steps(both)[1]
    latent = b.view(both, (s.latent, tokens), (4, row), name=f"kv_cmpr-{il}")
    latent = net.norm(latent, f"{blk}.attn_kv_a_norm.weight", f"kv_cmpr-{il}", f"norm-{il}")
    v = b.reshape(latent, s.latent, 1, tokens, name=f"Vcur-{il}")
    pe = b.view(both, (s.rope.n_dims, 1, tokens), (4, row, row), 4 * s.latent, name=f"k_pe-{il}")
    pe = net.rope(f"k_pe-{il}", pe, s.rope)
    width = s.latent + s.rope.n_dims
    k = b.op("concat", f"Kcur-{il}", (width, 1, tokens), v, pe, dim=0)
    cache = net.store_keys(il, k)
    step = 4 * width
    keys = b.view(cache, (width, 1, batch.cells), (4, step, step))
    values = b.view(keys, (s.latent, 1, batch.cells), (4, step, step))
    values = b.cont(f"v_cont-{il}", b.transpose(b.permute(values, 0, 2, 1, 3)))
    keys = b.permute(keys, 0, 2, 1, 3)
    scale = s.rope.kq_scale / sqrt(s.nope + s.rope.n_dims)
    mixed = net.weigh(il, q, keys, values, scale)
    up = b.weight(f"{blk}.attn_v_b.weight", s.latent, s.value, net.heads)
    mixed = net.merge_heads(f"kqv_out-{il}", b.mul_mat(f"kqv_mla-{il}", up, mixed))
    return net.linear(il, OUT, mixed, net.width, f"attn_out-{il}")


def _queries(net: Net, il: int, h: Tensor, s: Latent) -> Tensor:
    """``[latent + rotated, heads, tokens]``: the part that is not rotated is taken to the
    space of the latents (``attn_k_b``), so that the cache need not be expanded."""
    b, blk, tokens = net.b, f"blk.{il}", net.batch.tokens
    size = s.nope + s.rope.n_dims
    q = net.linear(il, "attn_q_a", h, s.query, f"q-{il}")
    q = net.norm(q, f"{blk}.attn_q_a_norm.weight", f"q-{il}", f"norm-{il}")
    q = net.linear(il, "attn_q_b", q, size * net.heads, f"q-{il}")
    q = b.reshape(q, size, net.heads, tokens, name=f"q-{il}")
    nope = b.view(q, (s.nope, net.heads, tokens), steps(q), name=f"q_nope-{il}")
    nope = b.permute(nope, 0, 2, 1, 3, name=f"q_nope_perm-{il}")
    down = b.weight(f"{blk}.attn_k_b.weight", s.nope, s.latent, net.heads)
    absorbed = b.mul_mat(f"q_nope_absorbed-{il}", down, nope)
    absorbed = b.permute(absorbed, 0, 2, 1, 3, name=f"q_nope_absorbed_perm-{il}")
    pe = b.view(q, (s.rope.n_dims, net.heads, tokens), steps(q), 4 * s.nope, name=f"q_pe-{il}")
    pe = net.rope(f"q_pe-{il}", pe, s.rope)
    shape = (s.latent + s.rope.n_dims, *sizes(pe)[1:])
    return b.op("concat", f"Qcur-{il}", shape, absorbed, pe, dim=0)
