"""What is said about a document that cannot be read: one place, one line."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable

#: Keys and indexes from the root of a document to one of its values.
Path = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(r'\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


class DocumentError(ValueError):
    """A document that cannot be read.

    ``message``: what was found and what was due.  ``path``: JSON path of the place
    (``$.tensors.h.shape[1]``).  ``line``, ``column``: the same place in the text, from 1, or
    ``None`` where there is no text.  ``source``: the file's name.
    """

    def __init__(
        self,
        message: str,
        path: str = "$",
        line: int | None = None,
        column: int | None = None,
        source: str = "<document>",
    ) -> None:
        self.message = message
        self.path = path
        self.line = line
        self.column = column
        self.source = source
        place = source if line is None else f"{source}:{line}:{column}"
        super().__init__(" ".join(f"{place}: {path}: {message}".split("\n")))

    def __reduce__(self) -> tuple[type, tuple[str, str, int | None, int | None, str]]:
        return type(self), (self.message, self.path, self.line, self.column, self.source)


class Fault(Exception):
    """A fault at a path, before it is known in which text.  ``at_key``: the key is at fault."""

    def __init__(self, path: Path, message: str, *, at_key: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.at_key = at_key


def show_path(path: Path) -> str:
    """``("tensors", "gpu0#w", "shape", 1)`` as ``$.tensors["gpu0#w"].shape[1]``."""
    parts = ["$"]
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PLAIN_KEY.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append("[" + quote(key) + "]")
    return "".join(parts)


def parse_path(text: str) -> Path:
    """The path that :func:`show_path` wrote as ``text``; a name that it cut stays cut."""
    path: list[str | int] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if text[0] != "$" or step is None:
            raise ValueError(f"{text!r} is no path such as $.program[3]")
        plain, index, quoted = step.groups()
        if index is not None:
            path.append(int(index))
        else:
            path.append(plain if plain is not None else _unquoted(quoted))
        at = step.end()
    return tuple(path)


def _unquoted(text: str) -> str:
    return text.replace('\\"', '"').encode("ascii", "replace").decode("unicode_escape")


def quote(text: str, limit: int = 60) -> str:
    """A text in double quotes on one line, cut where it is long."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return '"' + shown.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def meant(name: str, known: Iterable[str]) -> str:
    """`` (did you mean "w"?)`` for the known name that is closest, or what there is, or nothing."""
    names = list(known)
    if len(names) > _MANY:  # the close match takes long: look at those that begin or end alike
        names = heapq.nlargest(_MANY, names, key=lambda other: _alike(name, other))
    close = difflib.get_close_matches(name[:100], names, n=1, cutoff=0.6) if names else []
    if close:
        return f" (did you mean {quote(close[0])}?)"
    if 0 < len(names) <= 6:
        return " (there is " + ", ".join(quote(n) for n in names) + ")"
    return ""


_MANY = 200


def _alike(name: str, other: str) -> int:
    """How many characters two names share at their ends, a device's name left out."""
    name, other = name[name.find("#") + 1 :], other[other.find("#") + 1 :]
    return _shared(name, other) + _shared(name[::-1], other[::-1])


def _shared(name: str, other: str) -> int:
    for i, (left, right) in enumerate(zip(name, other, strict=False)):
        if left != right:
            return i
    return min(len(name), len(other))
