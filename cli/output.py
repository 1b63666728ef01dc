"""Where words go: the report to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click


class CliError(click.ClickException):
    """A mistake in usage, configuration or input: one line, exit code 2."""

    exit_code = 2


def error_line(message: str) -> None:
    """One line on standard error."""
    text = " ".join(message.split("\n"))
    print(f"splitproof: {text}", file=sys.stderr)


def reason(error: OSError) -> str:
    """An operating system's error without its number: ``FILE: No such file or directory``."""
    name = f"{error.filename}: " if error.filename is not None else ""
    return f"{name}{error.strerror or error}"


def emit(text: str) -> None:
    """Write a report to standard output.  A reader that went away is an error of its own."""
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would fail again when the interpreter closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise CliError("standard output was closed before all was written (broken pipe)") from None
    except OSError as error:
        raise CliError(f"standard output: {reason(error)}") from None


def emit_json(value: Any) -> None:
    """One JSON document on standard output."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def write_file(path: str, text: str) -> None:
    """Write a file whole, or fail with one line that says why.  ``-`` is standard output."""
    if path == "-":
        emit(text)
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise CliError(f"{path}: there is no directory {target.parent}")
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(reason(error)) from None


def read_input(path: str) -> bytes:
    """The bytes of a file; ``-`` is standard input."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CliError(reason(error)) from None


#: Seconds before a line of progress is shown, and between two of them.
PATIENCE, PAUSE = 0.5, 0.1


@contextmanager
def progress(what: str, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Show that long work goes on: one line on standard error, and only on a terminal.

    Yields a function of (done, total), or ``None`` where nothing is shown.  The line is taken
    away at the end.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    line = _Line(what)
    try:
        yield line.show
    finally:
        line.clear()


class _Line:
    def __init__(self, what: str) -> None:
        self.what, self.started, self.width = what, time.monotonic(), 0
        self.due = self.started + PATIENCE

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + PAUSE
        text = f"{self.what}: {done:,} of {total:,}, {now - self.started:.0f} s"
        text = text[: max(10, shutil.get_terminal_size().columns - 1)]
        self._write(text.ljust(self.width))
        self.width = len(text)

    def clear(self) -> None:
        if self.width:
            self._write(" " * self.width + "\r")

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text)
        sys.stderr.flush()
