"""Where in its file a finding is: the line and column of a JSON path."""

from __future__ import annotations

from .model.fault import Path, parse_path
from .model.json_place import Places
from .model.schedule import Schedule


class Locator:
    """Places of one document.  The program of a split-level document was made by the lowering:
    a command of it is shown at the split that it belongs to."""

    def __init__(self, text: str, schedule: Schedule) -> None:
        self._places, self._schedule = Places(text), schedule
        self._has_program = self._places.at(("program",)) != self._places.at(())

    def path(self, path: str) -> tuple[int, int]:
        """Line and column, from 1, of a JSON path such as ``$.program[3]``."""
        return self._places.at(self._in_text(parse_path(path)))

    def command(self, index: int) -> tuple[int, int]:
        """Line and column of a command of the program."""
        return self._places.at(self._in_text(("program", index)))

    def _in_text(self, path: Path) -> Path:
        if self._has_program or path[:1] != ("program",) or len(path) < 2:
            return path
        program, index = self._schedule.program or (), path[1]
        split = program[index].split if isinstance(index, int) else None
        return ("splits", split) if split is not None else ()
