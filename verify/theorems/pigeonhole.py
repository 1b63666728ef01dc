"""The lemma under all counting of slots: different pigeons in different holes need as many holes.

By induction on the number of holes.  Base: without holes there is no pigeon, for each has a seat.
Step: close any hole and send any pigeon away; the others still fit, injectively, into the holes
that are left; and if they are not more than those, neither were they before.
"""

from __future__ import annotations

from .induction import COUNTED
from .logic import INT, Sort, Symbol, conj, distinct, equal, exists, forall
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
    unshown=COUNTED,
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

is_pigeon = Symbol("is_pigeon", (Pigeon,))
is_hole = Symbol("is_hole", (Hole,))
h = Hole.variables("h")[0]
BASE = Step(
    "pigeonhole, no hole",
    "without holes there is no pigeon",
    (),
    (
        Hypothesis("no-hole", "there is no hole", forall(h, ~is_hole(h)), unshown=COUNTED),
        Hypothesis(
            "each-has-a-seat", "each pigeon sits in a hole",
            forall(p, is_pigeon(p) >> is_hole(seat(p))), unshown=COUNTED,
        ),
    ),
    forall(p, ~is_pigeon(p)),
)  # fmt: skip

pigeons, holes, fewer_pigeons, fewer_holes = (
    Symbol(name, (), INT)() for name in ("pigeons", "holes", "pigeons_less_one", "holes_less_one")
)
CONCLUSION = Step(
    "pigeonhole, conclusion",
    "if it holds with one hole less, there are at most as many pigeons as holes",
    (equal(pigeons, fewer_pigeons + 1), equal(holes, fewer_holes + 1)),
    (
        Hypothesis(
            "holds-with-one-less", "all but one pigeon are at most as many as all but one hole",
            fewer_pigeons <= fewer_holes, unshown=COUNTED,
        ),
    ),
    pigeons <= holes,
)  # fmt: skip

#: where the lemma's induction begins, and what its step gives
ENDS = (BASE, CONCLUSION)
