"""T4: the events of several input copies protect every copy of an input."""

from __future__ import annotations

from .induction import FIRST_ONE
from .logic import Sort, Symbol, conj, disj, exists, forall
from .outline import Hypothesis, Step, Theorem
from .vocabulary import ORDER, Command, Queue, before, host, issued, on, total_order, unique

#: why no schedule shows what happens without
LISTED = "a document cannot say otherwise: its program is in order of issue, pass after pass"
EVENT = "it is what an event of a document means"
PROTOCOL = (
    "it says how the protocol names and records its events; a schedule that does so otherwise has "
    "the missing order of the one without event-after-every-split"
)

Pass = Sort("Pass")
Run = Sort("Run")  # a split in one pass
Place = Sort("Place")  # one copy of an input in the memory of a device
Event = Sort("Event")  # one for each device and copy index

next_pass = Symbol("earlier_pass", (Pass, Pass))
in_pass = Symbol("in_pass", (Command, Pass))
in_run = Symbol("in_split", (Command, Run))
closing = Symbol("closing_record", (Run,), Command)
reads = Symbol("reads", (Command, Place))
event_of = Symbol("event_of", (Place, Event))
records = Symbol("records", (Command, Event))
awaits = Symbol("queue_waits", (Command, Event))
syncs = Symbol("host_waits", (Command, Event))

(transfer, guard) = Command.constants("transfer guard")
(here,) = Pass.constants("pass_of_transfer")
(place,) = Place.constants("overwritten")
(event,) = Event.constants("awaited_event")

a, b, r, w = Command.variables("a b r w")
q = Queue.variables("q")[0]
u = Run.variables("u")[0]
e = Event.variables("e")[0]
p, p2 = Pass.variables("p p2")

EVENTS = (
    *ORDER,
    total_order(next_pass),
    unique(in_pass),
    # A wait means every record of its event that was issued before it (see the first step).
    forall(a, w, e, conj(records(a, e), awaits(w, e), issued(a, w)) >> before(a, w)),
    forall(a, w, e, conj(records(a, e), syncs(w, e), issued(a, w)) >> before(a, w)),
    forall(w, e, syncs(w, e) >> host(w)),
    # A split's closing record belongs to the pass of the split.
    forall(a, u, p, (in_run(a, u) & in_pass(a, p)) >> in_pass(closing(u), p)),
    in_pass(transfer, here),
)

ON_READERS_QUEUE = forall(r, q, (reads(r, place) & on(r, q)) >> on(transfer, q))
QUEUE_WAITS = exists(
    q, conj(awaits(guard, event), on(guard, q), on(transfer, q), issued(guard, transfer))
)
HOST_WAITS = syncs(guard, event) & issued(guard, transfer)

DEVICE_QUEUE = Hypothesis(
    "on-destination-queue",
    "the copy runs on the queue of the device that it writes to",
    ON_READERS_QUEUE,
    "t4-device-to-device",
)
OWN_WAIT = Hypothesis(
    "copying-queue-waits",
    "the queue that copies waits for the destination's event first",
    QUEUE_WAITS,
    "t4-device-to-device",
)
USER_INPUT = Hypothesis(
    "user-input-uploaded-before",
    "a user input of the destination was uploaded earlier in the pass, and for that the host "
    "waited for the destination's event",
    HOST_WAITS,
    "t4-device-to-device",
)
ONE_OF_THREE = Hypothesis(
    "one-of-three",
    "the copy runs on the destination's queue; or the queue that copies waits for the "
    "destination's event first; or a user input of the destination was uploaded earlier in the "
    "pass, for which the host waited for that event",
    disj(ON_READERS_QUEUE, QUEUE_WAITS, HOST_WAITS),
    "t4-device-to-device",
)
PASSES_FOLLOW = Hypothesis(
    "passes-follow-each-other",
    "the host issues all of a pass before the next one",
    forall(a, b, p, p2, conj(in_pass(a, p), in_pass(b, p2), next_pass(p, p2)) >> issued(a, b)),
    unshown=LISTED,
)
SAME_PASS = Hypothesis(
    "waited-for-in-this-pass",
    "that wait is issued in the pass of the copy",
    in_pass(guard, here),
    unshown=PROTOCOL,
)
OWN_EVENT = Hypothesis(
    "event-of-that-copy",
    "the event is that of the destination and the copy index that is overwritten (PP003)",
    event_of(place, event),
    unshown=PROTOCOL,
)
EVERY_SPLIT = Hypothesis(
    "event-after-every-split",
    "after every split the event of its device and the pass's copy index is recorded, also "
    "after a split without inputs of its own",
    forall(
        r, u, e,
        conj(in_run(r, u), reads(r, place), event_of(place, e))
        >> conj(records(closing(u), e), issued(r, closing(u))),
    ),
    "t4-event-not-after-every-split",
)  # fmt: skip
ONE_QUEUE = Hypothesis(
    "recorded-on-the-readers-queue",
    "the event is recorded on the queue that the split's nodes run on",
    forall(
        r, u, q, conj(in_run(r, u), reads(r, place), on(r, q)) >> on(closing(u), q)
    ), unshown=PROTOCOL,
)  # fmt: skip
#: readers run on a queue of their device
READERS = (forall(r, reads(r, place) >> exists(q, on(r, q))),)
_READER = conj(reads(r, place), in_run(r, u), in_pass(r, p), next_pass(p, here))
PROTECTED = forall(r, u, p, _READER >> before(r, transfer))
SOME_READER = exists(r, u, p, _READER)
_WAITED = (SAME_PASS, PASSES_FOLLOW, OWN_EVENT, EVERY_SPLIT, ONE_QUEUE)

(early, latest, wait) = Command.constants("early_record latest_record wait")
ONE_RECORDING_QUEUE = Hypothesis(
    "one-recording-queue",
    "all records of an event are issued on one queue",
    forall(a, b, e, q, conj(records(a, e), records(b, e), on(a, q)) >> on(b, q)),
    unshown=PROTOCOL,
)
MEANS_LATEST = Hypothesis(
    "means-latest",
    "a wait waits for the latest record of its event that was issued before it",
    before(latest, wait),
    unshown=EVENT,
)

THEOREM = Theorem(
    "T4",
    "pipeline",
    "With any number of input copies used in rotation, events recorded after every split and "
    "awaited before a copy is overwritten protect every reader of every earlier pass, if the copy "
    "runs on the destination's queue, or the copying queue waits for the destination's event, or "
    "the host did so for a user input of the same device and pass. Otherwise a copy from device "
    "to device that runs on the source's queue may overwrite what is still read.",
    "For one arbitrary copy command and all readers of the bytes that it overwrites; that "
    "the rotation uses n copies plays no part. The first step reduces a wait, which means the "
    "latest record only, to all records: the latest one exists by the induction of the "
    "last two steps. Then each of the three ways, and their disjunction, whose dropped twin is "
    "the fault.",
    (
        Step(
            "a wait means all records",
            "what an earlier record of the same event follows is awaited too",
            (
                *ORDER,
                records(early, event), records(latest, event), issued(early, wait),
                forall(a, conj(records(a, event), issued(a, wait)) >> ~issued(latest, a)),
                forall(a, e, records(a, e) >> exists(q, on(a, q))),
            ),
            (ONE_RECORDING_QUEUE, MEANS_LATEST),
            before(early, wait),
            issued(early, latest),
        ),
        Step(
            "on the destination's queue",
            "readers of earlier passes end before the copy starts: no event is needed",
            (*EVENTS, *READERS), (DEVICE_QUEUE, PASSES_FOLLOW), PROTECTED, SOME_READER,
        ),
        Step(
            "the copying queue waits",
            "readers of earlier passes end before the copy starts",
            (*EVENTS, *READERS), (OWN_WAIT, *_WAITED), PROTECTED, SOME_READER,
        ),
        Step(
            "the host waited for a user input",
            "readers of earlier passes end before the copy starts",
            (*EVENTS, *READERS), (USER_INPUT, *_WAITED), PROTECTED, SOME_READER,
        ),
        Step(
            "one of the three",
            "readers of earlier passes end before the copy starts",
            (*EVENTS, *READERS), (ONE_OF_THREE, *_WAITED), PROTECTED, SOME_READER,
        ),
        *FIRST_ONE,
    ),
)  # fmt: skip
