"""For the tests of other projects: assert that a schedule is right, and draw schedules.

::

    from splitproof.verify.testing import assert_proved, schedules

    def test_my_lowering():
        assert_proved(lower(my_graph()))

    @given(schedules())
    def test_my_importer(schedule):
        assert load(dumps(schedule)) == schedule

``splitproof.testing`` has the same for documents of every level, and shows the whole report of
what fails.  The strategies need Hypothesis, which is not installed with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from ..model.document import from_dict
from ..model.report import Report, Verdict
from ..model.schedule import Schedule
from .check import Options, check

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Level = Literal["graph", "split", "program"]
#: keys of a document that each level has beyond the one before
_LEVELS: dict[Level, tuple[str, ...]] = {
    "graph": ("assignment", "splits", "program", "repeat"),
    "split": ("program", "repeat"),
    "program": (),
}


def assert_proved(
    schedule: Schedule,
    options: Options | None = None,
    *,
    lower: Callable[[Schedule], Schedule] | None = None,
    show: Callable[[Report, Schedule], str] | None = None,
) -> Report:
    """Check a schedule; ``AssertionError`` tells what stands against a proof.

    ``lower``: makes a program of a schedule that is none yet.  ``show``: the text of a report;
    without it there is a line for each finding and each gap.
    """
    __tracebackhide__ = True
    if schedule.program is None and lower is not None:
        schedule = lower(schedule)
    report = check(schedule, options)
    if report.verdict is Verdict.PROVED:
        return report
    text = show(report, schedule) if show is not None else _lines(report)
    name = schedule.name or "the schedule"
    raise AssertionError(f"{name} is {report.verdict.value}:\n{text}")


def _lines(report: Report) -> str:
    lines = [f"  {f.rule} at {f.place}: {f.message}" for f in report.failures]
    lines += [f"  {gap.verdict.value} at {gap.place}: {gap.reason}" for gap in report.gaps]
    return "\n".join(lines)


def schedules(most: int = 4, level: Level = "program") -> SearchStrategy[Schedule]:
    """Small schedules; at the program level right ones and wrong ones.

    A chain of up to ``most`` nodes over an asynchronous device and the CPU, each result copied
    where the next node runs, with or without the waits that this needs.
    """
    from hypothesis import strategies as st

    def made(drawn: tuple[list[str], bool, int]) -> Schedule:
        document = _chain(*drawn)
        return from_dict({k: v for k, v in document.items() if k not in _LEVELS[level]})

    devices = st.lists(st.sampled_from(("gpu0", "cpu")), min_size=1, max_size=most)
    return st.tuples(devices, st.booleans(), st.integers(1, 3)).map(made)


def _chain(devices: list[str], waits: bool, repeat: int) -> dict[str, Any]:
    """The document of a chain; without ``waits`` the host waits for nothing but the last node."""
    names = ["x", *(f"h{number}" for number in range(len(devices)))]
    home = ["cpu", *devices]
    shape: dict[str, Any] = {"dtype": "f32", "shape": [4]}
    program: list[dict[str, Any]] = [{"do": "set_input", "tensor": "x"}]
    splits = []
    for number, device in enumerate(devices):
        source, moved = names[number], home[number] != device
        if moved:
            on_host = device == "cpu"
            if on_host and waits:
                program.append({"do": "sync_queue", "queue": "gpu0.compute"})
            program.append({
                "do": "copy", "src": source, "dst": f"{device}#{source}", "split": number,
                "queue": "host" if on_host else "gpu0.compute",
            })  # fmt: skip
        program.append({"do": "compute", "node": names[number + 1], "split": number})
        inputs = [source] if moved else []
        splits.append({"device": device, "nodes": [number, number + 1], "inputs": inputs})
    if waits or devices[-1] != "cpu":
        program.append({"do": "sync_queue", "queue": "gpu0.compute"})
    program.append({"do": "get_output", "tensor": names[-1]})
    return {
        "format": "splitproof/1",
        "symbols": {},
        "memories": {"host": {"host": True, "bytes": 4096}, "vram0": {"bytes": 4096}},
        "devices": [
            {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True,
             "copy": "stream", "queues": ["compute"]},
            {"name": "cpu", "memory": "host", "reads": ["host"], "async": False},
        ],
        "buffers": {},
        "tensors": {
            name: shape | ({"input": True} if name == "x" else {})
            | ({"output": True} if name == names[-1] else {})
            for name in names
        },
        "nodes": [
            {"op": "custom", "dst": after, "src": [before]}
            for before, after in pairwise(names)
        ],
        "assignment": dict(zip(names[1:], devices, strict=True)),
        "splits": splits,
        "program": program,
        "repeat": repeat,
    }  # fmt: skip
