"""What the tests of the command line share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from splitproof.main import invoke

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
BAD, GOOD = str(EXAMPLES / "pf001.json"), str(EXAMPLES / "pf001-repaired.json")
STATIC = str(EXAMPLES / "bk001.json")
DUMP = str(EXAMPLES / "llama-olmoe.jsonl.gz")
LOG = str(EXAMPLES / "small.log")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line in an empty folder, in this process: ``(code, stdout, stderr)``."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SPLITPROOF_"):
            monkeypatch.delenv(name)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = invoke(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def heed_sigint() -> None:
    """For a child process: a shell's background job ignores Ctrl-C, and would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def process(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "splitproof", *arguments],
        capture_output=True, text=True, encoding="utf-8", timeout=120, **more,
    )  # fmt: skip


def one_line(err: str) -> str:
    """The error, if it is one line that begins as errors do."""
    assert err.count("\n") == 1, err
    assert err.startswith("splitproof: "), err
    assert "Traceback" not in err
    return err
