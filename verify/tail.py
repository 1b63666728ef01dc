"""What a kernel reads past the experts that it uses: bytes that must be defined, and nobody's.

A device may declare that its kernels read ``over_read`` bytes past an expert.  Their values do not
count, but an undefined byte there can be a NaN.  Such a byte is right if in every order it is
completely written, or has an initial version, and

* it is a byte of the tensor itself (of a bank: of a slot that cannot be empty), or
* nobody's: no byte of another tensor.  Of another weight of the same type the blocks will do, where
  they lie in step; of a compute buffer only bytes that nothing ever writes, which the device is
  assumed to have cleared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import proxy

from ..model.device import Usage
from ..model.graph import Bank
from ..model.schedule import Schedule
from ..model.tensor import Tensor
from .access import Read, Write, expert_stride, selects, starts_with_content
from .region import NeedsNumbers, Region, Unsupported, rearrange, region_of
from .term import Bool, Int, Scope, conj, disj, neg, number, quotient, remainder, size

if TYPE_CHECKING:
    from .footprint import Footprints
    from .obligation import Judge

#: ``(write, relation, where)``
Wrong = tuple[Write | None, str, Bool]
#: The relation of a write of which it is not known whether it harms the read.
UNCLEAR = "unclear"


def past_region(schedule: Schedule, region: Region, count: int) -> Region:
    """The bytes of a tensor and ``count`` after them."""
    extent = region.tensor.extent
    span = region.span[0], (region.start + extent).bounds(schedule.graph.ranges)[1] + count
    return Region(region.space, region.start, region.tensor, span, extent + count, region.exact)


def expert_bytes(tensor: Tensor) -> int:
    """Bytes of one expert, which must lie together; ``Unsupported`` if they do not."""
    inner, rows = tensor.ne[0].constant, tensor.ne[1].constant
    row = tensor.nb[1].constant if len(tensor.shape) > 1 else 0
    if row is None or rows is None or inner is None:
        raise NeedsNumbers(tensor.name)
    packed = inner // tensor.type.block * tensor.type.block_bytes
    if tensor.nb[0].constant != tensor.type.block_bytes or (rows > 1 and row != packed):
        raise Unsupported(f"the bytes of an expert of {tensor.name!r} do not lie together")
    return packed * rows


class Tails:
    """Judges reads past experts, for the ``Judge`` of one regime."""

    def __init__(self, judge: Judge) -> None:
        # Its judge holds it: a cycle would keep all footprints until the next collection.
        self.judge: Judge = proxy(judge)
        self.schedule = judge.schedule
        self.footprints: Footprints = judge.footprints
        self._bases: dict[str, list[Region]] = {}

    # -- which bytes ------------------------------------------------------------------------------

    def domain(self, read: Read, byte: Int, scope: Scope) -> Bool:
        """Whether a byte, counted from the tensor's first, is read past some expert."""
        tensor = read.region.tensor
        stride, own, count = expert_stride(tensor), expert_bytes(tensor), self._count(read)
        behind = byte - own
        last = quotient(behind, stride)
        found = []
        for back in range(-(-read.past // stride)):
            expert = last - back
            found.append(
                conj([
                    scope.le(number(0), expert), scope.lt(expert, number(count)),
                    scope.lt(behind - expert * stride, number(read.past)),
                    self._used(read, expert, scope),
                ])
            )  # fmt: skip
        inside = quotient(byte, stride)
        here = conj([self._in_plane(read, byte, scope), self._used(read, inside, scope)])
        return conj([disj(found), True if read.bank is not None else neg(here)])

    def _used(self, read: Read, expert: Int, scope: Scope) -> Bool:
        return True if read.experts is None else selects(read.experts, expert, scope)

    def _count(self, read: Read) -> int:
        if read.bank is not None:
            return read.bank.bank.slots
        count = read.region.tensor.ne[2].constant
        if count is None:
            raise NeedsNumbers(read.region.tensor.name)
        return count

    def _in_plane(self, read: Read, byte: Int, scope: Scope) -> Bool:
        """Whether a byte is one of an expert (of a bank: of a slot), and not between two."""
        stride, own = expert_stride(read.region.tensor), expert_bytes(read.region.tensor)
        return conj([
            scope.lt(quotient(byte, stride), number(self._count(read))),
            scope.lt(remainder(byte, stride), number(own)),
        ])  # fmt: skip

    # -- what is wrong with them ------------------------------------------------------------------

    def wrongs(self, read: Read, byte: Int, scope: Scope) -> Iterator[Wrong]:
        """``(write, relation, where)``: each reason for which a byte past an expert is not right.

        ``unordered``: it may be half written; ``stale``: another tensor's, or a copy of what was
        not defined; ``none``: nothing was written; ``foreign``: another tensor lies there;
        ``empty``: a slot that may be empty; ``outside``: past the end of the buffer.
        ``unclear``: it is not known whether the write harms the read.
        """
        address = size(read.region.start) + byte
        if read.bank is not None and not self._at_home(read):
            yield None, UNCLEAR, True
            return
        own, before, raced = self._owners(read), [], list[Bool]()
        slots = self._in_plane(read, byte, scope) if read.bank is not None else False
        yield None, "outside", self._outside(read, address, scope)
        for write in self.footprints.by_space.get(read.region.space, ()):
            here = self._covers(write, read, address, slots, scope)
            if here is False or self.footprints.order.before(read.part, write.part):
                continue
            if not self.footprints.order.before(write.part, read.part):
                if write.part == read.part and self._base(write.region.tensor) not in own:
                    yield None, "foreign", here  # the node's own result
                else:
                    unclear = write.part == read.part or self._fills(write, read)
                    yield write, UNCLEAR if unclear else "unordered", here
                raced.append(neg(here))
            else:
                before.append((write, here))
        for write, here in before:
            latest = self.judge.latest(write, here, before)
            mine = self._base(write.region.tensor) in own
            good = self._defined(write, address, scope) if mine else False
            yield write, "stale", conj([*raced, latest, neg(good)])
        rest = conj([*raced, *(neg(here) for _, here in before)])
        if read.bank is not None:
            yield None, "empty", conj([*raced, slots, self._empty(read, byte, scope)])
        for relation, where in self._untouched(read, byte, address, own, scope):
            yield None, relation, conj([rest, where])

    def _covers(self, write: Write, read: Read, address: Int, slots: Bool, scope: Scope) -> Bool:
        here = self.judge.covers(write, address, scope)
        if read.bank is not None and write.event is not None and write.event.kind == "state":
            return conj([here, slots]) if self._fills(write, read) else here
        return here

    def _fills(self, write: Write, read: Read) -> bool:
        """Whether the write is an upload into the slots that are read."""
        if read.bank is None or write.event is None or write.event.kind != "state":
            return False
        return self._base(write.region.tensor) in self._owners(read)

    def _untouched(
        self, read: Read, byte: Int, address: Int, own: set[str], scope: Scope
    ) -> Iterator[tuple[str, Bool]]:
        """What is wrong with a byte that nothing wrote before the read."""
        tensor, space = read.region.tensor, read.region.space
        if starts_with_content(self.schedule, space):
            for other in self._neighbours().get(space, ()):
                if other.tensor.name not in own and other.may_meet(read.region):
                    here = other.contains(address, scope)
                    yield "foreign", conj([here, neg(self._in_step(read, other, scope))])
            return
        if tensor.view_of is None:
            yield "none", self._in_plane(read, byte, scope)
        else:
            base = self.schedule.base(tensor.name).name
            yield "none", region_of(self.schedule, base).contains(address, scope)

    def _neighbours(self) -> dict[str, list[Region]]:
        """The tensors that own their bytes, by the space that they lie in."""
        if not self._bases:
            for tensor in self.schedule.graph.tensors:
                if tensor.view_of is None:
                    region = region_of(self.schedule, tensor.name)
                    self._bases.setdefault(region.space, []).append(region)
        return self._bases

    def _in_step(self, read: Read, other: Region, scope: Scope) -> Bool:
        """Whether blocks of another weight will do in the place of the next expert's."""
        tensor = read.region.tensor
        graph = self.schedule.graph
        plain = read.bank is None and graph.find_bank(other.tensor.name) is None
        weight = self.schedule.location(other.tensor.name).usage is Usage.WEIGHTS
        alike = other.tensor.type == tensor.type and not tensor.type.integer
        if not (plain and weight and alike and other.tensor.packed and tensor.packed):
            return False
        apart = size(other.start) - size(read.region.start)
        return scope.eq(remainder(apart, tensor.type.block_bytes), number(0))

    def _outside(self, read: Read, address: Int, scope: Scope) -> Bool:
        if read.region.space.startswith("own:"):
            return False
        bytes_ = self.schedule.graph.buffer(read.region.space).bytes
        return scope.le(number(bytes_), address)

    # -- whose bytes ------------------------------------------------------------------------------

    def _base(self, tensor: Tensor) -> str:
        return self.schedule.base(tensor.name).name

    def _owners(self, read: Read) -> set[str]:
        """The tensors whose bytes count as those of the one that is read."""
        if read.bank is None:
            return {self._base(read.region.tensor)}
        mine = read.bank.bank
        return {b.name for b in self.schedule.graph.banks if _shares_slots(b, mine)}

    def _at_home(self, read: Read) -> bool:
        """Whether the slots are read where they are filled, and not from a copy of them."""
        assert read.bank is not None
        return read.region.space == self.schedule.location(read.bank.bank.name).space

    def _empty(self, read: Read, byte: Int, scope: Scope) -> Bool:
        """Whether the byte is one of the first slot that can be empty while the bank is read.

        From an empty group, and with one expert for all ids of a layer, each layer that was filled
        so far has taken one slot, the reader's the last of them.
        """
        assert read.bank is not None
        bank, serving = read.bank.bank, read.bank.fill
        if serving is None:
            return False  # BK008 tells
        layers = set[int]()
        for place in self.footprints.fills.get(bank.group, ()):
            if place[::-1] <= serving[::-1]:
                layers |= self.judge.banks.layers(place)
        if len(layers) >= bank.slots:
            return False
        slot = quotient(byte, expert_stride(read.region.tensor))
        return scope.eq(slot, number(len(layers)))

    # -- defined, by way of copies ----------------------------------------------------------------

    def _defined(self, write: Write, address: Int, scope: Scope) -> Bool:
        """Whether the write leaves a defined byte there: its own, or one that it copies."""
        if write.source is None:
            return True
        inside = address - size(write.region.start)
        source = write.source
        moved = rearrange(inside, write.region.tensor, source.region.tensor)
        return self._source_defined(source, size(source.region.start) + moved, scope)

    def _source_defined(self, read: Read, address: Int, scope: Scope) -> Bool:
        if self.schedule.graph.find_bank(self._base(read.region.tensor)) is not None:
            return False  # a slot may be empty
        before: list[tuple[Write, Bool]] = []
        good: list[Bool] = []
        for write in self.footprints.writers(read):
            here = self.judge.covers(write, address, scope)
            if here is False or self.footprints.order.before(read.part, write.part):
                continue
            if not self.footprints.order.before(write.part, read.part):
                good.append(neg(here))
            else:
                before.append((write, here))
        for write, here in before:
            latest = self.judge.latest(write, here, before)
            if latest is not False:
                mine = self._base(write.region.tensor) == self._base(read.region.tensor)
                defined = self._defined(write, address, scope) if mine else False
                good.append(disj([neg(latest), defined]))
        if not starts_with_content(self.schedule, read.region.space):
            good.append(disj(here for _, here in before))
        return conj(good)


def _shares_slots(a: Bank, b: Bank) -> bool:
    return (a.group, a.role) == (b.group, b.role)
