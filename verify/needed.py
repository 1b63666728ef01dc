"""Which commands of an interleaving a fault needs: the rest can be left out and it still shows."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.counterexample import Step
from .obligation import Fault, Judge
from .trial import Trial

#: ``(command, pass)``
Place = tuple[int, int]
#: interleavings that are tried with one command less each
MOST_TRIALS = 64


def needed(judge: Judge, fault: Fault, steps: Sequence[Step]) -> tuple[Place, ...]:
    """A set of commands, in issue order, from which none but a party can be left out.

    The parties are the reader, who made it read wrong bytes, the copies on the way, and who
    writes what is due.  Of the others those count that touch a byte in question at all, and of
    these, tried one after the other from the last one on, those without which the reader would
    see something else than in the whole interleaving.
    """
    parts = judge.order.parts

    def place(part: int) -> Place:
        return parts[part].command, parts[part].iteration

    acting = {place(part) for part in _parties(judge, fault)}
    bank = fault.read.bank
    if bank is not None and bank.what == "slots":
        if bank.fill is not None:
            acting.add(bank.fill)
        return _issued(acting)
    trial = Trial(judge, fault)
    touching = {place(write.part) for write, _, _ in trial.writes}
    kept = acting | touching
    shown = trial.run(_restricted(steps, kept))
    for one in sorted(touching - acting, key=lambda p: (p[1], p[0]), reverse=True)[:MOST_TRIALS]:
        fewer = kept - {one}
        if trial.run(_restricted(steps, fewer)) is shown:
            kept = fewer
    return _issued(kept)


def _parties(judge: Judge, fault: Fault) -> set[int]:
    root, due = fault.root, fault.due
    found = {fault.read.part, root.read.part, *fault.path}
    if root.write is not None:
        found.add(root.write.part)
    if due is not None:
        found.update(write.part for write in judge.footprints.by_event.get(due, ()))
    return found


def _issued(places: set[Place]) -> tuple[Place, ...]:
    return tuple(sorted(places, key=lambda place: (place[1], place[0])))


def _restricted(steps: Sequence[Step], places: set[Place]) -> list[Step]:
    return [step for step in steps if (step.command, step.iteration) in places]
