"""The expert cache without a slot map: each fill writes the slots of its ids to the device."""

from __future__ import annotations

from functools import partial

from ..transfer import Policy
from .expert_cache import cache_experts

POLICY = Policy(
    "expert-cache-ids", "the same, told by slot ids", "BYTES",
    prepare=partial(cache_experts, slot_ids=True),
)  # fmt: skip
