"""JSON texts to Python values, strictly, and from a path back to its place in the text."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path as FilePath
from typing import Any

from .fault import DocumentError, Fault, Path, quote, show_path

#: A key that is dropped wherever it stands: JSON has no comments.
COMMENT = "//"

_SPACE = " \t\n\r"
_MANY_DIGITS = re.compile(r"-?[0-9]{640,}")  # Python's limit is never set lower


class _Doubled(dict[str, Any]):
    """An object in which a key stood twice."""

    __slots__ = ()


class _NotJson(ValueError):
    """A word that Python's decoder takes and JSON does not know."""


def read_text(source: str | os.PathLike[str]) -> str:
    """The text of a file; ``DocumentError`` if it cannot be read, or is no UTF-8."""
    name = os.fspath(source)
    try:
        data = FilePath(name).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DocumentError(f"cannot be read: {reason}", source=name) from None
    except ValueError:  # a path with a NUL byte
        raise DocumentError("is no path of a file", source=repr(name)) from None
    return decode(data, name)


def decode(data: bytes, source: str) -> str:
    """UTF-8 text, without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start = error.start
        line = data.count(b"\n", 0, start) + 1
        column = start - data.rfind(b"\n", 0, start)
        message = f"byte 0x{data[start]:02x} is not UTF-8 text"
        raise DocumentError(message, "$", line, column, source) from None


@contextmanager
def placed(text: str | None, source: str) -> Iterator[None]:
    """Turn a fault into an error that says where in the text it is (if there is a text)."""
    try:
        yield
    except Fault as fault:
        line = column = None
        if text is not None:
            line, column = locate(text, fault.path, at_key=fault.at_key)
        path = show_path(fault.path)
        raise DocumentError(fault.message, path, line, column, source) from None
    except RecursionError:
        raise DocumentError("nested too deeply", "$", None, None, source) from None


def parse(text: str, source: str) -> Any:
    """The value of a JSON text, comments dropped.

    ``DocumentError`` for what is no JSON (NaN and infinities are none), for nesting that is
    too deep, for numbers that no double or 64-bit integer holds, and for doubled keys.
    """
    doubled = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal doubled
        value = dict(items)
        if len(value) != len(items):
            value = _Doubled(value)
            doubled = True
        if COMMENT in value:
            del value[COMMENT]
        return value

    if not text.strip(_SPACE):
        raise DocumentError("the text is empty; a JSON object was due", "$", 1, 1, source)
    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_constant=_no_constant)
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise DocumentError(
            f"not JSON: {error.msg}", "$", error.lineno, error.colno, source
        ) from None
    except RecursionError:
        raise DocumentError("nested too deeply", "$", 1, 1, source) from None
    except _NotJson as error:
        line, column = place(text, _outside_strings(text, str(error)))
        raise DocumentError(
            f"not JSON: {error} is no number there", "$", line, column, source
        ) from None
    except ValueError:  # an integer of more digits than Python converts
        digits = _MANY_DIGITS.search(text)
        line, column = place(text, digits.start() if digits else 0)
        message = "an integer has thousands of digits; 63 bits were due"
        raise DocumentError(message, "$", line, column, source) from None
    if doubled:
        raise _doubled_error(text, value, source)
    if "\\ud" in text or "\\uD" in text:
        _check_surrogates(text, value, source)
    return value


def without_comments(value: Any) -> Any:
    """A parsed value with the comments of all its objects dropped."""
    if isinstance(value, dict):
        return {key: without_comments(v) for key, v in value.items() if key != COMMENT}
    if isinstance(value, list | tuple):
        return [without_comments(item) for item in value]
    return value


def locate(text: str, path: Path, *, at_key: bool = False) -> tuple[int, int]:
    """Line and column, from 1, of the value at ``path`` (of its key with ``at_key``).

    Where the path leaves the text (a key that is missing), the place of the last value on it.
    """
    at = _skip(text, 0)
    for depth, key in enumerate(path):
        last = at_key and depth == len(path) - 1
        found = _child(text, at, key)
        if found is None:
            break
        at = found[0] if last else found[1]
    return place(text, at)


class Places:
    """Lines and columns of many values of one text.

    The children of a value are looked up once, so that each command of a long program costs
    one step, where :func:`locate` walks to it from the start.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._children: dict[int, dict[str | int, int]] = {}

    def at(self, path: Path) -> tuple[int, int]:
        """Line and column, from 1, of the value at ``path``, or of the last one on the way."""
        offset = _skip(self._text, 0)
        for key in path:
            below = self._below(offset).get(key)
            if below is None:
                break
            offset = below
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def _below(self, offset: int) -> dict[str | int, int]:
        if offset not in self._children:
            found: dict[str | int, int] = {}
            if self._text[offset : offset + 1] in ("[", "{"):
                found = {name: value for name, _, value in _children(self._text, offset)}
            self._children[offset] = found
        return self._children[offset]


def place(text: str, at: int) -> tuple[int, int]:
    """Line and column, from 1, of an offset."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _child(text: str, at: int, key: str | int) -> tuple[int, int] | None:
    """Offsets of a child's key and value."""
    if text[at] != ("[" if isinstance(key, int) else "{"):
        return None
    return next(((k, v) for name, k, v in _children(text, at) if name == key), None)


def _children(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Name, offset of the key and offset of the value of each child of an array or object."""
    opening = text[at]
    index = 0
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        start = at
        name: str | int = index
        if opening == "{":
            name, at = scanstring(text, at + 1, True)
            at = _skip(text, _skip(text, at) + 1)
        yield name, start, at
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1


_SCAN = json.JSONDecoder()


def _end(text: str, at: int) -> int:
    return _SCAN.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _no_constant(word: str) -> Any:
    raise _NotJson(word)


def _outside_strings(text: str, word: str) -> int:
    """Offset of the first ``word`` that stands in no string."""
    at = 0
    while at < len(text):
        word_at, quote_at = text.find(word, at), text.find('"', at)
        if quote_at < 0 or 0 <= word_at < quote_at:
            return max(word_at, 0)
        at = scanstring(text, quote_at + 1, True)[1]
    return 0


def _doubled_error(text: str, value: Any, source: str) -> DocumentError:
    """The error at the second of two equal keys, in the outermost object that has them."""
    path = next(path for path, item in _walk(value) if isinstance(item, _Doubled))
    at = _skip(text, 0)
    for step in path:
        found = _child(text, at, step)
        assert found is not None
        at = found[1]
    seen: set[str | int] = set()
    for name, key_at, _ in _children(text, at):
        if name in seen:
            line, column = place(text, key_at)
            message = f"the key {quote(str(name))} stands twice in one object"
            return DocumentError(message, show_path((*path, name)), line, column, source)
        seen.add(name)
    raise AssertionError("no key stands twice")


def _check_surrogates(text: str, value: Any, source: str) -> None:
    """Half of a UTF-16 pair, escaped, is no character: no file could name it."""
    for path, item in _walk(value):
        for key in [item] if isinstance(item, str) else item if isinstance(item, dict) else ():
            if any("\ud800" <= letter <= "\udfff" for letter in key):
                line, column = locate(text, path)
                message = f"{quote(key)} has half of a surrogate pair"
                raise DocumentError(message, show_path(path), line, column, source)


def _walk(value: Any) -> Iterator[tuple[Path, Any]]:
    """Each value with its path, parents first, in the order of the text."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        yield path, item
        if isinstance(item, dict):
            waiting.extend(((*path, key), item[key]) for key in reversed(item))
        elif isinstance(item, list):
            waiting.extend(((*path, i), item[i]) for i in reversed(range(len(item))))
