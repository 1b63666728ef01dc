"""Bytes of a recording: from a path or from standard input, decompressed if need be."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from pathlib import Path

from .ggml_rows import DumpError


def read_bytes(source: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Name for messages, and content.  ``"-"`` is standard input; gzip is told by its content.

    ``DumpError`` if it cannot be read or decompressed.
    """
    name = os.fspath(source)
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise DumpError(f"cannot be read: {error.strerror}", "$", source=name) from None
    label = "<stdin>" if name == "-" else name
    return label, inflate(data, label)


def inflate(data: bytes, label: str) -> bytes:
    """The data, decompressed if it is gzip.  ``DumpError`` if that is cut off or damaged."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise DumpError(
            f"the gzip file is cut off or damaged: {error}", "$", source=label
        ) from None


def is_dump(data: bytes) -> bool:
    """Whether a recording is a dump (JSON lines) and not a debug log.

    A container's own log file has JSON lines, too: objects that begin with the key ``log``.
    """
    start = data.lstrip()[:64]
    return start.startswith(b"{") and not start[1:].lstrip().startswith(b'"log"')
