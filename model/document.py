"""The schedule document: JSON in, IR out, and every error with its place.

``load`` takes a file, ``loads`` a text, ``from_dict`` what a JSON parser made of one.  All
raise :class:`DocumentError` and nothing else for a document that is wrong.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any

import msgspec

from .document_check import check_document
from .document_example import example
from .document_form import DocumentForm
from .document_read import read_schedule
from .document_schema import schema
from .document_write import canonical, digest, dumps, to_dict
from .fault import DocumentError, Fault, show_path
from .form_fault import find_fault
from .json_place import locate, parse, without_comments
from .schedule import Schedule

__all__ = [
    "DocumentError", "canonical", "digest", "dumps", "example", "from_dict", "load", "loads",
    "schema", "to_dict",
]  # fmt: skip


def load(source: str | os.PathLike[str] | bytes | Mapping[str, Any]) -> Schedule:
    """The schedule of a file (a path), of JSON in ``bytes``, or of a parsed document."""
    if isinstance(source, bytes):
        return loads(source)
    if isinstance(source, Mapping):
        return from_dict(source)
    name = os.fspath(source)
    try:
        data = FilePath(name).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DocumentError(f"cannot be read: {reason}", source=name) from None
    except ValueError:  # a path with a NUL byte
        raise DocumentError("is no path of a file", source=repr(name)) from None
    return loads(data, source=name)


def loads(data: bytes | str, source: str = "<stdin>") -> Schedule:
    """The schedule of a JSON text; ``source`` is what errors call it."""
    text = data if isinstance(data, str) else _decode(data, source)
    try:
        with _collector_paused():
            return _schedule(parse(text, source))
    except Fault as fault:
        line, column = locate(text, fault.path, at_key=fault.at_key)
        path = show_path(fault.path)
        raise DocumentError(fault.message, path, line, column, source) from None


def from_dict(document: Mapping[str, Any], source: str = "<document>") -> Schedule:
    """The schedule of a parsed document.  Errors have a path, but no line."""
    try:
        with _collector_paused():
            return _schedule(without_comments(document))
    except Fault as fault:
        raise DocumentError(fault.message, show_path(fault.path), source=source) from None
    except RecursionError:
        raise DocumentError("nested too deeply", source=source) from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Many small objects are made and none are dropped: the cycle collector would look at all
    of them again and again, for half of the time that a large document takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - before.rfind(b"\n")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise DocumentError(message, "$", line, column, source) from None


def _schedule(value: Any) -> Schedule:
    try:
        document = msgspec.convert(value, DocumentForm)
    except msgspec.ValidationError as error:
        find_fault(value, DocumentForm)
        raise Fault((), str(error)) from None
    schedule = read_schedule(document)
    check_document(schedule)
    return schedule
