"""What decoders have in common: embedding, norms, attention over a cache, feed-forward, head.

Names and the order of nodes are llama.cpp's (``llama-graph.cpp``), so that a graph made here can
be held against one recorded there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..read.gguf import ModelError
from ..tensor import Tensor
from .builder import Builder, sizes, steps
from .keys import Keys
from .rope import Rope

_F32 = 4
#: Tensors that decoders of every architecture are asked for under the layer's name.
Q, K, V, OUT = "attn_q", "attn_k", "attn_v", "attn_output"


@dataclass(frozen=True, slots=True)
class Batch:
    """The sizes of one graph.

    ``tokens``: of one pass.  ``outputs``: how many of them get logits.  ``capacity``: cells of
    the KV cache.  ``cells``: how many of these attention looks at, from the first on.
    """

    tokens: int
    outputs: int
    cells: int
    capacity: int

    def __post_init__(self) -> None:
        if not 1 <= self.outputs <= self.tokens <= self.cells <= self.capacity:
            raise ValueError(f"{self}: 1 <= outputs <= tokens <= cells <= capacity was due")


class Net:
    """One decoder in the making."""

    def __init__(self, builder: Builder, keys: Keys, batch: Batch) -> None:
        self.b, self.keys, self.batch = builder, keys, batch
        self.layers = keys.size("block_count")
        self.width = keys.size("embedding_length")
        self.heads = keys.size("attention.head_count")
        self.kv_heads = keys.size("attention.head_count_kv", self.heads)
        self.eps = keys.number("attention.layer_norm_rms_epsilon", above=0.0)

    def head_sizes(self) -> tuple[int, int]:
        """Of keys (and queries) and of values."""
        usual = self.width // self.heads
        key = self.keys.size("attention.key_length", usual)
        return key, self.keys.size("attention.value_length", key)

    # -- the ends ---------------------------------------------------------------------------

    def vocabulary(self) -> int:
        table = self.b.model.tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            return self.keys.size("vocab_size")
        return table.shape[1]

    def embed(self) -> Tensor:
        table = self.b.weight("token_embd.weight", self.width, self.vocabulary())
        ids = self.b.input(
            "inp_tokens", self.batch.tokens, dtype="i32", values=(0, self.vocabulary())
        )
        return self.b.get_rows("embd", table, ids)

    def wanted_rows(self, x: Tensor, name: str) -> Tensor:
        """The rows that get logits."""
        ids = self.b.input(
            "out_ids", self.batch.outputs, dtype="i32", values=(0, self.batch.tokens)
        )
        return self.b.get_rows(name, x, ids)

    def logits(self, x: Tensor) -> Tensor:
        b = self.b
        x = self.norm(x, "output_norm.weight", "result_norm", "norm")
        head = b.find_weight("output.weight", self.width, self.vocabulary())
        if head is None:  # tied to the embedding
            head = b.weight("token_embd.weight", self.width, self.vocabulary())
        return b.op(
            "mul_mat", "result_output", (self.vocabulary(), self.batch.outputs), head, x,
            output=True,
        )  # fmt: skip

    # -- parts of a layer -------------------------------------------------------------------

    def norm(self, x: Tensor, weight: str, name: str, inner: str) -> Tensor:
        """RMS norm along dimension 0, times a weight."""
        factor = self.b.weight(weight, sizes(x)[0])
        normed = self.b.like("rms_norm", inner, x, eps=self.eps)
        return self.b.like("mul", name, normed, factor)

    def linear(self, il: int, part: str, x: Tensor, out: int, name: str) -> Tensor:
        """``blk.IL.PART.weight`` times x, plus its bias if the model has one."""
        weight = self.b.weight(f"blk.{il}.{part}.weight", sizes(x)[0], out)
        y = self.b.mul_mat(name, weight, x)
        bias = self.b.find_weight(f"blk.{il}.{part}.bias", out)
        return y if bias is None else self.b.like("add", name, y, bias)

    def rope(self, name: str, x: Tensor, rope: Rope) -> Tensor:
        """x: ``[size, heads, tokens]``.  ``ModelError`` if there is less to turn."""
        if rope.n_dims % 2 or rope.n_dims > sizes(x)[0]:
            raise ModelError(
                f"{self.b.model.path}: the key {self.b.model.architecture}.rope.dimension_count "
                f"is {rope.n_dims}; an even number up to {sizes(x)[0]} was due"
            )
        positions = self.b.input("inp_pos", self.batch.tokens, dtype="i32")
        factors = self.b.find_weight("rope_freqs.weight", rope.n_dims // 2)
        more = () if factors is None else (factors,)
        return self.b.like("rope", name, x, positions, *more, **rope.params())

    def feed_forward(self, il: int, x: Tensor, width: int, suffix: str, name: str) -> Tensor:
        """``down(silu(gate x) · up x)``."""
        b = self.b
        parts = {}
        for part in ("gate", "up"):
            weight = b.weight(f"blk.{il}.ffn_{part}{suffix}.weight", self.width, width)
            parts[part] = b.mul_mat(f"ffn_{part}-{il}", weight, x)
        hidden = b.like("swiglu", f"ffn_swiglu-{il}", parts["gate"], parts["up"])
        down = b.weight(f"blk.{il}.ffn_down{suffix}.weight", width, self.width)
        return b.mul_mat(name, down, hidden)

    def residual_rows(self, il: int, out: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """In the last layer only the rows that get logits go on."""
        if il < self.layers - 1:
            return out, x
        return self.wanted_rows(out, f"attn_out_rows-{il}"), self.wanted_rows(x, f"inp_rows-{il}")

    # -- attention over the cache -----------------------------------------------------------

    def mask(self, window: bool = False) -> Tensor:
        """0 where a token sees a cell, minus infinity elsewhere: ``[cells, tokens]``."""
        name = "attn_inp_kq_mask_swa" if window else "attn_inp_kq_mask"
        return self.b.input(name, self.batch.cells, self.batch.tokens)

    def store_keys(self, il: int, k: Tensor) -> Tensor:
        """Write k ``[size, heads, tokens]`` to the cache; the cache ``[size · heads, cells]``."""
        b, (size, heads, tokens, _) = self.b, sizes(k)
        cache = b.cache(f"cache_k_l{il}", size * heads, self.batch.capacity)
        rows = b.view(k, (size * heads, tokens), (_F32, steps(k)[2]), name=f"Kcur-{il} (view)")
        cells = (0, self.batch.capacity)
        ids = b.input("attn_inp_k_idxs", tokens, dtype="i64", values=cells)
        b.set_rows(cache, rows, ids)
        return cache

    def store_values(self, il: int, v: Tensor) -> Tensor:
        """Write v ``[size, heads, tokens]`` to the cache, which has a row for each number of a
        value, so that the product with the weights runs along rows."""
        b, (size, heads, tokens, _), capacity = self.b, sizes(v), self.batch.capacity
        count = size * heads
        cache = b.cache(f"cache_v_l{il}", count, capacity)
        flat = b.reshape(b.reshape(v, count, tokens), 1, count * tokens)
        places = (0, count * capacity)
        ids = b.input("attn_inp_v_idxs", count * tokens, dtype="i64", values=places)
        b.set_rows(b.reshape(cache, 1, count * capacity), flat, ids)
        return cache

    def attend(
        self, il: int, q: Tensor, k: Tensor, v: Tensor, scale: float,
        window: bool = False, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Softmax attention of q over the cache; ``[value size · heads, tokens]``."""
        b, batch = self.b, self.batch
        (key, _, _, _), (value, kv_heads, _, _) = sizes(k), sizes(v)
        k_cache, v_cache = self.store_keys(il, k), self.store_values(il, v)
        row = _F32 * batch.capacity
        values = b.view(v_cache, (batch.cells, kv_heads, value), (_F32, row * value, row))
        values = b.permute(values, 0, 2, 1, 3)
        step = _F32 * key
        keys = b.view(k_cache, (key, kv_heads, batch.cells), (_F32, step, step * kv_heads))
        keys = b.permute(keys, 0, 2, 1, 3)
        mixed = self.weigh(il, q, keys, values, scale, window, sinks)
        return self.merge_heads(f"kqv_out-{il}", mixed)

    def weigh(
        self, il: int, q: Tensor, keys: Tensor, values: Tensor, scale: float,
        window: bool = False, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """keys ``[size, cells, kv heads]``, values ``[cells, size, kv heads]`` and q ``[size,
        heads, tokens]`` to ``[size, tokens, heads]``."""
        b = self.b
        whole = b.view(q, sizes(q), steps(q), name=f"Qcur-{il} (view)")
        scores = b.mul_mat(f"kq-{il}", keys, b.permute(whole, 0, 2, 1, 3), prec="f32")
        more = () if sinks is None else (sinks,)
        mask = self.mask(window)
        weights = b.like("soft_max", f"kq_soft_max-{il}", scores, mask, *more, scale=scale)
        return b.mul_mat(f"kqv-{il}", values, weights)

    def merge_heads(self, name: str, x: Tensor) -> Tensor:
        """``[size, tokens, heads]`` to ``[size · heads, tokens]``."""
        size, tokens, heads, _ = sizes(x)
        return self.b.cont(name, self.b.permute(x, 0, 2, 1, 3), size * heads, tokens)
