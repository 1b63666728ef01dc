"""Theorems put to use on one schedule: reads that need no question of their own.

A read is discharged if it has the form that a theorem is about and each hypothesis of the theorem
plainly holds of the commands at hand; all that is asked are order facts, regions and footprints.
Where one does not plainly hold nothing is decided, and the read is judged byte by byte.

The theorems speak of one byte, or of a tensor as one thing.  So everything that may meet the bytes
in question must have all of them, in one piece (*whole*); then one byte stands for all.  What the
theorems call their setting is checked with the form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..model.command import CopyExperts, Prefetch
from .access import PAST, Read
from .instances import Fetched, Filled, Fills, Plain, Tensors
from .obligation import Judge

#: name of a hypothesis → whether it plainly holds
Held = Mapping[str, Callable[[], bool]]


@dataclass(frozen=True, slots=True)
class Instance:
    """A theorem that has the form of a read: the hypotheses that do not plainly hold, and how
    many obligations it discharges if all do."""

    theorem: str
    missing: tuple[str, ...]
    obligations: int


#: More writers of a read's bytes than this are left to the judge.
MOST_WRITERS = 8


class Theorems:
    """The theorems in one regime of a schedule."""

    def __init__(self, judge: Judge) -> None:
        self.judge, self.order = judge, judge.order
        self.tensors, self.fills = Tensors(judge), Fills(judge)

    def discharge(self, read: Read) -> Instance | None:
        """The first theorem of which all hypotheses hold, if there is one.

        Not looked for where bytes have many writers: the judge, who looks at the few that
        matter, is done sooner.
        """
        if sum(map(len, self.judge.footprints.lines(read))) > MOST_WRITERS:
            return None
        return next((found for found in self.instances(read) if not found.missing), None)

    def instances(self, read: Read) -> Iterator[Instance]:
        """The theorems that have the form of the read, the special ones first."""
        if read.time is None or self.judge.unknown_places.concern(read):
            return
        if read.role in (PAST, "upload"):
            return  # no theorem speaks of what lies past an expert, or of fills that serve nobody
        if read.bank is not None:
            filled = self.fills.filled(read)
            if filled is not None:
                yield _instance("T3 fill", self.fill(filled), filled.obligations)
            return
        plain = self.tensors.plain(read)
        if plain is None:
            return
        prefetched = self.tensors.fetched(plain, Prefetch)
        if prefetched is not None:
            yield _instance("T1 prefetch", self.prefetch(prefetched), plain.obligations)
        selected = self.tensors.fetched(plain, CopyExperts)
        if selected is not None:
            yield _instance("T5 selective copy", self.selection(selected), plain.obligations)
        if all(w.experts is None for w in (*plain.before, *plain.rest)):
            yield _instance("T7 locality", self.locality(plain), plain.obligations)

    # -- one method a theorem; the keys are the names of its hypotheses ----------------------------

    def prefetch(self, case: Fetched) -> Held:
        """T1, its first two steps.  The ordinary copy is one that would be issued with the
        consuming split; that it would read what is due is ``later-writers-after-copy`` and
        ``due-before-prefetch``."""
        here, tensors = self.judge.schedule, self.tensors
        current = [w for w in case.source if tensors.place(w) == case.issuing]
        earlier = [w for w in case.source if tensors.place(w) < case.issuing]
        later = [w for w in case.source if tensors.place(w) > case.issuing]
        # The host reads the source of a staged fetch when it issues it, long before the upload.
        read, fetch, before = case.origin.part, case.fetch.part, self.order.before
        source = here.base(case.origin.region.tensor.name).name
        nodes = [w for w in current if tensors.is_node(w)]
        return {
            "usage-guard": lambda: tensors.in_compute_buffer(case.origin),
            "callbacks-write-no-compute-buffer": lambda: all(
                tensors.is_node(w) or not tensors.in_compute_buffer(w)
                for w in tensors.written_in(case.issuing)
            ),
            "written-guard": lambda: len(nodes) == len(current) and all(
                w.region.tensor.name != source for w in nodes
            ),
            "views-resolved": lambda: all(w.region.tensor.view_of is None for w in nodes),
            "one-ahead": lambda: case.consuming == (case.issuing[0], case.issuing[1] + 1),
            "earlier-writers-awaited": lambda: all(before(w.part, read) for w in earlier),
            "later-writers-after-copy": lambda: all(
                tensors.place(w) >= case.consuming and w.part > read for w in later
            ),
            "waits-moved": lambda: all(before(read, w.part) for w in later),
            "prefetch-awaited": lambda: before(fetch, case.read.part),
            "target-live": lambda: all(
                before(w.part, fetch) or before(case.read.part, w.part) for w in case.others
            ),
            "due-before-prefetch": lambda: tensors.last_gives(
                earlier, case.origin, case.read.due, case.due
            ),
        }  # fmt: skip

    def selection(self, case: Fetched) -> Held:
        """T5.  That exactly the runs of ``used(ids)`` are moved is what ``copy_experts`` means;
        that is the loop of the theorem."""
        read, fetch, before = case.read, case.fetch, self.order.before
        return {
            "same-ids": lambda: (
                read.experts is not None and fetch.experts is not None
                and read.experts.set_id == fetch.experts.set_id
            ),
            "ids-in-range": lambda: self.tensors.ids_in_range(read),
            "neighbours-stay-neighbours": lambda: self.tensors.same_experts(case),
            "padding-covers-over-read": lambda: self.tensors.no_over_read(read),
            "i-writers-ordered": lambda: not case.rest,
            "ii-due-writer-before": lambda: self.tensors.brings(
                case.origin, read.due, case.due
            ),
            "iii-due-writer-between": lambda: all(
                w is fetch or before(w.part, fetch.part) for w in case.before
            ),
        }  # fmt: skip

    def fill(self, case: Filled) -> Held:
        """T3.  That only misses are loaded, that victims are outside the ids and that their
        entries are cleared is what the policy ``lru-slots`` means; the running policy is held
        against the same formulas by a test."""
        return {
            "only-misses-are-loaded": lambda: case.bank.policy == "lru-slots",
            "victim-entry-cleared": lambda: case.bank.policy == "lru-slots",
            "victim-outside-ids": lambda: case.bank.policy == "lru-slots",
            "working-set-fits": lambda: self.fills.fits(case),
            "same-queue": lambda: self.fills.on_one_queue(case),
            "ids-of-the-reader": lambda: self.fills.serves(case),
            "only-fills-write-slots": lambda: self.fills.alone(case),
            "cached-tensor-stays": lambda: self.fills.keeps(case),
        }

    def locality(self, case: Plain) -> Held:
        """T7.  A copy counts as a writer of the due version if its own read meets the same."""
        read, before = case.read, self.order.before
        good = [w for w in case.before if self.tensors.gives(w, read.due, case.due)]
        initial = self.tensors.starts_due(read, read.due, case.due)
        return {
            "i-writers-ordered": lambda: not case.rest,
            "ii-due-writer-before": lambda: initial or bool(good),
            "iii-due-writer-between": lambda: all(
                w in good or any(before(w.part, g.part) for g in good) for w in case.before
            ),
        }


def _instance(theorem: str, held: Held, obligations: int) -> Instance:
    return Instance(theorem, tuple(n for n, holds in held.items() if not holds()), obligations)


__all__ = ["Instance", "Theorems"]
