"""What a check of several files gave, for the formats that tell of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from .model.report import Report
from .model.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Checked:
    """One file, or what it means for one part of its symbols' ranges.  ``text``: what it holds;
    ``error``: why it could not be checked, else the report and the program-level schedule that
    it is about."""

    source: str
    text: str = ""
    schedule: Schedule | None = None
    report: Report | None = None
    error: str = ""
    part: str = ""

    @property
    def title(self) -> str:
        """The file with the part: ``graph.json [n_tokens = 1..31]``."""
        return f"{self.source} [{self.part}]" if self.part else self.source
