"""T1: a prefetch reads what the ordinary copy would have read."""

from __future__ import annotations

from .logic import Sort, Symbol, conj, disj, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .vocabulary import Command, before, strict_order, total_order, unique

Split = Sort("Split")
Tensor = Sort("Tensor")
Base = Sort("Base")

#: splits in the order of the list; the passes follow each other in it
earlier = Symbol("earlier", (Split, Split))
current = Symbol("current_split", (Command, Split))  # the split that is current at issue
owns = Symbol("owns", (Base, Tensor))  # the base whose bytes a tensor (or view) is
resolved = Symbol("guard_resolves", (Tensor, Base))  # what the guard takes for its base
writes = Symbol("writes", (Command, Base))
result = Symbol("has_result", (Command, Tensor))
node = Symbol("is_node", (Command,))
user = Symbol("is_user_code", (Command,))  # callbacks, fills, user writes
compute = Symbol("in_compute_buffer", (Base,))
touches = Symbol("writes_target", (Command,))

(source,) = Base.constants("source")
issuing, consuming = Split.constants("issuing consuming")
prefetch, copy, consumer = Command.constants("prefetch ordinary_copy consumer")

(w,) = Command.variables("w")
(s,) = Split.variables("s")
(x,) = Tensor.variables("x")
base, base2 = Base.variables("base base2")

SETTING = (
    total_order(earlier),
    strict_order(before),
    unique(current),
    earlier(issuing, consuming),
    # Who writes: nodes write the base of their result, all else that writes is user code.
    forall(w, base, writes(w, base) >> (node(w) | user(w))),
    forall(w, ~(node(w) & user(w))),
    forall(w, base, (writes(w, base) & node(w)) >> exists(x, result(w, x) & owns(base, x))),
    forall(w, base, writes(w, base) >> exists(s, current(w, s))),
    forall(x, base, base2, (owns(base, x) & owns(base2, x)) >> equal(base, base2)),
)

USAGE = Hypothesis(
    "usage-guard",
    "only what lies in a compute buffer is prefetched",
    compute(source),
    "t1-without-usage-guard",
)
CALLBACKS = Hypothesis(
    "callbacks-write-no-compute-buffer",
    "user code that runs while the issuing split is current (callbacks, fills of banks and slot "
    "maps) writes no bytes of a compute buffer",
    forall(w, base, conj(writes(w, base), user(w), current(w, issuing)) >> ~compute(base)),
    "t1-without-callback-rule",
)
WRITTEN = Hypothesis(
    "written-guard",
    "no node of the issuing split has a result that the guard takes to lie on the source's base",
    forall(w, x, conj(node(w), current(w, issuing), result(w, x)) >> ~resolved(x, source)),
    "t1-without-written-guard",
)
VIEWS = Hypothesis(
    "views-resolved",
    "the guard takes a view to lie on the base whose bytes it is",
    forall(x, base, owns(base, x) >> resolved(x, base)),
    "t1-without-views-resolved",
)
ONE_AHEAD = Hypothesis(
    "one-ahead",
    "the consuming split is the next one after the issuing split",
    forall(s, ~(earlier(issuing, s) & earlier(s, consuming))),
    "t1-two-ahead",
)
EARLIER_AWAITED = Hypothesis(
    "earlier-writers-awaited",
    "what splits before the issuing one wrote to the source has been written when the prefetch "
    "starts",
    forall(
        w, s, conj(writes(w, source), current(w, s), earlier(s, issuing)) >> before(w, prefetch)
    ),
    "t1-without-earlier-awaited",
)
LATER_AFTER_COPY = Hypothesis(
    "later-writers-after-copy",
    "what the consuming split and later ones write to the source, they write after the ordinary "
    "copy has ended: the schedule without prefetch is right",
    forall(w, s, conj(writes(w, source), current(w, s), ~earlier(s, consuming)) >> before(copy, w)),
    unshown="without it the schedule was wrong before the prefetch came in",
)
MOVED_WAITS = Hypothesis(
    "waits-moved",
    "what waited for the ordinary copy waits for the prefetch",
    forall(w, before(copy, w) >> before(prefetch, w)),
    "t1-without-waits-moved",
)
AHEAD_WRITTEN = Hypothesis(
    "written-guard-for-each-split-passed",
    "no node of any split from the issuing one up to the consuming one has a result that the "
    "guard takes to lie on the source's base",
    forall(
        w, s, x,
        conj(node(w), current(w, s), ~earlier(s, issuing), earlier(s, consuming), result(w, x))
        >> ~resolved(x, source),
    ), "t1-two-ahead",
)  # fmt: skip
AHEAD_CALLBACKS = Hypothesis(
    "callbacks-write-no-compute-buffer",
    "user code that runs from the issuing split up to the consuming one writes no bytes of a "
    "compute buffer",
    forall(
        w, s, base,
        conj(writes(w, base), user(w), current(w, s), ~earlier(s, issuing), earlier(s, consuming))
        >> ~compute(base),
    ), "t1-without-callback-rule",
)  # fmt: skip

#: every write of the source is on the same side of the prefetch as of the ordinary copy
SAME_VERSION = forall(
    w,
    writes(w, source)
    >> disj(
        before(w, prefetch) & ~before(copy, w),
        conj(before(copy, w), before(prefetch, w)),
    ),
)
SOMETHING_WRITES = conj(
    exists(w, s, conj(writes(w, source), current(w, s), earlier(s, issuing), node(w))),
    exists(w, s, conj(writes(w, source), current(w, s), earlier(consuming, s), node(w))),
)

AWAITED = Hypothesis(
    "prefetch-awaited",
    "the consumer waits for the event of its own fill, or shares its queue (PF005)",
    before(prefetch, consumer),
    "t1-without-await",
)
TARGET_KEPT = Hypothesis(
    "target-live",
    "from the issue of the prefetch to the end of its consumer nobody else writes the bytes that "
    "it fills: other writes have ended before it starts, or start after the consumer ended (PF004)",
    forall(
        w,
        (touches(w) & ~equal(w, prefetch)) >> (before(w, prefetch) | before(consumer, w)),
    ),
    "t1-without-target-live",
)

THEOREM = Theorem(
    "T1",
    "prefetch",
    "A prefetch, issued one split ahead under the guards, reads the version that the ordinary "
    "copy would have read; if its target is kept and the consumer waits, the consumer reads it.",
    "First step: every write of the source's bytes ends before the prefetch starts, or starts "
    "after both transfers ended. The schedule without prefetch is right, so each write of the "
    "first kind ends before the ordinary copy too; hence the last write before the prefetch is "
    "the last one before the ordinary copy, and by T7 both read its version. Second step: the "
    "local condition of T7 holds for the consumer's read of the target, with the prefetch as the "
    "writer. Third step: the same for any look-ahead, if each split passed over is guarded.",
    (
        Step(
            "same version, one ahead",
            "each write of the source is on the same side of the prefetch as of the ordinary copy",
            SETTING,
            (
                USAGE, CALLBACKS, WRITTEN, VIEWS, ONE_AHEAD, EARLIER_AWAITED, LATER_AFTER_COPY,
                MOVED_WAITS,
            ),
            SAME_VERSION,
            SOMETHING_WRITES,
        ),
        Step(
            "the consumer reads it",
            "every other write of the target is ordered with the consumer, and if it comes "
            "before, the prefetch lies between",
            (strict_order(before), touches(prefetch)),
            (AWAITED, TARGET_KEPT),
            forall(
                w,
                (touches(w) & ~equal(w, prefetch))
                >> disj(
                    before(consumer, w),
                    conj(before(w, prefetch), before(prefetch, consumer)),
                ),
            )
            & before(prefetch, consumer),
            exists(w, conj(touches(w), ~equal(w, prefetch), before(w, consumer)))
            & exists(w, touches(w) & before(consumer, w)),
        ),
        Step(
            "same version, any look-ahead",
            "the first step without one-ahead, if the guards hold for each split passed over",
            SETTING,
            (
                USAGE, AHEAD_CALLBACKS, AHEAD_WRITTEN, VIEWS, EARLIER_AWAITED, LATER_AFTER_COPY,
                MOVED_WAITS,
            ),
            SAME_VERSION,
            SOMETHING_WRITES & exists(s, earlier(issuing, s) & earlier(s, consuming)),
        ),
    ),
    "A source that nothing writes (a weight without callbacks) may be prefetched without the "
    "usage guard: the guard is sufficient here, PF001 is the exact condition.",
)  # fmt: skip
