"""The bounds of GPU kernels, for every size: each access lies in its tensor, and no two threads
write one element.

A kernel's own Python is run on symbols, path by path (``verify/kernel_run.py``); what is asked of
each access then goes to Z3.  It is assumed that a tensor's elements lie on bytes of their own and
inside its data, that strides and offsets are whole elements, and what the launch promises
(``model.kernel``); sums over a block and a rank in a total order are trusted by name, and the
helpers of ``exec/cuda/index.py`` by the lemmas of ``verify/kernel_lemma.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import z3

from ..model.kernel import Data, Flag, Kernel, Scratch, Value
from .kernel_memory import Access, Call, Shared
from .kernel_run import Answers, Run
from .kernel_sizes import Sizes
from .kernel_value import Unclear

#: Solver effort for one question, in Z3's resource units.
EFFORT = 20_000_000
#: More paths than this are not looked at: the kernel is unclear.
MOST_PATHS = 4096


@dataclass(frozen=True, slots=True)
class Bounds:
    """What was asked of a kernel, and every fault: empty if it was proved."""

    name: str
    paths: int
    accesses: int
    questions: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What the solver said already: kernels that are alike ask the same.

    ``proved``: questions by the solver's numbers of their terms, which are all kept, so that no
    other term gets such a number.  The others: terms in other words, by their numbers.
    """

    answers: Answers = field(default_factory=dict)
    proved: dict[frozenset[int], list[Any]] = field(default_factory=dict)
    _linear: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    _there: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def linear(self, term: Any) -> Any:
        """A term of which each product of unknowns is an unknown."""
        number = term.get_id()
        if number not in self._linear:
            self._linear[number] = term, _without_products(z3.simplify(term, som=True))
        return self._linear[number][1]

    def there(self, term: Any) -> Any:
        """A term as another thread has it."""
        number = term.get_id()
        if number not in self._there:
            self._there[number] = term, _there(term)
        return self._there[number][1]


def check_bounds(name: str, kernel: Kernel, known: Known | None = None) -> Bounds:
    """Prove the bounds of a kernel, or say what may go wrong.  ``Unclear`` if it cannot be run."""
    known = known or Known()
    found: dict[tuple[object, ...], list[Access]] = {}
    every: list[Access] = []
    identity: tuple[Any, ...] = ()
    paths, sizes = 0, Sizes(kernel)
    for choices in product(*_choices(kernel)):
        decisions: list[bool] = []
        while True:
            run = Run(kernel, sizes, choices, decisions, known.answers)
            run.execute()
            paths, identity = paths + 1, run.identity
            if paths > MOST_PATHS:
                raise Unclear(f"{name} has more than {MOST_PATHS} paths")
            every += run.accesses
            for access in run.accesses:
                _keep(found.setdefault(_key(access), []), access)
            while decisions and not decisions[-1]:
                decisions.pop()
            if not decisions:
                break
            decisions[-1] = False
    written = {a.parameter.tensor for a in every if a.write and isinstance(a.parameter, Data)}
    judge = _Judge(identity, written, known)
    kept = [access for alike in found.values() for access in alike]
    for access in kept:
        judge.inside(access)
    writes = [a for a in kept if a.write and not isinstance(a.parameter, Flag | Shared)]
    for i, a in enumerate(writes):
        for b in writes[i:]:
            if a.parameter == b.parameter:
                judge.apart(a, b)
    return Bounds(name, paths, len(kept), judge.questions, tuple(dict.fromkeys(judge.faults)))


def _choices(kernel: Kernel) -> list[tuple[int, ...]]:
    return [p.choices for p in kernel.parameters if isinstance(p, Value) and p.choices]


def _key(access: Access) -> tuple[object, ...]:
    """Equal for accesses to one place; terms by the solver's numbers, so all must be kept."""
    strides = tuple((s, c.get_id()) for s, c in sorted(access.index.strides.items()))
    calls = tuple(
        (c.name, *(term.get_id() for term in (*c.inputs, *c.outputs))) for c in access.calls
    )
    index = access.index.rest.get_id()
    return access.parameter, index, strides, access.write, access.aligned, calls


def _keep(alike: list[Access], access: Access) -> None:
    """Of accesses to one place, those with the fewest conditions stand for the others; two that
    differ in one condition, which holds for one and not for the other, are one without it."""
    ids = access.conditions
    if any(other.conditions <= ids for other in alike):
        return
    alike[:] = [other for other in alike if not ids <= other.conditions]
    for other in alike:
        mine, theirs = ids - other.conditions, other.conditions - ids
        if len(mine) == len(theirs) == 1:
            one, two = (
                next(fact for fact in a.facts if fact.get_id() in only)
                for a, only in ((access, mine), (other, theirs))
            )
            if one.eq(z3.Not(two)) or two.eq(z3.Not(one)):
                alike[:] = [kept for kept in alike if kept is not other]
                rest = tuple(fact for fact in access.facts if not fact.eq(one))
                _keep(alike, replace(access, facts=rest))
                return
    alike.append(access)


class _Judge:
    def __init__(self, identity: tuple[Any, ...], written: set[str], known: Known) -> None:
        self.identity, self.written, self.known = identity, written, known
        self.questions = 0
        self.faults: list[str] = []

    def ask(self, facts: list[Any], claim: Any, fault: str) -> None:
        self.questions += 1
        asked = [*facts, z3.Not(claim)]
        key = frozenset(term.get_id() for term in asked)
        if key in self.known.proved:
            return
        solver, answer = self._refuted(asked)
        if answer == z3.unsat:
            self.known.proved[key] = asked
        if answer == z3.sat:
            model = solver.model()
            values = sorted(f"{d.name()}={model[d]}" for d in model.decls() if "!" not in d.name())
            self.faults.append(f"{fault}, at {', '.join(values)}")
        elif answer == z3.unknown:
            self.faults.append(f"{fault}: not decided ({solver.reason_unknown()})")

    def _refuted(self, asked: list[Any]) -> tuple[Any, Any]:
        """A solver with the facts and the negated claim, and its answer.

        Most claims follow where each product of unknowns is taken for an unknown of its own, which
        is tried first: to know less can only make an answer less sure.
        """
        for known, effort in ((list(map(self.known.linear, asked)), EFFORT // 10), (asked, EFFORT)):
            solver = z3.Solver()
            solver.set("rlimit", effort)
            solver.add(*known)
            answer = solver.check()
            if answer == z3.unsat:
                break
        return solver, answer

    def inside(self, access: Access) -> None:
        index, parameter, facts = access.index, access.parameter, list(access.facts)
        word = f"{'write' if access.write else 'read'} of {_word(parameter)}"
        if access.aligned > 1:
            self.ask(facts, index.rest % access.aligned == 0, f"{word}: not at a whole load")
        match parameter:
            case Flag():
                self.ask(facts, index.rest == 0, f"{word}: past the flag")
            case Shared():
                inside = z3.And(index.rest >= 0, index.rest < parameter.size)
                self.ask(facts, inside, f"{word}: outside its {parameter.size}")
            case Scratch():
                size = _sizes(access).term("*".join(parameter.size))
                inside = z3.And(index.rest >= 0, index.rest < size)
                self.ask(facts, inside, f"{word}: outside its {' x '.join(parameter.size)}")
            case Data():
                self._in_tensor(access, parameter, word)

    def _in_tensor(self, access: Access, data: Data, word: str) -> None:
        index, facts = access.index, list(access.facts)
        sizes = _sizes(access)
        foreign = [tensor for tensor, _ in index.strides if tensor != data.tensor]
        if foreign:
            self.faults.append(f"{word}: with a stride of {foreign[0]}")
            return
        for n in range(4):
            place = index.strides.get((data.tensor, n))
            if place is None:
                continue
            size = sizes.term(f"{data.tensor}.{n}")
            limit = size / data.weights if n == 0 and data.block else size
            inside = z3.And(place >= 0, place < limit)
            self.ask(facts, inside, f"{word}: outside dimension {n}")
        room = z3.IntVal(data.block or 1)
        if data.block and (data.tensor, 0) not in index.strides:
            room = sizes.term(f"{data.tensor}.0") / data.weights * data.block
        self.ask(facts, z3.And(index.rest >= 0, index.rest < room), f"{word}: beside the element")

    def apart(self, a: Access, b: Access) -> None:
        """Writes of different threads are to different elements."""
        there = self.known.there
        other = _renamed(b, there)
        strides = {*a.index.strides, *other.index.strides}
        zero = z3.IntVal(0)
        same = [a.index.strides.get(s, zero) == other.index.strides.get(s, zero) for s in strides]
        same.append(a.index.rest == other.index.rest)
        facts = [*a.facts, *other.facts]
        for mine, theirs in product(a.calls, other.calls):
            alike = mine.name == theirs.name and len(mine.inputs) == len(theirs.inputs)
            if alike and mine.load not in self.written:
                facts += _alike(mine, theirs)
        mine_there = zip(self.identity, (there(term) for term in self.identity), strict=True)
        facts.append(z3.Or(*(x != y for x, y in mine_there)))
        word = _word(a.parameter)
        self.ask(facts, z3.Not(z3.And(*same)), f"two threads write one element of {word}")


def _alike(a: Call, b: Call) -> list[Any]:
    """What is known of the same helper, called twice."""
    inputs, outputs = (
        z3.And(*(x == y for x, y in zip(one, two, strict=True)))
        for one, two in ((a.inputs, b.inputs), (a.outputs, b.outputs))
    )
    found = [z3.Implies(inputs, outputs)]
    if not a.load:
        natural = [term >= 0 for term in a.outputs] if a.natural else []
        found.append(z3.Implies(z3.And(outputs, *natural), inputs))
    return found


def _without_products(term: Any) -> Any:
    parts = term.children()
    if z3.is_mul(term):
        unknowns = [part for part in parts if not z3.is_int_value(part)]
        if len(unknowns) > 1:
            constants = (part for part in parts if z3.is_int_value(part))
            name = " * ".join(sorted(part.sexpr() for part in unknowns))
            return z3.Product(*constants, z3.Int(f"({name})"))
    if not parts:
        return term
    return term.decl()(*map(_without_products, parts))


def _word(parameter: Data | Scratch | Flag | Shared) -> str:
    match parameter:
        case Data():
            return f"{parameter.tensor} ({parameter.kind})"
        case Flag():
            return "the flag"
        case Shared():
            return f"shared memory ({parameter.kind})"
    return f"scratch ({parameter.kind})"


def _sizes(access: Access) -> Any:
    return access.index.run.sizes


def _renamed(access: Access, there: Callable[[Any], Any]) -> Access:
    index = access.index
    strides = {stride: there(coefficient) for stride, coefficient in index.strides.items()}
    calls = tuple(
        replace(c, inputs=tuple(map(there, c.inputs)), outputs=tuple(map(there, c.outputs)))
        for c in access.calls
    )
    return replace(
        access, index=type(index)(index.run, there(index.rest), strides, index.divisor),
        facts=tuple(map(there, access.facts)), calls=calls,
    )  # fmt: skip


def _there(term: Any) -> Any:
    """A term of which every number that hangs on the thread is renamed."""
    names = [constant for constant in _constants(term) if "!" in constant.decl().name()]
    return z3.substitute(term, *((name, z3.Int(name.decl().name() + "'")) for name in names))


def _constants(term: Any) -> list[Any]:
    found, todo, seen = [], [term], set()
    while todo:
        part = todo.pop()
        if part.get_id() in seen:
            continue
        seen.add(part.get_id())
        if part.num_args() == 0 and part.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found.append(part)
        todo.extend(part.children())
    return found
