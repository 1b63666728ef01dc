"""Every interleaving of a small schedule, tried on memory that holds versions instead of data.

The oracle that the checker is held against: it knows no local condition and asks no solver.  A
state is which parts have ended, which run, and the version of each cell; the search visits every
state that an execution can reach, except that parts which nothing concurrent touches run as soon
as they can (they commute with all that may happen meanwhile, so no outcome is lost).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model.counterexample import Step
from ..model.schedule import Schedule
from .explore_parts import Unrolled
from .explore_program import NOTHING, CannotExplore, Start, World, meaning
from .explore_queues import Part

#: States that a search visits unless told otherwise.
DEFAULT_BOUND = 100_000
#: ``(ended, running, memory, held)``: bit sets, versions by cell, what running parts have read
State = tuple[int, int, tuple[int, ...], tuple[tuple[int, tuple[tuple[int, int], ...]], ...]]
#: the moves up to a state, latest first: ``(part, is_end, earlier)``
Trail = tuple[int, bool, "Trail"] | None


@dataclass(frozen=True, slots=True)
class WrongRead:
    """Bytes that a part reads in a version that is not due.

    ``byte``: the first of them, counted in logical order.  ``order``: an interleaving with it.
    """

    command: int
    iteration: int
    part: str
    tensor: str
    byte: int
    why: str
    order: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was found.  ``complete``: every interleaving was looked at, up to the first wrong read
    if only that was asked for; otherwise nothing follows from an empty ``wrong``."""

    wrong: tuple[WrongRead, ...]
    states: int
    complete: bool


def explore(
    schedule: Schedule,
    symbols: Mapping[str, int] | None = None,
    *,
    integers: Sequence[tuple[str, int, Sequence[int]]] = (),
    banks: Sequence[Start] = (),
    seed: int = 0,
    bound: int = DEFAULT_BOUND,
    all_reads: bool = False,
    reduce: bool = True,
) -> Exploration:
    """Look for wrong reads at given values of the symbols.

    ``integers`` (``(tensor, pass, values)``) and ``banks`` (``(group, ((slot, layer, expert),
    …))``) are as in a counterexample; ids that are not given are drawn from ``seed``.  The search
    ends at the first wrong read, with ``all_reads`` when all are known; ``reduce`` false branches
    at every part.  Raises ``CannotExplore`` for what has no known bytes.
    """
    given = {(name, iteration): values for name, iteration, values in integers}
    world = World(schedule, symbols or {}, given, seed)
    unrolled = Unrolled(world, meaning(world), banks)
    return _Search(world, unrolled, reduce).run(bound, all_reads)


def follow(
    schedule: Schedule,
    order: Sequence[Step],
    symbols: Mapping[str, int] | None = None,
    *,
    integers: Sequence[tuple[str, int, Sequence[int]]] = (),
    banks: Sequence[Start] = (),
    seed: int = 0,
    partial: bool = False,
) -> tuple[WrongRead, ...]:
    """The wrong reads of one interleaving; the other arguments are those of ``explore``.

    ``ValueError`` if a step comes before something that it waits for, or if one is missing.
    ``partial``: the steps that are not there never happen, and nothing waits for them.
    """
    given = {(name, iteration): values for name, iteration, values in integers}
    world = World(schedule, symbols or {}, given, seed)
    unrolled = Unrolled(world, meaning(world), banks)
    return _Search(world, unrolled, reduce=False).follow(order, partial)


class _Search:
    def __init__(self, world: World, unrolled: Unrolled, reduce: bool) -> None:
        self.world, self.parts = world, unrolled.parts
        self.start = unrolled.memory()
        read = frozenset(cell for part in self.parts for cell in part.loads)
        self.stores = [[(c, v) for c, v in p.stores.items() if c in read] for p in self.parts]
        self.moves = [[(c, s) for c, s in p.moves.items() if c in read] for p in self.parts]
        self.touched = [
            frozenset(c for c, _ in [*stores, *moves])
            for stores, moves in zip(self.stores, self.moves, strict=True)
        ]
        self.loads = [tuple(sorted(part.loads)) for part in self.parts]
        #: parts whose loads a later part hands on
        self.lends = {p.loader for p in self.parts if p.moves and p.loader != p.index}
        self.disputed = self._disputed() if reduce else [True] * len(self.parts)
        self.wrong: dict[tuple[int, str], WrongRead] = {}

    def _disputed(self) -> list[bool]:
        """Parts that another one, which may run at the same time, meets in a written cell."""
        ended: list[int] = []
        for part in self.parts:
            before, rest = part.after, part.after
            while rest:
                index = rest.bit_length() - 1
                rest &= ~(1 << index)
                before |= ended[index]
            ended.append(before)
        found = [False] * len(self.parts)
        for b in range(len(self.parts)):
            for a in range(b):
                if ended[b] >> a & 1:
                    continue
                meet = self.touched[a] & (self.touched[b] | self.parts[b].loads)
                if meet or self.touched[b] & self.parts[a].loads:
                    found[a] = found[b] = True
        return found

    def run(self, bound: int, all_reads: bool) -> Exploration:
        everything = (1 << len(self.parts)) - 1
        first: State = (0, 0, self.start, ())
        waiting: list[tuple[State, Trail]] = [(first, None)]
        seen: set[State] = set()
        while waiting:
            state, trail = self._settle(*waiting.pop())
            if self.wrong and not all_reads:
                return Exploration(tuple(self.wrong.values()), len(seen), True)
            if state in seen:
                continue
            if len(seen) >= bound:
                return Exploration(tuple(self.wrong.values()), len(seen), False)
            seen.add(state)
            if state[0] == everything:
                continue
            ended, running = state[0], state[1]
            for part in self.parts:
                bit = 1 << part.index
                if running & bit:
                    later = (part.index, True, trail)
                    waiting.append((self._end(state, part, later), later))
                elif not ended & bit and part.after & ~ended == 0:
                    waiting.append((self._begin(state, part), (part.index, False, trail)))
        return Exploration(tuple(self.wrong.values()), len(seen), True)

    def follow(self, order: Sequence[Step], partial: bool) -> tuple[WrongRead, ...]:
        named = {(p.command, p.iteration, p.name): p for p in self.parts}
        there = (1 << len(self.parts)) - 1
        if partial:
            parts = {named[s.command, s.iteration, s.part].index for s in order}
            there = sum(1 << index for index in parts)
        state: State = (0, 0, self.start, ())
        trail: Trail = None
        for step in order:
            part = named[step.command, step.iteration, step.part]
            trail = (part.index, step.phase == "end", trail)
            bit = 1 << part.index
            if step.phase == "end":
                if not state[1] & bit:
                    raise ValueError(f"{step} ends what does not run")
                state = self._end(state, part, trail)
            elif (state[0] | state[1]) & bit or part.after & there & ~state[0]:
                raise ValueError(f"{step} is not possible yet, or was there already")
            else:
                state = self._begin(state, part)
        if state[0] != there:
            raise ValueError("the order leaves something out")
        return tuple(self.wrong.values())

    def _settle(self, state: State, trail: Trail) -> tuple[State, Trail]:
        """Run what nobody disputes."""
        moved = True
        while moved:
            moved = False
            for part in self.parts:
                bit = 1 << part.index
                if self.disputed[part.index] or (state[0] | state[1]) & bit:
                    continue
                if part.after & ~state[0] == 0:
                    trail = (part.index, True, (part.index, False, trail))
                    state = self._end(self._begin(state, part), part, trail)
                    moved = True
        return state, trail

    def _begin(self, state: State, part: Part) -> State:
        ended, running, memory, held = state
        read = tuple((cell, memory[cell]) for cell in self.loads[part.index])
        after = list(memory)
        for cell in self.touched[part.index]:
            after[cell] = NOTHING
        kept = tuple(sorted([*held, (part.index, read)]))
        return ended, running | 1 << part.index, tuple(after), kept

    def _end(self, state: State, part: Part, trail: Trail) -> State:
        ended, running, memory, held = state
        books = dict(held)
        own = self.touched[part.index]
        # What changed while it was read is torn, but for what the part itself put there.
        seen = {
            cell: version if cell in own or memory[cell] == version else NOTHING
            for cell, version in books.pop(part.index)
        }
        self._judge(part, seen, trail)
        after = list(memory)
        if part.moves:
            brought = seen if part.loader == part.index else dict(books.pop(part.loader))
            for cell, source in self.moves[part.index]:
                after[cell] = brought[source]
        for cell, version in self.stores[part.index]:
            after[cell] = version
        if part.index in self.lends:
            books[part.index] = tuple(sorted(seen.items()))
        bit = 1 << part.index
        return ended | bit, running & ~bit, tuple(after), tuple(sorted(books.items()))

    def _judge(self, part: Part, seen: Mapping[int, int], trail: Trail) -> None:
        for tensor, why in part.broken:
            self._tell(part, tensor, 0, why, trail)
        for tensor, cell, allowed in part.past:
            if seen[cell] == NOTHING or seen[cell] not in allowed:
                self._tell(part, tensor, 0, "undefined, or another's, past an expert", trail)
        place: dict[str, int] = {}
        for tensor, cell, due in part.due:
            place[tensor] = place.get(tensor, -1) + 1
            found = seen[cell]
            if found == NOTHING or found != due:
                why = "nothing, or half a write" if found == NOTHING else "another version"
                self._tell(part, tensor, place[tensor] * self.world.grain, why, trail)

    def _tell(self, part: Part, tensor: str, byte: int, why: str, trail: Trail) -> None:
        key = (part.index, tensor)
        if key not in self.wrong:
            self.wrong[key] = WrongRead(
                part.command, part.iteration, part.name, tensor, byte, why, self._order(trail)
            )

    def _order(self, trail: Trail) -> tuple[Step, ...]:
        """The moves so far, and any legal rest."""
        moves: list[tuple[int, bool]] = []
        while trail is not None:
            index, is_end, trail = trail
            moves.append((index, is_end))
        moves.reverse()
        begun = {index for index, is_end in moves if not is_end}
        ended = {index for index, is_end in moves if is_end}
        moves += [(index, True) for index in sorted(begun - ended)]
        moves += [
            (part.index, is_end)
            for part in self.parts if part.index not in begun for is_end in (False, True)
        ]  # fmt: skip
        named = [(self.parts[index], is_end) for index, is_end in moves]
        return tuple(
            Step(p.command, p.iteration, p.name, "end" if is_end else "start")
            for p, is_end in named
        )


__all__ = ["CannotExplore", "Exploration", "WrongRead", "explore", "follow"]
