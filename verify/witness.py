"""Fault → counterexample: an interleaving, values and bank contents that show it when run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from contextlib import suppress

from ..model.command import CopyExperts, FillBank
from ..model.counterexample import Counterexample, Party, Step
from ..model.describe import command_text
from ..model.schedule import Schedule
from ..model.symbol import Expr
from ..model.tensor import Tensor
from .access import PAST, Read, Write
from .banks import Banks
from .encode import Solver
from .needed import needed
from .obligation import BYTE, Fault, Judge, Root
from .order import Order, Part
from .residency import meeting
from .sequential import Event
from .tail import expert_bytes
from .term import conj, disj, neg, number, size
from .trial import Trial


def _names_ids(term: object) -> bool:
    """Whether a term says of an expert that some ids name it."""
    return isinstance(term, tuple) and (
        term[:1] == ("used",) or any(_names_ids(part) for part in term)
    )


#: ``(part, is_end)``
Point = tuple[int, bool]


def interleaving(order: Order, extra: Iterable[tuple[Point, Point]] = ()) -> tuple[Step, ...]:
    """All parts' starts and ends in one legal sequence, close to issue order.

    ``extra``: further pairs "this point before that one".  Raises if they cannot hold.
    """
    after: dict[Point, list[Point]] = {}
    waiting: dict[Point, int] = {}

    def edge(first: Point, second: Point) -> None:
        after.setdefault(first, []).append(second)
        waiting[second] = waiting.get(second, 0) + 1

    for part in order.parts:
        waiting.setdefault((part.index, False), 0)
        edge((part.index, False), (part.index, True))
        for earlier in set(order.edges[part.index]):
            edge((earlier, True), (part.index, False))
    for first, second in extra:
        edge(first, second)
    ready = [point for point, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    steps = []
    while ready:
        index, is_end = heapq.heappop(ready)
        part = order.parts[index]
        phase = "end" if is_end else "start"
        steps.append(Step(part.command, part.iteration, part.name, phase))  # type: ignore[arg-type]
        for point in after.get((index, is_end), ()):
            waiting[point] -= 1
            if waiting[point] == 0:
                heapq.heappush(ready, point)
    if len(steps) != 2 * len(order.parts):
        raise ValueError("the wanted sequence contradicts the order of the commands")
    return tuple(steps)


def counterexample(schedule: Schedule, judge: Judge, fault: Fault) -> Counterexample | None:
    """The fault as one execution; ``None`` if no ids were found for which it shows."""
    maker = _Witness(schedule, judge, fault)
    given = maker.integers(), maker.bank_contents()
    found = meeting(schedule, judge.footprints, fault, *given)
    if found is None:
        return None
    integers, banks = found
    order = maker.sequence()
    return Counterexample(
        symbols=tuple(sorted(fault.values.symbols.items())),
        reader=maker.party(fault.root.read.part, fault.root.read),
        writer=maker.writer(),
        due=maker.due(),
        missing=maker.missing(),
        order=order,
        integers=integers,
        banks=banks,
        unique=maker.unique(),
        needed=needed(judge, fault, order),
    )


class _Witness:
    def __init__(self, schedule: Schedule, judge: Judge, fault: Fault) -> None:
        self.schedule, self.judge, self.fault = schedule, judge, fault
        self.footprints, self.order = judge.footprints, judge.footprints.order

    @property
    def root(self) -> Root:
        return self.fault.root

    def unique(self) -> bool:
        """Whether no other values of the symbols give this fault; ids have no part in it."""
        judge, found = self.judge, self.fault.values.symbols
        free = {n: span for n, span in judge.symbols.items() if span[0] < span[1]}
        if not free or _names_ids(self.fault.claim):
            return False
        solver = Solver(judge.solver.effort, context=judge.solver.its_context())
        scope = solver.scope(judge.symbols, {})
        other = disj(neg(scope.eq(size(Expr.of(n)), number(found[n]))) for n in free)
        _, high = self.fault.read.region.extent.bounds(judge.symbols)
        byte = {BYTE: (0, max(high - 1, 0))}
        return solver.model(conj([self.fault.claim, other]), judge.symbols, byte).found is False

    # -- who ------------------------------------------------------------------------------------

    def text(self, part: int) -> str:
        place = self.order.parts[part]
        words = part_text(self.schedule, place)
        return f"{words} [command {place.command}, pass {place.iteration}, {place.queue}]"

    def party(self, part: int, access: Read | Write) -> Party:
        place, region = self.order.parts[part], access.region
        symbols = self.fault.values.symbols
        start = region.start.value(symbols)
        span = (start, start + region.extent.value(symbols))
        return Party(
            place.command, place.iteration, place.name, self.text(part),
            region.tensor.name, region.space, span,
        )  # fmt: skip

    def writer(self) -> Party | None:
        write = self.root.write
        return self.party(write.part, write) if write is not None else None

    def due(self) -> str:
        if self.root.read.role == PAST:
            return "any defined bytes that are nobody else's"
        return event_text(self.schedule, self.fault.due)

    def missing(self) -> str:
        """The edge that would repair it, in one line."""
        read, write = self.text(self.root.read.part), self.root.write
        if self.root.relation == "overflow":
            return "the guard of the bank does not bound the used experts by its slots"
        if self.root.read.role == PAST:
            return self._past(read)
        if write is None:
            due = self.fault.due
            carriers = self.footprints.by_event.get(due, []) if due is not None else []
            if carriers:
                return f"{self.text(carriers[0].part)} must end before {read} starts"
            return f"nothing writes the bytes before {read} starts"
        other = self.text(write.part)
        if self.root.relation == "unordered" and self._brings_due(write):
            return f"{other} must end before {read} starts; nothing orders them"
        if self.root.relation in ("unordered", "destroyed"):
            return f"{read} must end before {other} starts; nothing orders them"
        if self.root.relation == "outdated":
            return f"{other} makes the copies in the slots stale; no fill brings them again"
        if self.root.relation == "unserved":
            return f"{other} brought the experts of other ids than {read} needs"
        if self.root.relation == "skipped":
            return f"{other} claims experts for a bank that it does not fill"
        return f"{read} sees what {other} wrote; {self.due()} is due"

    def _past(self, read: str) -> str:
        """What a kernel finds past an expert, and what should be there."""
        write, what = self.root.write, f"the {self.root.read.past} bytes past an expert that {read}"
        if write is not None and self.root.relation == "unordered":
            return f"{self.text(write.part)} must end before {read} starts; nothing orders them"
        if write is not None:
            return f"{what} reads hold what {self.text(write.part)} wrote"
        found = {
            "outside": "reads lie past the end of the buffer",
            "foreign": "reads are those of another tensor",
            "empty": "reads are those of a slot that may be empty",
        }
        return f"{what} {found.get(self.root.relation, 'reads were never written')}"

    def _brings_due(self, write: Write) -> bool:
        """Whether the write is, or copies, the version that is due."""
        return self.footprints.carries(write, self.fault.due)

    # -- when -----------------------------------------------------------------------------------

    def sequence(self) -> tuple[Step, ...]:
        """An interleaving in which the fault shows: a wrong version if one can, else a torn one."""
        write = self.root.write
        if write is not None and write.part == self.root.read.part:  # a fill that cannot be served
            return interleaving(self.order)
        carried = self._carried()
        steps = []
        for pairs in self._constraints():
            for extra in (carried, []) if carried else ([],):
                with suppress(ValueError):  # the two wishes contradict each other
                    steps.append(interleaving(self.order, [*pairs, *extra]))
        bank = self.fault.read.bank
        past = self.root.read.role == PAST  # undefined is wrong there, whatever else is right
        if len(steps) == 1 or past or (bank is not None and bank.what == "slots"):
            return steps[0]
        trial = Trial(self.judge, self.fault)
        return min(steps, key=trial.run)  # the first of the best

    def _carried(self) -> list[tuple[Point, Point]]:
        """Pairs that let each copy on the way end after those that could hide what it brings."""
        pairs: list[tuple[Point, Point]] = []
        read = self.fault.read
        for part in self.fault.path:
            write = next(w for w in self.footprints.writes if w.part == part)
            pairs += [((o.part, True), (part, True)) for o in self._rivals(write, read)]
            assert write.source is not None
            read = write.source
        return pairs

    def _constraints(self) -> list[list[tuple[Point, Point]]]:
        """Pairs of points that can make the fault happen, where the order leaves it open."""
        read, write, before = self.root.read, self.root.write, self.order.before
        if write is None or before(read.part, write.part):
            return [[]]
        late = [((read.part, True), (write.part, False))]
        rivals = [((o.part, True), (write.part, False)) for o in self._rivals(write, read)]
        if before(write.part, read.part):
            return [rivals]
        early = [((write.part, True), (read.part, False)), *rivals]
        torn = [
            ((write.part, False), (read.part, False)), ((read.part, False), (write.part, True)),
            *rivals,
        ]  # fmt: skip
        during = [((read.part, False), (write.part, False))]
        likely = [early, late, torn, during]
        if read.role == PAST:
            likely = [torn, during, early, late]
        elif self._brings_due(write) or self._hits_early():
            likely = [late, early, torn, during]
        # Another write that is not ordered with the read may hide this one: it comes later.
        hiding = [((read.part, True), (o.part, False)) for o in self._others(write, read)]
        return [*likely, *([*pairs, *hiding] for pairs in likely if hiding)]

    def _others(self, write: Write, read: Read) -> list[Write]:
        """Other writes of the bytes that are not ordered with the read."""
        before = self.order.before
        return [
            other
            for other in self.footprints.writers(read)
            if other.part != write.part
            and not before(other.part, read.part)
            and not before(read.part, other.part)
        ]

    def _hits_early(self) -> bool:
        """Whether the reader's fill counts on what an earlier fill of its layer still brings."""
        use, write = self.root.read.bank, self.root.write
        if use is None or use.fill is None or write is None or write.event is None:
            return False
        event = write.event
        if self.root.relation != "unordered" or event.kind != "state":
            return False
        other = self.schedule.graph.find_bank(event.name)
        if other is None or other.layer != use.bank.layer:
            return False  # it may take a slot, which needs different experts
        return (event.iteration, event.index) < (use.fill[1], use.fill[0])

    def _rivals(self, write: Write, read: Read) -> list[Write]:
        """Other writes of the bytes before the read that the order lets come after ``write``."""
        before = self.order.before
        return [
            other
            for other in self.footprints.by_space.get(read.region.space, ())
            if other.part not in (write.part, read.part)
            and before(other.part, read.part)
            and not before(other.part, write.part)
            and not before(write.part, other.part)
        ]

    # -- with what --------------------------------------------------------------------------------

    def _is_about_experts(self) -> bool:
        reads = (self.fault.read, self.root.read)
        return any(r.bank is not None or r.experts is not None or r.role == "ids" for r in reads)

    def integers(self) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
        """Router ids, chosen so that passes and tensors name different experts where they can
        (for one that is still on its way: the same ones in each pass; for a stale resident copy
        or an empty slot: one in all; for a slot that something else overwrites: its expert; for a
        fill that served other ids: one in the reader's pass, another one in all others)."""
        if not self._is_about_experts():
            return ()
        slot = self._destroyed_slot()
        symbols, found, place = self.fault.values.symbols, [], 0
        hit = self._hits_early()
        relation = self.root.relation
        chosen = hit or relation in ("overflow", "unserved", "outdated", "empty")
        tensors = [
            t
            for t in self.schedule.graph.tensors
            if t.values is not None and t.type.integer and self._own_values(t)
        ]
        for iteration in range(self.schedule.repeat):
            for tensor in tensors:
                assert tensor.values is not None
                given = self.schedule.base(tensor.name).input or self._is_read(tensor)
                if not (given or chosen or self._steers(tensor)):
                    continue  # computed: whatever comes of it will do
                low, high = tensor.values
                count = tensor.elements.value(symbols)
                start = 0 if hit else place
                place += count
                values = [low + (start + i) % (high - low) for i in range(count)]
                if relation in ("empty", "outdated"):  # as few slots as can be: one for a layer
                    values = [low] * count
                if relation == "unserved":
                    here = self.order.parts[self.root.read.part].iteration == iteration
                    values = [low + here] * count
                if slot is not None:
                    found.append((tensor.name, iteration, (min(low + slot, high - 1),) * count))
                    continue
                found.append((tensor.name, iteration, self._steered(tensor, iteration, values)))
        return tuple(found)

    def _own_values(self, tensor: Tensor) -> bool:
        """Whether the range of a tensor's values is not that of its base as well."""
        return tensor.view_of is None or self.schedule.base(tensor.name).values is None

    def _is_read(self, tensor: Tensor) -> bool:
        """Whether the fault's read is of these very ids: then each pass should have others."""
        base = self.schedule.base
        return base(tensor.name) == base(self.fault.read.due.name)

    def _destroyed_slot(self) -> int | None:
        """The slot that something else overwrites; it holds the expert of its own number."""
        use = self.root.read.bank
        if use is None or use.what != "slots" or self.root.relation != "destroyed":
            return None
        strides = self.schedule.tensor(use.bank.name).nb
        slot = self.fault.values.variables[BYTE] // strides[2].value(self.fault.values.symbols)
        return slot if slot < use.bank.slots else None

    def _steered(self, tensor: Tensor, iteration: int, values: list[int]) -> tuple[int, ...]:
        """The experts that the fault needs a pass to use, or ids that leave the wrong one out."""
        experts = self.fault.read.experts
        if experts is None or not values or tensor.values is None:
            return tuple(values)
        if self.root.relation == "overflow":
            return tuple(values)  # as many experts as there can be
        members = self._members(tensor, iteration)
        if members:
            members.sort(key=self._reads_past, reverse=True)
            return tuple((members * len(values))[: len(values)])
        wanted = self.fault.values.variables[BYTE] // experts.stride
        low, high = tensor.values
        if wanted not in values and self.fault.read.role != PAST:
            return tuple(values)
        # Not the expert before it either, where there is a choice: a copy may be padded.
        others = [*range(wanted + 1, high), *range(low, wanted - 1), wanted - 1]
        return tuple([next((e for e in others if low <= e < high), wanted)] * len(values))

    def _reads_past(self, expert: int) -> bool:
        """Whether what is read past that expert has the fault's byte."""
        read = self.fault.read
        if read.role != PAST or read.experts is None:
            return False
        first = expert * read.experts.stride + expert_bytes(read.region.tensor)
        return 0 <= self.fault.values.variables[BYTE] - first < read.past

    def _steers(self, tensor: Tensor) -> bool:
        if self.fault.read.experts is None:
            return False
        return any(self._members(tensor, other) for other in range(self.schedule.repeat))

    def _members(self, tensor: Tensor, iteration: int) -> list[int]:
        """Experts that the model puts into the used sets that this tensor names in this pass.

        Where a callback makes another version of the ids, there are two sets, and a
        counterexample has ids for one: those before the callback.
        """
        found = {}
        for name, members in self.fault.values.sets.items():
            ids, listed, events = name.partition("[")
            if not listed:  # a set that no ids name
                continue
            same = self.schedule.base(ids).name == self.schedule.base(tensor.name).name
            if same and events.endswith(f".{iteration}]"):
                found[events] = members
        kinds = ("input", "node", "callback") if len(found) == 1 else ("input", "node")
        wanted = {e for events in found if events.startswith(kinds) for e in found[events]}
        low, high = tensor.values if tensor.values is not None else (0, 0)
        return sorted(expert for expert in wanted if low <= expert < high)

    def bank_contents(self) -> tuple[tuple[str, tuple[tuple[int, int, int], ...]], ...]:
        """Experts that are resident at the start, where the fault needs them to be."""
        use = self.fault.read.bank
        if use is None or not (
            self.root.relation == "outdated" or self._destroyed_slot() is not None
        ):
            return ()
        count = Banks(self.schedule, self.footprints).experts(use.bank)
        values = (
            self.schedule.base(use.bank.ids).values or self.schedule.tensor(use.bank.ids).values
        )
        low = max(values[0], 0) if values is not None else 0
        full = [(s, use.bank.layer, low + s) for s in range(min(use.bank.slots, count))]
        if self.root.relation == "outdated":
            full.reverse()  # the least id was used last: its copy is what goes stale
        return ((use.bank.group, tuple(full)),)


def part_text(schedule: Schedule, part: Part) -> str:
    """A part of a command in words."""
    command = (schedule.program or ())[part.command]
    words = command_text(command)
    if part.name == "read" and isinstance(command, FillBank | CopyExperts):
        words += " (host part)"
    return words


def event_text(schedule: Schedule, event: Event | None) -> str:
    """A version in words."""
    if event is None:
        return "nothing: the sequential run itself reads bytes that nobody wrote"
    assert schedule.program is not None
    if event.kind == "initial":
        return "what the buffer holds at the start"
    if event.kind == "node":
        return f"{schedule.graph.nodes[event.index].dst} of pass {event.iteration}"
    words = command_text(schedule.program[event.index])
    kinds = {"slots": "the slot ids of ", "map": "the slot map of ", "state": "the slots after "}
    return f"{kinds.get(event.kind, '')}{words} of pass {event.iteration}"
