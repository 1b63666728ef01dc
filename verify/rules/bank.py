"""BK: the slots of a bank hold what its slot ids say, while they are read."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.fault import show_path
from ...model.graph import Bank
from ...model.symbol import Expr
from ..access import INDEX_SOURCES, PAST, bank_of_node
from ..banks import expert_count
from ..term import size
from .case import Case, Test
from .placement import capability, reads_bank, unsupported
from .static import Broken, Site, StaticRule, Statics, readable


# ∀ reader r of slot s through fill F:  upload(content(s)) → r, and nobody else writes s
def bk002(case: Case) -> bool:
    held = case.reads_bank and case.fault.read.role != PAST
    return held and case.relation != "overflow" and not case.other_fill


# ∀ fills F ≠ G of one group, r served by F:  r → upload(G)  ∨  upload(G) → host(F)
#   ∨  |used(F) ∪ … ∪ used(G)| ≤ slots
def bk003(case: Case) -> bool:
    return case.reads_bank and case.other_fill and case.relation in ("unordered", "stale")


# when(bank) ⊢ |used(ids)| ≤ slots
def bk004(case: Case) -> bool:
    return case.relation == "overflow"


# ∀ fill F of a layer, bank b of the layer:  content(b) after F is the inverse of slot_of after F
def bk006(case: Case) -> bool:
    return case.relation == "skipped"


# ∀ token t:  the experts of t map to slots one to one
def bk007(case: Case) -> bool:
    use = case.fault.read.bank
    if use is None or case.relation != "overflow":
        return False
    chosen = case.fault.values.value(size(case.schedule.tensor(use.bank.ids).ne[0]))
    return min(chosen, expert_count(case.schedule, use.bank)) > use.bank.slots


# ∀ node n, operand o that a bank puts in place of another:  some fill writes o before n
def bk008(case: Case) -> bool:
    return case.reads_bank and case.relation == "none" and case.fault.read.role != PAST


# ∀ byte b read past a slot or the last expert, or written by a copy's padding:  b is nobody's
def bk009(case: Case) -> bool:
    return case.past_the_end or case.in_a_tail


#: The first that holds names a fault: the special ones come before BK002 and BK004.
TESTS: dict[str, Test] = {
    "BK009": bk009, "BK006": bk006, "BK008": bk008, "BK002": bk002, "BK003": bk003,
    "BK007": bk007, "BK004": bk004,
}  # fmt: skip


# ∀ matmul m reading bank b on d:  memory(b) = memory(d)  ∧  supports(d, m)
def bk001(s: Statics) -> Iterator[Broken]:
    for site in s.sites():
        bank = bank_of_node(s.schedule, site.node)
        if bank is None or not reads_bank(s.schedule, site.node):
            continue
        memory = s.schedule.location(bank.name).memory
        if _off_device(s, site, bank) is not None:
            continue  # BK010 tells
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


# ∀ bank b, matmul on d that reads b itself:  memory(b) ∈ reads(d)
# ∀ memory m:  Σ bytes(banks in m) ≤ capacity(m)
def bk010(s: Statics) -> Iterator[Broken]:
    graph = s.schedule.graph
    for site in s.sites():
        bank = bank_of_node(s.schedule, site.node)
        memory = _off_device(s, site, bank) if bank is not None else None
        if bank is not None and memory is not None:
            yield Broken(
                "BK010",
                f"bank {bank.name!r} lies in {memory}, which {site.device.name}, where "
                f"{site.node.dst!r} reads it, does not read",
                site.place,
                (("reads", ", ".join(site.device.reads)), ("memory", memory)),
                (),
                ("BK001", "PL002"),
            )
    for place in graph.memories:
        total = sum(_bank_bytes(s, place.name))
        if place.bytes is not None and not s.holds(total <= place.bytes):
            yield Broken(
                "BK010",
                f"the banks in {place.name} take {total} bytes of {place.bytes}",
                show_path(("memories", place.name)),
                (("banks", total), ("capacity", place.bytes)),
            )


def _off_device(s: Statics, site: Site, bank: Bank) -> str | None:
    """The bank's memory, if the node reads the bank itself and its device does not read that."""
    if not reads_bank(s.schedule, site.node) or s.schedule.bound(site.command, 0) != bank.name:
        return None
    memory = s.schedule.location(bank.name).memory
    return memory if memory is not None and not s.holds(readable(site.device, memory)) else None


def _bank_bytes(s: Statics, memory: str) -> Iterator[int]:
    """Bytes of the banks in a memory; banks that share their slots count once."""
    seen: set[tuple[str, Expr]] = set()
    for bank in s.schedule.graph.banks:
        place = s.schedule.location(bank.name)
        if place.memory == memory and (place.space, place.offset) not in seen:
            seen.add((place.space, place.offset))
            yield s.schedule.tensor(bank.name).extent.bounds(s.regime.ranges)[1]


# ∀ group of L layers that choose k experts each for a token:  k·(L-1) < slots
def bk011(s: Statics) -> Iterator[Broken]:
    groups: dict[str, dict[int, int]] = {}
    for bank in s.schedule.graph.banks:
        tokens = s.schedule.tensor(bank.ids).ne
        if bank.policy == "lru-slots" and tokens[1].bounds(s.regime.ranges)[0] <= 1:
            experts = min(tokens[0].bounds(s.regime.ranges)[1], expert_count(s.schedule, bank))
            groups.setdefault(bank.group, {})[bank.layer] = experts
    for group, layers in groups.items():
        slots = next(bank.slots for bank in s.schedule.graph.banks if bank.group == group)
        chosen = min(layers.values())
        if len(set(layers.values())) > 1 or not 0 < chosen < slots + 1:
            continue  # T8 speaks of equally many experts in each layer, and of a fill that fits
        if not s.holds(slots > chosen * (len(layers) - 1)):
            first = next(b.name for b in s.schedule.graph.banks if b.group == group)
            yield Broken(
                "BK011",
                f"group {group!r}: {len(layers)} layers of {chosen} experts for a token evict each "
                f"other from {slots} slots; decoding never finds one",
                show_path(("banks", first)),
                (
                    ("layers", len(layers)), ("experts for a token", chosen), ("slots", slots),
                    ("slots that hit", chosen * (len(layers) - 1) + 1),
                ),
            )  # fmt: skip


STATIC: tuple[StaticRule, ...] = (bk001, bk004_guard, bk005, bk010, bk011)
