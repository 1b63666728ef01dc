"""The mixture of experts: router, choice, experts, weighted sum (``build_moe_ffn``)."""

from __future__ import annotations

from dataclasses import dataclass

from ..read.gguf import ModelError
from ..tensor import Tensor
from .builder import sizes, steps
from .net import Net

#: The sum of the weights is kept away from zero: the smallest normal float16.
_LEAST_SUM = 2.0**-14
#: A constant of gpt-oss's gate, and the limit of its two factors.
_ALPHA, _LIMIT = 1.702, 7.0


@dataclass(frozen=True, slots=True)
class Experts:
    """What distinguishes the mixtures.

    ``width``: of an expert.  ``scores``: ``softmax`` over all experts, ``sigmoid``, or the raw
    logits (``softmax_weight``: then a softmax over those chosen gives their weights).
    ``normed``: the weights are divided by their sum.  ``scale``: their factor.  ``groups``,
    ``groups_used``: the choice is among the experts of the best groups.  ``activation``:
    ``swiglu`` or ``swiglu_oai``.
    """

    count: int
    used: int
    width: int
    scores: str = "softmax"
    normed: bool = True
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1
    activation: str = "swiglu"


def read_experts(net: Net, width_key: str, **more: object) -> Experts:
    """``expert_count``, ``expert_used_count`` and the width from the metadata."""
    keys = net.keys
    count, used = keys.size("expert_count"), keys.size("expert_used_count")
    if used > count:
        raise ModelError(f"{net.b.model.path}: {used} of {count} experts are to be used")
    return Experts(count, used, keys.size(width_key), **more)  # type: ignore[arg-type]


def mixture(net: Net, il: int, x: Tensor, experts: Experts) -> Tensor:
    """The routed sum for x ``[width, tokens]``."""
    chosen, weights = _choose(net, il, x, experts)
    hidden = _hidden(net, il, x, chosen, experts)
    down = net.b.weight(f"blk.{il}.ffn_down_exps.weight", experts.width, net.width, experts.count)
    outputs = net.b.mul_mat_id(f"ffn_moe_down-{il}", down, hidden, chosen)
    outputs = _biased(net, il, "down", outputs, chosen, experts)
    weighted = net.b.like("mul", f"ffn_moe_weighted-{il}", outputs, weights)
    return _sum(net, il, weighted)


# -- the choice ---------------------------------------------------------------------------------


def _choose(net: Net, il: int, x: Tensor, experts: Experts) -> tuple[Tensor, Tensor]:
    """ids ``[used, tokens]``, best first, and their weights ``[1, used, tokens]``."""
    b, tokens = net.b, sizes(x)[1]
    probs = _scores(net, il, x, experts)
    table = b.reshape(probs, 1, experts.count, tokens)
    ranked = probs
    bias = b.find_weight(f"blk.{il}.exp_probs_b.bias", experts.count)
    if bias is not None:
        ranked = b.like("add", f"ffn_moe_probs_biased-{il}", probs, bias)
    if experts.groups > 1:
        ranked = _best_groups(net, il, ranked, experts)
    chosen = _top(net, ranked, experts.used, f"ffn_moe_argsort-{il}", f"ffn_moe_topk-{il}")
    weights = b.get_rows(f"ffn_moe_weights-{il}", table, chosen)
    return chosen, _weights(net, il, weights, experts)


def _scores(net: Net, il: int, x: Tensor, experts: Experts) -> Tensor:
    b = net.b
    router = b.weight(f"blk.{il}.ffn_gate_inp.weight", net.width, experts.count)
    logits = b.mul_mat(f"ffn_moe_logits-{il}", router, x)
    bias = b.find_weight(f"blk.{il}.ffn_gate_inp.bias", experts.count)
    name = f"ffn_moe_probs-{il}"
    if experts.scores == "softmax_weight":
        return logits if bias is None else b.like("add", name, logits, bias)
    if bias is not None:
        logits = b.like("add", f"ffn_moe_logits_biased-{il}", logits, bias)
    if experts.scores == "sigmoid":
        return b.like("sigmoid", name, logits)
    return b.like("soft_max", name, logits, scale=1.0)


def _top(net: Net, scores: Tensor, count: int, sorted_name: str, name: str) -> Tensor:
    """Numbers of the ``count`` best in each row."""
    ne = sizes(scores)
    order = net.b.op(
        "argsort", sorted_name, ne, scores, dtype="i32", values=(0, ne[0]), order="desc"
    )
    return net.b.view(order, (count, *ne[1:]), steps(order), name=name)


def _best_groups(net: Net, il: int, scores: Tensor, experts: Experts) -> Tensor:
    """The scores with minus infinity outside the best groups.

    A group is worth the sum of its two best scores (one if it has no more).
    """
    b, (count, tokens, _, _) = net.b, sizes(scores)
    groups, size = experts.groups, count // experts.groups
    name = f"ffn_moe_group_scores-{il}"
    grouped = b.reshape(scores, size, groups, tokens)
    table = b.reshape(grouped, 1, size, groups, tokens)
    best = _top(net, grouped, min(2, size), f"ffn_moe_group_argsort-{il}", f"{name} (best)")
    top = b.get_rows(name, table, best)
    summed = b.reshape(top, *sizes(top)[1:])
    worth = b.op("sum_rows", f"ffn_moe_group_worth-{il}", (1, groups, tokens), summed)
    worth = b.reshape(worth, groups, tokens)
    kept = _top(
        net, worth, experts.groups_used, f"ffn_moe_groups_argsort-{il}", f"ffn_moe_group_topk-{il}"
    )
    rows = b.get_rows(f"ffn_moe_group_probs-{il}", grouped, kept)
    masked = b.like("fill", f"ffn_moe_no_group-{il}", grouped, value="-inf")
    return b.reshape(
        b.set_rows(masked, rows, kept), count, tokens, name=f"ffn_moe_probs_masked-{il}"
    )


def _weights(net: Net, il: int, weights: Tensor, experts: Experts) -> Tensor:
    """From the scores of the chosen, ``[1, used, tokens]``, to their weights."""
    b, (_, used, tokens, _) = net.b, sizes(weights)
    if experts.scores == "softmax_weight":
        flat = b.reshape(weights, used, tokens)
        soft = b.like("soft_max", f"ffn_moe_weights_chosen-{il}", flat, scale=1.0)
        weights = b.reshape(soft, 1, used, tokens, name=f"ffn_moe_weights_softmax-{il}")
    if experts.normed:
        flat = b.reshape(weights, used, tokens)
        total = b.op("sum_rows", f"ffn_moe_weights_sum-{il}", (1, tokens), flat)
        total = b.like(
            "clamp", f"ffn_moe_weights_sum_clamped-{il}", total, min=_LEAST_SUM, max="+inf"
        )
        shares = b.like("div", f"ffn_moe_weights_norm-{il}", flat, total)
        weights = b.reshape(shares, 1, used, tokens)
    if experts.scale not in (0.0, 1.0):
        name = f"ffn_moe_weights_scaled-{il}"
        weights = b.like("scale", name, weights, scale=experts.scale, bias=0.0)
    return weights


# -- the experts --------------------------------------------------------------------------------


def _hidden(net: Net, il: int, x: Tensor, chosen: Tensor, experts: Experts) -> Tensor:
    """The activation of each chosen expert: ``[expert width, used, tokens]``."""
    b, (width, tokens, _, _) = net.b, sizes(x)
    rows = b.reshape(x, width, 1, tokens)
    fused = b.find_weight(
        f"blk.{il}.ffn_gate_up_exps.weight", width, 2 * experts.width, experts.count
    )
    parts = []
    if fused is not None:
        both = b.mul_mat_id(f"ffn_moe_gate_up-{il}", fused, rows, chosen)
        shape = (experts.width, *sizes(both)[1:])
        for index, part in enumerate(("gate", "up")):
            offset = index * experts.width * 4
            parts.append(b.view(both, shape, steps(both), offset, f"ffn_moe_{part}-{il}"))
    else:
        for part in ("gate", "up"):
            weight = b.weight(
                f"blk.{il}.ffn_{part}_exps.weight", width, experts.width, experts.count
            )
            y = b.mul_mat_id(f"ffn_moe_{part}-{il}", weight, rows, chosen)
            parts.append(_biased(net, il, part, y, chosen, experts))
    name = f"ffn_moe_{experts.activation}-{il}"
    if experts.activation == "swiglu_oai":
        return b.like("swiglu_oai", name, *parts, alpha=_ALPHA, limit=_LIMIT)
    return b.like("swiglu", name, *parts)


def _biased(net: Net, il: int, part: str, x: Tensor, chosen: Tensor, experts: Experts) -> Tensor:
    """Plus the bias of each row's expert, if the model has one."""
    name = f"blk.{il}.ffn_{part}_exps.bias"
    bias = net.b.find_weight(name, sizes(x)[0], experts.count)
    if bias is None:
        return x
    return net.b.like("add_id", f"ffn_moe_{part}_biased-{il}", x, bias, chosen)


def _sum(net: Net, il: int, weighted: Tensor) -> Tensor:
    """The sum over the places, in their order: ``[width, tokens]``."""
    b, (width, used, tokens, _), nb = net.b, sizes(weighted), steps(weighted)
    places = [
        b.view(weighted, (width, tokens), (nb[0], nb[2]), index * nb[1]) for index in range(used)
    ]
    if used == 1:
        return b.cont(f"ffn_moe_out-{il}", places[0])
    total = places[0]
    for place in places[1:]:
        total = b.like("add", f"ffn_moe_out-{il}", total, place)
    return total
