"""No policy: every input is copied whole, just before its split."""

from __future__ import annotations

from ..transfer import Policy

POLICY = Policy("none", "nothing is copied early")
