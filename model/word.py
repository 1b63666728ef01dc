"""Words that stand in documents and reports, as enumerations."""

from __future__ import annotations

from enum import StrEnum


class Word(StrEnum):
    """A string of a fixed set; its ``repr`` is valid Python, as that of all IR objects."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
