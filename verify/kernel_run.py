"""One path through a kernel, for an arbitrary thread, arbitrary sizes and one arbitrary iteration
of each loop; ``verify/kernel.py`` asks for all of them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
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
from .kernel_sizes import Sizes
from .kernel_value import Num, Opaque, Unclear

#: Helpers whose result no index hangs on; what they do to the scratch of a block is theirs.
OPAQUE = frozenset({
    "block_sum", "block_max", "lane_sum", "lane_max", "float_of_half", "half_of_float",
    "float_of_brain", "brain_of_float", "bits_of_float", "float_of_bits", "dot4", "word_of",
    "rounded", "_key", "_larger", "_factor", "_scale", "_integer", "_sigmoid", "_gelu",
    "_quotient",
})  # fmt: skip
#: Those that give several results.
SEVERAL = {"block_scan": 2, "_six_bits": 2, "mma_bytes": 4, "mma_few_bytes": 4, "mma_halves": 4,
           "mma_brains": 4}  # fmt: skip


#: Solver effort for a question on the way, in Z3's resource units.
EFFORT = 2_000_000

#: A path with more decisions than this does not end by itself.
MOST_DECISIONS = 256

#: what the solver said of facts, by the numbers of their terms
Answers = dict[frozenset[int], tuple[bool, tuple[Any, ...]]]


@dataclass(frozen=True)
class Access:
    """A read or write of a parameter: where, and under which conditions.

    ``aligned``: the index must be a multiple of it.
    """

    parameter: Data | Scratch | Flag
    index: Num
    write: bool
    facts: tuple[Any, ...]
    calls: tuple[Call, ...]
    aligned: int = 1

    @property
    def conditions(self) -> frozenset[int]:
        """The facts by the solver's numbers for them."""
        return frozenset(fact.get_id() for fact in self.facts)


@dataclass(frozen=True)
class Call:
    """A one-to-one helper: equal inputs give equal outputs, and different ones different."""

    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


class Run:
    """A path: decisions made so far are ``decisions``, further ones are first tried as true."""

    def __init__(
        self, kernel: Kernel, choices: Sequence[int], decisions: list[bool], answers: Answers
    ) -> None:
        self.kernel, self.decisions, self.taken, self.answers = kernel, decisions, 0, answers
        self.sizes = Sizes(kernel)
        self.facts: list[Any] = []
        self.accesses: list[Access] = []
        self.calls: list[Call] = []
        self._fresh = count()
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
            shared=SimpleNamespace(array=lambda size, kind: Opaque(self)),
            local=SimpleNamespace(array=lambda size, kind: _Local(self, size)),
            syncthreads=lambda: None,
        )

    def _argument(self, parameter: Parameter) -> Any:
        match parameter:
            case Data() | Scratch() | Flag():
                return _Array(self, parameter)
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

    def fresh(self, name: str, bound: Any = None) -> Num:
        """A number from 0 to below the bound."""
        term = z3.Int(f"{name}!{next(self._fresh)}")
        self.facts.append(term >= 0)
        if bound is None:
            return Num(self, term, natural=True)
        self.facts.append(term < bound)
        return Num(self, term, natural=True, below=(bound,))

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

    def quad(self, array: _Array, at: Num) -> tuple[Opaque, ...]:
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
        if not self.either():
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
        known = dict(plain.__globals__)
        for name in plain.__code__.co_names:
            if name in OPAQUE:
                known[name] = lambda *_: Opaque(self)
            elif name in SEVERAL:
                known[name] = lambda *_, count=SEVERAL[name]: (Opaque(self),) * count
            elif name in ("row_place", "element_place", "group_place", "quad"):
                known[name] = getattr(self, name)
            elif hasattr(known.get(name), "py_func"):
                body = self.function(known[name])
                known[name] = self.rank(body) if name == "_rank" else body
        known |= {
            "cuda": self.cuda,
            "range": self.range,
            "np": _Floats(self),
            "math": _Floats(self),
        }
        cells = [cell.cell_contents for cell in plain.__closure__ or ()]
        given = (self.function(cell) if hasattr(cell, "py_func") else cell for cell in cells)
        closure = tuple(types.CellType(value) for value in given) or None
        return types.FunctionType(plain.__code__, known, plain.__name__, None, closure)

    def execute(self) -> None:
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


class _Array:
    def __init__(self, run: Run, parameter: Data | Scratch | Flag) -> None:
        self.run, self.parameter = run, parameter

    @property
    def size(self) -> Num:
        assert isinstance(self.parameter, Scratch)
        return self.run.size("*".join(self.parameter.size))

    def access(self, index: Any, write: bool, aligned: int = 1) -> None:
        run = self.run
        index = index if isinstance(index, Num) else Num(run, z3.IntVal(index))
        facts, calls = (*run.sizes.facts, *run.facts), tuple(run.calls)
        run.accesses.append(Access(self.parameter, index, write, facts, calls, aligned))

    def __getitem__(self, index: Any) -> Any:
        self.access(index, False)
        kind = "i32" if isinstance(self.parameter, Flag) else self.parameter.kind
        if not isinstance(self.parameter, Data) or kind not in ("i32", "i64"):
            return Opaque(self.run)
        found = Num(self.run, z3.Int(f"loaded!{next(self.run._fresh)}"))
        bits = int(kind[1:]) - 1
        self.run.facts += [found.rest >= -(2**bits), found.rest < 2**bits]
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        self.access(index, True)


class _Local:
    """An array of one thread."""

    def __init__(self, run: Run, size: int) -> None:
        self.run, self.size = run, size

    def __getitem__(self, index: Any) -> Opaque:
        inside = isinstance(index, int) and 0 <= index < self.size
        if not inside and not self.run.holds(z3.And(index.rest >= 0, index.rest < self.size)):
            raise Unclear("an index outside a thread's own array")
        return Opaque(self.run)

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index]


class _Floats:
    """``np`` and ``math``: what they give is opaque; a conversion to an integer keeps an index."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def int64(self, value: Any) -> Any:
        return value

    int32 = int64

    def __getattr__(self, name: str) -> Any:
        return Opaque(self.run) if name in ("nan", "inf") else lambda *_: Opaque(self.run)
