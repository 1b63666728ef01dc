"""T3: a fill keeps the bank's content and its slot map inverse to each other."""

from __future__ import annotations

from .induction import BEGINS
from .logic import INT, Sort, Symbol, Term, conj, disj, distinct, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .pigeonhole import ENDS, PIGEONHOLE
from .vocabulary import Command, Queue, before, flag, issued, on, strict_order

Slot = Sort("Slot")
Expert = Sort("Expert")  # an expert of a layer

content = Symbol("content", (Slot, Expert))
slot_of = Symbol("slot_of", (Expert, Slot))
content_after = Symbol("content_after", (Slot, Expert))
slot_of_after = Symbol("slot_of_after", (Expert, Slot))
used = Symbol("used", (Expert,))  # the experts of the current ids
served = Symbol("served", (Expert,))  # those that the fill has dealt with so far
busy = Symbol("busy", (Slot,))  # a reader of the slot may not have ended
kept = Symbol("may_not_go", (Expert,))  # used, or in a busy slot

MEANT = "it is what the command fill_bank means; a running policy is held against it by a test"

#: one upload: this expert goes to this slot
(incoming,) = Expert.constants("incoming")
(victim,) = Slot.constants("victim")

s, t = Slot.variables("s t")
x, y = Expert.variables("x y")
r, u = Command.variables("r u")
q = Queue.variables("q")[0]


def invariant(holds: Symbol, where: Symbol) -> Term:
    """A slot holds at most one expert, an expert is in at most one slot, and the map says so."""
    return conj(
        forall(s, x, y, (holds(s, x) & holds(s, y)) >> equal(x, y)),
        forall(s, t, x, (holds(s, x) & holds(t, x)) >> equal(s, t)),
        forall(s, x, equal(where(x, s), holds(s, x))),
    )


def resident(expert: Term, holds: Symbol) -> Term:
    """Some slot holds the expert."""
    return exists(s, holds(s, expert))


#: what one upload does: the victim holds the new expert, and the map says so; the rest, beside
#: the entry of the victim's owner, stays as it was
UPLOAD = (
    forall(
        s, x,
        equal(
            content_after(s, x),
            disj(equal(s, victim) & equal(x, incoming), distinct(s, victim) & content(s, x)),
        ),
    ),
    slot_of_after(incoming, victim),
    forall(
        s, x,
        distinct(s, victim) >> equal(slot_of_after(x, s), distinct(x, incoming) & slot_of(x, s)),
    ),
)  # fmt: skip

MISSED = Hypothesis(
    "only-misses-are-loaded",
    "an expert is uploaded only if no slot holds it",
    ~resident(incoming, content),
    unshown=MEANT,
)
CLEARED = Hypothesis(
    "victim-entry-cleared",
    "the map entry of the expert that loses the slot is taken back",
    forall(x, distinct(x, incoming) >> ~slot_of_after(x, victim)),
    unshown=MEANT,
)
OUTSIDE = Hypothesis(
    "victim-outside-ids",
    "the slot that is overwritten holds no expert of the current ids",
    forall(x, content(victim, x) >> ~used(x)),
    unshown=MEANT,
)
SERVED_BEFORE = forall(x, (used(x) & served(x)) >> resident(x, content))
SERVED_AFTER = forall(
    x, conj(used(x), served(x) | equal(x, incoming)) >> resident(x, content_after)
)

#: the hypotheses and the relation of one upload, for those who evaluate them on real states
RELATION = (*UPLOAD, MISSED.formula, CLEARED.formula, OUTSIDE.formula)

# -- why there is a victim -----------------------------------------------------------------------

STUCK = forall(s, busy(s) | exists(x, content(s, x) & used(x)))  # no slot may be a victim
KEPT = (
    forall(x, used(x) >> kept(x)),
    forall(s, x, (busy(s) & content(s, x)) >> kept(x)),
)
BUSY_FULL = Hypothesis(
    "busy-slots-are-full",
    "a slot that is being read or filled has an owner",
    forall(s, busy(s) >> exists(x, content(s, x))),
    unshown="a document has no busy slots: its fills are ordered by queues and events",
)

slots, keeping, others = (Symbol(n, (), INT)() for n in ("slots", "number_kept", "kept_in_slots"))
victim_exists = flag("victim_exists")
ENOUGH = Hypothesis(
    "working-set-fits",
    "the experts that may not go (those of the ids, and the owners of busy slots) are at most as "
    "many as the slots; without busy slots: used ≤ slots (BK004)",
    keeping <= slots,
    "t3-too-few-slots",
)

# -- why nobody reads what is overwritten ----------------------------------------------------------

reads_slot = Symbol("reads_slot", (Command, Slot))
(upload,) = Command.constants("upload")
IN_ORDER = (
    strict_order(before),
    strict_order(issued),
    forall(r, u, q, conj(on(r, q), on(u, q), issued(r, u)) >> before(r, u)),
)
SAME_QUEUE = Hypothesis(
    "same-queue",
    "the upload and the readers of slots are issued on one in-order queue",
    exists(q, on(upload, q) & forall(r, s, reads_slot(r, s) >> on(r, q))),
    "t3-other-queue",
)
NOT_BUSY = Hypothesis(
    "busy-skipped",
    "no busy slot is a victim",
    ~busy(victim),
    unshown="a document has no busy slots: its fills are ordered by queues and events",
)
BUSY_COMPLETE = Hypothesis(
    "busy-means-not-ended",
    "a slot counts as busy unless all its readers so far are ordered before the upload",
    forall(r, s, conj(reads_slot(r, s), issued(r, upload), ~busy(s)) >> before(r, upload)),
    unshown="a document has no busy slots: its fills are ordered by queues and events",
)
NOT_READ = forall(r, (reads_slot(r, victim) & issued(r, upload)) >> before(r, upload))
SOME_READER = exists(r, reads_slot(r, victim) & issued(r, upload))

# -- where the inductions begin and end ------------------------------------------------------------

EMPTY = Hypothesis(
    "slots-start-empty", "no slot holds an expert", forall(s, x, ~content(s, x)), unshown=BEGINS
)
MAP_EMPTY = Hypothesis(
    "map-starts-empty", "no expert has a slot", forall(s, x, ~slot_of(x, s)), unshown=BEGINS
)
HITS = Hypothesis(
    "hits-are-served",
    "when a fill begins, what it counts as served is what some slot holds",
    forall(x, served(x) >> resident(x, content)),
    unshown=BEGINS,
)
ALL_SERVED = Hypothesis(
    "fill-serves-all",
    "a fill ends when each expert of the ids was a hit or was loaded",
    forall(x, used(x) >> served(x)),
    unshown=MEANT,
)

_COUNTING = (
    # With no victim, the slots hold that many different experts besides the incoming one.
    (~victim_exists) >> (slots <= others),
    (others + 1) <= keeping,
)

THEOREM = Theorem(
    "T3",
    "fill",
    "A fill that loads only misses, takes its victims outside the current ids and clears their "
    "map entries keeps the content injective and the map its inverse, and ends with every expert "
    "of the ids in a slot; it finds its victims if the working set fits; and no reader sees a "
    "slot change if readers and uploads share a queue or busy slots are skipped.",
    "By induction on the uploads of a fill, and on the fills of all passes: the first step is the "
    "induction step, for any content and any number of slots; it begins with an empty bank (or one "
    "whose start state satisfies the invariant) and, for each fill, with the hits; at a fill's end "
    "all experts are served (steps seven to nine). A victim exists: were there none, the slots "
    "would hold different experts that may not go, none of them the incoming one (second step), "
    "so by the pigeonhole lemma there would be fewer slots than experts that may not go (fourth "
    "step). The lemma is by induction on the number of holes: step three, and the last two.",
    (
        Step(
            "one upload",
            "content stays injective, the map stays its inverse, and no expert of the ids that "
            "was served loses its slot",
            (invariant(content, slot_of), SERVED_BEFORE, *UPLOAD, used(incoming)),
            (MISSED, CLEARED, OUTSIDE),
            invariant(content_after, slot_of_after) & SERVED_AFTER,
            exists(x, content(victim, x)) & exists(x, used(x) & served(x)),
        ),
        Step(
            "no victim, all kept",
            "if no slot may be a victim, each holds an expert that may not go and is not the "
            "incoming one",
            (invariant(content, slot_of), STUCK, *KEPT),
            (MISSED, BUSY_FULL),
            forall(s, exists(x, conj(content(s, x), kept(x), distinct(x, incoming)))),
            exists(s, busy(s)) & exists(s, ~busy(s)),
        ),
        PIGEONHOLE,
        Step(
            "a victim exists",
            "a slot is free, or holds an expert that may go",
            _COUNTING,
            (ENOUGH,),
            victim_exists,
        ),
        Step(
            "same queue, no reader harmed",
            "the last readers of the victim's slot have ended when the upload starts",
            IN_ORDER,
            (SAME_QUEUE,),
            NOT_READ,
            SOME_READER,
        ),
        Step(
            "busy skipped, no reader harmed",
            "the same without a common queue",
            (),
            (NOT_BUSY, BUSY_COMPLETE),
            NOT_READ,
            SOME_READER,
        ),
        Step(
            "base: an empty bank",
            "the invariant holds before the first fill",
            (),
            (EMPTY, MAP_EMPTY),
            invariant(content, slot_of),
        ),
        Step(
            "base: a fill begins",
            "the experts that are served at its start are in slots",
            (invariant(content, slot_of),),
            (HITS,),
            SERVED_BEFORE,
            exists(x, used(x) & served(x)) & exists(x, used(x) & ~served(x)),
        ),
        Step(
            "conclusion: a fill ends",
            "each expert of the ids is in a slot",
            (SERVED_BEFORE,),
            (ALL_SERVED,),
            forall(x, used(x) >> resident(x, content)),
            exists(x, used(x)),
        ),
        *ENDS,
    ),
    "That the steps of the running policy are such uploads is not proved: it is tested, with "
    "these very formulas evaluated on its states.",
)
