"""qwen3moe: each head of q and k is normed before it is rotated; weights divided by their sum."""

from __future__ import annotations

from math import sqrt

from ..tensor import Tensor
from .experts import mixture, read_experts
from .net import OUT, K, Net, Q, V
from .rope import read_rope


def decoder(net: Net) -> Tensor:
    """The logits."""
    b, tokens = net.b, net.batch.tokens
    key, value = net.head_sizes()
    rope = read_rope(net.keys, "neox", net.keys.size("rope.dimension_count", key))
    experts = read_experts(net, "expert_feed_forward_length")
    x = net.embed()
    for il in range(net.layers):
        blk, inner = f"blk.{il}", f"norm-{il}"
        h = net.norm(x, f"{blk}.attn_norm.weight", f"attn_norm-{il}", inner)
        q = net.linear(il, Q, h, key * net.heads, f"Qcur-{il}")
        q = b.reshape(q, key, net.heads, tokens, name=f"Qcur-{il}")
        q = net.norm(q, f"{blk}.attn_q_norm.weight", f"Qcur_normed-{il}", inner)
        q = net.rope(f"Qcur-{il}", q, rope)
        v = net.linear(il, V, h, value * net.kv_heads, f"Vcur-{il}")
        v = b.reshape(v, value, net.kv_heads, tokens, name=f"Vcur-{il}")
        k = net.linear(il, K, h, key * net.kv_heads, f"Kcur-{il}")
        k = b.reshape(k, key, net.kv_heads, tokens, name=f"Kcur-{il}")
        k = net.norm(k, f"{blk}.attn_k_norm.weight", f"Kcur_normed-{il}", inner)
        k = net.rope(f"Kcur-{il}", k, rope)
        a = net.attend(il, q, k, v, rope.kq_scale / sqrt(key))
        a = net.linear(il, OUT, a, net.width, f"attn_out-{il}")
        a, x = net.residual_rows(il, a, x)
        x = b.like("add", f"ffn_inp-{il}", a, x)
        h = net.norm(x, f"{blk}.ffn_norm.weight", f"ffn_norm-{il}", inner)
        x = b.like("add", f"l_out-{il}", mixture(net, il, h, experts), x)
    return net.logits(x)
