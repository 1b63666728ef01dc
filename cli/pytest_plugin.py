"""The pytest plug-in, which pytest loads by itself: a fixture, and nothing heavy before its use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .api import Source
    from .model.report import Report


class AssertProved(Protocol):
    """What the fixture ``assert_proved`` is: ``splitproof.testing.assert_proved``."""

    def __call__(
        self,
        source: Source,
        *,
        symbols: Mapping[str, tuple[int, int]] | None = None,
        time_limit: float | None = None,
    ) -> Report: ...


@pytest.fixture(scope="session")
def assert_proved() -> AssertProved:
    """Assert that a schedule, at whatever level, is proved; the failure shows the report."""
    from .testing import assert_proved as found

    return found
