"""Regions of bytes: membership of an address, and the k-th byte of a tensor in logical order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..model.schedule import Schedule, same_layout
from ..model.symbol import Expr
from ..model.tensor import Tensor, packed_strides
from .term import Bool, Int, Scope, conj, number, quotient, remainder, size


class NeedsNumbers(Exception):
    """A stride hangs on a symbol where a quotient is due: decided at concrete values instead."""


class Unsupported(Exception):
    """A layout or construct that has no exact footprint; the message says which."""


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes of a tensor in one space.

    ``start``: address of the first byte.  ``span``: first and one-past-last address that it can
    have at any value of the symbols.  ``length``: bytes from there, if the region is only
    the head of the tensor (the slots of a bank without its spare).  ``exact`` is false where
    the document does not say which bytes of the base a view has.
    """

    space: str
    start: Expr
    tensor: Tensor
    span: tuple[int, int]
    length: Expr | None = None
    exact: bool = True
    #: bytes from the first to one past the last
    extent: Expr = field(init=False, repr=False, compare=False)
    contiguous: bool = field(init=False, repr=False, compare=False)
    #: the start as a term
    origin: Int = field(init=False, repr=False, compare=False)
    #: all that says, with an offset from the start, whether a byte is one of these
    form: tuple[object, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tensor, headed = self.tensor, self.length is not None
        extent = self.length if self.length is not None else tensor.extent
        contiguous = headed or tensor.packed or not tensor.shape
        layout = () if contiguous else (tensor.dtype, tensor.shape, tensor.nb)
        object.__setattr__(self, "extent", extent)
        object.__setattr__(self, "contiguous", contiguous)
        object.__setattr__(self, "origin", size(self.start))
        object.__setattr__(self, "form", (extent, layout))

    def may_meet(self, other: Region) -> bool:
        """Whether the spans of two regions of one space overlap."""
        return self.span[0] < other.span[1] and other.span[0] < self.span[1]

    def contains(self, address: Int, scope: Scope) -> Bool:
        """Whether an address of the space is one of these bytes."""
        inside = address - self.origin
        key = inside, self.form
        if key not in scope.known:
            scope.known[key] = self._contains(inside, scope)
        return scope.known[key]

    def _contains(self, inside: Int, scope: Scope) -> Bool:
        within = [scope.le(number(0), inside), scope.lt(inside, size(self.extent))]
        if not self.contiguous and False not in within:
            within.extend(_on_strides(inside, self.tensor, scope))
        return conj(within)


def region_of(schedule: Schedule, name: str) -> Region:
    """The region of a tensor; of its whole base where a view's place in it is not known."""
    tensor, exact = schedule.tensor(name), True
    if tensor.about and tensor.view_of is not None:
        tensor, exact = schedule.base(name), False
    place = schedule.location(tensor.name)
    return _region(schedule, place.space, place.offset, tensor, exact)


def moved_region(schedule: Schedule, region: Region, space: str, origin: Expr) -> Region:
    """A region in another space, whose address 0 lies at ``origin`` in this one."""
    if not origin.terms:
        return replace(region, space=space)
    return _region(schedule, space, region.start - origin, region.tensor, region.exact)


def _region(schedule: Schedule, space: str, start: Expr, tensor: Tensor, exact: bool) -> Region:
    symbols = schedule.graph.ranges
    span = start.bounds(symbols)[0], (start + tensor.extent).bounds(symbols)[1]
    return Region(space, start, tensor, span, exact=exact)


def _constant_strides(tensor: Tensor) -> list[tuple[int, Expr]]:
    """``(stride, count)`` of the dimensions that move, widest stride first."""
    if not tensor.shape:
        raise Unsupported(f"tensor {tensor.name!r} is known only by its size")
    kind = tensor.type
    counts = [_blocks(tensor), *tensor.shape[1:]]
    pairs = []
    for stride, count in zip(tensor.nb, counts, strict=True):
        if count.constant == 1:
            continue
        if stride.constant is None:
            raise NeedsNumbers(tensor.name)
        pairs.append((stride.constant, count))
    pairs.sort(key=lambda p: -p[0])
    inner = kind.block_bytes
    for place, (step, count) in reversed(list(enumerate(pairs))):
        if step < inner:
            raise Unsupported(f"rows of tensor {tensor.name!r} overlap each other")
        if place and count.constant is None:  # whether it fits the next stride hangs on numbers
            raise NeedsNumbers(tensor.name)
        inner = step * ((count.constant or 1) - 1) + inner
    return pairs


def _blocks(tensor: Tensor) -> Expr:
    inner, block = tensor.shape[0], tensor.type.block
    return inner if block == 1 else Expr.of((inner.constant or 0) // block)


def _indices(offset: Int, strides: list[tuple[int, Expr]]) -> tuple[list[Int], Int]:
    """The index along each dimension, and the byte inside the block."""
    found = []
    for stride, _ in strides:
        found.append(quotient(offset, stride))
        offset = remainder(offset, stride)
    return found, offset


def _on_strides(inside: Int, tensor: Tensor, scope: Scope) -> list[Bool]:
    strides = _constant_strides(tensor)
    indices, byte = _indices(inside, strides)
    checks = [
        scope.lt(index, size(count)) for index, (_, count) in zip(indices, strides, strict=True)
    ]
    return [*checks, scope.lt(byte, number(tensor.type.block_bytes))]


def rearrange(offset: Int, source: Tensor, target: Tensor) -> Int:
    """Where in ``target`` lies the byte that is at ``offset`` in ``source``.

    The k-th byte of one in logical order is the k-th of the other.
    """
    if same_layout(source, target) or (source.packed and target.packed):
        return offset
    linear = offset if source.packed else _to_linear(offset, source)
    return linear if target.packed else _from_linear(linear, target)


def _packed_numbers(tensor: Tensor) -> list[int]:
    numbers = []
    for stride, count in zip(packed_strides(tensor.dtype, tensor.shape), tensor.shape, strict=True):
        if stride.constant is None:
            if count.constant == 1:
                numbers.append(0)
                continue
            raise NeedsNumbers(tensor.name)
        numbers.append(stride.constant)
    return numbers


def _to_linear(offset: Int, tensor: Tensor) -> Int:
    moving = _constant_strides(tensor)
    indices, byte = _indices(offset, moving)
    packed = _packed_numbers(tensor)
    total = byte
    # Equal strides cannot both move, so a stride names its dimension.
    by_stride = {stride: index for (stride, _), index in zip(moving, indices, strict=True)}
    for stride, count, step in zip(
        tensor.nb, [_blocks(tensor), *tensor.shape[1:]], packed, strict=True
    ):
        if count.constant != 1 and stride.constant is not None:
            total = total + by_stride[stride.constant] * step
    return total


def _from_linear(linear: Int, tensor: Tensor) -> Int:
    counts = [_blocks(tensor), *tensor.shape[1:]]
    steps = _packed_numbers(tensor)
    total, rest = number(0), linear
    for stride, count, step in reversed(list(zip(tensor.nb, counts, steps, strict=True))):
        if count.constant == 1:
            continue
        if stride.constant is None:
            raise NeedsNumbers(tensor.name)
        total = total + quotient(rest, step) * stride.constant
        rest = remainder(rest, step)
    return total + rest
