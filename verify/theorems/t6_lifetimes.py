"""T6: freeing after the last reader in list order is safe under the scheduler's waits."""

from __future__ import annotations

from .induction import FIRST_ONE
from .logic import Sort, Symbol, Term, conj, disj, distinct, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .vocabulary import Command, before, host, issued, strict_order, total_order, unique

Device = Sort("Device")  # stands for its queue and its memory too; the CPU's queue is the host
Split = Sort("Split")
Input = Sort("Input")  # a tensor that a split copies in

earlier = Symbol("earlier", (Split, Split))
follows = Symbol("next_but", (Split, Split))  # the first comes right before the second
device = Symbol("device", (Split,), Device)
source = Symbol("from_device", (Input,), Device)
input_of = Symbol("input_of", (Input, Split))
in_split = Symbol("in_split", (Command, Split))
on = Symbol("on_queue_of", (Command, Device))
waits_for = Symbol("host_waits_for", (Command, Device))
node = Symbol("is_node", (Command,))
moves = Symbol("moves", (Command, Input))
uses = Symbol("uses_memory_of", (Command, Device))
writes = Symbol("writes_memory_of", (Command, Device))
entry_wait = Symbol("entry_wait", (Split,), Command)
first_copy = Symbol("first_copy", (Split,), Command)
copied_first = Symbol("copied_first", (Split,), Input)
pending_wait = Symbol("pending_wait", (Split, Device), Command)
wait_target = Symbol("wait_for_target", (Input,), Command)
wait_source = Symbol("wait_for_source", (Input,), Command)
fence = Symbol("fence", (Input,), Command)

(cpu,) = Device.constants("cpu")
#: an earlier and a later user of the same bytes, their splits, and what they move if they do
(first_use, later_use) = Command.constants("first_use later_use")
(first_split, later_split, turn, before_turn) = Split.constants(
    "first_split later_split turn before_turn"
)
(first_input, later_input) = Input.constants("first_input later_input")
(shared,) = Device.constants("shared_memory")

a, b, c = Command.variables("a b c")
d, e = Device.variables("d e")
s, t, z = Split.variables("s t z")
x, y = Input.variables("x y")


def acts(command: Term, moved: Term) -> Term:
    """It is a node, or it moves that input."""
    return node(command) | moves(command, moved)


def just_before(wait: Term, command: Term) -> Term:
    """The wait comes before the command, with no node and no transfer between."""
    return issued(wait, command) & forall(
        b, y, (acts(b, y) & issued(b, command)) >> issued(b, wait)
    )


def user(command: Term, split: Term, moved: Term) -> Term:
    """A node or a transfer of the split that touches the memory in question."""
    is_transfer = moves(command, moved) & input_of(moved, split)
    return conj(in_split(command, split), node(command) | is_transfer, uses(command, shared))


PROTOCOL = (
    total_order(issued),
    strict_order(before),
    forall(a, b, (host(a) & issued(a, b)) >> before(a, b)),
    forall(a, b, d, conj(on(a, d), on(b, d), issued(a, b)) >> before(a, b)),
    forall(a, b, d, conj(on(a, d), waits_for(b, d), issued(a, b)) >> before(a, b)),
    forall(a, d, waits_for(a, d) >> host(a)),
    total_order(earlier),
    unique(in_split),
    forall(a, b, s, t, conj(in_split(a, s), in_split(b, t), earlier(s, t)) >> issued(a, b)),
    forall(s, t, z, follows(s, t) >> conj(earlier(s, t), ~(earlier(s, z) & earlier(z, t)))),
    # Nodes run on their split's device and use its memory; the CPU's run on the host.
    forall(c, s, conj(node(c), in_split(c, s), equal(device(s), cpu)) >> host(c)),
    forall(c, s, conj(node(c), in_split(c, s), distinct(device(s), cpu)) >> on(c, device(s))),
    forall(c, s, d, conj(node(c), in_split(c, s), uses(c, d)) >> equal(d, device(s))),
    # Transfers use the memories at both ends and write the one of their split's device.
    forall(
        c, s, x, d,
        conj(moves(c, x), input_of(x, s), uses(c, d))
        >> (equal(d, device(s)) | (equal(d, source(x)) & ~writes(c, d))),
    ),
    forall(x, s, input_of(x, s) >> distinct(source(x), device(s))),
    # The inputs of a split are copied before its nodes run, one of them first.
    forall(a, b, s, x, conj(in_split(a, s), in_split(b, s), moves(a, x), node(b)) >> issued(a, b)),
    forall(
        s, x,
        input_of(x, s)
        >> conj(
            input_of(copied_first(s), s), moves(first_copy(s), copied_first(s)),
            in_split(first_copy(s), s),
            forall(
                c, y,
                (in_split(c, s) & acts(c, y))
                >> (equal(c, first_copy(s)) | issued(first_copy(s), c)),
            ),
        ),
    ),
    # A transfer is a host command, or is queued: from the CPU on its target's device; what
    # comes to the CPU is never queued, for the CPU copies nothing asynchronously.
    forall(
        c, s, x,
        conj(moves(c, x), input_of(x, s), equal(source(x), cpu)) >> (host(c) | on(c, device(s))),
    ),
    forall(c, s, x, conj(moves(c, x), input_of(x, s), equal(device(s), cpu)) >> host(c)),
    # Two uses of the same bytes, of which one writes.
    user(first_use, first_split, first_input),
    user(later_use, later_split, later_input),
    issued(first_use, later_use),
    writes(first_use, shared) | writes(later_use, shared),
)  # fmt: skip

#: splits are finitely many: the first one on the CPU after the earlier use, and the one before it
FIRST_CPU_SPLIT = conj(
    earlier(first_split, later_split), distinct(device(first_split), cpu),
    equal(device(later_split), cpu),
) >> conj(
    earlier(first_split, turn), equal(device(turn), cpu),
    equal(turn, later_split) | earlier(turn, later_split),
    follows(before_turn, turn), equal(before_turn, first_split) | earlier(first_split, before_turn),
    forall(z, (earlier(first_split, z) & earlier(z, turn)) >> distinct(device(z), cpu)),
)  # fmt: skip

ONE_ASYNCHRONOUS = Hypothesis(
    "one-asynchronous-device",
    "beside the CPU there is one device",
    forall(d, e, (distinct(d, cpu) & distinct(e, cpu)) >> equal(d, e)),
    "t6-three-devices",
)
ENTRY = Hypothesis(
    "wait-without-inputs",
    "a split without inputs begins by waiting for the device of the split before it, if that is "
    "another one",
    forall(
        s, t,
        conj(follows(s, t), distinct(device(s), device(t)), distinct(device(s), cpu),
             ~exists(x, input_of(x, t)))
        >> conj(
            waits_for(entry_wait(t), device(s)), in_split(entry_wait(t), t),
            forall(c, in_split(c, t) >> (equal(c, entry_wait(t)) | issued(entry_wait(t), c))),
        ),
    ),
    "t6-without-entry-wait",
)  # fmt: skip
TARGET = Hypothesis(
    "wait-for-the-target",
    "before an input is copied to an asynchronous device, the host waits for that device",
    forall(
        c, s, x,
        conj(moves(c, x), input_of(x, s), distinct(device(s), cpu))
        >> conj(
            waits_for(wait_target(x), device(s)), in_split(wait_target(x), s),
            just_before(wait_target(x), c),
        ),
    ),
    "t6-without-target-wait",
)  # fmt: skip
SOURCE = Hypothesis(
    "wait-for-the-source",
    "before the host copies an input out of an asynchronous device's memory, it waits for that "
    "device",
    forall(
        c, s, x,
        conj(moves(c, x), input_of(x, s), host(c), distinct(source(x), cpu))
        >> conj(
            waits_for(wait_source(x), source(x)), in_split(wait_source(x), s),
            just_before(wait_source(x), c),
        ),
    ),
    "t6-without-source-wait",
)  # fmt: skip
PENDING = Hypothesis(
    "wait-for-all-given-work",
    "before a split on the CPU does anything, the host has waited for each asynchronous device "
    "that was given work since the host last waited for it",
    forall(
        s, e,
        conj(equal(device(s), cpu), distinct(e, cpu))
        >> conj(
            waits_for(pending_wait(s, e), e),
            forall(
                c, z,
                conj(on(c, e), in_split(c, z), earlier(z, s)) >> issued(c, pending_wait(s, e)),
            ),
            forall(
                c, x,
                conj(in_split(c, s), acts(c, x)) >> issued(pending_wait(s, e), c),
            ),
        ),
    ),
    "t6-three-devices",
)  # fmt: skip
PEERS = Hypothesis(
    "peer-copies-are-fenced",
    "a copy between two asynchronous devices that is queued runs on the source's queue, and the "
    "target's queue waits for it at once",
    forall(
        c, s, x,
        conj(moves(c, x), input_of(x, s), distinct(source(x), cpu), distinct(device(s), cpu))
        >> disj(
            host(c),
            conj(
                on(c, source(x)), on(fence(x), device(s)), before(c, fence(x)),
                forall(b, issued(c, b) >> (equal(b, fence(x)) | issued(fence(x), b))),
            ),
        ),
    ),
    "t6-peer-on-target-queue",
)  # fmt: skip

GOAL = before(first_use, later_use)
REUSE = conj(
    distinct(device(first_split), cpu), equal(device(later_split), cpu),
    earlier(first_split, later_split), on(first_use, device(first_split)),
)  # fmt: skip

THEOREM = Theorem(
    "T6",
    "lifetimes",
    "With one asynchronous device beside the CPU and one copy of each input, the scheduler's "
    "waits order any two uses of the same memory, of which one writes, as the list has them: what "
    "is freed after its last reader in list order may be reused. With a second asynchronous "
    "device this fails. It holds for any number of them if a split on the CPU first waits for "
    "every device that was given work since the host last waited for it.",
    "For two arbitrary uses in a list of any length. The only uses that are not ordered by a "
    "queue or by the host are a queued one and a later host command; that one is in a split that "
    "waits for its target, or on the CPU. In the first case look at the first CPU split after "
    "the queued use: the split before it was on the asynchronous device, so it waits whether it "
    "has inputs or not. That this first split exists is the induction of the last two steps. "
    "Between passes the host waits for all devices, so one pass is enough.",
    (
        Step(
            "one asynchronous device",
            "an earlier and a later use of the same memory are ordered",
            (*PROTOCOL, FIRST_CPU_SPLIT),
            (ONE_ASYNCHRONOUS, ENTRY, TARGET, SOURCE),
            GOAL,
            REUSE & ~exists(x, input_of(x, turn)) & exists(x, input_of(x, first_split)),
        ),
        Step(
            "any number, repaired",
            "an earlier and a later use of the same memory are ordered",
            PROTOCOL,
            (PENDING, TARGET, SOURCE, PEERS),
            GOAL,
            REUSE & exists(d, e, conj(distinct(d, e), distinct(d, cpu), distinct(e, cpu))),
        ),
        *FIRST_ONE,
    ),
    "User callbacks are not uses: they must not touch compute buffers. All synchronous devices "
    "count as the CPU, whose memory they share. Each asynchronous device has one queue.",
)
