"""Texts and files that are no document at all, and what else could go wrong on the way."""

import copy
import json
import os
import pickle
import random
import time
from pathlib import Path
from typing import Any

import pytest
from splitproof.model import document
from splitproof.model.document import DocumentError

CASES = Path(__file__).parents[1] / "data" / "cases"
PROGRAM: dict[str, Any] = json.loads((CASES / "pf001.json").read_text())

# -- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (b"", 1, 1, "empty"),
        (b" \n\t ", 1, 1, "empty"),
        (b"schedule", 1, 1, "not JSON"),
        (b'{"format": "splitproof/1",\n "name": }', 2, 10, "not JSON: Expecting value"),
        (b'{"format": "splitproof/1",\n}', 2, 1, "not JSON"),
        (b'{"a": 1} {', 1, 10, "not JSON: Extra data"),
        (b'{"a":\n  NaN}', 2, 3, "NaN"),
        (b'{"NaN": "Infinity",\n "b": -Infinity}', 2, 7, "Infinity"),
        (b"{'a': 1}", 1, 2, "not JSON"),
        (b'\n\n  "text"', 3, 3, "an object was due"),
        (b"[]", 1, 1, "found an array of 0; an object was due"),
        (b"17", 1, 1, "found the integer 17; an object was due"),
        (b'{"a": "\xff"}', 1, 8, "byte 0xff is not UTF-8"),
        ('{"ä":\n "'.encode("latin-1"), 1, 3, "byte 0xe4 is not UTF-8"),
        ("{}".encode("utf-16"), 1, 1, "is not UTF-8"),
        (b'{"a": 1,\n "b": {"c": 1, "c": 2}}', 2, 16, 'the key "c" stands twice'),
        (b'{"a": {"c": 1, "c": 2},\n "a": 2}', 2, 2, 'the key "a" stands twice'),
        (b'[{"b": "\\ud800"}]', 1, 8, "half of a surrogate pair"),
        (b'[{"b": "\\uDFFF"}]', 1, 8, "half of a surrogate pair"),
        (b'{"a":\n ' + b"9" * 5000 + b"}", 2, 2, "thousands of digits"),
        (b"[" * 100_000, 1, 1, "nested too deeply"),
        (b'{"a":' * 100_000, 1, 1, "nested too deeply"),
    ],
)
def test_no_json(text: bytes, line: int, column: int, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        document.loads(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.message
    assert str(caught.value).startswith(f"<stdin>:{line}:{column}: $")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        random.Random(0).randbytes(10**7),
        b"x" * 10**7,
        b"[" * 10**7,
        b'"' + b"a" * 10**7,
        b"[" + b"1," * (5 * 10**6) + b"1]",
        b" " * 10**7,
        b"\n" * 10**7,
        b"9" * 10**7,
        b'{"a": "' + b"\\ud800" * 10**6 + b'"}',
    ],
    ids=["random", "x", "[", "string", "array", "spaces", "lines", "digits", "halves"],
)
def test_ten_megabytes_of_garbage(text: bytes) -> None:
    start = time.process_time()
    with pytest.raises(DocumentError) as caught:
        document.loads(text)
    assert time.process_time() - start < 5
    assert len(str(caught.value)) < 500


# -- files --------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read: No such file"):
        document.load(tmp_path / "none.json")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read: Is a directory") as caught:
        document.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: $: ")


def test_no_read_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.json"
    path.write_text("{}")
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser reads everything: let the system say no

        def refuse(self: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DocumentError, match="cannot be read: Permission denied"):
        document.load(path)


def test_a_path_that_is_none() -> None:
    with pytest.raises(DocumentError, match="is no path"):
        document.load("a\0b")


def test_the_place_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{\n  "format": 1\n}')
    with pytest.raises(DocumentError) as caught:
        document.load(path)
    assert str(caught.value).startswith(f"{path}:2:13: $.format: found the integer 1;")


# -- the rest -----------------------------------------------------------------------------------


def test_a_schedule_that_holds_itself() -> None:
    value: dict[str, Any] = {}
    value["tensors"] = value
    with pytest.raises(DocumentError, match="nested too deeply"):
        document.from_dict(value)


def test_parameters_that_are_not_finite() -> None:
    value = copy.deepcopy(PROGRAM)
    value["nodes"][0]["params"]["eps"] = float("inf")
    with pytest.raises(DocumentError, match="inf is not finite") as caught:
        document.from_dict(value)
    assert caught.value.path == "$.nodes[0].params.eps"
    with pytest.raises(DocumentError, match="inf is not finite"):
        document.loads(json.dumps(value).replace("Infinity", "1e999"))


def test_half_a_surrogate_pair_has_a_digest() -> None:
    value = copy.deepcopy(PROGRAM)
    value["program"][3]["name"] = "\ud800"
    assert len(document.digest(document.from_dict(value))) == 64


def test_errors_travel_between_processes() -> None:
    error = DocumentError("found this", "$.a", 3, 4, "FILE")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "FILE:3:4: $.a: found this"
    assert (again.message, again.path, again.line, again.column, again.source) == (
        "found this", "$.a", 3, 4, "FILE",
    )  # fmt: skip


def test_many_names_are_searched_in_little_time() -> None:
    value = copy.deepcopy(PROGRAM)
    for i in range(20000):
        value["tensors"][f"blk.{i}.h"] = {"dtype": "f32", "shape": [1]}
    value["program"][9]["tensor"] = "gpu0#blk.1234.g"
    with pytest.raises(DocumentError, match=r'did you mean "blk\.1234\.h"\?'):
        document.from_dict(value)
