"""The rules, one row each: what its findings are called, how bad they are, what to change."""

from __future__ import annotations

from ...model.report import Kind, Rule

_VALUE, _STATIC, _COST = Kind.VALUE, Kind.STATIC, Kind.COST

_ROWS: tuple[Rule, ...] = (
    # prefetch
    Rule(
        "PF001", "prefetch-source-not-compute", _VALUE,
        "A weight, bank, slot map or user input is prefetched while user code, a fill or the user "
        "may write it",
        "Issue the prefetch after that write, or let the consuming split copy the tensor itself",
    ),
    Rule(
        "PF002", "prefetch-source-not-ready", _VALUE,
        "A computed tensor is prefetched before the node that computes it has ended",
        "Issue the prefetch after the node, or let its queue wait for an event after the node",
    ),
    Rule(
        "PF003", "prefetch-source-rewritten", _VALUE,
        "Something writes bytes of a prefetch's source before the transfer has ended",
        "Move the writer before the prefetch, let it wait for the transfer's event, or give it "
        "other bytes",
    ),
    Rule(
        "PF004", "prefetch-target-live", _VALUE,
        "A prefetch fills bytes that something else still uses",
        "Give the target bytes of its own, or let the prefetch wait for the last user of the bytes",
    ),
    Rule(
        "PF005", "prefetch-not-awaited", _VALUE,
        "The consumer of a prefetched tensor may start before the prefetch that feeds it has ended",
        "Record an event after the prefetch and let the consumer's queue wait for that record",
    ),
    Rule(
        "PF006", "staging-slot-reused", _VALUE,
        "A staging slot is refilled with another weight while its last consumer may still read it",
        "Let the transfer wait for the consumer's event, or stage in one more slot than splits "
        "are looked ahead",
    ),
    Rule(
        "PF007", "staging-off-device", _STATIC,
        "A staged weight lies in a memory that the consuming split's device does not read",
        "Stage the weight in a memory of the consuming split's device",
    ),
    # banks
    Rule(
        "BK001", "cached-matmul-off-bank-device", _STATIC,
        "The matmul that reads a bank is not on a device that holds the bank and supports the op",
        "Assign the matmul to the bank's device; if that cannot run it, do not cache the layer",
    ),
    Rule(
        "BK002", "expert-not-resident", _VALUE,
        "A selected expert may not lie complete in its slot when the matmul starts",
        "Fill the bank in each pass that reads it, and let the matmul's queue wait for the uploads",
    ),
    Rule(
        "BK003", "slot-evicted-in-use", _VALUE,
        "A fill may overwrite a slot whose last reader has not ended",
        "Put the fill on the reader's queue, or let its queue wait for an event after the reader",
    ),
    Rule(
        "BK004", "working-set-exceeds-slots", _VALUE,
        "The guard of a bank admits a batch that needs more experts than the bank has slots",
        "Tighten the bank's `when` or give it more slots: tokens × experts per token must fit",
    ),
    Rule(
        "BK005", "index-space-mismatch", _STATIC,
        "Expert ids index a bank's slots, or slot ids index a tensor with a row per expert",
        "Read a bank through its slot ids and everything else through the experts' own ids",
    ),
    Rule(
        "BK006", "bank-not-inverse", _VALUE,
        "A fill claims residency for a layer and leaves one of its banks without the experts",
        "Name every bank of the layer in each fill: up, gate and down are filled together",
    ),
    Rule(
        "BK007", "remap-not-injective", _VALUE,
        "A token may choose more experts than there are slots, so two of them share one",
        "Give the bank at least as many slots as a token has ids",
    ),
    Rule(
        "BK008", "substituted-operand-unwritten", _VALUE,
        "A matmul was pointed at a bank or at slot ids that nothing fills before it",
        "Issue the fill before the matmul on every path, also when it is not the first of its "
        "split",
    ),
    Rule(
        "BK009", "slot-over-read", _VALUE,
        "What a kernel reads past a slot, or a copy's padding overwrites, is somebody else's or "
        "empty",
        "Pad the slots by what the kernel reads past them, and leave as many bytes after the last"
        " one",
    ),
    Rule(
        "BK010", "bank-on-wrong-device", _STATIC,
        "A bank lies in a memory that a consuming device does not read, or that has no room for "
        "it",
        "Give each device a bank in its own memory, and no more slots than fit there",
    ),
    Rule(
        "BK011", "bank-never-hits", _COST,
        "The layers of a group evict each other's experts before they are used again: no hit "
        "while decoding",
        "Give the group more than k·(L-1) slots (L layers of k experts), or each layer a group of"
        " its own",
    ),
    # selective expert copy
    Rule(
        "CE001", "expert-not-copied", _VALUE,
        "A matmul may read an expert that the selective copy left out",
        "Choose the experts with the ids that the matmul reads",
    ),
    Rule(
        "CE002", "ids-read-too-early", _VALUE,
        "The host reads the ids that choose the experts before they are there",
        "Copy the ids back and drain that queue before the selective copy or the fill is issued",
    ),
    Rule(
        "CE003", "used-set-stale", _VALUE,
        "A selective copy reuses the used set of an earlier copy that was made for other ids",
        "Reuse a set within one layer and one pass only; elsewhere give the copy its own ids",
    ),
    Rule(
        "CE004", "expert-tail-undefined", _VALUE,
        "A kernel reads past the end of a copied expert bytes that nothing has defined",
        "Give the selective copy a padding of what the kernel reads past an expert",
    ),
    Rule(
        "CE005", "copy-for-the-wrong-node", _VALUE,
        "A selective copy was made for the ids of another matmul than the one that reads it",
        "Choose the experts with the ids of each matmul that reads the copy, or copy for each "
        "apart",
    ),
    Rule(
        "CE006", "id-out-of-range", _VALUE,
        "An id may be negative, or not less than the number of experts",
        "Narrow the range of the ids' `values`, or use the tensor that has that many experts",
    ),
    # several passes
    Rule(
        "PP001", "copy-slot-unprotected", _VALUE,
        "A rotating copy of an input is filled again while a reader of an earlier pass may run",
        "Let the copy wait for the event that its last reader's queue recorded, or copy there",
    ),
    Rule(
        "PP002", "user-input-overwritten", _VALUE,
        "The user may set an input again before its last reader of the pass has ended",
        "Copy the input before the call returns, or let the host wait for its readers first",
    ),
    Rule(
        "PP003", "copy-index-mixed", _VALUE,
        "A node reads another copy of an input than the one that its pass uploads",
        "Let operands, uploads and events of a pass name one copy index",
    ),
    Rule(
        "PP004", "replay-stale", _VALUE,
        "A pass relies on an action or an address that was only good for an earlier pass",
        "Do the action in each pass, and bind each pass to the addresses that it writes",
    ),
    # order
    Rule(
        "OR001", "data-race", _VALUE,
        "A read and a write of the same bytes are not ordered",
        "Add the edge that is named: one queue for both, an event and a wait, or a host sync",
    ),
    Rule(
        "OR002", "stale-read", _VALUE,
        "A read finds an older version than the graph means",
        "Move the read, or the copy that feeds it, after the write that it should see",
    ),
    Rule(
        "OR003", "read-before-write", _VALUE,
        "A read finds bytes that nothing has written",
        "Add the copy or the node that writes them, or move it before the read",
    ),
    Rule(
        "OR004", "overwritten-before-use", _VALUE,
        "A version is overwritten while a read of it is still to come",
        "Move the read before the overwriting command, or give that other bytes",
    ),
    Rule(
        "OR005", "wait-never-satisfied", _STATIC,
        "A wait in the last pass has no record of its event before it",
        "Give the wait the guard of the record, or record the event where the wait needs it",
    ),
    Rule(
        "OR006", "event-kind-mismatch", _STATIC,
        "A queue waits for an event of a device whose events it cannot wait for",
        "Let the host wait with sync_event, or add the device to `waits_for` if it is able to",
    ),
    Rule(
        "OR007", "fallback-weaker", _VALUE,
        "A synchronous copy overtakes what was queued before it on the queue that it stands for",
        "Let the host wait for the queue before a copy that its contract makes synchronous",
    ),
    # placement
    Rule(
        "PL001", "op-unsupported", _STATIC,
        "A node's device does not support the op with these types and sizes",
        "Assign the node to a device that supports it, or narrow the range of the symbol",
    ),
    Rule(
        "PL002", "source-unreadable", _STATIC,
        "A node reads a tensor in a memory that its device does not read",
        "List the tensor in the split's inputs and copy it, or place it where the device reads",
    ),
    Rule(
        "PL003", "preallocated-immovable", _STATIC,
        "A node writes a placed tensor, or through a view, on a device away from those bytes",
        "Assign the node to a device of the buffer's memory, or place the base there",
    ),
    Rule(
        "PL004", "input-list-wrong", _STATIC,
        "A split's inputs miss a source from another memory, or list one that no node reads",
        "List exactly the sources of the split's nodes that its device does not read in place",
    ),
    Rule(
        "PL005", "node-unassigned", _STATIC,
        "A node has no device, or lies in no split or in two",
        "Assign every node; let each split start where the one before it ends",
    ),
    Rule(
        "PL006", "declared-not-realised", _COST,
        "A buffer, bank, prefetch, pin, set of copies or transfer is declared and has no effect",
        "Leave it out, or let the program use it",
    ),
    Rule(
        "PL007", "node-not-computed-once", _STATIC,
        "For some sizes a needed node is computed never or more than once in a pass",
        "Let the guards of the node's computes exclude each other and leave no value out",
    ),
    # allocation
    Rule(
        "AL001", "lifetime-overlap", _VALUE,
        "Two tensors share bytes while both may be in use",
        "Place one of them elsewhere, or order the last use of the first before the second",
    ),
    Rule(
        "AL002", "out-of-bounds", _STATIC,
        "A tensor begins before its buffer or ends after it",
        "Move the tensor, or make the buffer as long as the largest sizes need",
    ),
    Rule(
        "AL003", "over-capacity", _STATIC,
        "The buffers of a memory need more bytes than it has",
        "Shrink or drop a buffer, or move one to another memory",
    ),
    Rule(
        "AL004", "in-place-unsafe", _STATIC,
        "An op writes over a source, and its device does not declare that it may",
        "Give the result bytes of its own, or declare the op under the device's `in_place`",
    ),
    # cost
    Rule(
        "CO001", "bank-copied-each-pass", _COST,
        "A bank or a whole expert weight crosses memories in every pass",
        "Run the matmul where the weight lies, cache it in a bank, or copy the used experts only",
    ),
    Rule(
        "CO002", "redundant-sync", _COST,
        "A wait or host synchronisation adds no order that matters (looked for by check --syncs)",
        "Leave it out; check --syncs -o OUT writes the schedule without all that can go together",
    ),
    Rule(
        "CO003", "split-ping-pong", _COST,
        "Work leaves a device and comes back, though the device could have done what lies between",
        "Assign the nodes between to the device around them",
    ),
    Rule(
        "CO004", "serial-upload", _COST,
        "An upload waits for the split before it, and only its place in the program makes it wait",
        "Issue it earlier: as a prefetch on the device's second queue, or before its split's waits",
    ),
    Rule(
        "CO005", "prefetch-moves-more", _COST,
        "A prefetch brings all experts of a layer for sizes at which at most half can be used",
        "Copy the used experts once the router has chosen, or narrow the prefetch to large batches",
    ),
    Rule(
        "CO006", "selective-copy-useless", _COST,
        "A selective copy waits for the router and still brings nearly all experts",
        "Guard it with the sizes at which it saves; above them copy or prefetch the whole weight",
    ),
)  # fmt: skip

#: Every rule by its code, family after family.
RULES: dict[str, Rule] = {rule.code: rule for rule in _ROWS}
