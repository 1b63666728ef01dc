"""Words that several theorems share: orders, commands, and what orders commands."""

from __future__ import annotations

from .logic import BOOL, Sort, Symbol, Term, conj, disj, equal, forall

Command = Sort("Command")
Queue = Sort("Queue")

#: a is issued before b
issued = Symbol("issued", (Command, Command))
#: a has ended when b starts, in every execution
before = Symbol("before", (Command, Command))
#: the host does it at issue, and goes on when it is done
host = Symbol("on_host", (Command,))
#: it is issued on that queue of a device
on = Symbol("on_queue", (Command, Queue))

a, b = Command.variables("a b")
(q,) = Queue.variables("q")


def strict_order(relation: Symbol) -> Term:
    """Nothing is before itself, and before is transitive."""
    x, y, z = relation.domain[0].variables("x y z")
    irreflexive = forall(x, ~relation(x, x))
    return irreflexive & forall(x, y, z, (relation(x, y) & relation(y, z)) >> relation(x, z))


def total_order(relation: Symbol) -> Term:
    """A strict order in which of two different things one is before the other."""
    x, y = relation.domain[0].variables("x y")
    return strict_order(relation) & forall(x, y, disj(relation(x, y), relation(y, x), equal(x, y)))


def unique(relation: Symbol) -> Term:
    """A relation of two places gives each first thing at most one second thing."""
    x = relation.domain[0].variables("x")[0]
    y, z = relation.domain[1].variables("y z")
    return forall(x, y, z, (relation(x, y) & relation(x, z)) >> equal(y, z))


#: Rules 1, 2 and 5 of the order: queues are in order, the host waits for itself, transitivity.
#: Nothing that is issued later is before something that is issued earlier.
ORDER = (
    total_order(issued),
    strict_order(before),
    forall(a, b, before(a, b) >> issued(a, b)),
    forall(a, b, q, conj(on(a, q), on(b, q), issued(a, b)) >> before(a, b)),
    forall(a, b, (host(a) & issued(a, b)) >> before(a, b)),
    forall(a, q, on(a, q) >> ~host(a)),
    unique(on),
)


def flag(name: str) -> Term:
    """A truth value that is a constant."""
    return Symbol(name, (), BOOL)()


__all__ = [
    "ORDER",
    "Command",
    "Queue",
    "before",
    "flag",
    "host",
    "issued",
    "on",
    "strict_order",
    "total_order",
    "unique",
]
