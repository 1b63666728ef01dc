"""Defaults from ``[tool.splitproof]`` in the nearest ``pyproject.toml``.

The command line comes before the environment (``SPLITPROOF_…``), the environment before the
file.  Keys are the long options without dashes in front: ``time-limit = 20``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .options import FINDING_FORMATS
from .output import CliError, reason

#: Key → (type that is due, commands that take it).  ``ignore`` is a table of code = reason.
KEYS: dict[str, tuple[type | tuple[type, ...], tuple[str, ...]]] = {
    "format": (str, ("check", "plan", "run", "replay", "explain", "audit")),
    "quiet": (bool, ("check", "run")),
    "time-limit": ((int, float), ("check", "run")),
    "effort": (str, ("check",)),
    "recheck": (bool, ("check",)),
    "strict-cost": (bool, ("check",)),
    "baseline": (str, ("check",)),
    "symbol": (dict, ("check",)),
    "rule": (list, ("check",)),
    "ignore": (dict, ("check",)),
    "seed": (int, ("run", "replay")),
}

#: Keys whose parameter in the code has another name than the option.
PARAMETERS = {"format": "form", "symbol": "symbols", "rule": "only"}


def settings(command: str | None, start: Path | None = None) -> dict[str, Any]:
    """Defaults for ``command`` in the form that click takes: ``{command: {parameter: value}}``."""
    path = _nearest(start or Path.cwd())
    if path is None or command is None:
        return {}
    table = _table(path)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            raise CliError(
                f"{path}: [tool.splitproof] has no key {key!r}; there are {', '.join(KEYS)}"
            )
        due, commands = KEYS[key]
        if not isinstance(value, due) or (isinstance(value, bool) and due is not bool):
            raise CliError(f"{path}: [tool.splitproof] {key}: {_name(due)} was due, not {value!r}")
        if command in commands and _is_for(command, key, value):
            values[PARAMETERS.get(key, key.replace("-", "_"))] = _for_click(key, value, path)
    return {command: values}


def _is_for(command: str, key: str, value: Any) -> bool:
    """Formats of findings are those of ``check``: other commands keep their own default."""
    return key != "format" or command == "check" or value not in FINDING_FORMATS


def _nearest(directory: Path) -> Path | None:
    for folder in (directory, *directory.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return path
    return None


def _table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if "splitproof" not in text:
            return {}
        import tomllib

        document = tomllib.loads(text)
    except OSError as error:
        raise CliError(reason(error)) from None
    except ValueError as error:
        raise CliError(f"{path}: not TOML: {error}") from None
    tools = document.get("tool", {})
    table = tools.get("splitproof", {}) if isinstance(tools, dict) else None
    if not isinstance(table, dict):
        raise CliError(f"{path}: [tool.splitproof] is not a table")
    return table


def _for_click(key: str, value: Any, path: Path) -> Any:
    if isinstance(value, dict):
        return [f"{name}={item}" for name, item in value.items()]
    if key == "baseline":
        return str(path.parent / value)
    return value


def _name(due: type | tuple[type, ...]) -> str:
    kinds = due if isinstance(due, tuple) else (due,)
    words = {str: "a string", bool: "true or false", int: "a number", float: "a number",
             dict: "a table", list: "a list"}  # fmt: skip
    return words[kinds[0]]
