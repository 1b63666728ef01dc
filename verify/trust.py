"""What a verdict rests on, as data: who is trusted, what is assumed, where it can still be wrong.

``docs/soundness.md`` explains each entry under its name; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """``effect`` of a source of unsoundness: what can be wrong then (``proved``: a schedule may
    be called right and is not; ``violated``: one may be called wrong and is right;
    ``undecided``: no answer)."""

    name: str
    text: str
    effect: str = ""


TRUSTED: tuple[Entry, ...] = (
    Entry("solver", "Z3 answers correctly; check --recheck asks cvc5 too"),
    Entry("folding", "model and verify/term.py do exact integer arithmetic before a solver is "
          "asked; check --recheck asks everything again without it"),
    Entry("order", "verify/order.py: the edges of queues, events, waits and contracts"),
    Entry("footprints", "verify/footprint.py and region.py: the bytes of each command, and "
          "model/ops.py: what an op reads and writes"),
    Entry("local condition", "verify/obligation.py: a read is right exactly if the three local "
          "conditions hold for each of its bytes"),
    Entry("reader and lowering", "model: the document is read as written, and splits become the "
          "program that the engine issues"),
    Entry("runtime", "Python, and the machine that runs the check"),
)  # fmt: skip

AXIOMS: tuple[Entry, ...] = (
    Entry("contracts", "devices keep the copy contract, the queue order and the event semantics "
          "that the document states"),
    Entry("declared footprints", "kernels read and write their declared bytes and nothing else"),
    Entry("callbacks", "a callback reads and writes what it declares; without a declaration, "
          "everything but banks, slot ids and maps"),
    Entry("sizes", "the symbols have the same values in all passes"),
    Entry("ids", "each element of a tensor with `values` lies in that range"),
    Entry("policy", "a fill chooses its victims as its bank's policy says (lru-slots)"),
    Entry("passes", "as many passes run as `repeat` says, with nothing between them"),
    Entry("undeclared copies", "DEVICE#T without an entry is packed and has bytes of its own"),
)  # fmt: skip

UNSOUND: tuple[Entry, ...] = (
    Entry("false declarations", "a kernel or callback touches more than it declares", "proved"),
    Entry("bounded passes", "a fault that needs more passes than `repeat`", "proved"),
    Entry("changing sizes", "a fault that needs another batch size in the next pass", "proved"),
    Entry("another policy", "an engine that says lru-slots and evicts otherwise", "proved"),
    Entry("lowering", "an engine that issues another program than the plain lowering of its "
          "splits", "proved"),
    Entry("machine integers", "sizes are whole numbers without a limit here: what an engine "
          "computes in 32 bits may wrap", "proved"),
    Entry("cleared tails", "what lies past a tensor in a compute buffer and is never written "
          "counts as defined: a device that does not clear it may find a NaN there", "proved"),
    Entry("arithmetic", "what a kernel computes is tested against a reference, not proved",
          "proved"),
    Entry("rows read whole", "get_rows counts as a read of the whole table, whatever its ids",
          "violated"),
    Entry("callbacks without a footprint", "one that declares nothing may touch everything but "
          "banks", "violated"),
    Entry("views of unknown place", "a view whose place in its base is not given is judged by "
          "order alone", "undecided"),
    Entry("over_read", "what a kernel of another op than mul_mat_id reads past its source",
          "undecided"),
    Entry("slots that may never meet", "a late upload and another fill's slot that the count of "
          "experts lets meet, though no ids were found for which they do", "undecided"),
    Entry("effort", "a question that Z3 gives up, or more than 512 regimes", "undecided"),
)  # fmt: skip
