"""One path through a kernel, for an arbitrary thread, arbitrary sizes and one arbitrary iteration
of each loop; ``verify/kernel.py`` asks for all of them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import z3

from ..model.kernel import (
    Data,
    Flag,
    Kernel,
    Parameter,
    Scratch,
    Shape,
    Size,
    Step,
    Steps,
    Value,
)
from .kernel_memory import Access, Array, Call, Floats, Local, Shared
from .kernel_sizes import Sizes
from .kernel_value import Num, Opaque, Unclear

#: Helpers whose result no index hangs on; what they do to the scratch of a block is theirs.
OPAQUE = frozenset({
    "barrier", "block_sum", "block_max", "lane_sum", "lane_max", "float_of_half", "half_of_float",
    "float_of_brain", "brain_of_float", "bits_of_float", "float_of_bits", "dot4", "word_of",
    "rounded", "_key", "_larger", "_factor", "_scale", "_integer", "_sigmoid", "_gelu",
    "_quotient", "_tiles_of",
})  # fmt: skip
#: Those that give several results.
SEVERAL = {"block_scan": 2, "_six_bits": 2, "mma_bytes": 4, "mma_few_bytes": 4, "mma_halves": 4,
           "mma_brains": 4}  # fmt: skip
#: Those that have a meaning of their own, by a lemma of ``verify/kernel_lemma.py`` or on trust.
HELPERS = frozenset({
    "row_place", "element_place", "group_place", "tile_place", "quad", "ranked", "pair_at",
    "pair_inside",
})  # fmt: skip


#: Solver effort for a question on the way, in Z3's resource units.
EFFORT = 2_000_000

#: A path with more decisions than this does not end by itself.
MOST_DECISIONS = 256

#: what the solver said of facts, by the numbers of their terms
Answers = dict[frozenset[int], tuple[bool, tuple[Any, ...]]]


class Joined(Exception):
    """The path goes on as another does, from where a helper without a result returned."""


class Run:
    """A path: decisions made so far are ``decisions``, further ones are first tried as true."""

    def __init__(
        self, kernel: Kernel, sizes: Sizes, choices: Sequence[int], decisions: list[bool],
        answers: Answers,
    ) -> None:  # fmt: skip
        self.kernel, self.decisions, self.taken, self.answers = kernel, decisions, 0, answers
        self._replayed = len(decisions)
        self.sizes = sizes
        self.facts: list[Any] = []
        self.accesses: list[Access] = []
        self.calls: list[Call] = []
        self._number = 0  # of the next unknown
        self._choices = iter(choices)
        self._counting = False  # in a rank, whose count no index hangs on but by its lemma
        self._thread()
        self.arguments = [self._argument(parameter) for parameter in kernel.parameters]

    # -- what there is --------------------------------------------------------------------------

    def _thread(self) -> None:
        along = zip("xyz", (*self.kernel.grid, "1", "1"), strict=False)
        grid = [self.fresh(f"block{axis}", self.sizes.term(size)) for axis, size in along]
        self.thread = self.fresh("thread", z3.IntVal(self.kernel.threads))
        self.identity = (*(block.rest for block in grid), self.thread.rest)
        one = Num(self, z3.IntVal(0))
        self.cuda = SimpleNamespace(
            blockIdx=SimpleNamespace(x=grid[0], y=grid[1], z=grid[2]),
            threadIdx=SimpleNamespace(x=self.thread, y=one, z=one),
            blockDim=SimpleNamespace(x=self.kernel.threads),
            shared=SimpleNamespace(array=lambda size, kind: Array(self, Shared(str(kind), size))),
            local=SimpleNamespace(array=lambda size, kind: Local(self, size)),
            syncthreads=lambda: None,
        )

    def _argument(self, parameter: Parameter) -> Any:
        match parameter:
            case Data() | Scratch() | Flag():
                return Array(self, parameter)
            case Steps(tensor):
                return tuple(self._stride(tensor, n) for n in range(4))
            case Step(tensor, n):
                return self._stride(tensor, n)
            case Shape(tensor):
                return tuple(self.size(f"{tensor}.{n}") for n in range(4))
            case Size(dimension):
                return self.size(dimension)
            case Value(choices=()):
                return Opaque(self)
            case Value():
                return next(self._choices)

    def _stride(self, tensor: str, n: int) -> Num:
        return Num(self, z3.IntVal(0), {(tensor, n): z3.IntVal(1)})

    def size(self, dimension: str) -> Num:
        return Num(self, self.sizes.term(dimension), natural=True)

    def _unknown(self, name: str) -> Any:
        self._number += 1
        return z3.Int(f"{name}!{self._number}")

    def fresh(self, name: str, bound: Any = None) -> Num:
        """A number from 0 to below the bound."""
        term = self._unknown(name)
        self.facts.append(term >= 0)
        if bound is None:
            return Num(self, term, natural=True)
        self.facts.append(term < bound)
        return Num(self, term, natural=True, below=(bound,))

    def loaded(self, bits: int) -> Num:
        """A signed integer of the data."""
        found = Num(self, self._unknown("loaded"))
        self.facts += [found.rest >= -(2 ** (bits - 1)), found.rest < 2 ** (bits - 1)]
        return found

    @property
    def new(self) -> bool:
        """Whether the path has left the one before it, which made the same accesses so far."""
        return self.taken >= self._replayed

    # -- deciding -------------------------------------------------------------------------------

    def holds(self, claim: Any) -> bool:
        """Whether the facts imply the claim (a solver that gives up says no)."""
        terms = (*self.sizes.facts, *self.facts, z3.Not(claim))
        key = frozenset(term.get_id() for term in terms)
        if key not in self.answers:
            solver = z3.Solver()
            solver.set("rlimit", EFFORT)
            solver.add(*terms)
            # The terms are kept, so that no other gets their numbers.
            self.answers[key] = solver.check() == z3.unsat, terms
        return self.answers[key][0]

    def either(self) -> bool:
        if self.taken == MOST_DECISIONS:
            raise Unclear(f"a path of more than {MOST_DECISIONS} decisions")
        if self.taken == len(self.decisions):
            self.decisions.append(True)
        self.taken += 1
        return self.decisions[self.taken - 1]

    def choose(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return bool(z3.is_true(condition))
        answer = self.either()
        self.facts.append(condition if answer else z3.Not(condition))
        return answer

    # -- arithmetic -----------------------------------------------------------------------------

    def product(self, a: Num, b: Num, result: Num) -> None:
        result.natural = a.natural and b.natural
        result.packed = a, b, Num(self, z3.IntVal(0), natural=True)
        if z3.is_int_value(a.rest) or z3.is_int_value(b.rest):
            return
        claim = result.rest >= 0
        self.facts.append(
            claim if result.natural else z3.Implies(z3.And(a.rest >= 0, b.rest >= 0), claim)
        )

    def sum(self, a: Num, b: Num, total: Num) -> None:
        """``place · count + rest`` with ``place < places`` and ``rest < count`` is less than
        ``places · count``: the fact that the solver cannot be asked to find by itself."""
        total.natural = a.natural and b.natural
        if a.packed is None or any(z3.is_int_value(n.rest) for n in a.packed[:2]):
            return
        place, count_, rest = a.packed
        rest = b if z3.is_int_value(rest.rest) else rest + b
        total.packed = place, count_, rest
        if not place.below or not self._between(place) or not self._between(rest, count_.rest):
            return
        total.below = tuple(z3.simplify(bound * count_.rest) for bound in place.below)
        self.facts += [total.rest < bound for bound in total.below]

    def _between(self, number: Num, bound: Any = None) -> bool:
        """Whether a number is known to be from 0 to below the bound."""
        if not number.natural and not self.holds(number.rest >= 0):
            return False
        if bound is None or any(bound.eq(known) for known in number.below):
            return True
        return self.holds(number.rest < bound)

    def quotient(self, a: Num, b: Num) -> Num:
        if z3.is_int_value(b.rest):
            whole = self.sizes.whole(a.rest, b.rest.as_long())
            exact = whole is not None and self.holds(whole * b.rest == a.rest)
            return Num(self, whole if exact else a.rest / b.rest, natural=a.natural)
        found = self.fresh("quotient")
        self.facts.append(z3.Implies(z3.And(a.rest >= 0, b.rest >= 1), found.rest <= a.rest))
        return found

    def remainder(self, a: Num, b: Num) -> Num:
        if z3.is_int_value(b.rest):
            return Num(self, a.rest % b.rest)
        if not self._between(a) or not self.holds(b.rest >= 1):
            raise Unclear("a remainder of what may be negative, or by what may be 0")
        return self.fresh("remainder", b.rest)

    # -- helpers with a meaning of their own: the lemmas of verify/kernel_lemma.py --------------

    def row_place(self, row: Num, ne1: Num, ne2: Num) -> tuple[Num, ...]:
        return self._places("row_place", row, ne1, ne2)

    def element_place(self, number: Num, ne0: Num, ne1: Num, ne2: Num) -> tuple[Num, ...]:
        return self._places("element_place", number, ne0, ne1, ne2)

    def _places(self, name: str, number: Num, *given: Num | int) -> tuple[Num, ...]:
        sizes = [n if isinstance(n, Num) else Num(self, z3.IntVal(n)) for n in given]
        whole = z3.IntVal(1)
        for size in sizes:
            whole = whole * size.rest
        places = [self.fresh(name, size.rest) for size in sizes]
        last = self.fresh(name)
        bounds = (z3.IntVal(1), *self.sizes.names.values())
        products = [(bound, z3.simplify(whole * bound)) for bound in bounds]
        equal = self.sizes.equal
        last.below = tuple(b for b, most in products if any(equal(most, k) for k in number.below))
        if not last.below:
            last.below = tuple(b for b, most in products if self.holds(number.rest < most))
        self.facts += [last.rest < bound for bound in last.below]
        outputs = tuple(place.rest for place in (*places, last))
        self.calls.append(Call(_of_sizes(name, sizes), (number.rest,), outputs))
        return (*places, last)

    def group_place(self, place: Num, count_: Num, groups: Num) -> Num:
        if not self._between(place, count_.rest):
            raise Unclear("group_place of a number that may be past the count")
        if not self.sizes.divides(groups.rest, count_.rest):
            raise Unclear(f"group_place: no promise that {groups.rest} divides {count_.rest}")
        return self.fresh("group", groups.rest)

    def rank(self, body: Callable[..., Any]) -> Callable[..., Num]:
        """A rank among ``count`` elements in a total order: different elements, different ranks."""

        def helper(x: Any, at: Num, step: Num, count_: Num, sign: Any, k: Num) -> Num:
            self._counting = True
            body(x, at, step, count_, sign, k)  # for its reads
            self._counting = False
            found = self.fresh("rank", count_.rest)
            row = tuple(at.strides[s] for s in sorted(at.strides))
            self.calls.append(Call("rank", (k.rest, *row), (found.rest, *row)))
            return found

        return helper

    def tile_place(self, thread: Num, eighth: Num, k: Num) -> tuple[Num, Num]:
        """A tile has half as many rows and a fourth as many columns as there are threads."""
        threads = self.kernel.threads
        for number, bound in ((thread, threads), (eighth, threads // 32), (k, 4)):
            if not self._between(number, z3.IntVal(bound)):
                raise Unclear(f"tile_place of a number that may be past {bound}")
        places = [self.fresh("tile", z3.IntVal(threads // part)) for part in (2, 4)]
        inputs, outputs = (thread.rest, eighth.rest, k.rest), tuple(p.rest for p in places)
        self.calls.append(Call("tile_place", inputs, outputs))
        return places[0], places[1]

    def ranked(self, rank: Any, element: Num, count_: Num) -> Num:
        """A rank that the kernel has counted: what it counts is not looked at."""
        found = self.fresh("ranked", count_.rest)
        self.calls.append(Call("ranked", (element.rest,), (found.rest,)))
        return found

    def pair_at(self, order: Array, number: Num) -> tuple[Num, Num]:
        """A pair that is nowhere else, unless it is negative."""
        for place in (2 * number, 2 * number + 1):
            order.access(place, False)
        pair = self.loaded(32), self.loaded(32)
        outputs = tuple(place.rest for place in pair)
        self.calls.append(Call("pair_at", (number.rest,), outputs, natural=True))
        return pair

    def pair_inside(self, i1: Any, ne1: Any, i2: Any, ne2: Any) -> bool:
        """One decision, not four."""
        return self.choose(
            z3.And(i1.rest >= 0, i1.rest < ne1.rest, i2.rest >= 0, i2.rest < ne2.rest)
        )

    def quad(self, array: Array, at: Num) -> tuple[Opaque, ...]:
        """Four words in one load, which must start at a multiple of four."""
        array.access(at, False, aligned=4)
        for k in (1, 2, 3):
            array.access(at + k, False)
        return (Opaque(self),) * 4

    # -- running --------------------------------------------------------------------------------

    def range(self, *bounds: Any) -> Iterator[Num]:
        """One arbitrary iteration, or none."""
        start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        turn = self.fresh("turn")  # also where it is not entered: later names stay the same
        empty = isinstance(start, int) and isinstance(stop, int) and start >= stop
        if empty or not self.either():
            return
        start, stop = (
            b if isinstance(b, Num) else Num(self, z3.IntVal(b), natural=b >= 0)
            for b in (start, stop)
        )
        number = start + turn * step
        number.below, number.packed = (stop.rest,), None
        self.facts.append(number.rest < stop.rest)
        caller = sys._getframe(1)
        before = {name: id(value) for name, value in caller.f_locals.items()}
        yield number
        for name, value in caller.f_locals.items():
            changed = id(value) != before.get(name, id(value))
            if self._counting or not changed or not isinstance(value, Num | int):
                continue
            if not _loops(caller.f_code, name):
                raise Unclear(f"{name} is carried from one iteration of a loop to the next")

    def function(self, jitted: Any) -> Callable[..., Any]:
        """The Python of a kernel or helper, its globals replaced by what has a meaning here."""
        plain = getattr(jitted, "py_func", jitted)
        code = plain.__code__
        known = dict(plain.__globals__)
        for name in code.co_names:
            if name in known:
                known[name] = self.meaning(name, known[name])
        known |= {
            "cuda": self.cuda,
            "range": self.range,
            "np": Floats(self),
            "math": Floats(self),
        }
        cells = zip(code.co_freevars, plain.__closure__ or (), strict=True)
        closure = (self.meaning(name, cell.cell_contents) for name, cell in cells)
        return types.FunctionType(
            code, known, plain.__name__, None, tuple(map(types.CellType, closure)) or None
        )

    def meaning(self, name: str, value: Any) -> Any:
        """What a name of a kernel stands for here."""
        if name in OPAQUE:
            return lambda *given: self.opaque(name, given, 1)[0]
        if name in SEVERAL:
            return lambda *given: self.opaque(name, given, SEVERAL[name])
        if name in HELPERS:
            return getattr(self, name)
        if hasattr(value, "py_func"):
            body = self.function(value)
            if name == "_rank":
                return self.rank(body)
            silent = value.py_func.__annotations__.get("return") == "None"
            return self.section(body) if silent else body
        return value

    def opaque(self, name: str, given: Sequence[Any], count: int) -> tuple[Opaque, ...]:
        for one in given:
            if isinstance(one, Array) and not isinstance(one.parameter, Shared):
                raise Unclear(f"what {name} does to memory is not looked at")
        return (Opaque(self),) * count

    def section(self, body: Callable[..., Any]) -> Callable[..., None]:
        """A helper that gives nothing back: after it all is as before, whatever it decided.

        What it learned is forgotten, and of the paths through it one goes on.
        """

        def helper(*arguments: Any) -> None:
            facts, calls = list(self.facts), list(self.calls)
            start, number = self.taken, self._number
            body(*arguments)
            self.facts, self.calls, self._number = facts, calls, number
            if not all(self.decisions[start : self.taken]):
                raise Joined

        return helper

    def execute(self) -> None:
        with suppress(Joined):
            self.function(self.kernel.function)(*self.arguments)


def _of_sizes(name: str, sizes: Sequence[Num]) -> str:
    """A helper's name for these sizes: with others it is another one-to-one function."""
    words = [str(size.rest) for size in sizes]
    if any("!" in word for word in words):
        raise Unclear(f"{name} of sizes that differ between threads")
    return " ".join((name, *words))


@cache
def _loops(code: types.CodeType, name: str) -> bool:
    """Whether a name is the variable of loops, and is read inside of them alone."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    loops = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.For) and ast.unparse(node.target) == name
    ]  # fmt: skip
    inside = {id(part) for loop in loops for line in loop.body for part in ast.walk(line)}
    return bool(loops) and all(
        id(node) in inside
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    )
