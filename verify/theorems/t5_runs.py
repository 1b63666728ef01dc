"""T5: copying runs of used experts copies exactly the used experts."""

from __future__ import annotations

from .induction import BEGINS
from .logic import Sort, Symbol, Term, conj, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .vocabulary import flag, total_order, unique

#: why no schedule shows what happens without
MEANT = "it is what the command copy_experts means; a running loop is held against it by a test"

Expert = Sort("Expert")  # numbers of experts, in their order
Position = Sort("Position")  # places in the ids tensor
Slot = Sort("Slot")  # places of experts in the destination
Offset = Sort("Offset")  # bytes from the start of an expert

less = Symbol("less", (Expert, Expert))
host_ids = Symbol("ids_read_by_host", (Position, Expert))
kernel_ids = Symbol("ids_read_by_kernel", (Position, Expert))
exists_in_tensor = Symbol("in_range", (Expert,))
used = Symbol("used", (Expert,))
visited = Symbol("visited", (Expert,))
copied = Symbol("copied", (Expert,))
copied_after = Symbol("copied_after", (Expert,))
is_open, open_after = flag("run_open"), flag("run_open_after")
(first, last, current, first_after, last_after) = Expert.constants(
    "first last current first_after last_after"
)

x, y = Expert.variables("x y")
pos = Position.variables("pos")[0]


def in_run(expert: Term, low: Term, high: Term) -> Term:
    """Not below the first and not above the last of a run."""
    return ~less(expert, low) & ~less(high, expert)


def loop_invariant(
    open_: Term, low: Term, high: Term, done: Symbol, seen: Term, expert: Term
) -> Term:
    """What was copied or is in the open run is what is used and was seen."""
    return equal(done(expert) | (open_ & in_run(expert, low, high)), seen & used(expert))


NEXT_TO = ~exists(y, less(last, y) & less(y, current))  # nothing between the run and this expert
EXTEND = conj(used(current), is_open, NEXT_TO)
START = conj(used(current), ~(is_open & NEXT_TO))

LOOP = (
    total_order(less),
    forall(x, equal(visited(x), less(x, current))),
    # Where a run stands: it has a first and a last expert, both used and seen.
    is_open >> conj(~less(last, first), visited(last)),
    forall(x, loop_invariant(is_open, first, last, copied, visited(x), x)),
)
EXTENDS = Hypothesis(
    "only-neighbours-extend",
    "a used expert extends the open run if, and only if, it comes right after the run's last "
    "expert",
    EXTEND
    >> conj(
        open_after, equal(first_after, first), equal(last_after, current),
        forall(x, equal(copied_after(x), copied(x))),
    ), unshown=MEANT,
)  # fmt: skip
STARTS = Hypothesis(
    "others-start",
    "any other used expert starts a run, and the run that was open is copied",
    START
    >> conj(
        open_after, equal(first_after, current), equal(last_after, current),
        forall(x, equal(copied_after(x), copied(x) | (is_open & in_run(x, first, last)))),
    ), unshown=MEANT,
)  # fmt: skip
SKIPS = Hypothesis(
    "unused-are-skipped",
    "an expert that is not used changes nothing",
    ~used(current)
    >> conj(
        equal(open_after, is_open), equal(first_after, first), equal(last_after, last),
        forall(x, equal(copied_after(x), copied(x))),
    ), unshown=MEANT,
)  # fmt: skip

FLUSH = Hypothesis(
    "last-run-copied",
    "the run that is open after the last expert is copied too",
    forall(x, equal(copied_after(x), copied(x) | (is_open & in_run(x, first, last)))),
    unshown=MEANT,
)
SAME_IDS = Hypothesis(
    "same-ids",
    "the host reads the version of the ids that the kernel will read (CE002, CE003)",
    forall(pos, x, equal(host_ids(pos, x), kernel_ids(pos, x))),
    "t5-other-ids",
)
IN_RANGE = Hypothesis(
    "ids-in-range",
    "each id is the number of an expert of the tensor (CE006)",
    forall(pos, x, kernel_ids(pos, x) >> exists_in_tensor(x)),
    "t5-id-out-of-range",
)

NONE_COPIED = Hypothesis(
    "nothing-copied-yet", "before the first expert nothing was copied", forall(x, ~copied(x)),
    unshown=BEGINS,
)  # fmt: skip
NO_RUN = Hypothesis(
    "no-run-open-yet", "before the first expert no run is open", ~is_open, unshown=BEGINS
)

# -- tails -----------------------------------------------------------------------------------------

next_expert = Symbol("next_expert", (Expert, Expert))
next_slot = Symbol("next_slot", (Slot, Slot))
held_at = Symbol("held_at", (Expert, Slot))  # the place that is an expert's in the destination
#: after that expert, at that place, the first bytes of that expert go to that place
tail = Symbol("tail", (Expert, Slot, Expert, Slot))
below = Symbol("below", (Offset, Offset))
defined = Symbol("defined", (Expert, Offset))  # that byte of the expert's place was written
(over_read, padding) = Offset.constants("over_read padding")
ends_run = Symbol("ends_run", (Expert,))
s, t = Slot.variables("s t")
o = Offset.variables("o")[0]

WHOLE = Hypothesis(
    "neighbours-stay-neighbours",
    "what follows an expert in the source is what follows its place in the destination: a whole "
    "tensor, not a bank whose slots hold any experts",
    forall(
        x, y, s, t, conj(next_expert(x, y), held_at(x, s), next_slot(s, t)) >> held_at(y, t)
    ), unshown="check does not judge what a kernel reads past an expert: it says unsupported",
)  # fmt: skip
PADDED = Hypothesis(
    "padding-covers-over-read",
    "the tail is at least as long as what the kernel reads past an expert",
    ~below(padding, over_read),
    unshown="check does not judge what a kernel reads past an expert: it says unsupported",
)

THEOREM = Theorem(
    "T5",
    "selective copy",
    "Copying the used experts in runs of neighbours copies exactly the experts that the kernel "
    "reads, for any ids, none included. In a whole tensor the tail after a run holds the first "
    "bytes of the next expert, in their place, so that what the kernel reads past an expert is "
    "defined; in a bank it destroys the next slot.",
    "First step: the loop over the experts in ascending order keeps the invariant that what was "
    "copied, with the open run, is what is used and was visited. It holds at the start (last "
    "step). Second step: at the end all experts of the tensor were visited. "
    "With no ids no run is ever opened. Steps three and four are about tails.",
    (
        Step(
            "one expert",
            "the loop's invariant is kept when one more expert is visited",
            LOOP,
            (EXTENDS, STARTS, SKIPS),
            conj(
                open_after >> conj(~less(last_after, first_after), ~less(current, last_after)),
                forall(
                    x,
                    loop_invariant(
                        open_after, first_after, last_after, copied_after,
                        visited(x) | equal(x, current), x,
                    ),
                ),
            ),
            exists(x, copied(x)) & EXTEND,
        ),
        Step(
            "exactly the used ones",
            "when all experts of the tensor were visited, those copied are those that the kernel "
            "reads",
            (
                total_order(less),
                forall(x, equal(visited(x), exists_in_tensor(x))),
                forall(x, loop_invariant(is_open, first, last, copied, visited(x), x)),
                forall(x, pos, host_ids(pos, x) >> used(x)),
                forall(x, used(x) >> exists(pos, host_ids(pos, x))),
            ),
            (FLUSH, SAME_IDS, IN_RANGE),
            conj(
                forall(pos, x, kernel_ids(pos, x) >> copied_after(x)),
                forall(x, copied_after(x) >> exists(pos, kernel_ids(pos, x))),
            ),
            exists(pos, x, kernel_ids(pos, x) & ~copied(x)),
        ),
        Step(
            "a tail is in its place",
            "the first bytes of an expert go nowhere but to that expert's place",
            (
                # A tail is the start of the expert after the run's last, put after its place.
                forall(
                    x, s, y, t,
                    tail(x, s, y, t)
                    >> conj(ends_run(x), next_expert(x, y), held_at(x, s), next_slot(s, t)),
                ),
            ),
            (WHOLE,),
            forall(x, s, y, t, tail(x, s, y, t) >> held_at(y, t)),
            exists(x, s, y, t, tail(x, s, y, t)),
        ),
        Step(
            "over-reads are defined",
            "what the kernel reads past a used expert, up to its over-read, was written: by the "
            "copy of the next expert or by the tail",
            (
                total_order(below),
                unique(next_expert),
                forall(x, y, conj(used(x), next_expert(x, y), ~used(y)) >> ends_run(x)),
                forall(x, o, used(x) >> defined(x, o)),
                forall(
                    x, y, o,
                    conj(ends_run(x), next_expert(x, y), below(o, padding)) >> defined(y, o),
                ),
            ),
            (PADDED,),
            forall(
                x, y, o, conj(used(x), next_expert(x, y), below(o, over_read)) >> defined(y, o)
            ),
            exists(
                x, y, o, conj(used(x), next_expert(x, y), ~used(y), below(o, over_read))
            ),
        ),
        Step(
            "base: no expert visited",
            "the loop's invariant holds before the first expert",
            (total_order(less), forall(x, ~visited(x))),
            (NONE_COPIED, NO_RUN),
            forall(x, loop_invariant(is_open, first, last, copied, visited(x), x)),
        ),
    ),
    "What the kernel reads past the last expert of a tensor is not defined by any tail: that "
    "needs spare bytes (BK009).",
)  # fmt: skip
