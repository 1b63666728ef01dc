"""T2: a cached matmul runs where its bank is; a layer uses its banks together or not at all."""

from __future__ import annotations

from .induction import FIRST_ONE
from .logic import Sort, Symbol, Term, conj, disj, equal, exists, forall
from .outline import Hypothesis, Step, Theorem
from .vocabulary import flag, total_order

#: why no schedule shows what happens without
PLANNED = (
    "it is about what the planner meets; of a finished schedule BK001, PL001 and PL002 judge what "
    "came of it"
)

Device = Sort("Device")
Memory = Sort("Memory")
Matmul = Sort("Matmul")  # the matmuls that read a bank
Layer = Sort("Layer")

higher = Symbol("higher_priority", (Device, Device))
reads = Symbol("reads", (Device, Memory))
kind = Symbol("buffer_type", (Device,), Memory)  # what a device allocates in
is_host = Symbol("is_host", (Memory,))
supports = Symbol("supports", (Device, Matmul))
wants = Symbol("wants_offload", (Device, Matmul))
bank_in = Symbol("bank_in", (Matmul,), Memory)
owner = Symbol("bank_device", (Matmul,), Device)
bank_first = Symbol("bank_is_first_weight_source", (Matmul,))
pinned = Symbol("pinned", (Matmul,))
placed = Symbol("result_is_placed", (Matmul,))
assigned = Symbol("assigned_by_pass_1", (Matmul,))
home = Symbol("first_device_for_bank", (Matmul,), Device)
after_1 = Symbol("after_pass_1", (Matmul,), Device)
final = Symbol("after_pass_5", (Matmul,), Device)
part_of = Symbol("part_of", (Matmul, Layer))  # up, gate and down of a layer
cached = Symbol("layer_is_cached", (Layer,))
guard = Symbol("guard_holds", (Layer,))  # the condition of the banks, at the sizes of a pass
uses = Symbol("uses_bank", (Matmul,))
op_offload = flag("op_offload")

m, m2 = Matmul.variables("m m2")
d = Device.variables("d")[0]
layer = Layer.variables("layer")[0]


def candidate(device: Term, matmul: Term) -> Term:
    """Pass 1 may choose this device for the matmul's bank."""
    return reads(device, bank_in(matmul)) & supports(device, matmul)


def free(matmul: Term) -> Term:
    """Pass 1 goes by the first source in a weights buffer, and that is the bank."""
    return conj(~pinned(matmul), ~placed(matmul), bank_first(matmul))


def right(matmul: Term) -> Term:
    """The matmul ends on a device that reads its bank's memory and supports it."""
    return candidate(final(matmul), matmul)


PASSES = (
    total_order(higher),
    # Devices are finitely many: if one reads the bank and supports the op, one is the first.
    forall(m, d, candidate(d, m) >> (candidate(home(m), m) & ~higher(d, home(m)))),
    # Pass 1, a weight source: its first device; or, for host weights, a higher one that wants it.
    forall(m, conj(free(m), candidate(home(m), m)) >> assigned(m)),
    forall(
        m,
        conj(free(m), candidate(home(m), m))
        >> disj(
            equal(after_1(m), home(m)),
            conj(
                op_offload, is_host(bank_in(m)), higher(after_1(m), home(m)),
                supports(after_1(m), m), wants(after_1(m), m),
            ),
        ),
    ),
    # Passes 2 and 4 touch only what has no device.  Pass 3 may move up, to a device of the same
    # buffer type that supports the op and the buffers of all sources.  Pass 5 moves nothing.
    forall(
        m,
        assigned(m)
        >> disj(
            equal(final(m), after_1(m)),
            conj(
                higher(final(m), after_1(m)), equal(kind(final(m)), kind(after_1(m))),
                candidate(final(m), m),
            ),
        ),
    ),
)  # fmt: skip

READABLE = Hypothesis(
    "bank-on-its-device",
    "the device that holds the bank reads the bank's memory",
    forall(m, reads(owner(m), bank_in(m))),
    unshown=PLANNED,
)
SUPPORTED = Hypothesis(
    "device-supports-matmul",
    "the bank's device supports the matmul with the bank's dtype and these activations and ids",
    forall(m, supports(owner(m), m)),
    "t2-without-support",
)
FIRST = Hypothesis(
    "bank-is-first-weight",
    "the bank lies in a weights buffer and no source before it does",
    forall(m, bank_first(m)),
    unshown=PLANNED,
)
UNPINNED = Hypothesis(
    "not-pinned",
    "nobody pinned the matmul",
    forall(m, ~pinned(m)),
    unshown=PLANNED,
)
UNPLACED = Hypothesis(
    "result-not-placed",
    "the matmul's result has no buffer before planning",
    forall(m, ~placed(m)),
    unshown=PLANNED,
)
NOT_OFFLOADED = Hypothesis(
    "bank-not-host",
    "the bank is in no host memory, or op offload is off: else a device that wants large batches "
    "takes the matmul away from the memory",
    forall(m, is_host(bank_in(m)) >> ~op_offload),
    unshown=PLANNED,
)
ONE_DECISION = Hypothesis(
    "one-decision-a-layer",
    "whether a matmul reads its bank is decided for the whole layer, under one condition",
    forall(m, layer, part_of(m, layer) >> equal(uses(m), cached(layer) & guard(layer))),
    unshown=PLANNED,
)
ALL_SUPPORTED = Hypothesis(
    "cached-only-if-all-supported",
    "a layer is cached only if the device of the banks supports each of its matmuls",
    forall(m, layer, (part_of(m, layer) & cached(layer)) >> supports(owner(m), m)),
    "t2-without-support",
)

THEOREM = Theorem(
    "T2",
    "bank placement",
    "The five assignment passes put each matmul that reads a bank on a device that reads the "
    "bank's memory and supports it; up, gate and down of a layer use the cache together or not "
    "at all.",
    "The passes are followed for one arbitrary matmul among any number of others, on any number "
    "of devices and memories: only pass 1 gives it a device, only pass 3 may move it. That a "
    "first device exists is the induction of the last two steps: devices are finitely many.",
    (
        Step(
            "five passes",
            "each matmul ends on a device that reads its bank's memory and supports it",
            PASSES,
            (READABLE, SUPPORTED, FIRST, UNPINNED, UNPLACED, NOT_OFFLOADED),
            forall(m, right(m)),
            exists(m, disj(higher(final(m), after_1(m)), ~equal(final(m), owner(m)))),
        ),
        Step(
            "together or not at all",
            "two matmuls of one layer both read their banks or neither does, and what reads a "
            "bank is well placed",
            PASSES,
            (READABLE, FIRST, UNPINNED, UNPLACED, NOT_OFFLOADED, ONE_DECISION, ALL_SUPPORTED),
            forall(m, m2, layer, (part_of(m, layer) & part_of(m2, layer)) >> (uses(m) >> uses(m2)))
            & forall(m, layer, (part_of(m, layer) & uses(m)) >> right(m)),
            exists(
                m, m2, layer, conj(~equal(m, m2), part_of(m, layer), part_of(m2, layer), uses(m))
            ),
        ),
        *FIRST_ONE,
    ),
    "Pass 1 is modelled for mul_mat_id, which is none of the ops that it exempts. Which higher "
    "device op offload takes is left open (any that supports and wants the op).",
)  # fmt: skip
