"""What the planner makes sure of: one table, in which each guard names the rule that it keeps.

A guard can be switched off, so that a test can show what goes wrong without it.  Nothing else
switches one off.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..word import Word


class Guard(Word):
    """The switches, in the order of the table."""

    USAGE = "usage"
    NOT_WRITTEN = "not-written"
    THROUGH_VIEWS = "through-views"
    HOST_WRITES = "host-writes"
    UNWRITTEN = "unwritten"
    ONE_READER = "one-reader"
    RING_DEPTH = "ring-depth"
    IDS_BEFORE_SPLIT = "ids-before-split"
    SAME_IDS = "same-ids"
    SAME_VERSION = "same-version"
    ONE_MATMUL = "one-matmul"
    RUN_TAIL = "run-tail"
    CAPABILITY = "capability"
    IDS_BEFORE_FILL = "ids-before-fill"
    SLOTS = "slots"
    SLOT_PADDING = "slot-padding"
    CAPACITY = "capacity"
    FLOODING = "flooding"
    PREFETCH_AWAITED = "prefetch-awaited"
    SLOT_READERS = "slot-readers"
    COPY_AWAITED = "copy-awaited"
    SOURCE_AWAITED = "source-awaited"
    TARGET_READERS = "target-readers"
    IDS_AWAITED = "ids-awaited"
    FILL_AWAITED = "fill-awaited"
    VICTIM_READERS = "victim-readers"
    INPUT_READERS = "input-readers"
    CALLBACK_READERS = "callback-readers"
    OUTPUT_AWAITED = "output-awaited"
    LIFETIMES = "lifetimes"


#: Guards that are switched off.
Off = frozenset[Guard]
NONE_OFF: Off = frozenset()


@dataclass(frozen=True, slots=True)
class GuardRow:
    """``keeps``: what holds with the guard.  ``rule``: what ``check`` finds without it."""

    keeps: str
    rule: str


GUARDS: dict[Guard, GuardRow] = {
    # one-ahead
    Guard.USAGE: GuardRow("only what lies in compute memory is copied one split ahead", "PF002"),
    Guard.NOT_WRITTEN: GuardRow(
        "nor what a node of the running split writes", "PF002"
    ),
    Guard.THROUGH_VIEWS: GuardRow("nor what one writes through a view", "PF002"),
    Guard.HOST_WRITES: GuardRow(
        "nor what a callback or a fill of the consuming split writes", "PF002"
    ),
    # staging
    Guard.UNWRITTEN: GuardRow("what is staged is written by nothing in a pass", "PF002"),
    Guard.ONE_READER: GuardRow("what is staged is read by one split alone", "PF004"),
    Guard.RING_DEPTH: GuardRow(
        "a slot is filled again after its reader was issued", "PF004"
    ),
    # used-experts
    Guard.IDS_BEFORE_SPLIT: GuardRow("the ids that choose come from an earlier split", "CE002"),
    Guard.SAME_IDS: GuardRow("a used set serves the weights that the same ids index", "CE001"),
    Guard.SAME_VERSION: GuardRow("a used set is kept until the ids are written again", "CE001"),
    Guard.ONE_MATMUL: GuardRow("the weight's only reader is the matmul that chooses", "CE001"),
    Guard.RUN_TAIL: GuardRow("a run is followed by the bytes that kernels read past it", "CE004"),
    # the expert cache
    Guard.CAPABILITY: GuardRow("the device runs all matmuls of a cached layer", "BK001"),
    Guard.IDS_BEFORE_FILL: GuardRow(
        "a split begins where a fill has to be issued", "BK003"
    ),
    Guard.SLOTS: GuardRow("the experts of a batch fit into the slots", "BK004"),
    Guard.SLOT_PADDING: GuardRow("slots are apart by what kernels read past one", "BK009"),
    Guard.CAPACITY: GuardRow("the banks fit into what is left of a memory", "AL003"),
    Guard.FLOODING: GuardRow("one-token decoding finds experts again", "BK011"),
    # waits of the overlapped lowering
    Guard.PREFETCH_AWAITED: GuardRow("a node waits for the prefetch that feeds it", "PF005"),
    Guard.SLOT_READERS: GuardRow("a prefetch waits for the last readers of its target", "PF004"),
    Guard.COPY_AWAITED: GuardRow("a node waits for the copies that feed it", "OR001"),
    Guard.SOURCE_AWAITED: GuardRow("a copy waits for the node that computes its source", "OR001"),
    Guard.TARGET_READERS: GuardRow("a copy waits for the last readers of its target", "OR001"),
    Guard.IDS_AWAITED: GuardRow("the host waits for the ids by which it chooses", "CE002"),
    Guard.FILL_AWAITED: GuardRow("a node waits for the fill of its bank", "BK002"),
    Guard.VICTIM_READERS: GuardRow("a fill waits for the readers of its bank", "BK003"),
    Guard.INPUT_READERS: GuardRow("an input is set after its readers of the pass before", "OR001"),
    Guard.CALLBACK_READERS: GuardRow("a callback waits for readers of what it writes", "OR001"),
    Guard.OUTPUT_AWAITED: GuardRow("an output is read after it was computed", "OR001"),
    # compute memory
    Guard.LIFETIMES: GuardRow("bytes are lent when their uses have ended, in any order", "AL001"),
}  # fmt: skip
