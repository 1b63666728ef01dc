"""The local condition: when a read sees one version of a byte, however the rest interleaves.

This is the statement that the solver's encoding is held against, in a form that can be executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import TypeVar

Event = TypeVar("Event", bound=Hashable)


def reads_version(
    before: Callable[[Event, Event], bool] | Collection[tuple[Event, Event]],
    writers: Iterable[Event],
    versions: Mapping[Event, Hashable],
    reader: Event,
    due: Hashable,
) -> bool:
    """Whether ``reader`` sees version ``due`` of a byte in every order that respects ``before``.

    Events are intervals of time; ``before(a, b)``, written a → b, says that a has ended when b
    starts, and is transitive.  ``writers`` are all writes of the byte, its initial content being
    one that is before every other event; ``versions`` says what each of them leaves there.  With
    W the writers of ``due`` and W′ the others, the read is right iff

    * (i)   ∀ w′ ∈ W′:  w′ → r  ∨  r → w′
    * (ii)  ∃ w ∈ W:  w → r
    * (iii) ∀ w′ ∈ W′:  w′ → r  ⇒  ∃ w ∈ W:  w′ → w ∧ w → r

    A writer of ``due`` may overlap the read: it puts the bytes there that are there already.
    """
    if not callable(before):
        pairs = frozenset(before)
        return reads_version(lambda a, b: (a, b) in pairs, writers, versions, reader, due)
    everyone = tuple(writers)
    other = [w for w in everyone if versions[w] != due]
    in_time = [w for w in everyone if versions[w] == due and before(w, reader)]
    ordered = all(before(w, reader) or before(reader, w) for w in other)
    replaced = all(any(before(old, new) for new in in_time) for old in other if before(old, reader))
    return ordered and bool(in_time) and replaced
