"""The JSON Schema of the document, made from the structs that decode it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from .document_form import DocumentForm
from .json_place import COMMENT

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12): the form of a document.

    It says which keys and types there are.  That names are declared, sizes fit and nodes stand
    in order is beyond a schema; ``load`` says that.
    """
    made = copy.deepcopy(msgspec.json.schema(DocumentForm))
    definitions = made.pop("$defs")
    for definition in definitions.values():
        _allow_comments(definition)
    root = definitions.pop("DocumentForm")
    return {
        "$schema": DIALECT,
        "title": "splitproof schedule document, version 1",
        **_renamed(root),
        "$defs": {_short(name): _renamed(entry) for name, entry in sorted(definitions.items())},
    }


def _allow_comments(definition: dict[str, Any]) -> None:
    """Each object may hold a comment."""
    if definition.get("type") == "object" and "properties" in definition:
        definition["properties"][COMMENT] = {"description": "A comment; it is dropped"}
        for entry in definition["properties"].values():
            _allow_in_maps(entry)


def _allow_in_maps(entry: dict[str, Any]) -> None:
    """Maps from names to entries hold comments too, which are no entries."""
    for option in [entry, *entry.get("anyOf", ())]:
        if option.get("type") == "object" and "additionalProperties" in option:
            option["properties"] = {COMMENT: {"description": "A comment; it is dropped"}}
            _allow_in_maps(option["additionalProperties"])


def _short(name: str) -> str:
    return name.removesuffix("Form")


def _renamed(entry: Any) -> Any:
    """References to the shorter names of the definitions.

    Titles only repeat these names, and ``discriminator`` is OpenAPI's, not JSON Schema's.
    """
    if isinstance(entry, dict):
        return {
            key: (_reference(value) if key == "$ref" else _renamed(value))
            for key, value in entry.items()
            if not (key == "title" and isinstance(value, str)) and key != "discriminator"
        }
    if isinstance(entry, list):
        return [_renamed(item) for item in entry]
    return entry


def _reference(value: str) -> str:
    head, _, name = value.rpartition("/")
    return f"{head}/{_short(name)}"
