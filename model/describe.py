"""Commands in a few words, the same in every report."""

from __future__ import annotations

from .command import (
    Callback,
    Command,
    Compute,
    Copy,
    CopyExperts,
    FillBank,
    GetOutput,
    Record,
    SetInput,
    SyncEvent,
    SyncQueue,
    Wait,
)


def command_text(command: Command) -> str:
    """One command in a few words: ``prefetch w → gpu0#w``."""
    match command:
        case Compute(node=node):
            return f"compute {node}"
        case CopyExperts(src=src, dst=dst) | Copy(src=src, dst=dst):
            return f"{command.do.replace('_', ' ')} {src} → {dst}"
        case FillBank(banks=banks):
            return f"fill {', '.join(banks)}"
        case Callback(name=name):
            return f"callback {name}"
        case SetInput(tensor=tensor):
            return f"set input {tensor}"
        case GetOutput(tensor=tensor):
            return f"get output {tensor}"
        case Record(event=event) | Wait(event=event):
            return f"{command.do} {event}"
        case SyncEvent(event=event):
            return f"wait for {event}"
        case SyncQueue(queue=queue):
            return f"wait for {queue}"
    raise TypeError(f"no words for {command!r}")
