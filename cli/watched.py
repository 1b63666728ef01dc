"""``run --trace`` and ``--sanitize``: who listens to a run, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click

from .exec.watch import NOBODY, Both, Watcher
from .files import writable
from .output import emit, error_line, write_file


@contextmanager
def watching(trace: str | None, sanitize: bool) -> Iterator[Watcher]:
    """A watcher for a run; the trace is written at its end, also where the run fails."""
    from .exec.monitor import Monitor, SanitizeError
    from .exec.trace import Trace

    if trace is not None:
        writable(trace)
    recorded = Trace() if trace is not None else None
    monitor = Monitor() if sanitize else None
    watcher: Watcher = monitor or NOBODY
    if recorded is not None:
        watcher = Both(recorded, monitor) if monitor is not None else recorded
    try:
        yield watcher
        if monitor is not None:
            error_line(f"sanitizer: {monitor.checked:,} accesses in order and of the version due")
    except SanitizeError as error:
        emit(f"BROKEN  {error}")
        raise click.exceptions.Exit(1) from None
    finally:
        if trace is not None and recorded is not None:
            write_file(trace, json.dumps(recorded.to_dict()) + "\n")
