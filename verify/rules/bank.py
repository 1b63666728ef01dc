"""BK: the slots of a bank hold what its slot ids say, while they are read."""

from __future__ import annotations

from collections.abc import Iterator

from ..access import INDEX_SOURCES, bank_of_node
from .case import Case, Test
from .placement import capability, reads_bank, unsupported
from .static import Broken, Site, StaticRule, Statics, readable


# ∀ reader r of slot s through fill F:  upload(content(s)) → r, and nobody else writes s
def bk002(case: Case) -> bool:
    return case.reads_bank and case.relation != "overflow" and not case.other_fill


# ∀ fills F ≠ G of one group, r served by F:  r → upload(G)  ∨  upload(G) → host(F)
#   ∨  |used(F) ∪ … ∪ used(G)| ≤ slots
def bk003(case: Case) -> bool:
    return case.reads_bank and case.other_fill and case.relation in ("unordered", "stale")


# when(bank) ⊢ |used(ids)| ≤ slots
def bk004(case: Case) -> bool:
    return case.relation == "overflow"


TESTS: dict[str, Test] = {"BK002": bk002, "BK003": bk003, "BK004": bk004}


# ∀ matmul m reading bank b on d:  memory(b) = memory(d)  ∧  supports(d, m)
def bk001(s: Statics) -> Iterator[Broken]:
    for site in s.sites():
        bank = bank_of_node(s.schedule, site.node)
        if bank is None or not reads_bank(s.schedule, site.node):
            continue
        memory = s.schedule.location(bank.name).memory
        if memory is not None and not s.holds(memory == site.device.memory):
            yield _away(s, site, bank.name, memory)
            continue
        values = s.possible(unsupported(s, site.node, site.device))
        if values is not None:
            yield Broken(
                "BK001",
                f"{site.device.name}, which holds bank {bank.name!r}, cannot run {site.node.op} "
                f"{site.node.dst!r} on it",
                site.place,
                tuple(capability(s.schedule, site.node, site.device)),
                tuple(values.symbols.items()),
                ("PL001",),
            )


def _away(s: Statics, site: Site, bank: str, memory: str) -> Broken:
    """The matmul runs elsewhere: why it could not run at the bank, and what travels."""
    evidence: list[tuple[str, str | int]] = [("bank", f"{bank} in {memory}")]
    home = next((d for d in s.schedule.graph.devices if d.memory == memory), None)
    if home is not None:
        evidence += capability(s.schedule, site.node, home)
    bound = s.schedule.bound(site.command, 0)
    if bound != bank:
        travels = s.schedule.tensor(bank).data_bytes.bounds(s.regime.ranges)[1]
        evidence.append(("bytes of the bank that travel each pass", travels))
    here = s.schedule.location(bound).memory
    also = ["PL001"] if s.possible(unsupported(s, site.node, site.device)) is not None else []
    if here is not None and not readable(site.device, here):
        also.append("PL002")
    return Broken(
        "BK001",
        f"{site.node.dst!r} reads bank {bank!r} in {memory}, but runs on {site.device.name} "
        f"({site.device.memory})",
        site.place,
        tuple(evidence),
        (),
        tuple(also),
    )


# ∀ node reading bank b:  when(b)   (how many experts fit is asked at each fill: bk004 above)
def bk004_guard(s: Statics) -> Iterator[Broken]:
    for site in s.sites():
        bank = bank_of_node(s.schedule, site.node)
        if bank is None:
            continue
        passes = [i for i in range(s.schedule.repeat) if (site.index, i) in s.order.by_command]
        if not s.holds(all(s.regime.holds(bank.when, iteration) for iteration in passes)):
            yield Broken(
                "BK004",
                f"{site.node.dst!r} reads bank {bank.name!r} where the guard ({bank.when}) fails",
                site.place,
                (("guard", str(bank.when)),),
                s.regime.sample,
            )


# slot ids index banks and nothing else; raw ids index no bank
def bk005(s: Statics) -> Iterator[Broken]:
    graph = s.schedule.graph
    slot_ids = {b.slot_ids for b in graph.banks if b.slot_ids is not None}
    for position, node in enumerate(graph.nodes):
        indexes = INDEX_SOURCES.get(node.op)
        if indexes is None or len(node.src) <= indexes:
            continue
        bank, chosen = graph.find_bank(node.src[0]), node.src[indexes]
        place, evidence = f"$.nodes[{position}]", (("ids", chosen),)
        if not s.holds(bank is None or bank_of_node(s.schedule, node) is not None):
            text = f"{node.dst!r} indexes bank {node.src[0]!r} with {chosen!r}, no slot ids of it"
            yield Broken("BK005", text, place, evidence)
        elif bank is None and not s.holds(chosen not in slot_ids):
            text = f"{node.dst!r} indexes {node.src[0]!r}, no bank, with the slot ids {chosen!r}"
            yield Broken("BK005", text, place, evidence)


STATIC: tuple[StaticRule, ...] = (bk001, bk004_guard, bk005)
