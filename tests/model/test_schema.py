"""The schema against documents that load and documents that do not."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from splitproof.model import document

CASES = sorted((Path(__file__).parents[1] / "data" / "cases").glob("*.json"))
VALIDATOR = jsonschema.Draft202012Validator(document.schema())


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(document.schema())
    json.dumps(document.schema(), allow_nan=False)


def test_its_references_lead_somewhere() -> None:
    made = document.schema()
    wanted = set()
    waiting: list[Any] = [made]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$ref"), str):
                wanted.add(item["$ref"].removeprefix("#/$defs/"))
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    assert wanted == set(made["$defs"])


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_it_takes_the_cases(path: Path) -> None:
    VALIDATOR.validate(json.loads(path.read_text()))
    VALIDATOR.validate(document.to_dict(document.load(path)))


def test_it_takes_the_example_with_its_comments() -> None:
    VALIDATOR.validate(json.loads(document.example()))


def _set(*path: str | int, to: Any) -> Any:
    def change(value: dict[str, Any]) -> None:
        place: Any = value
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("format", to="splitproof/2"),
        _set("colour", to="red"),
        _set("tensors", "x", "colour", to="red"),
        _set("tensors", "x", "shape", to=[]),
        _set("tensors", "x", "shape", to=[1, 1, 1, 1, 1]),
        _set("tensors", "x", "shape", 0, to=1.5),
        _set("tensors", "x", "input", to="yes"),
        _set("buffers", "w_host", "bytes", to=-1),
        _set("buffers", "w_host", "usage", to="scratch"),
        _set("devices", to=[]),
        _set("devices", 0, "copy", to="later"),
        _set("devices", 0, "deny", 0, to={"operator": "add"}),
        _set("splits", 0, "nodes", to=[0]),
        _set("program", 0, "do", to="jump"),
        _set("program", 1, "for_split", to=None),
        _set("program", 4, to={"do": "compute", "node": "h"}),
        _set("repeat", to=0),
        _set("symbols", "n_tokens", to=[1, 2, 3]),
    ],
)
def test_schema_and_decoder_reject_the_same(change: Any) -> None:
    value = json.loads((CASES[0].parent / "pf001.json").read_text())
    document.from_dict(value)
    broken = copy.deepcopy(value)
    change(broken)
    assert not VALIDATOR.is_valid(broken)
    with pytest.raises(document.DocumentError):
        document.from_dict(broken)
