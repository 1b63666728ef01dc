"""The benches are run by hand: each of them still starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py")))
def test_a_bench_can_be_imported(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=BENCH, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
