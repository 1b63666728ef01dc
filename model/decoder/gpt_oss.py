"""gpt-oss: biases everywhere, attention sinks, a sliding window on every other layer, and the
softmax over the chosen experts only."""

from __future__ import annotations

from math import sqrt

from ..tensor import Tensor
from .experts import mixture, read_experts
from .net import OUT, K, Net, Q, V
from .rope import read_rope

#: Of so many layers the last sees the whole context, the others a window of it.
_PERIOD = 2


def decoder(net: Net) -> Tensor:
    """The logits."""
    b, tokens = net.b, net.batch.tokens
    key, value = net.head_sizes()
    rope = read_rope(net.keys, "neox", net.keys.size("rope.dimension_count", key))
    experts = read_experts(
        net, "expert_feed_forward_length", scores="softmax_weight", normed=False,
        activation="swiglu_oai",
    )  # fmt: skip
    x = net.embed()
    for il in range(net.layers):
        blk, inner = f"blk.{il}", f"norm-{il}"
        h = net.norm(x, f"{blk}.attn_norm.weight", f"attn_norm-{il}", inner)
        q = net.linear(il, Q, h, key * net.heads, f"Qcur-{il}")
        q = b.reshape(q, key, net.heads, tokens, name=f"Qcur-{il}")
        q = net.rope(f"Qcur-{il}", q, rope)
        k = net.linear(il, K, h, key * net.kv_heads, f"Kcur-{il}")
        k = b.reshape(k, key, net.kv_heads, tokens, name=f"Kcur-{il}")
        k = net.rope(f"Kcur-{il}", k, rope)
        v = net.linear(il, V, h, value * net.kv_heads, f"Vcur-{il}")
        v = b.reshape(v, value, net.kv_heads, tokens, name=f"Vcur-{il}")
        a = net.attend(
            il, q, k, v, rope.kq_scale / sqrt(key), window=il % _PERIOD < _PERIOD - 1,
            sinks=b.weight(f"{blk}.attn_sinks.weight", net.heads),
        )  # fmt: skip
        a = net.linear(il, OUT, a, net.width, f"attn_out-{il}")
        x = b.like("add", f"ffn_inp-{il}", a, x)
        h = net.norm(x, f"{blk}.post_attention_norm.weight", f"attn_post_norm-{il}", inner)
        x = b.like("add", f"l_out-{il}", mixture(net, il, h, experts), x)
    return net.logits(net.wanted_rows(x, "l_out_rows"))
