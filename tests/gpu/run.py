"""Everything that only a GPU can show, in one go: five minutes at most, and one JSON file.

    python tests/gpu/run.py [-o gpu.json] [--seconds 290] [--rounds 1000]

In this order: the facts of the device; the rows *GPU decode* and *GPU overlap*; the incidents that
concern streams; then, at the same time, every kernel against the reference, and models against
recorded logits.  The file is written after each of them.  Exit code: 1 if something is wrong, 3 if
something was not to be had or not finished, else 0.  ``--tiny`` is for the simulator: it runs the
same code on very small sizes, on streams that are played.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import numba  # noqa: E402
from numba import cuda  # noqa: E402
from recorded_models import FEW, SHARED, all_models, command  # noqa: E402
from speed import TINY, Sizes, measure, text  # noqa: E402
from splitproof.exec.cuda import driver  # noqa: E402
from stream_incidents import Make, Row, run_document, stream_documents, summary  # noqa: E402
from streams import Streams  # noqa: E402

FORMAT = "splitproof-gpu/1"
#: Files whose tests compare kernels with the reference.
KERNEL_TESTS = sorted(
    path for path in (HERE.parent / "exec").glob("test_cuda_*.py")
    if path.stem in ("test_cuda_kernels", "test_cuda_products", "test_cuda_tiles")
)  # fmt: skip
#: Seconds that are left for kernels and models when the incidents end.
REST = 150.0
#: Rounds of a violated document: each is as long as its order.
VIOLATED_ROUNDS = 10


class Results:
    """What is written: the results so far, ``wrong`` and ``missing`` in words."""

    def __init__(self, path: Path) -> None:
        self.path, self.began = path, time.perf_counter()
        self.value: dict[str, Any] = {
            "format": FORMAT, "numba": numba.__version__, "python": sys.version.split()[0],
            "implementation": getattr(cuda, "implementation", "simulator"),
            "simulated": driver.simulated(), "seconds": {}, "wrong": [], "missing": [],
        }  # fmt: skip

    def add(self, name: str, made: Callable[[], Any]) -> Any:
        """A stage; one that fails is told and does not end the others."""
        start = time.perf_counter()
        try:
            self.value[name] = made()
        except Exception as error:
            self.value[name] = None
            self.value["wrong"].append(f"{name}: {type(error).__name__}: {error}")
        self.value["seconds"][name] = round(time.perf_counter() - start, 2)
        self.write()
        return self.value[name]

    def write(self) -> None:
        self.path.write_text(json.dumps(self.value, indent=1) + "\n")

    @property
    def code(self) -> int:
        return 1 if self.value["wrong"] else 3 if self.value["missing"] else 0


# -- stages ---------------------------------------------------------------------------------------


def facts(tiny: bool) -> dict[str, Any]:
    """The first device, and how its copies go."""
    copies = driver.measure(0, busy=0.01, large=4096, small=64) if tiny else driver.measure(0)
    return {**asdict(driver.devices()[0]), "copies": asdict(copies)}


def incidents(make: Make, rounds: int, until: float, results: Results) -> dict[str, Any]:
    """All stream incidents; those for which there was no time are missing."""
    rows: list[Row] = []
    for name, _ in stream_documents():
        row = run_document(
            name, make, violated=min(VIOLATED_ROUNDS, rounds), repaired=rounds, until=until
        )
        rows.append(row)
        if row.due:
            continue
        broken = row.done > row.faulty if row.verdict == "violated" else row.faulty > 0
        said = f"{name}: {row.faulty} of {row.done} rounds faulty ({row.asked} asked); {row.first}"
        results.value["wrong" if broken else "missing"].append(said)
    return {"summary": summary(rows), "rows": [asdict(row) for row in rows]}


def kernels(tiny: bool, limit: float) -> dict[str, Any]:
    """The tests that hold each kernel against the reference, on this device."""
    there = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1" if driver.simulated() else "0"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        full = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            f"--junitxml={report}", *map(str, KERNEL_TESTS),
        ]  # fmt: skip
        if tiny:
            full += ["-k", "test_fill_and_add_id or test_top_k"]
        if find_spec("xdist") is not None:
            full += ["-n", "0" if tiny else str(min(8, os.cpu_count() or 1))]
        try:
            subprocess.run(full, env=there, cwd=HERE.parent.parent, capture_output=True,
                           timeout=limit)  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"cases": 0, "failed": [], "finished": False}
        return {**outcomes(report.read_text()), "finished": True}


def outcomes(report: str) -> dict[str, Any]:
    """How many cases a report of pytest (JUnit's form) has, and which of them failed."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    failed = [
        f"{case.get('name')}: {(found[0].get('message') or '').splitlines()[:1]}"
        for case in cases
        if (found := [*case.iter("failure"), *case.iter("error")])
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"cases": len(cases) - skipped, "failed": failed}


def models(tiny: bool, folder: Path, limit: float) -> list[dict[str, Any]]:
    names = () if tiny else FEW
    found = all_models(command(driver.simulated(), limit), names, folder)
    return [asdict(model) for model in found]


def judge(results: Results) -> None:
    """What the last two stages found."""
    value = results.value
    tested = value.get("kernels") or {"cases": 0, "failed": [], "finished": True}
    value["wrong"] += [f"kernel {name}" for name in tested["failed"]]
    if not tested["finished"] or not tested["cases"]:
        value["missing"].append("the tests of the kernels did not end in time, or found no case")
    for model in value.get("models") or ():
        if model["status"] != "right":
            place = "wrong" if model["status"] == "wrong" else "missing"
            value[place].append(f"model {model['name']}: {model['status']}: {model['why']}")


# -- all of it ------------------------------------------------------------------------------------


def run_all(
    results: Results, make: Make, *, tiny: bool, rounds: int, seconds: float, folder: Path
) -> int:
    """Every stage; the exit code."""
    results.add("device", lambda: facts(tiny))
    found = results.add("speed", lambda: measure(TINY if tiny else Sizes()))
    for row in found["rows"] if found else ():
        print(text(row), flush=True)
    until = results.began + seconds - min(REST, seconds / 2)
    found = results.add("incidents", lambda: incidents(make, rounds, until, results))
    if found:
        print("Stream incidents ", found["summary"], flush=True)
    left = max(results.began + seconds - time.perf_counter(), 10.0)
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(models, tiny, folder, left / 2)
        results.add("kernels", lambda: kernels(tiny, left))
        results.add("models", beside.result)
    judge(results)
    results.value["seconds"]["all"] = round(time.perf_counter() - results.began, 2)
    results.write()
    for key in ("wrong", "missing"):
        for line in results.value[key]:
            print(f"{key}: {line}")
    print(f"wrote {results.path} after {results.value['seconds']['all']:.0f} s")
    return results.code


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu.json"))
    parser.add_argument("--seconds", type=float, default=290.0, help="for everything")
    parser.add_argument("--rounds", type=int, default=1000, help="of each repaired incident")
    parser.add_argument("--recorded", type=Path, default=SHARED, help="where the models lie")
    parser.add_argument("--tiny", action="store_true", help="very small, for the simulator")
    options = parser.parse_args(arguments)
    reason = driver.why_not()
    if driver.simulated() and not options.tiny:
        reason = "NUMBA_ENABLE_CUDASIM is set: the simulator shows nothing of this (but --tiny)"
    if reason is not None:
        print(reason, file=sys.stderr)
        return 3
    make: Make = Streams
    if options.tiny:
        from played import Played

        make = Played
    return run_all(
        Results(options.output), make, tiny=options.tiny, rounds=options.rounds,
        seconds=options.seconds, folder=options.recorded,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
