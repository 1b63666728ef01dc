"""Bad documents, paths and options: each exits 2 with one line that names the place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_case import BAD, DUMP, GOOD, LOG, Run, one_line, run
from splitproof.files import apart
from splitproof.output import CliError

__all__ = ["run"]  # a fixture


def edited(change: Callable[[dict[str, Any]], None]) -> bytes:
    document = json.loads(Path(GOOD).read_text(encoding="utf-8"))
    change(document)
    return json.dumps(document).encode()


def set_in(*path: Any) -> Callable[[dict[str, Any]], None]:
    """``set_in("tensors", "h", "offset", -1)`` puts -1 there."""
    *keys, last, value = path

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in keys:
            place = place[key]
        place[last] = value

    return change


BAD_DOCUMENTS = {
    "empty": b"",
    "not JSON": b'{"format": splitproof}',
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "garbage": b"\x00\x01garbage" * 1_000_000,
    "deep": b"[" * 100_000,
    "unknown key": edited(set_in("tensorz", {})),
    "wrong format": edited(set_in("format", "splitproof/9")),
    "dangling tensor": edited(set_in("nodes", 0, "src", ["z"])),
    "dangling event": edited(
        set_in("program", 6, {"do": "wait", "event": "never", "queue": "gpu0.compute"})
    ),
    "negative size": edited(set_in("tensors", "h", "shape", [-64, "n_tokens"])),
    "wrong type": edited(set_in("repeat", "two")),
    "wrong shape": edited(set_in("tensors", "y", "shape", [31, "n_tokens"])),
    "view out of base": edited(
        set_in("tensors", "v", {"view_of": "h", "offset": 8192, "shape": [64, "n_tokens"]})
    ),
    "cycle": edited(set_in("nodes", 0, "src", ["y"])),
    "too many passes": edited(set_in("repeat", 10**12)),
    "too many copies": edited(set_in("n_copies", 10**6)),
    "empty guard": edited(set_in("program", 1, "when", "n_tokens > 40")),
}


@pytest.mark.parametrize("name", list(BAD_DOCUMENTS))
def test_bad_documents(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "bad.json").write_bytes(BAD_DOCUMENTS[name])
    code, out, err = run("check", "bad.json")
    assert code == 2 and out == ""
    assert "bad.json" in one_line(err)


def test_bad_paths(run: Run, tmp_path: Path) -> None:
    for path in (".", "absent.json", "no/such/file.json"):
        code, out, err = run("check", path)
        assert (code, out) == (2, "") and path in one_line(err)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file"
)
def test_no_permission(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "closed.json"
    path.write_bytes(Path(GOOD).read_bytes())
    path.chmod(0)
    code, _, err = run("check", "closed.json")
    assert code == 2 and "closed.json" in one_line(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["new", "-o", "no/such/folder/x.json"],
        ["new", "-o", "."],
        ["import", DUMP, "-o", "no/such/folder/x.json"],
        ["import", DUMP, "-o", "-"],
        ["import", DUMP, "--graph", "9", "-o", "x.json"],
        ["import", "absent.jsonl", "-o", "x.json"],
        ["import", GOOD, "-o", "x.json"],
        ["check", "--certificate", "no/such/c.json", GOOD],
        ["check", "--certificate", "c.json", GOOD, BAD],
        ["check", "--rule", "XX001", GOOD],
        ["check", "--ignore", "XX001", GOOD],
        ["check", "--symbol", "n_tokens=4..1", GOOD],
        ["check", "--symbol", "n_tokens", GOOD],
        ["check", "--time-limit", "0", GOOD],
        ["check", "--format", "yaml", GOOD],
        ["check", "--baseline", "absent.json", GOOD],
        ["check", "--baseline", GOOD, GOOD],
        ["check"],
        ["chekc", GOOD],
        ["run", "--certificate", GOOD, GOOD],
        ["run", "--symbol", "n_tokens=1..4", GOOD],
        ["run", "--seed", "-1", GOOD],
        ["check", "--time-limit", "nan", GOOD],
        ["check", "--certificate", "-", GOOD],
        ["check", "--certificate", GOOD, GOOD],
        ["check", "--trace", "t.json", "--certificate", "c.json", GOOD],
        ["check", "--trace", "t.json", "--ignore", "PF001", GOOD],
        ["import", LOG, "-o", LOG],
        ["run", "--trace", "-", GOOD],
        ["run", "--trace", GOOD, GOOD],
        ["run", "--decode", "2", GOOD],
        ["run", "--symbol", "n_tokens=1", "--symbol", "n_tokens=2", GOOD],
        ["check", "--symbol", "n_tokens=1", "--symbol", "n_tokens=2..3", GOOD],
        ["run", "--moe-cache", "9" * 400, GOOD],
        ["run", "--moe-cache", "0.4", GOOD],
        ["run", "--threads", "100000", GOOD],
        ["replay", GOOD],
        ["replay", "absent.json"],
        [],
    ],
    ids=lambda arguments: " ".join(Path(a).name for a in arguments) or "nothing",
)
def test_mistakes_are_one_line(run: Run, arguments: list[str]) -> None:
    before = {path: Path(path).read_bytes() for path in (GOOD, LOG)}
    code, _, err = run(*arguments)
    assert code == 2
    one_line(err)
    assert not list(Path().iterdir())
    assert before == {path: Path(path).read_bytes() for path in before}


@pytest.mark.parametrize(
    "command",
    [["replay", "long.json"], ["check", "--baseline", "long.json", GOOD],
     ["check", "--trace", "long.json", GOOD]],
    ids=lambda command: " ".join(command[:2]),
)  # fmt: skip
def test_an_integer_that_python_does_not_convert(run: Run, command: list[str]) -> None:
    Path("long.json").write_text('{"passes": ' + "9" * 5000 + "}")
    code, out, err = run(*command)
    assert (code, out) == (2, "") and "long.json: an integer has thousands" in one_line(err)


def test_a_device_takes_several_outputs(run: Run) -> None:
    assert run("check", "-q", "--certificate", os.devnull, GOOD)[0] == 0
    apart((os.devnull, os.devnull), ())
    with pytest.raises(CliError, match="written by another option"):
        apart(("a.json", "./a.json"), ())
