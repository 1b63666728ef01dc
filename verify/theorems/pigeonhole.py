"""The lemma under all counting of slots: different pigeons in different holes need as many holes.

One step of the induction on the number of holes: close any hole and send any pigeon away; the
others still fit, injectively, into the holes that are left.  Without holes there is no pigeon,
for each has a seat.
"""

from __future__ import annotations

from .logic import Sort, Symbol, conj, distinct, equal, exists, forall
from .outline import Hypothesis, Step

Pigeon = Sort("Pigeon")
Hole = Sort("Hole")
seat = Symbol("seat", (Pigeon,), Hole)
reseat = Symbol("reseat", (Pigeon,), Hole)
(leaving,) = Pigeon.constants("leaving")
(closed,) = Hole.constants("closed")
p, p2 = Pigeon.variables("p p2")

INJECTIVE = Hypothesis(
    "injective",
    "no two pigeons share a hole",
    forall(p, p2, equal(seat(p), seat(p2)) >> equal(p, p2)),
)

PIGEONHOLE = Step(
    "pigeonhole, one hole less",
    "an injection of pigeons into holes gives one of all but one pigeon into all but one hole",
    (
        # Whoever has the hole that closes takes the hole of the one who leaves.
        forall(p, equal(seat(p), closed) >> equal(reseat(p), seat(leaving))),
        forall(p, distinct(seat(p), closed) >> equal(reseat(p), seat(p))),
    ),
    (INJECTIVE,),
    conj(
        forall(p, distinct(p, leaving) >> distinct(reseat(p), closed)),
        forall(
            p, p2,
            conj(distinct(p, leaving), distinct(p2, leaving), equal(reseat(p), reseat(p2)))
            >> equal(p, p2),
        ),
    ),
    exists(p, distinct(p, leaving) & equal(seat(p), closed)),
)  # fmt: skip
