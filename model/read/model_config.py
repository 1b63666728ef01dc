"""Graphs of mixture-of-experts models from their sizes alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..device import Buffer, Contract, CopyRule, Device, Memory, Usage
from ..graph import Graph, Node
from ..schedule import Schedule
from ..symbol import Expr
from ..tensor import Tensor

_ALIGNMENT = 128
_TOKENS = Expr.symbol("n_tokens")


class ShapeFileError(ValueError):
    """A file of shapes, or a row, that lacks what a graph needs; the message names it."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of one model.  ``dense``: leading layers without experts; ``ffn``: width of one
    expert; ``dense_ffn``: width of the dense layers (0: no such layers)."""

    name: str
    layers: int
    dense: int
    hidden: int
    experts: int
    top_k: int
    ffn: int
    dense_ffn: int = 0


def read_shapes(path: str | Path) -> tuple[ModelShape, ...]:
    """The rows of a file as ``model_shapes.json``; ``ShapeFileError`` names a bad one."""
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = data if isinstance(data, list) else next(v for v in data.values() if isinstance(v, list))
    return tuple(shape_of(row) for row in rows)


def shape_of(row: Mapping[str, Any]) -> ModelShape:
    """One row as a shape; layers that alternate with dense ones count as dense."""
    wanted = "model", "n_layers", "hidden_size", "n_experts", "top_k", "expert_ffn_size"
    missing = [key for key in wanted if row.get(key) is None]
    if missing:
        raise ShapeFileError(f"{row.get('model', 'a row')}: {', '.join(missing)} is missing")
    layers, moe = int(row["n_layers"]), row.get("n_moe_layers")
    return ModelShape(
        name=str(row["model"]),
        layers=layers,
        dense=layers - int(moe) if moe is not None else 0,
        hidden=int(row["hidden_size"]),
        experts=int(row["n_experts"]),
        top_k=int(row["top_k"]),
        ffn=int(row["expert_ffn_size"]),
        dense_ffn=int(row.get("dense_ffn_size") or row["expert_ffn_size"]),
    )


@dataclass(slots=True)
class _Builder:
    """Tensors and nodes as they are added; weights close up in their buffers."""

    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)

    def weight(self, name: str, dtype: str, shape: tuple[int, ...], buffer: str) -> str:
        tensor = Tensor(name, dtype, tuple(map(Expr.of, shape)), buffer=buffer)
        at = -(-self.ends.get(buffer, 0) // _ALIGNMENT) * _ALIGNMENT
        size = tensor.data_bytes.constant
        assert size is not None
        self.ends[buffer] = at + size
        self.tensors.append(
            Tensor(name, dtype, tensor.shape, buffer=buffer, offset=Expr.of(at))
        )  # fmt: skip
        return name

    def node(
        self,
        op: str,
        name: str,
        src: tuple[str, ...],
        shape: tuple[int | Expr, ...],
        dtype: str = "f32",
        values: tuple[int, int] | None = None,
        **params: object,
    ) -> str:
        sizes = tuple(map(Expr.of, shape))
        self.tensors.append(Tensor(name, dtype, sizes, values=values))
        self.nodes.append(Node(op, name, src, tuple(params.items())))
        return name

    def part(
        self,
        name: str,
        source: str,
        shape: tuple[int | Expr, ...],
        stride: int,
        offset: int,
        values: tuple[int, int] | None = None,
    ) -> str:
        """A view of some columns, or of the head of each."""
        kind = next(t.dtype for t in reversed(self.tensors) if t.name == source)
        self.tensors.append(
            Tensor(
                name, kind, tuple(map(Expr.of, shape)), (Expr.of(4), Expr.of(stride)),
                view_of=source, offset=Expr.of(offset), values=values,
            )
        )  # fmt: skip
        self.nodes.append(Node("view", name, (source,)))
        return name

    def view(self, op: str, name: str, source: str, shape: tuple[int | Expr, ...]) -> str:
        kind = next(t.dtype for t in reversed(self.tensors) if t.name == source)
        sizes = tuple(map(Expr.of, shape))
        self.tensors.append(Tensor(name, kind, sizes, view_of=source, offset=Expr.of(0)))
        self.nodes.append(Node(op, name, (source,)))
        return name


def model_schedule(
    shape: ModelShape,
    *,
    tokens: tuple[int, int],
    devices: int = 1,
    layers: int | None = None,
    dtype: str = "q8_0",
) -> Schedule:
    """A graph-level schedule of the model over ``devices`` accelerators and the CPU.

    ``tokens``: the range of ``n_tokens``.  ``layers``: only so many (all).  Layer l's dense
    weights lie on accelerator ``l * devices // layers``, its experts in host memory.  Attention
    is a stand-in with the sizes of its weights: two products and a residual.
    """
    count = shape.layers if layers is None else min(layers, shape.layers)
    dense = min(shape.dense, max(count - 1, 0))
    b = _Builder()
    b.tensors.append(Tensor("inp_embd", "f32", (Expr.of(shape.hidden), _TOKENS), input=True))
    last = "inp_embd"
    for layer in range(count):
        home = f"weights:gpu{layer * devices // count}"
        last = _attention(b, shape, layer, last, home, dtype)
        feed = _dense if layer < dense else _experts
        last = feed(b, shape, layer, last, home, dtype)
    b.tensors = [
        Tensor(t.name, t.dtype, t.shape, output=True) if t.name == last else t for t in b.tensors
    ]
    names = [f"gpu{d}" for d in range(devices)]
    graph = Graph(
        symbols=(("n_tokens", *tokens),),
        memories=(Memory("host", True), *(Memory(f"vram{d}") for d in range(devices))),
        devices=(*(_gpu(d, names) for d in range(devices)), Device("cpu", "host", ("host",))),
        buffers=tuple(
            Buffer(name, _memory(name), Usage.WEIGHTS, size) for name, size in b.ends.items()
        ),
        tensors=tuple(b.tensors),
        nodes=tuple(b.nodes),
    )
    return Schedule(graph=graph, name=f"{shape.name}, {count} layers", repeat=2)


def _memory(buffer: str) -> str:
    where = buffer.removeprefix("weights:")
    return where.replace("gpu", "vram") if where.startswith("gpu") else where


def _gpu(number: int, names: list[str]) -> Device:
    others = tuple(n for n in names if n != f"gpu{number}")
    return Device(
        f"gpu{number}", f"vram{number}", (f"vram{number}",), asynchronous=True,
        copy=(CopyRule(None, None, Contract.STREAM),), queues=("compute", "copy"),
        offload_min_tokens=1, waits_for=others or None,
    )  # fmt: skip


def _attention(b: _Builder, shape: ModelShape, layer: int, x: str, home: str, dtype: str) -> str:
    h = shape.hidden
    norm = b.node("rms_norm", f"attn_norm-{layer}", (x,), (h, _TOKENS), eps=1e-6)
    wq = b.weight(f"blk.{layer}.attn_qkv.weight", dtype, (h, h), home)
    wo = b.weight(f"blk.{layer}.attn_output.weight", dtype, (h, h), home)
    q = b.node("mul_mat", f"qkv-{layer}", (wq, norm), (h, _TOKENS))
    o = b.node("mul_mat", f"attn_out-{layer}", (wo, q), (h, _TOKENS))
    return b.node("add", f"ffn_inp-{layer}", (o, x), (h, _TOKENS))


def _dense(b: _Builder, shape: ModelShape, layer: int, x: str, home: str, dtype: str) -> str:
    h, f = shape.hidden, shape.dense_ffn
    norm = b.node("rms_norm", f"ffn_norm-{layer}", (x,), (h, _TOKENS), eps=1e-6)
    act = {}
    for role in ("gate", "up"):
        w = b.weight(f"blk.{layer}.ffn_{role}.weight", dtype, (h, f), home)
        act[role] = b.node("mul_mat", f"ffn_{role}-{layer}", (w, norm), (f, _TOKENS))
    silu = b.node("silu", f"ffn_silu-{layer}", (act["gate"],), (f, _TOKENS))
    mixed = b.node("mul", f"ffn_par-{layer}", (silu, act["up"]), (f, _TOKENS))
    down = b.weight(f"blk.{layer}.ffn_down.weight", dtype, (f, h), home)
    out = b.node("mul_mat", f"ffn_out-{layer}", (down, mixed), (h, _TOKENS))
    return b.node("add", f"l_out-{layer}", (out, x), (h, _TOKENS))


def _experts(b: _Builder, shape: ModelShape, layer: int, x: str, home: str, dtype: str) -> str:
    h, f, e, k = shape.hidden, shape.ffn, shape.experts, shape.top_k
    norm = b.node("rms_norm", f"ffn_norm-{layer}", (x,), (h, _TOKENS), eps=1e-6)
    router = b.weight(f"blk.{layer}.ffn_gate_inp.weight", "f32", (h, e), home)
    logits = b.node("mul_mat", f"ffn_moe_logits-{layer}", (router, norm), (e, _TOKENS))
    sorted_ids = b.node(
        "argsort", f"ffn_moe_argsort-{layer}", (logits,), (e, _TOKENS), "i32", (0, e),
        order="desc",
    )  # fmt: skip
    ids = b.part(f"ffn_moe_topk-{layer}", sorted_ids, (k, _TOKENS), 4 * e, 0, (0, e))
    rows = b.view("reshape", f"ffn_norm-{layer} (rows)", norm, (h, 1, _TOKENS))
    act = {}
    for role in ("gate", "up"):
        w = b.weight(f"blk.{layer}.ffn_{role}_exps.weight", dtype, (h, f, e), "weights:host")
        name = f"ffn_moe_{role}-{layer}"
        act[role] = b.node("mul_mat_id", name, (w, rows, ids), (f, k, _TOKENS))
    silu = b.node("silu", f"ffn_moe_silu-{layer}", (act["gate"],), (f, k, _TOKENS))
    mixed = b.node("mul", f"ffn_moe_par-{layer}", (silu, act["up"]), (f, k, _TOKENS))
    w = b.weight(f"blk.{layer}.ffn_down_exps.weight", dtype, (f, h, e), "weights:host")
    down = b.node("mul_mat_id", f"ffn_moe_down-{layer}", (w, mixed, ids), (h, k, _TOKENS))
    total = _sum_of_experts(b, shape, layer, down)
    return b.node("add", f"l_out-{layer}", (total, x), (h, _TOKENS))


def _sum_of_experts(b: _Builder, shape: ModelShape, layer: int, down: str) -> str:
    """The k results of a token, added one after the other through strided views."""
    h, k = shape.hidden, shape.top_k
    parts = []
    for slot in range(k):
        name = f"ffn_moe_out-{layer}.{slot}"
        parts.append(b.part(name, down, (h, _TOKENS), 4 * h * k, 4 * h * slot))
    total = parts[0]
    for slot, part in enumerate(parts[1:], start=1):
        total = b.node("add", f"ffn_moe_sum-{layer}.{slot}", (total, part), (h, _TOKENS))
    return total
