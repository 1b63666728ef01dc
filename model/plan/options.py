"""What a person may decide in the planner's place."""

from __future__ import annotations

from dataclasses import dataclass

from .guard import NONE_OFF, Off

#: Places of a split's input list in ggml (``GGML_SCHED_MAX_SPLIT_INPUTS``).
SPLIT_INPUTS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of :func:`.planner.plan`; the defaults are what the document says.

    ``at``: values of symbols, ``(symbol, value)``.  ``op_offload``, ``n_copies``: in the place
    of the graph's.  ``offload_min_tokens``: in the place of each device's, and of the nodes'
    ``wanted_by``.  ``pins``: ``(tensor, device)``.  ``overrides``: ``(regular expression,
    memory)``, the first that is found in a weight's name moves it.  ``cpu_moe``: of so many
    layers the experts lie in the CPU's memory, of all if ``None``.  ``split_inputs``: places of
    an input list; ``grows``: it doubles where one node needs more (as in newer versions of
    ggml), else that is an error.  ``off``: guards that a test has switched off.
    """

    at: tuple[tuple[str, int], ...] = ()
    op_offload: bool | None = None
    offload_min_tokens: int | None = None
    n_copies: int | None = None
    pins: tuple[tuple[str, str], ...] = ()
    overrides: tuple[tuple[str, str], ...] = ()
    cpu_moe: int | None = 0
    split_inputs: int = SPLIT_INPUTS
    grows: bool = True
    off: Off = NONE_OFF
