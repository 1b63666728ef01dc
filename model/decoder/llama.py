"""llama, dense or with experts in the place of the feed-forward (Mixtral): ``llama.cpp``'s
``LLM_ARCH_LLAMA``."""

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
    rope = read_rope(net.keys, "normal", net.keys.size("rope.dimension_count", key))
    dense = not net.keys.size("expert_count", 0, least=0)
    experts = None if dense else read_experts(net, "feed_forward_length")
    x = net.embed()
    for il in range(net.layers):
        h = net.norm(x, f"blk.{il}.attn_norm.weight", f"attn_norm-{il}", f"norm-{il}")
        q = b.reshape(
            net.linear(il, Q, h, key * net.heads, f"Qcur-{il}"), key, net.heads, tokens,
            name=f"Qcur-{il}",
        )  # fmt: skip
        q = net.rope(f"Qcur-{il}", q, rope)
        v = net.linear(il, V, h, value * net.kv_heads, f"Vcur-{il}")
        v = b.reshape(v, value, net.kv_heads, tokens, name=f"Vcur-{il}")
        k = net.linear(il, K, h, key * net.kv_heads, f"Kcur-{il}")
        k = b.reshape(k, key, net.kv_heads, tokens, name=f"Kcur-{il}")
        k = net.rope(f"Kcur-{il}", k, rope)
        a = net.attend(il, q, k, v, rope.kq_scale / sqrt(key))
        a = net.linear(il, OUT, a, net.width, f"attn_out-{il}")
        a, x = net.residual_rows(il, a, x)
        x = b.like("add", f"ffn_inp-{il}", a, x)
        h = net.norm(x, f"blk.{il}.ffn_norm.weight", f"ffn_norm-{il}", f"norm-{il}")
        if experts is not None:
            y = mixture(net, il, h, experts)
        else:
            y = net.feed_forward(il, h, net.keys.size("feed_forward_length"), "", f"ffn_out-{il}")
        x = b.like("add", f"l_out-{il}", y, x)
    return net.logits(x)
