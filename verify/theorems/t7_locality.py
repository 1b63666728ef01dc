"""T7: the local condition on a read holds iff every execution gives the read its due version."""

from __future__ import annotations

from collections.abc import Callable

from .induction import FIRST_ONE
from .logic import Symbol, Term, conj, disj, distinct, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .vocabulary import Command, before, flag, issued, strict_order, total_order

#: why no schedule shows what happens without
BUILT = "it describes the execution that the proof builds or stretches"

ends_before = Symbol("ends_before", (Command, Command))  # one execution: a ended, then b started
built = Symbol("built", (Command, Command))  # an execution that a proof constructs
writes = Symbol("writes_byte", (Command,))
due = Symbol("has_due_version", (Command,))  # writers of the version that is due

(read, some_due, last_other, between, other, copy) = Command.constants(
    "read some_due last_other between other copy"
)
a, b, c, d, w = Command.variables("a b c d w")

Relation = Callable[[Term, Term], Term]


def execution(runs: Symbol) -> Term:
    """Commands take intervals of time, and what → orders is so ordered.

    A relation is "ends before it starts" of some intervals iff it is an interval order.
    """
    return conj(
        forall(a, ~runs(a, a)),
        forall(a, b, c, d, (runs(a, b) & runs(c, d)) >> (runs(a, d) | runs(c, b))),
        forall(a, b, before(a, b) >> runs(a, b)),
    )


def writer(term: Term) -> Term:
    """It writes the byte, and is not the read itself."""
    return writes(term) & distinct(term, read)


def in_the_way(runs: Symbol, witness: Term) -> Term:
    """Some writer of another version is neither before the witness nor after the read."""
    return exists(w, conj(writer(w), ~due(w), ~runs(w, witness), ~runs(read, w)))


def seen(runs: Symbol, witness: Term) -> Term:
    """The witness wrote the due version last, and completely, before the read started."""
    return conj(writer(witness), due(witness), runs(witness, read), ~in_the_way(runs, witness))


def untorn(runs: Symbol) -> Term:
    return forall(w, writer(w) >> (runs(w, read) | runs(read, w)))


def levelled(level: list[Callable[[Term], Term]], tied: int) -> Relation:
    """Commands level by level, in issue order within a level; those of level ``tied`` overlap.

    ``level``: tests, of which the first that holds says the level; else it is the last one.
    """

    def at(number: int, command: Term) -> Term:
        earlier = conj(*(~test(command) for test in level[:number]))
        return earlier & level[number](command) if number < len(level) else earlier

    def runs(x: Term, y: Term) -> Term:
        numbers = range(len(level) + 1)
        lower = [at(i, x) & at(j, y) for i in numbers for j in numbers if i < j]
        same = [conj(at(i, x), at(i, y), issued(x, y)) for i in numbers if i != tied]
        return disj(*lower, *same)

    return runs


def constructed(runs: Relation) -> Term:
    return forall(a, b, equal(built(a, b), runs(a, b)))


ORDERED = (total_order(issued), strict_order(before))
ISSUED = Hypothesis(
    "order-follows-issue",
    "nothing that is issued later is before something that is issued earlier",
    forall(a, b, before(a, b) >> issued(a, b)),
    unshown=BUILT,
)

# -- the local condition suffices -----------------------------------------------------------------

has_other = flag("other_version_before")
ENDS_LAST = (
    # Commands are finitely many: of the other versions' writers before the read, one ends last.
    has_other
    >> conj(
        writer(last_other), ~due(last_other), ends_before(last_other, read),
        forall(
            w, a,
            conj(writer(w), ~due(w), ends_before(w, read), ends_before(last_other, a))
            >> ends_before(w, a),
        ),
    ),
    (~has_other) >> forall(w, conj(writer(w), ~due(w)) >> ~ends_before(w, read)),
)  # fmt: skip
RACE_FREE = Hypothesis(
    "i-writers-ordered",
    "every writer of the byte is ordered with the read",
    forall(w, writer(w) >> (before(w, read) | before(read, w))),
    "t7-without-i",
)
WRITTEN = Hypothesis(
    "ii-due-writer-before",
    "some writer of the due version is before the read",
    conj(writer(some_due), due(some_due), before(some_due, read)),
    "t7-without-ii",
)
REWRITTEN = Hypothesis(
    "iii-due-writer-between",
    "after a writer of another version that is before the read, some writer of the due version "
    "is before the read (used for the one that ends last)",
    (writer(last_other) & ~due(last_other) & before(last_other, read))
    >> conj(writer(between), due(between), before(last_other, between), before(between, read)),
    "t7-without-iii",
)

INTERVALS = Hypothesis(
    "commands-take-intervals",
    "if a ended before b started and c before d, then a before d or c before b",
    forall(a, b, c, d, (ends_before(a, b) & ends_before(c, d))
           >> (ends_before(a, d) | ends_before(c, b))),
    unshown="it is what an execution is; nothing that a schedule could lack",
)  # fmt: skip

# -- and is needed --------------------------------------------------------------------------------

UNORDERED = Hypothesis(
    "not-i",
    "a writer of the byte is not ordered with the read",
    conj(writer(other), ~before(other, read), ~before(read, other)),
    unshown=BUILT,
)
NO_DUE = Hypothesis(
    "not-ii",
    "no writer of the due version is before the read",
    forall(w, conj(writer(w), due(w)) >> ~before(w, read)),
    unshown=BUILT,
)
NOT_BETWEEN = Hypothesis(
    "not-iii",
    "between a writer of another version and the read there is no writer of the due version",
    forall(w, conj(writer(w), due(w), before(other, w)) >> ~before(w, read)),
    unshown=BUILT,
)
OTHER_BEFORE = conj(writer(other), ~due(other), before(other, read))

# -- copies ---------------------------------------------------------------------------------------

writes_source = Symbol("writes_source", (Command,))  # the bytes that the copy reads
carries = Symbol("carries_due_version", (Command,))  # in the given execution
(torn_by, spoiler) = Command.constants("torn_by spoiler")
is_torn, nothing_due = flag("is_torn"), flag("nothing_due")


def source_writer(term: Term) -> Term:
    return writes_source(term) & distinct(term, copy)


def goes_wrong(runs: Symbol) -> Term:
    """The copy does not read the due version: it is torn, or finds no writer of it, or another
    version's writer comes after each of them (by finiteness one, the one that ends last)."""
    carrier = conj(source_writer(w), carries(w), runs(w, copy))
    return disj(
        conj(source_writer(torn_by), ~runs(torn_by, copy), ~runs(copy, torn_by)),
        forall(w, ~carrier),
        conj(
            source_writer(spoiler), ~carries(spoiler), runs(spoiler, copy),
            forall(w, carrier >> ~runs(spoiler, w)),
        ),
    )  # fmt: skip


def stretched(x: Term, y: Term) -> Term:
    """The execution with the copy's end put off until all that does not follow it has ended; then
    what follows it, the read as early as may be."""
    after_x, after_y = before(copy, x), before(copy, y)
    tail = levelled([lambda t: before(t, read), lambda t: equal(t, read)], tied=-1)(x, y)
    return disj(
        conj(~after_x, ~after_y, distinct(x, copy), ends_before(x, y)),
        conj(~after_x, after_y),
        conj(after_x, after_y, tail),
    )


WRONG_SOMEWHERE = Hypothesis(
    "copy-goes-wrong-somewhere",
    "in some execution the copy does not read the due version",
    execution(ends_before) & goes_wrong(ends_before),
    unshown=BUILT,
)
LATEST = Hypothesis(
    "copy-is-a-latest-writer",
    "no writer of the byte lies between the copy and the read",
    conj(
        before(copy, read), writer(copy),
        forall(w, conj(writer(w), before(copy, w)) >> ~before(w, read)),
    ), unshown=BUILT,
)  # fmt: skip
COPY_LAST = forall(w, writer(w) >> ~(built(copy, w) & built(w, read)))


def _built(
    name: str, words: str, runs: Relation, why: Hypothesis, goal: Term, *facts: Term
) -> Step:
    return Step(
        name, words, (*ORDERED, constructed(runs), *facts), (ISSUED, why), execution(built) & goal,
        exists(a, before(a, read)),
    )  # fmt: skip


_RACE = levelled(
    [lambda t: before(t, other) | before(t, read), lambda t: equal(t, other) | equal(t, read)], 1
)
_ALONE = levelled([lambda t: before(t, read), lambda t: equal(t, read)], -1)
_LATE = levelled(
    [
        lambda t: conj(before(t, read), ~before(other, t), distinct(t, other)),
        lambda t: equal(t, other),
        lambda t: before(t, read),
        lambda t: equal(t, read),
    ],
    -1,
)

THEOREM = Theorem(
    "T7",
    "locality",
    "A read gets its due version in every execution that the order allows, if and only if (i) "
    "every other writer of the byte is ordered with it, (ii) some writer of the due version is "
    "before it, and (iii) after each writer of another version that is before it, some writer of "
    "the due version is before it; where a copy counts as a writer of the due version iff its own "
    "read gets it in every execution.",
    "An execution gives each command an interval of time; it is represented by the relation "
    "\"a ended, then b started\". If: of the other versions' writers before the read take the one "
    "that ends last (first step; one does by the last three: ends are in a row, and of finitely "
    "many in a row one is the last). Only if: each failing condition gives an execution that goes "
    "wrong, built level by level from the issue order (steps two to four). Copies: by induction "
    "in issue order. If (i) holds and all latest writers before the read (at least one) always "
    "have the due version, then (ii) and (iii) hold. So if the local condition fails beside (i), "
    "there is no writer before the read (third step), or a latest one is a plain writer of "
    "another version (fourth step), or a copy that goes wrong in some execution, and then so does "
    "the read in a stretched one (fifth step): commands that do not follow the copy keep their "
    "times there, so their versions too.",
    (
        Step(
            "if",
            "the read is not torn, and what it sees was written last by a writer of the due "
            "version",
            (*ORDERED, execution(ends_before), *ENDS_LAST),
            (RACE_FREE, WRITTEN, REWRITTEN),
            untorn(ends_before)
            & (has_other >> seen(ends_before, between))
            & ((~has_other) >> seen(ends_before, some_due)),
            has_other & exists(w, writer(w) & before(read, w)),
        ),
        _built(
            "only if, (i)", "an execution in which the writer and the read overlap",
            _RACE, UNORDERED, ~built(other, read) & ~built(read, other),
        ),
        _built(
            "only if, (ii)", "an execution in which the due version is not written yet",
            _ALONE, NO_DUE, forall(w, conj(writer(w), due(w)) >> ~built(w, read)),
        ),
        _built(
            "only if, (iii)", "an execution in which the other version is written last",
            _LATE, NOT_BETWEEN,
            built(other, read)
            & forall(w, conj(writer(w), due(w)) >> ~(built(other, w) & built(w, read))),
            OTHER_BEFORE,
        ),
        Step(
            "only if, copies",
            "an execution in which the copy goes wrong and no writer comes between it and the read",
            (*ORDERED, constructed(stretched)),
            (ISSUED, WRONG_SOMEWHERE, LATEST),
            conj(execution(built), goes_wrong(built), built(copy, read), COPY_LAST),
            exists(w, conj(writer(w), before(w, read), distinct(w, copy))),
        ),
        Step(
            "ends are in a row",
            "of two commands one ends no later than the other: what follows the later one follows "
            "the earlier one",
            (),
            (INTERVALS,),
            forall(
                w, c,
                forall(a, ends_before(w, a) >> ends_before(c, a))
                | forall(a, ends_before(c, a) >> ends_before(w, a)),
            ),
            exists(a, b, ends_before(a, b)),
        ),
        *FIRST_ONE,
    ),
    "One byte at a time. Used beside the solver: a relation is the precedence of intervals iff it "
    "is an interval order (Fishburn), and that finite sets admit induction.",
)  # fmt: skip
