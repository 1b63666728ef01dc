"""The dimensions that a kernel is called with, as integers of the solver."""

from __future__ import annotations

from typing import Any

import z3

from ..model.kernel import Kernel


class Sizes:
    """The dimensions of a kernel as integers: equal ones are one symbol."""

    def __init__(self, kernel: Kernel) -> None:
        self.facts: list[Any] = []
        self._same: dict[str, str] = {}
        self._divided: dict[tuple[str, int], Any] = {}
        self._terms: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        for a, b in kernel.same:
            if "*" not in a + b and "/" not in a + b:
                self._same[self._root(a)] = self._root(b)
        self._equal = [(self.term(a), self.term(b)) for a, b in kernel.same]
        self.facts += [a == b for a, b in self._equal]
        self._divisors = [(self.term(a), self.term(b)) for a, b in kernel.divides]
        self.facts += [a <= b for a, b in self._divisors]  # all that an index needs of it

    def _root(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name

    def term(self, dimension: str) -> Any:
        if dimension not in self._terms:
            factors = map(self._factor, dimension.split("*"))
            self._terms[dimension] = z3.simplify(z3.Product(*factors, z3.IntVal(1)))
        return self._terms[dimension]

    def _factor(self, name: str) -> Any:
        if "/" in name:
            name, _, divisor = name.rpartition("/")
            return self._rounded_up(name, int(divisor))
        name = self._root(name)
        if name.isdigit():
            return z3.IntVal(int(name))
        if name not in self.names:
            self.names[name] = z3.Int(name)
            self.facts.append(self.names[name] >= 1)
        return self.names[name]

    def _rounded_up(self, name: str, divisor: int) -> Any:
        key = self._root(name), divisor
        if key not in self._divided:
            whole, part = self._factor(name), z3.Int(f"{key[0]}/{divisor}")
            self._divided[key] = part
            self.facts += [part * divisor >= whole, (part - 1) * divisor < whole]
        return self._divided[key]

    def divides(self, a: Any, b: Any) -> bool:
        """Whether the launch promises that a divides b, or they are the same."""
        return a.eq(b) or any(a.eq(one) and b.eq(two) for one, two in self._divisors)

    def equal(self, a: Any, b: Any) -> bool:
        """Whether the launch promises that these are the same, in so many words."""
        known = ((one, two) for pair in self._equal for one, two in (pair, pair[::-1]))
        return a.eq(b) or any(a.eq(one) and b.eq(two) for one, two in known)

    def whole(self, size: Any, divisor: int) -> Any:
        """The symbol of a dimension over a constant, if the kernel's launch names it."""
        for (name, by), part in self._divided.items():
            if by == divisor and name in self.names and self.names[name].eq(size):
                return part
        return None
