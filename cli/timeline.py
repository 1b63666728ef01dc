"""A counterexample as a time line: a column per queue, moments from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from .model.command import Command, Copy, CopyExperts, FillBank
from .model.counterexample import Counterexample, Party, Step
from .model.describe import command_text
from .model.device import HOST, Contract
from .model.schedule import Schedule

#: Rows kept before the first moment that takes part in the fault, and in all.
CONTEXT, MOST = 3, 24
READER, WRITER = "reads", "writes"
_STYLE = {READER: "bold red", WRITER: "bold yellow", "": ""}


@dataclass(frozen=True, slots=True)
class Row:
    """One moment on one queue.

    ``role``: whether a party of the fault acts in it.  ``running``: queues on which something
    that started earlier still runs.
    """

    iteration: int
    role: str
    queue: str
    text: str
    running: tuple[str, ...]


def queue_of_step(schedule: Schedule, step: Step) -> str:
    """The queue that a step happens on: the host's for what the host does itself."""
    program = schedule.program or ()
    command = program[step.command]
    queue = schedule.queue_of(command)
    if step.part == "read" or queue == HOST:
        return HOST
    ends = _ends(schedule, command)
    if ends is not None:
        device = schedule.graph.device(schedule.queue_device(queue))
        source, target = (schedule.location(name).memory or "" for name in ends)
        if device.contract(source, target) is Contract.SYNC:
            return HOST
    return queue


def _ends(schedule: Schedule, command: Command) -> tuple[str, str] | None:
    """Where a transfer comes from and goes to; ``None`` for other commands."""
    match command:
        case Copy(src=src, dst=dst) | CopyExperts(src=src, dst=dst):
            return src, dst
        case FillBank(banks=(name, *_)):
            bank = schedule.graph.find_bank(name)
            return (bank.caches, name) if bank is not None else None
    return None


def role_of(example: Counterexample, step: Step) -> str:
    """Whether a step is of the command that reads wrong bytes, or of the one that wrote them."""

    def is_party(party: Party | None) -> bool:
        return party is not None and (party.command, party.iteration, party.part) == (
            step.command, step.iteration, step.part
        )  # fmt: skip

    if is_party(example.reader):
        return READER
    return WRITER if is_party(example.writer) else ""


def rows(schedule: Schedule, example: Counterexample) -> list[Row]:
    """The moments in order, of the commands that the fault needs.  What starts and ends with
    nothing between is one row."""
    program = schedule.program or ()
    out: list[Row] = []
    open_on: dict[tuple[int, int, str], str] = {}
    needed = set(example.needed)
    steps = [s for s in example.order if not needed or (s.command, s.iteration) in needed]
    at = 0
    while at < len(steps):
        step = steps[at]
        key = (step.command, step.iteration, step.part)
        queue = queue_of_step(schedule, step)
        words = command_text(program[step.command])
        if step.part in ("read", "write"):
            words += " (host part)" if step.part == "read" else " (transfer)"
        following = steps[at + 1] if at + 1 < len(steps) else None
        whole = (
            step.phase == "start"
            and following is not None
            and (following.command, following.iteration, following.part) == key
        )
        if whole:
            text = words
            at += 1
        elif step.phase == "start":
            text = f"┌ {words}"
            open_on[key] = queue
        else:
            text = f"└ {words}"
            open_on.pop(key, None)
        running = tuple(q for k, q in open_on.items() if k != key)
        out.append(Row(step.iteration, role_of(example, step), queue, text, running))
        at += 1
    return out


def window(moments: list[Row]) -> tuple[int, int]:
    """The range of rows that is shown: the parties' and what lies between, with some before."""
    acting = [i for i, row in enumerate(moments) if row.role]
    if not acting:
        return 0, min(len(moments), MOST)
    first, last = max(0, acting[0] - CONTEXT), acting[-1] + 1
    if last - first > MOST:
        first = max(first, last - MOST)
    return first, last


def timeline(schedule: Schedule, example: Counterexample) -> Table:
    """The table; earlier and later moments are counted, not shown."""
    moments = rows(schedule, example)
    whole = bool(example.needed) and len(moments) <= MOST
    first, last = (0, len(moments)) if whole else window(moments)
    shown = moments[first:last]
    queues = queues_of(schedule, shown)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    several = len({row.iteration for row in shown}) > 1 or any(r.iteration for r in shown)
    table.add_column("pass" if several else "", justify="right", style="dim", no_wrap=True)
    table.add_column("", no_wrap=True)
    for queue in queues:
        table.add_column(queue, overflow="fold")
    if first:
        table.add_row("", "", Text(f"… {first} earlier", style="dim"))
    before: int | None = None
    for row in shown:
        style = _STYLE[row.role]
        cells = [
            Text(row.text, style=style) if queue == row.queue
            else Text("│", style="dim") if queue in row.running
            else Text("")
            for queue in queues
        ]  # fmt: skip
        number = str(row.iteration) if several and row.iteration != before else ""
        before = row.iteration
        table.add_row(number, Text(row.role, style=style), *cells)
    if last < len(moments):
        table.add_row("", "", Text(f"… {len(moments) - last} later", style="dim"))
    rest = len({(step.command, step.iteration) for step in example.order} - set(example.needed))
    if example.needed and rest:
        words = f"… {rest} other{'s play' if rest > 1 else ' plays'} no part"
        table.add_row("", "", Text(words, style="dim"))
    return table


def queues_of(schedule: Schedule, shown: list[Row]) -> list[str]:
    """The host, then the devices' queues in their order; only what acts in the rows."""
    declared = [HOST] + [
        f"{device.name}.{queue}" for device in schedule.graph.devices for queue in device.queues
    ]
    used = {row.queue for row in shown} | {queue for row in shown for queue in row.running}
    return [queue for queue in declared if queue in used]
