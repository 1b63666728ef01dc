"""What the names of a document mean: look-ups that fail with a place and a suggestion."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .device import HOST, Device
from .fault import Fault, Path, meant, quote
from .satisfy import satisfiable
from .schedule import Schedule
from .symbol import PASS, Condition, Expr
from .tensor import Tensor

#: Bytes of one tensor end here, so that addresses and sums of a few fit in 64 bits.
MOST_BYTES = 2**60


class Scope:
    """The names that a schedule declares."""

    def __init__(self, schedule: Schedule) -> None:
        graph = schedule.graph
        self.schedule = schedule
        self.graph = graph
        self.ranges = graph.ranges
        self.memories = frozenset(m.name for m in graph.memories)
        self.buffers = frozenset(b.name for b in graph.buffers)
        self.devices = {d.name: d for d in graph.devices}
        self.queues = {f"{d.name}.{q}": d for d in graph.devices for q in d.queues}
        self.fixed = {name: low for name, (low, high) in self.ranges.items() if low == high}
        self._tensors: dict[str, Tensor | None] = {t.name: t for t in graph.tensors}
        self._guards: dict[Condition, bool | None] = {}
        self._bytes: dict[tuple[str, tuple[Expr, ...], int | None], Expr] = {}

    # -- names ------------------------------------------------------------------------------

    def memory(self, name: str, path: Path) -> None:
        if name not in self.memories:
            raise dangling("memory", name, path, sorted(self.memories))

    def buffer(self, name: str, path: Path) -> None:
        if name not in self.buffers:
            raise dangling("buffer", name, path, sorted(self.buffers))

    def device(self, name: str, path: Path) -> Device:
        if name not in self.devices:
            raise dangling("device", name, path, self.devices)
        return self.devices[name]

    def each_device(self, names: Iterable[str] | None, path: Path) -> None:
        for i, name in enumerate(names or ()):
            self.device(name, (*path, i))

    def queue(self, name: str, path: Path) -> Device | None:
        """The device of a queue; ``None`` for the host's."""
        if name == HOST:
            return None
        if name not in self.queues:
            raise dangling("queue", name, path, [HOST, *self.queues])
        return self.queues[name]

    def declared(self, name: str, path: Path) -> Tensor:
        """A tensor with an entry of its own."""
        tensor = self.graph.find_tensor(name)
        if tensor is None:
            raise dangling("tensor", name, path, (t.name for t in self.graph.tensors))
        return tensor

    def tensor(self, name: str, path: Path) -> Tensor:
        """A declared tensor, or the copy of one in a device's memory."""
        if name not in self._tensors:
            self._tensors[name] = self.schedule.find_tensor(name)
        tensor = self._tensors[name]
        if tensor is None:
            raise dangling("tensor", name, path, (t.name for t in self.graph.tensors))
        return tensor

    def integers(self, tensor: Tensor, path: Path, what: str) -> None:
        if not tensor.type.integer:
            raise Fault(path, f"{what} are integers; {quote(tensor.name)} is {tensor.dtype}")

    def split(self, index: int | None, path: Path) -> None:
        count = len(self.schedule.splits or ())
        if index is not None and not 0 <= index < count:
            due = f"0 to {count - 1}" if count else "none, as there are no splits,"
            raise Fault(path, f"there is no split {index}; {due} was due")

    # -- sizes and guards -------------------------------------------------------------------

    def size(self, expr: Expr, path: Path) -> Expr:
        """An expression whose symbols are declared, with single-valued symbols put in."""
        if expr.constant is not None:
            return expr
        for name in sorted(expr.symbols - self.ranges.keys()):
            if name == PASS:
                raise Fault(path, "sizes and offsets are the same in all passes: no 'pass' here")
            raise dangling("symbol", name, path, self.ranges)
        return expr.substitute(self.fixed) if self.fixed else expr

    def never_negative(self, expr: Expr, path: Path, what: str) -> Expr:
        expr = self.size(expr, path)
        low, high = expr.bounds(self.ranges)
        if low < 0:
            found = f"is {low}" if expr.constant is not None else f"can be {low}"
            raise Fault(path, f"{what} {found}; 0 or more was due")
        if high > MOST_BYTES:
            raise Fault(path, f"{what} can be {high}, which no machine holds")
        return expr

    def same(self, left: Expr, right: Expr) -> bool:
        """Whether two sizes are equal at all values of the symbols."""
        if left == right:
            return True
        return (left - right).bounds(self.ranges) == (0, 0)

    def data_bytes(self, tensor: Tensor) -> Expr:
        """Bytes of a tensor's elements; equal shapes are worked out once."""
        key = tensor.dtype, tensor.shape, tensor.bytes
        if key not in self._bytes:
            self._bytes[key] = tensor.data_bytes
        return self._bytes[key]

    def guard(self, condition: Condition, path: Path) -> None:
        """A ``when`` whose symbols are declared and that some values satisfy."""
        if not condition.parts:
            return
        ranges = {**self.ranges, PASS: (0, self.schedule.repeat - 1)}
        for name in sorted(condition.symbols - ranges.keys()):
            raise dangling("symbol", name, (*path, "when"), ranges)
        if condition not in self._guards:
            self._guards[condition] = satisfiable(condition, ranges)
        if self._guards[condition] is False:
            used = sorted(condition.symbols)
            where = ", ".join(f"{n} in {ranges[n][0]}..{ranges[n][1]}" for n in used)
            raise Fault(
                (*path, "when"),
                f'"{condition}" holds for no value' + (f" ({where})" if where else ""),
            )


def dangling(what: str, name: str, path: Path, known: Iterable[str]) -> Fault:
    return Fault(path, f"there is no {what} {quote(name)}{meant(name, known)}")


def unique(names: Iterable[str], place: Callable[[int], Path], what: str) -> None:
    """Raise at the second of two equal names."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise Fault(place(i), f"there are two {what} {quote(name)}; names are unique")
        seen.add(name)
