"""Rotary position embedding: what the metadata of a model says about it."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from .keys import Keys

#: The part of the scale that ``rope`` itself multiplies in when it interpolates (YaRN).
_YARN_SHARE = 0.1
_NOT_GIVEN = -1.0


@dataclass(frozen=True, slots=True)
class Rope:
    """Parameters of the op, named as in ggml.  ``kq_scale``: a factor of the attention scale."""

    n_dims: int
    mode: str
    n_ctx_orig: int
    freq_base: float
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    kq_scale: float = 1.0

    def params(self) -> dict[str, object]:
        """The parameters of a ``rope`` node."""
        return {
            "n_dims": self.n_dims, "mode": self.mode, "n_ctx_orig": self.n_ctx_orig,
            "freq_base": self.freq_base, "freq_scale": self.freq_scale,
            "ext_factor": self.ext_factor, "attn_factor": self.attn_factor,
            "beta_fast": self.beta_fast, "beta_slow": self.beta_slow,
        }  # fmt: skip


def read_rope(keys: Keys, mode: str, n_dims: int, *, log_multiplier: bool = False) -> Rope:
    """The rotation of an architecture; ``mode`` is ``"normal"`` or ``"neox"``.

    ``log_multiplier``: the architecture scales its scores by ``rope.scaling.yarn_log_multiplier``
    (as deepseek2 does), and takes that part out of the rotation (``llama-context.cpp``).
    """
    context = keys.size("context_length")
    base = keys.number("rope.freq_base", 10000.0, above=1.0)
    kind = keys.choice("rope.scaling.type", ("none", "linear", "yarn"), "linear")
    scaled = keys.number("rope.scaling.factor", 1.0) != 0.0  # 0 stands for none
    factor = keys.number("rope.scaling.factor", 1.0, above=0.0) if scaled else 1.0
    rope = Rope(
        n_dims, mode, keys.size("rope.scaling.original_context_length", context), base,
        freq_scale=1.0 if kind == "none" else 1.0 / factor,
        attn_factor=keys.number("rope.scaling.attn_factor", 1.0),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0, above=0.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0, above=0.0),
    )  # fmt: skip
    if kind != "yarn":
        return rope
    stretch = log(factor)
    multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0) if log_multiplier else 0.0
    attention, scores = rope.attn_factor, 1.0
    if multiplier:
        attention /= 1.0 + _YARN_SHARE * stretch
        scores = (1.0 + multiplier * stretch) ** 2
    given = keys.number("rope.scaling.yarn_ext_factor", _NOT_GIVEN)
    return Rope(
        rope.n_dims, rope.mode, rope.n_ctx_orig, rope.freq_base, rope.freq_scale,
        1.0 if given < 0 else given, attention, rope.beta_fast, rope.beta_slow, scores,
    )  # fmt: skip
