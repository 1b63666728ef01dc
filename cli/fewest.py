"""``plan --fewest-waits``: the planned program without the waits that it can do without."""

from __future__ import annotations

from dataclasses import dataclass

from .api import minimize
from .minimized import waits_summary
from .model.describe import command_text
from .model.report import Verdict
from .model.schedule import Schedule
from .suppress import exit_code


@dataclass(frozen=True, slots=True)
class Fewest:
    """``schedule``: proved, without a largest set of waits that can go (``None`` where the plan
    is not proved as it is); ``lines``: which went, or why none was tried.  ``code``: as for
    ``check``."""

    schedule: Schedule | None
    lines: tuple[str, ...]
    code: int


def fewest_waits(program: Schedule) -> Fewest:
    """Try each wait of a program, leave out as many as can go together, and prove the rest."""
    found = minimize(program)
    if found.reduced is None or found.proof is None or found.proof.verdict is not Verdict.PROVED:
        reasons = [f"{f.rule} {f.message}" for f in found.report.failures]
        reasons += [gap.reason for gap in found.report.gaps]
        told = "; ".join(reasons[:3])
        line = f"waits: not tried, as the plan is {found.report.verdict}: {told}"
        return Fewest(None, (line,), exit_code(found.report) or 3)
    assert program.program is not None
    gone = [
        f"without {command_text(program.program[place])} (command {place})"
        for place in sorted((*found.removed, *found.records))
    ]
    return Fewest(found.reduced, (*gone, f"waits: {waits_summary(found)}"), 0)
