"""The driver: ``check(schedule) → Report``.

For each regime of the symbols: order facts, footprints, the sequential run, one judgement per
read, the static rules, the costs.  ``proved`` needs every obligation decided and none refuted.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..model.command import Callback, GetOutput
from ..model.document import digest
from ..model.graph import Graph, Node
from ..model.ops import OPS, Reads
from ..model.report import Affected, Finding, Gap, Kind, Report, Verdict
from ..model.schedule import Schedule
from ..model.version import VERSION
from .access import PAST
from .encode import DEFAULT_EFFORT, Observer, Solver, z3_version
from .footprint import Footprints
from .instantiate import Theorems
from .obligation import Fault, Judge, Undecided
from .order import Order, Part, build_order
from .regime import Regime, TooManyRegimes, at_values, regimes
from .region import NeedsNumbers, Unsupported
from .rules import (
    RULES,
    Broken,
    Declared,
    Statics,
    broken_statics,
    classify,
    effects,
    pl006,
    wasteful,
)
from .rules.case import Case
from .rules.cost import crossing
from .sequential import Sequential
from .term import PlainScope, Scope
from .witness import counterexample, part_text

Progress = Callable[[int, int], None]


class NotAProgram(ValueError):
    """A schedule without a program: lower it first."""


class OutOfTime(Exception):
    """The time limit was met."""


@dataclass(slots=True)
class Options:
    """``effort``: Z3 resource units per obligation.  ``seconds``: limit for the whole check.

    ``only``: the rules to look at; ``symbols``: narrower ranges.  Either makes a report of a
    part, without a digest.  ``ignore``: rules whose findings do not count, with a reason each:
    they stay in the report, and it stays ``violated``.  ``solver``: one that remembers the
    questions of earlier checks (its own effort counts).  ``fold``: answer by plain arithmetic
    what it can answer; ``observer``: told of what went to Z3.  ``theorems``: discharge reads by
    instances of the theorems where all their hypotheses plainly hold.
    """

    effort: int = DEFAULT_EFFORT
    seconds: float | None = None
    only: Collection[str] = ()
    ignore: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    progress: Progress | None = None
    solver: Solver | None = None
    fold: bool = True
    observer: Observer | None = None
    theorems: bool = True


def check(schedule: Schedule, options: Options | None = None) -> Report:
    """Judge a program-level schedule for every interleaving and every value of its symbols.

    Raises ``NotAProgram`` for a lower level, ``ValueError`` for a symbol or code it has not.
    """
    if schedule.program is None:
        raise NotAProgram("only a program can be checked: lower the schedule first")
    options = options or Options()
    _known_codes(options)
    started = time.monotonic()
    run = _Check(_narrowed(schedule, options.symbols), options, started)
    try:
        with _no_collection():
            run.all_regimes()
    except TooManyRegimes as error:
        run.gap(Verdict.UNKNOWN, str(error), "$.symbols")
    except OutOfTime:
        run.gap(Verdict.UNKNOWN, f"the time limit of {options.seconds} s was met", "$")
    return run.report(schedule, time.monotonic() - started)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A check makes millions of objects and no cycles to speak of: looking for these again and
    again would take a third of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _known_codes(options: Options) -> None:
    for code in (*options.only, *options.ignore):
        if code not in RULES:
            raise ValueError(f"there is no rule {code!r}")


def _narrowed(schedule: Schedule, symbols: Mapping[str, tuple[int, int]]) -> Schedule:
    if not symbols:
        return schedule
    ranges = schedule.graph.ranges
    for name, (low, high) in symbols.items():
        if name not in ranges:
            raise ValueError(f"the document has no symbol {name!r}")
        declared = ranges[name]
        if low > high or low < declared[0] or high > declared[1]:
            raise ValueError(
                f"{name}={low}..{high} is not within the declared {declared[0]}..{declared[1]}"
            )
        ranges[name] = (low, high)
    narrowed = tuple((name, low, high) for name, (low, high) in ranges.items())
    return replace(schedule, graph=_with(schedule.graph, symbols=narrowed))


def _with(graph: Graph, **changes: object) -> Graph:
    return replace(graph, **changes)  # type: ignore[arg-type]


class _Check:
    def __init__(self, schedule: Schedule, options: Options, started: float) -> None:
        self.schedule, self.options, self.started = schedule, options, started
        scope = Scope if options.fold else PlainScope
        self.solver = options.solver or Solver(
            options.effort, scope=scope, observer=options.observer
        )
        self.asked_before = self.solver.questions
        #: for costs: what they ask is no obligation
        self.appraiser = Solver(options.effort, scope=scope)
        self.effective: set[Declared] = set()
        self.findings: dict[tuple[object, ...], Finding] = {}
        self.gaps: dict[tuple[str, str], Gap] = {}
        #: findings that no ids were found for, under the keys of ``findings``
        self.unshown: dict[tuple[object, ...], Gap] = {}
        self.obligations = 0
        self.by_theorem: Counter[str] = Counter()
        self.regimes = 0
        self.commands = 0
        self.crossing: tuple[tuple[int, str, str, int], ...] = ()

    def all_regimes(self) -> None:
        for regime in regimes(self.schedule, self.solver):
            try:
                self._regime(self.schedule, regime)
            except NeedsNumbers:
                # A stride hangs on a symbol: decide at each value of the symbols.
                for fixed in at_values(regime):
                    self._regime(at(self.schedule, fixed), fixed)
        for broken in pl006(self.schedule, self.effective):
            self._static(broken)

    def _regime(self, schedule: Schedule, regime: Regime) -> None:
        self.regimes += 1
        order = build_order(schedule, lambda c, i: self._exists(schedule, regime, c, i))
        self.commands = max(self.commands, len(order.by_command))
        kept = dict(self.findings), dict(self.gaps), dict(self.unshown), self.by_theorem.copy()
        footprints = None
        try:
            self._statics(schedule, regime, order)
            footprints = self._values(schedule, regime, order)
        except NeedsNumbers:
            self.findings, self.gaps, self.unshown, self.by_theorem = kept
            raise
        except Unsupported as error:
            self.gap(Verdict.UNSUPPORTED, str(error), "$")
        for broken in wasteful(Statics(schedule, regime, order, self.appraiser), footprints):
            self._static(broken)
        self.effective |= effects(schedule, order)
        if not self.crossing:
            self.crossing = crossing(schedule, regime)

    def _exists(self, schedule: Schedule, regime: Regime, command: int, iteration: int) -> bool:
        assert schedule.program is not None
        what = schedule.program[command]
        if not regime.holds(what.when, iteration):
            return False
        node = getattr(what, "node", None)
        return node is None or regime.holds(schedule.graph.node(node).when, iteration)

    def _statics(self, schedule: Schedule, regime: Regime, order: Order) -> None:
        statics = Statics(schedule, regime, order, self.solver)
        for broken in broken_statics(statics):
            self._static(broken)
        self.obligations += statics.obligations
        for reason in statics.undecided:
            self.gap(Verdict.UNKNOWN, f"the solver gave up: {reason}", "$")

    def _values(self, schedule: Schedule, regime: Regime, order: Order) -> Footprints:
        def node_exists(node: Node, iteration: int) -> bool:
            return regime.holds(node.when, iteration)

        sequential = Sequential(schedule, lambda c, i: (c, i) in order.by_command, node_exists)
        footprints = Footprints(schedule, order, sequential, self._clock)
        judge = Judge(
            schedule, sequential, footprints, self.solver, regime.ranges, regime.condition
        )
        told: set[tuple[int, int]] = set()
        theorems = Theorems(judge) if self.options.theorems else None
        for done, read in enumerate(footprints.reads):
            self._clock(done, len(footprints.reads))
            instance = theorems.discharge(read) if theorems is not None else None
            if instance is not None:
                self.by_theorem[instance.theorem] += instance.obligations
                continue
            for outcome in judge.judge(read):
                if isinstance(outcome, Undecided):
                    part = order.parts[outcome.read.part]
                    place = f"$.program[{part.command}]"
                    name = outcome.read.region.tensor.name
                    self.gap(Verdict.UNKNOWN, f"read of {name!r}: {outcome.reason}", place)
                elif not _told(outcome, told):
                    self._fault(schedule, judge, outcome)
        self.obligations += judge.obligations
        self.gaps.update(self._over_reads(schedule))
        self._sizes_only(schedule)
        return footprints

    def _sizes_only(self, schedule: Schedule) -> None:
        """Order is decided for tensors of any shape; what lies in their bytes is not."""
        operands = (n for node in schedule.graph.nodes for n in (*node.src, node.dst))
        names = [n for n in dict.fromkeys(operands) if not schedule.tensor(n).shape]
        if names:
            reason = (
                f"{len(names)} tensor(s), {names[0]!r} first, are known only by their sizes: "
                "whether types and shapes fit, and which bytes a node needs, is not decided"
            )
            self.gap(Verdict.UNKNOWN, reason, "$.tensors")

    def _clock(self, done: int, total: int) -> None:
        limit = self.options.seconds
        if limit is not None and time.monotonic() - self.started > limit:
            raise OutOfTime
        if self.options.progress is not None:
            self.options.progress(done, total)

    def _over_reads(self, schedule: Schedule) -> Iterator[tuple[tuple[str, str], Gap]]:
        for index, device in enumerate(schedule.graph.devices):
            ops = {op for op, _, count in device.over_read if count}
            used = {
                node.op for node in schedule.graph.nodes if Reads.EXPERTS not in OPS[node.op].reads
            }
            for op in sorted(ops & used):
                reason = (
                    f"what {op} on {device.name} reads past its source (over_read) is not checked"
                )
                place = f"$.devices[{index}].over_read.{op}"
                yield (reason, place), Gap(Verdict.UNSUPPORTED, reason, place)

    # -- what was found -------------------------------------------------------------------------

    def gap(self, verdict: Verdict, reason: str, place: str) -> None:
        self.gaps.setdefault((reason, place), Gap(verdict, reason, place))

    def _static(self, broken: Broken) -> None:
        rule = RULES[broken.rule]
        evidence = (*broken.evidence, *broken.values)
        finding = Finding(rule.code, rule.kind, broken.message, broken.place, broken.also, evidence)
        self.findings.setdefault((rule.code, broken.place, broken.message), finding)

    def _fault(self, schedule: Schedule, judge: Judge, fault: Fault) -> None:
        footprints = judge.footprints
        codes = classify(Case(schedule, footprints, fault))
        root, order = fault.root, footprints.order
        reader = order.parts[root.read.part]
        writer = order.parts[root.write.part] if root.write is not None else None
        key = (
            codes[0], reader.command, root.read.region.tensor.name,
            writer.command if writer is not None else None,
        )  # fmt: skip
        sees = order.parts[fault.read.part]
        affected = Affected(sees.command, sees.iteration, fault.read.region.tensor.name)
        if key in self.findings:
            known = self.findings[key]
            if affected not in known.affected:
                self.findings[key] = replace(known, affected=(*known.affected, affected))
            return
        rule = RULES[codes[0]]
        message, place = self._message(fault, reader), f"$.program[{reader.command}]"
        shown = counterexample(schedule, judge, fault)
        if shown is None:
            reason = f"{message}, if ids exist that make the two use one slot: none were found"
            self.unshown.setdefault(key, Gap(Verdict.UNKNOWN, reason, place))
            return
        self.findings[key] = Finding(
            rule.code, rule.kind, message, place, codes[1:], (), shown, affected=(affected,)
        )

    def _message(self, fault: Fault, reader: Part) -> str:
        name = fault.root.read.region.tensor.name
        words = {
            "unordered": "races with a write of",
            "stale": "sees another version of",
            "none": "sees no written version of",
            "destroyed": "counts on slots that something else writes:",
            "outdated": "may find a stale copy in the slots of",
            "unserved": "finds the experts of other ids in",
            "skipped": "finds experts that were never brought into",
            "overflow": "needs more slots than there are in",
            "foreign": "reads bytes of another tensor past an expert of",
            "empty": "may read an empty slot past an expert of",
            "outside": "reads past the buffer of",
        }
        if fault.root.read.role == PAST:
            words |= {
                "none": "reads undefined bytes past an expert of",
                "stale": "reads bytes that are not its own past an expert of",
            }
        return f"{part_text(self.schedule, reader)} {words[fault.root.relation]} {name!r}"

    # -- the report -------------------------------------------------------------------------------

    def report(self, schedule: Schedule, seconds: float) -> Report:
        findings = tuple(sorted(self._kept(), key=_rank))
        unshown = (gap for key, gap in self.unshown.items() if key not in self.findings)
        gaps = (*self.gaps.values(), *unshown)
        asked = self.solver.questions - self.asked_before
        report = Report(
            Verdict.PROVED, findings, gaps, tuple(self._assumptions()),
            self.obligations + self.by_theorem.total(), asked, schedule.repeat, self.regimes,
            self.commands, seconds, self._digest(schedule), self.crossing, _versions(),
            theorems=tuple(sorted(self.by_theorem.items())),
        )  # fmt: skip
        return replace(report, verdict=self._verdict(report))

    def _digest(self, schedule: Schedule) -> str:
        """Empty for a check of a part: it certifies nothing."""
        return "" if self.options.only or self.options.symbols else digest(schedule)

    def _kept(self) -> Iterator[Finding]:
        only, ignore = self.options.only, self.options.ignore
        for finding in self.findings.values():
            codes = (finding.rule, *finding.also)
            if only and not any(code in only for code in codes):
                continue
            reason = ignore.get(finding.rule)
            yield replace(finding, suppressed=reason) if reason is not None else finding

    def _verdict(self, report: Report) -> Verdict:
        if any(finding.kind is not Kind.COST for finding in report.findings):
            return Verdict.VIOLATED
        if any(gap.verdict is Verdict.UNKNOWN for gap in report.gaps):
            return Verdict.UNKNOWN
        return Verdict.UNSUPPORTED if report.gaps else Verdict.PROVED

    def _assumptions(self) -> Iterator[str]:
        yield "kernels read and write their declared footprints and nothing else"
        yield "the sizes of the symbols are the same in all passes"
        program = self.schedule.program or ()
        wanted = any(tensor.output for tensor in self.schedule.graph.tensors)
        if not wanted and not any(isinstance(c, GetOutput) for c in program):
            yield "nothing is an output: no node has to be computed"
        if any(isinstance(c, Callback) for c in program):
            yield "callbacks read and write what they declare"
        if self.schedule.graph.banks:
            yield "fills choose their victims as their bank's policy says"
        if any(device.over_read for device in self.schedule.graph.devices):
            yield (
                "a compute buffer's bytes past a tensor that nothing ever writes are finite "
                "(its device cleared them)"
            )
        for tensor in self.schedule.graph.tensors:
            if tensor.values is not None:
                low, high = tensor.values
                yield f"each element of {tensor.name} is in [{low}, {high})"
        if self.options.only:
            yield f"only the rules {', '.join(sorted(self.options.only))} were looked at"


def _told(fault: Fault, told: set[tuple[int, int]]) -> bool:
    """Whether a read past experts only meets what spoils the experts of its reader as well."""
    write = fault.root.write
    if write is None:
        return False
    key = (fault.read.part, write.part)
    if fault.read.role == PAST:
        return key in told
    told.add(key)
    return False


def _rank(finding: Finding) -> tuple[int, int, str]:
    families = ("PF", "BK", "CE", "PP", "AL", "OR", "PL", "CO")
    kinds = {Kind.VALUE: 0, Kind.STATIC: 0, Kind.COST: 1}
    return kinds[finding.kind], families.index(finding.rule[:2]), finding.rule


def at(schedule: Schedule, regime: Regime) -> Schedule:
    """The schedule with the symbols put in that the regime fixes."""
    values = dict(regime.sample)
    tensors = tuple(
        replace(
            tensor,
            shape=tuple(s.substitute(values) for s in tensor.shape),
            strides=tuple(s.substitute(values) for s in tensor.strides)
            if tensor.strides is not None
            else None,
            offset=tensor.offset.substitute(values) if tensor.offset is not None else None,
        )
        for tensor in schedule.graph.tensors
    )
    placements = tuple((n, b, off.substitute(values)) for n, b, off in schedule.placements)
    graph = _with(schedule.graph, tensors=tensors, symbols=regime.symbols)
    return replace(schedule, graph=graph, placements=placements)


def _versions() -> tuple[tuple[str, str], ...]:
    return (("splitproof", VERSION), ("z3", z3_version()))
