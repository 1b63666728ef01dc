"""For the tests of other projects: documents of every level, and the whole report of a failure.

::

    from splitproof.testing import assert_proved, schedules

    def test_the_shipped_schedule():
        assert_proved("schedules/decode.json")

The pytest plug-in gives ``assert_proved`` as a fixture too.
"""

from __future__ import annotations

from collections.abc import Mapping

from .api import Source, as_program
from .model.report import Report
from .model.schedule import Schedule
from .text import render, report_items
from .verify.check import Options
from .verify.rules import RULES
from .verify.testing import assert_proved as assert_program
from .verify.testing import schedules

__all__ = ["assert_proved", "schedules"]


def assert_proved(
    source: Source,
    *,
    symbols: Mapping[str, tuple[int, int]] | None = None,
    time_limit: float | None = None,
) -> Report:
    """Plan and lower what needs it, check it, and raise ``AssertionError`` with the report, its
    counterexamples included, unless it is proved.

    ``source``: a schedule, a parsed document, a path, or a document's bytes.  ``symbols``: narrower
    ranges, both ends included.  ``time_limit``: seconds.
    """
    __tracebackhide__ = True
    options = Options(symbols=dict(symbols or {}), seconds=time_limit)
    return assert_program(as_program(source), options, show=_text)


def _text(report: Report, schedule: Schedule) -> str:
    return render(list(report_items(report, schedule, rules=RULES)))
