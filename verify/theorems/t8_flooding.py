"""T8: a shared cache list that is too short never hits in one-token decoding."""

from __future__ import annotations

from .induction import BEGINS
from .logic import INT, Sort, Symbol, Term, conj, disj, distinct, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .pigeonhole import ENDS, PIGEONHOLE
from .vocabulary import flag, total_order

#: why no schedule shows what happens without
MISSES = "a miss costs time and makes no byte wrong; traces of the running policy show the bound"

Slot = Sort("Slot")
Expert = Sort("Expert")
Layer = Sort("Layer")

holds = Symbol("holds", (Slot, Expert))
holds_after = Symbol("holds_after", (Slot, Expert))
older = Symbol("older", (Slot, Slot))  # used less recently
older_after = Symbol("older_after", (Slot, Slot))
since = Symbol("touched_since", (Expert,))  # since the watched expert was touched last
layer_of = Symbol("layer_of", (Expert,), Layer)
called = Symbol("called_since", (Layer,))

(watched, touched) = Expert.constants("watched touched")
(slot, taken) = Slot.constants("slot_of_watched taken")
(calling,) = Layer.constants("calling")
is_hit = flag("is_hit")

s, t = Slot.variables("s t")
x, y = Expert.variables("x y")

LIST = (
    total_order(older),
    forall(s, x, y, (holds(s, x) & holds(s, y)) >> equal(x, y)),
    forall(s, t, x, (holds(s, x) & holds(t, x)) >> equal(s, t)),
    holds(slot, watched),
    distinct(touched, watched),
    # A hit takes the expert's own slot.
    is_hit >> holds(taken, touched),
    (~is_hit) >> forall(s, ~holds(s, touched)),
    # The slot taken holds the expert; the rest stays.
    forall(
        s, x,
        equal(
            holds_after(s, x),
            disj(equal(s, taken) & equal(x, touched), distinct(s, taken) & holds(s, x)),
        ),
    ),
)  # fmt: skip
NEWEST = Hypothesis(
    "touched-becomes-newest",
    "a touch, hit or miss, makes its slot the most recently used and moves no other",
    forall(
        s, t,
        equal(
            older_after(s, t),
            disj(
                distinct(s, taken) & equal(t, taken),
                conj(distinct(s, taken), distinct(t, taken), older(s, t)),
            ),
        ),
    ), unshown=MISSES,
)  # fmt: skip
OLDEST_GOES = Hypothesis(
    "least-recent-goes",
    "a miss takes the least recently used slot",
    (~is_hit) >> forall(s, distinct(s, taken) >> older(taken, s)),
    unshown=MISSES,
)


def newer(place: Term, who: Term, hold: Symbol, old: Symbol) -> Term:
    """The expert is in a slot that is more recent than that place."""
    return exists(t, hold(t, who) & old(place, t))


SINCE_ARE_NEWER = forall(x, since(x) >> newer(slot, x, holds, older))
NEWER_ARE_SINCE = forall(t, older(slot, t) >> exists(x, since(x) & holds(t, x)))
STAYS = distinct(taken, slot)


def now_since(expert: Term) -> Term:
    return since(expert) | equal(expert, touched)


# -- counting ------------------------------------------------------------------------------------

(
    count, count_after, product, product_after, added, selected, k, slots, bound,
) = (
    Symbol(name, (), INT)()
    for name in (
        "touched", "touched_after", "k_times_i", "k_times_i_plus_k", "added", "selected", "k",
        "slots", "k_times_L_minus_1",
    )
)  # fmt: skip
resident, evicted = flag("resident"), flag("evicted")

ONE_MORE = (equal(count_after, count + added), equal(product_after, product + k))
SHARED = Hypothesis(
    "one-list",
    "all layers share the list: what a layer selects enters it",
    selected <= added,
    unshown=MISSES,
)
AT_LEAST_K = Hypothesis(
    "k-distinct-experts",
    "each layer selects at least k distinct experts a token",
    k <= selected,
    unshown=MISSES,
)
AT_MOST_K = Hypothesis(
    "at-most-k-experts",
    "each layer selects at most k distinct experts a token",
    added <= k,
    unshown=MISSES,
)
TOO_FEW = Hypothesis(
    "too-few-slots",
    "slots ≤ k·(L−1)",
    slots <= bound,
    unshown=MISSES,
)
ALL_LAYERS = Hypothesis(
    "all-other-layers-called",
    "between two calls of a layer each of the L−1 others is called",
    bound <= count,
    unshown=MISSES,
)
ENOUGH = Hypothesis(
    "one-slot-more",
    "slots ≥ k·(L−1) + 1",
    (bound + 1) <= slots,
    unshown=MISSES,
)
ONCE = Hypothesis(
    "others-called-once",
    "between two calls of a layer each of the L−1 others is called once",
    count <= bound,
    unshown=MISSES,
)
NOT_YET = Hypothesis(
    "each-layer-once",
    "the layer was not called since the watched expert was touched",
    ~called(calling),
    unshown=MISSES,
)
ONE_LAYER = Hypothesis(
    "experts-belong-to-their-layer",
    "only calls of an expert's layer touch it",
    forall(x, since(x) >> called(layer_of(x))),
    unshown=MISSES,
)

NONE_SINCE = Hypothesis(
    "none-touched-yet",
    "just after the watched expert was touched nothing was touched since",
    forall(x, ~since(x)),
    unshown=BEGINS,
)
IS_NEWEST = Hypothesis(
    "watched-is-newest",
    "just after the watched expert was touched its slot is the most recently used",
    forall(t, ~older(slot, t)),
    unshown=BEGINS,
)
NO_CALL_YET = Hypothesis(
    "no-layer-called-yet",
    "before the first call after it, as many were touched as k·0",
    equal(count, product),
    unshown=BEGINS,
)

THEOREM = Theorem(
    "T8",
    "flooding",
    "In one-token decoding with a least-recently-used list shared by L cached layers, each of "
    "which selects k distinct experts, slots ≤ k·(L−1) makes every look-up miss from the second "
    "token on. The bound is tight: with k·(L−1) + 1 slots and constant routing each layer has a "
    "hit in every token from the second on.",
    "Watch one expert since it was last touched (or since the start). While it is resident, each "
    "expert touched since is in a more recent slot (first step, by induction on the touches), so "
    "with itself there are at most as many as slots (pigeonhole). Each layer called adds k that "
    "are new (steps two and three, by induction on the calls): k·(L−1) before its own layer is "
    "called again. So it is gone (fifth step). Tight: the slots more recent than its own hold "
    "only experts touched since (sixth step), so when it is evicted all other slots hold "
    "different ones of them and the incoming one is another (seventh step); but there are at most "
    "k·(L−1) of them in all (last steps) if it was the last of its own call. Constant routing "
    "selects it again.",
    (
        Step(
            "touched since, so newer",
            "as long as the watched expert stays, whatever is touched is in a more recent slot "
            "and remains there",
            (*LIST, SINCE_ARE_NEWER, STAYS),
            (NEWEST, OLDEST_GOES),
            conj(
                holds_after(slot, watched),
                forall(x, now_since(x) >> newer(slot, x, holds_after, older_after)),
            ),
            ~is_hit & exists(x, since(x)),
        ),
        Step(
            "a new layer's experts are new",
            "no expert of a layer that was not called since was touched since",
            (),
            (NOT_YET, ONE_LAYER),
            forall(x, equal(layer_of(x), calling) >> ~since(x)),
            exists(x, since(x)) & exists(x, equal(layer_of(x), calling)),
        ),
        Step(
            "each layer adds k",
            "k·i ≤ touched after i layers gives k·(i+1) ≤ touched after one more",
            (*ONE_MORE, product <= count),
            (SHARED, AT_LEAST_K),
            product_after <= count_after,
        ),
        PIGEONHOLE,
        Step(
            "every look-up misses",
            "when its layer is called again, the watched expert is in no slot",
            # By the first step and the pigeonhole lemma.
            (resident >> ((count + 1) <= slots),),
            (TOO_FEW, ALL_LAYERS),
            ~resident,
        ),
        Step(
            "newer, so touched since",
            "the slots more recent than the watched expert's hold only what was touched since",
            (*LIST, NEWER_ARE_SINCE, STAYS),
            (NEWEST,),
            forall(
                t, older_after(slot, t) >> exists(x, now_since(x) & holds_after(t, x))
            ),
            ~is_hit & exists(x, since(x)),
        ),
        Step(
            "what an eviction needs",
            "when the watched expert is evicted, each other slot holds an expert touched since, "
            "and the incoming one is not among them",
            (*LIST, NEWER_ARE_SINCE, equal(taken, slot), ~is_hit),
            (OLDEST_GOES,),
            forall(
                t,
                distinct(t, slot) >> exists(x, conj(since(x), holds(t, x), distinct(x, touched))),
            ),
            exists(t, distinct(t, slot)),
        ),
        Step(
            "each layer adds at most k",
            "touched ≤ k·i after i layers gives touched ≤ k·(i+1) after one more",
            (*ONE_MORE, count <= product),
            (AT_MOST_K,),
            count_after <= product_after,
        ),
        Step(
            "one slot more gives a hit",
            "the watched expert is not evicted before its layer is called again",
            # By the step before the last and the pigeonhole lemma; touched counts the incoming.
            (evicted >> (slots <= count),),
            (ENOUGH, ONCE),
            ~evicted,
        ),
        Step(
            "base: touched since, so newer",
            "the first statement about slots holds when nothing was touched since",
            (),
            (NONE_SINCE,),
            SINCE_ARE_NEWER,
        ),
        Step(
            "base: newer, so touched since",
            "the second one holds when the watched expert's slot is the newest",
            (),
            (IS_NEWEST,),
            NEWER_ARE_SINCE,
        ),
        Step(
            "base: no layer called",
            "both statements about the count hold before the first call",
            (),
            (NO_CALL_YET,),
            conj(product <= count, count <= product),
        ),
        *ENDS,
    ),
    "Decoding of one token at a time; each layer is called once a token.",
)  # fmt: skip
