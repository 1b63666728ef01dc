"""Expert caches: each policy as a pure step from state and ids to state and slots.

An expert is ``(layer, number)``.  One state serves all layers of a bank group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Expert = tuple[int, int]


class CacheError(ValueError):
    """Ids that a cache cannot serve: too many distinct ones, or one that is no expert."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """Slots with their owners (``None``: empty), and the slots from least to most recently used.

    Each expert owns at most one slot, and ``recency`` names each slot once.
    """

    owners: tuple[Expert | None, ...]
    recency: tuple[int, ...]

    @property
    def slot_of(self) -> dict[Expert, int]:
        """The inverse of ``owners``."""
        return {owner: slot for slot, owner in enumerate(self.owners) if owner is not None}


def empty_slots(slots: int) -> SlotState:
    """A cache that holds nothing; slot 0 is taken first."""
    return SlotState((None,) * slots, tuple(range(slots)))


def filled_slots(slots: int, content: Iterable[tuple[int, int, int]]) -> SlotState:
    """A cache that holds ``(slot, layer, expert)``; full slots are used in the order given,
    after the empty ones.  ``CacheError`` if a slot or an expert occurs twice."""
    owners: list[Expert | None] = [None] * slots
    full: list[int] = []
    for slot, layer, expert in content:
        if not 0 <= slot < slots:
            raise CacheError(f"there is no slot {slot}; the bank has slots 0 to {slots - 1}")
        if owners[slot] is not None or (layer, expert) in owners:
            raise CacheError(f"slot {slot} or expert {expert} of layer {layer} is given twice")
        owners[slot] = (layer, expert)
        full.append(slot)
    rest = [slot for slot in range(slots) if owners[slot] is None]
    return SlotState(tuple(owners), tuple(rest + full))


@dataclass(frozen=True, slots=True)
class SlotStep:
    """What one call does.  ``uploads``: ``(expert, slot)`` in order; ``victims``: the experts
    that lose their slot; ``slot_ids``: the slot of each id, in the order of the ids."""

    state: SlotState
    slot_ids: tuple[int, ...]
    uploads: tuple[tuple[int, int], ...] = ()
    victims: tuple[Expert, ...] = ()
    hits: int = 0


def lru_slots(state: SlotState, layer: int, ids: Sequence[int]) -> SlotStep:
    """Bring every expert of ``ids`` into a slot (as ggml's expert cache plans a call).

    Hits are touched in the order of their first occurrence; then the misses, ascending, take
    the least recently used slots.  A negative id asks for nothing and gets slot -1.
    ``CacheError`` if the distinct ids outnumber the slots.
    """
    wanted = list(dict.fromkeys(i for i in ids if i >= 0))
    if len(wanted) > len(state.owners):
        raise CacheError(
            f"layer {layer} needs {len(wanted)} slots for {len(wanted)} distinct experts; "
            f"there are {len(state.owners)}"
        )
    slot_of = state.slot_of
    order = dict.fromkeys(state.recency)
    hits = [expert for expert in wanted if (layer, expert) in slot_of]
    for expert in hits:
        _touch(order, slot_of[layer, expert])
    owners = list(state.owners)
    uploads, victims = [], []
    for expert in sorted(set(wanted) - set(hits)):
        # Never a slot of this call: all of those were touched, and there are enough others.
        slot = next(iter(order))
        old = owners[slot]
        if old is not None:
            victims.append(old)
            del slot_of[old]
        owners[slot] = (layer, expert)
        slot_of[layer, expert] = slot
        _touch(order, slot)
        uploads.append((expert, slot))
    return SlotStep(
        SlotState(tuple(owners), tuple(order)),
        tuple(slot_of[layer, i] if i >= 0 else -1 for i in ids),
        tuple(uploads),
        tuple(victims),
        len(hits),
    )


def _touch(order: dict[int, None], slot: int) -> None:
    del order[slot]
    order[slot] = None


@dataclass(frozen=True, slots=True)
class ByteStep:
    """What one batch does to a byte-budgeted cache: the experts held afterwards (from least to
    most recently used), and which of the batch's experts were hits and misses."""

    held: tuple[Expert, ...]
    hits: tuple[Expert, ...]
    misses: tuple[Expert, ...]
    dropped: tuple[Expert, ...] = ()


def lru_bytes(
    held: Sequence[Expert], layer: int, ids: Sequence[int], size: Mapping[int, int], budget: int
) -> ByteStep:
    """One batch of a cache that is trimmed to ``budget`` bytes after the batch.

    ``held``: from least to most recently used; ``size``: bytes of an expert, by layer.  Each
    distinct id is one hit or one miss, but every occurrence makes it the most recent; then the
    least recently used go until the rest fits, but never what the batch used.
    """
    order = dict.fromkeys(held)
    used = dict.fromkeys((layer, expert) for expert in ids if expert >= 0)
    hits = tuple(expert for expert in used if expert in order)
    misses = tuple(expert for expert in used if expert not in order)
    for number in ids:
        if number >= 0:
            order.pop((layer, number), None)
            order[layer, number] = None
    total = sum(size[owner] for owner, _ in order)
    dropped = []
    for expert in list(order):
        if total <= budget or expert in used:
            break
        del order[expert]
        total -= size[expert[0]]
        dropped.append(expert)
    return ByteStep(tuple(order), hits, misses, tuple(dropped))
