"""The induction that several theorems share: a finite set of things in a row has a first one.

By induction on the number of things.  What stays outside of the solver is that the natural
numbers, and with them finite sets, admit induction at all.
"""

from __future__ import annotations

from .logic import Sort, Symbol, conj, distinct, equal, exists, forall
from .outline import Hypothesis, Step
from .vocabulary import total_order

#: why no schedule shows what happens without
COUNTED = "it is about numbers and sets, not about a schedule"
BEGINS = "it says where the induction begins; every run of the protocol begins so"

Thing = Sort("Thing")
precedes = Symbol("precedes", (Thing, Thing))
member = Symbol("is_member", (Thing,))
(only, first_so_far, added) = Thing.constants("only first_so_far added")
t = Thing.variables("t")[0]

BASE = Step(
    "a first one, one thing",
    "the only member of a set is its first",
    (total_order(precedes), member(only)),
    (
        Hypothesis(
            "only-member", "the set has no other member",
            forall(t, member(t) >> equal(t, only)), unshown=COUNTED,
        ),
    ),
    member(only) & forall(t, member(t) >> ~precedes(t, only)),
)  # fmt: skip
STEP = Step(
    "a first one, one thing more",
    "if a set has a first member, it has one with one more member too",
    (total_order(precedes), distinct(added, first_so_far)),
    (
        Hypothesis(
            "first-so-far", "no member precedes the first one",
            member(first_so_far) & forall(t, member(t) >> ~precedes(t, first_so_far)),
            unshown=COUNTED,
        ),
    ),
    conj(
        precedes(added, first_so_far)
        >> forall(t, (member(t) | equal(t, added)) >> ~precedes(t, added)),
        (~precedes(added, first_so_far))
        >> forall(t, (member(t) | equal(t, added)) >> ~precedes(t, first_so_far)),
    ),
    exists(t, member(t) & precedes(t, added)) & precedes(first_so_far, added),
)  # fmt: skip

#: base and step
FIRST_ONE = (BASE, STEP)
