"""The schedule document: JSON in, IR out, and every error with its place.

``load`` takes a file, ``loads`` a text, ``from_dict`` what a JSON parser made of one.  All
raise :class:`DocumentError` and nothing else for a document that is wrong.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from .document_check import check_document
from .document_example import example
from .document_form import DocumentForm
from .document_read import read_schedule
from .document_schema import schema
from .document_write import canonical, digest, dumps, to_dict
from .fault import DocumentError, Fault
from .form_fault import find_fault
from .json_place import decode, parse, placed, read_text, without_comments
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
    return loads(read_text(source), source=os.fspath(source))


def loads(data: bytes | str, source: str = "<stdin>") -> Schedule:
    """The schedule of a JSON text; ``source`` is what errors call it."""
    text = data if isinstance(data, str) else decode(data, source)
    with _collector_paused(), placed(text, source):
        return read_value(parse(text, source))


def from_dict(document: Mapping[str, Any], source: str = "<document>") -> Schedule:
    """The schedule of a parsed document.  Errors have a path, but no line."""
    with _collector_paused(), placed(None, source):
        return read_value(without_comments(document))


def read_value(value: Any) -> Schedule:
    """The schedule of a parsed document without comments; ``Fault`` where it is wrong."""
    try:
        document = msgspec.convert(value, DocumentForm)
    except msgspec.ValidationError as error:
        find_fault(value, DocumentForm)
        raise Fault((), str(error)) from None
    schedule = read_schedule(document)
    check_document(schedule)
    return schedule


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
