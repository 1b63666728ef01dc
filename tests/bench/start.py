"""Row "start": what the command costs before it does anything, and on a small file.

    python tests/bench/start.py

Prints the least wall and processor time of several runs, each in a fresh process.  The target
is wall time on a machine that does nothing else: 0.15 s for --help, 0.5 s for check.  Modules
are compiled before, as an installation does: their byte code is kept in a folder of its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 10
SMALL = Path(__file__).parent.parent / "rules" / "PF001" / "repaired.json"
ROWS = (
    ("python -c pass", [sys.executable, "-c", "pass"], None),
    ("--help", [sys.executable, "-m", "splitproof", "--help"], 0.15),
    ("check -q SMALL", [sys.executable, "-m", "splitproof", "check", "-q", str(SMALL)], 0.5),
)


def least(command: list[str], bytecode: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor, the least of several runs after the first."""
    kept = dict(os.environ, PYTHONPYCACHEPREFIX=bytecode, PYTHONDONTWRITEBYTECODE="")
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=kept)
    wall, processor = [], []
    for _ in range(RUNS):
        before, started = _children(), time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=kept)
        wall.append(time.perf_counter() - started)
        processor.append(_children() - before)
    return min(wall), min(processor)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    print(f"{RUNS} runs each, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as bytecode:
        for name, command, target in ROWS:
            wall, processor = least(command, bytecode)
            due = f"target {target:.2f} s" if target is not None else ""
            print(f"{name:16} {wall:6.3f} s wall {processor:6.3f} s processor   {due}")


if __name__ == "__main__":
    main()
