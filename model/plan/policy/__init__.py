"""Policies for the inputs of splits, one a file.

Each module here defines ``POLICY``; nothing else has to know it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..error import PlanError
from ..guard import NONE_OFF, Off
from ..transfer import Policy, Transfers

#: By name, in alphabetical order.
POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        import_module(f"{__name__}.{module.name}").POLICY
        for module in sorted(iter_modules(__path__), key=lambda module: module.name)
    )
}


def apply(transfers: Transfers, name: str, number: int = 0, off: Off = NONE_OFF) -> Transfers:
    """Let a policy decide about inputs.  ``PlanError`` for a name that no such policy has."""
    known = deciding()
    if name not in known:
        raise PlanError(f"prefetch {name!r}: one of {', '.join(known)} was due")
    decide = known[name].decide
    return transfers if decide is None else decide(transfers, number, off)


def deciding() -> dict[str, Policy]:
    """The policies that leave the graph as it is."""
    return {name: policy for name, policy in POLICIES.items() if policy.prepare is None}
