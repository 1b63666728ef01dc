"""Long checks: progress on a terminal, and Ctrl-C in the middle of Z3's work."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cli_case import GOOD, heed_sigint, one_line
from splitproof import output

#: The most that a·b·c·d can be where a + b + c + d ≤ 30003: to see that, Z3 takes long.
MOST = 7501**3 * 7500


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    """A tensor that just fits its buffer where a guard holds: the question for AL002 is whether
    a product of four symbols with a bounded sum can exceed its maximum."""
    document = json.loads(Path(GOOD).read_text(encoding="utf-8"))
    document["symbols"] |= {name: [1, 30000] for name in "abcd"}
    document["memories"]["vast"] = {"host": True}
    document["buffers"]["vast"] = {"memory": "vast", "usage": "any", "bytes": MOST}
    shape = {"dtype": "i8", "shape": list("abcd"), "buffer": "vast", "offset": 0}
    document["tensors"]["big"] = shape
    document["program"][-1]["when"] = "a + b + c + d <= 30003"
    path = tmp_path / "hard.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_ctrl_c_while_z3_solves(hard: Path) -> None:
    code = (
        "import sys, splitproof.verify.encode as encode\n"
        "check = encode._check\n"
        "def told(solver):\n"
        f"    if '{MOST + 1}' in solver.sexpr():\n"
        "        print('solving', flush=True)\n"
        "    return check(solver)\n"
        "encode._check = told\n"
        "from splitproof.main import invoke\n"
        f"sys.exit(invoke(['check', '--effort', 'large', {str(hard)!r}]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_sigint,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "solving\n"
        time.sleep(0.2)
        assert running.poll() is None, "the question is not hard enough for this test"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert one_line(err) == "splitproof: interrupted\n"


#: What each phase of a check begins with, and what is repeated there until the interrupt comes.
PHASES = {
    "compiled closure": (
        "import splitproof.verify.order as order, splitproof.verify.closure_compiled as phase\n"
        "order.LARGE, name = 1, 'run'\n"
    ),
    "footprints": "from splitproof.verify.footprint import Footprints as phase; name = '_add'\n",
}


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_before_anything_is_solved(phase: str) -> None:
    code = (
        f"import sys\n{PHASES[phase]}"
        "once = getattr(phase, name)\n"
        "def for_ever(*given):\n"
        "    once(*given)\n"
        "    print('begun', flush=True)\n"
        "    while True:\n"
        "        once(*given)\n"
        "setattr(phase, name, for_ever)\n"
        "from splitproof.main import invoke\n"
        f"sys.exit(invoke(['check', {GOOD!r}]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_sigint,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert one_line(err) == "splitproof: interrupted\n"


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Exit code, and what standard error, a terminal, was sent."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def drain() -> None:
        try:
            while data := os.read(ours, 1024):
                shown.extend(data)
        except OSError:  # the other end was closed
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    code = f"import sys; from splitproof import output; output.PATIENCE = output.PAUSE = 0\n\
from splitproof.main import invoke; sys.exit(invoke({list(arguments)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=theirs, timeout=120
    )
    os.close(theirs)
    reader.join(timeout=10)
    os.close(ours)
    return done.returncode, shown.decode()


def test_progress_is_shown_on_a_terminal_and_taken_away() -> None:
    code, shown = on_a_terminal("check", GOOD)
    assert code == 0
    assert f"\rchecking {GOOD}"[:40] in shown and " of " in shown
    assert shown.endswith(" \r")
    assert on_a_terminal("check", "-q", GOOD) == (0, "")


def test_short_work_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.progress("checking a") as step:
        assert step is not None
        step(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "PATIENCE", 0)
    with output.progress("checking a") as step:
        assert step is not None
        step(1, 2)
    assert capsys.readouterr().err.startswith("\rchecking a: 1 of 2, 0 s\r")
