"""Why a value does not have the form of a struct: the first fault, with its place.

msgspec decides *whether* a document has its form.  Its message leaves out the keys of maps,
so when it says no, this walks over the same types once more and finds the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import inspect as form

from .fault import Fault, Path, meant, quote


def find_fault(value: Any, struct: type, path: Path = ()) -> None:
    """Raise ``Fault`` at the first place where the value is not of the struct's form."""
    _check(value, _type_info(struct), path)


@cache
def _type_info(struct: type) -> form.Type:
    return form.type_info(struct)


def _check(value: Any, due: form.Type, path: Path) -> None:
    while isinstance(due, form.Metadata):
        due = due.type
    if isinstance(due, form.UnionType):
        _check_union(value, due, path)
    elif not _same_kind(value, due):
        raise Fault(path, f"found {_found(value)}; {_due(due)} was due")
    elif isinstance(due, form.StructType | form.DataclassType):
        _check_struct(value, due, path)
    elif isinstance(due, form.DictType):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Fault(path, f"a key is {_found(key)}; a string was due")
            _check(item, due.value_type, (*path, key))
    elif isinstance(due, form.ListType | form.VarTupleType):
        _check_length(value, due.min_length, due.max_length, path, "element(s)")
        for i, item in enumerate(value):
            _check(item, due.item_type, (*path, i))
    elif isinstance(due, form.TupleType):
        count = len(due.item_types)
        _check_length(value, count, count, path, "element(s)")
        for i, (item, kind) in enumerate(zip(value, due.item_types, strict=True)):
            _check(item, kind, (*path, i))
    elif isinstance(due, form.LiteralType | form.EnumType):
        known = _values(due)
        if value not in known:
            message = f"found {_found(value)}; {_due(due)} was due"
            raise Fault(path, message + (meant(str(value), known) if len(known) > 6 else ""))
    elif isinstance(due, form.IntType):
        _check_integer(value, due, path)
    elif isinstance(due, form.StrType):
        _check_length(value, due.min_length, due.max_length, path, "character(s)")


def _check_union(value: Any, union: form.UnionType, path: Path) -> None:
    """The alternative that the value means to be: of its tag, or of its kind in JSON."""
    kinds = [_bare(t) for t in union.types]
    structs = [t for t in kinds if isinstance(t, form.StructType) and t.tag_field is not None]
    if structs and isinstance(value, Mapping):
        field = structs[0].tag_field
        assert field is not None
        if field not in value:
            raise Fault(path, f"the key {quote(field)} is missing")
        tags = {str(t.tag): t for t in structs}
        tag = value[field]
        if not isinstance(tag, str) or tag not in tags:
            hint = meant(tag, tags) if isinstance(tag, str) else ""
            message = f"found {_found(tag)}; one of {', '.join(tags)} was due"
            raise Fault((*path, field), message + hint)
        _check(value, tags[tag], path)
        return
    matching = [t for t in kinds if _same_kind(value, t)]
    if not matching:
        wanted = dict.fromkeys(_due(t) for t in kinds if not isinstance(t, form.NoneType))
        raise Fault(path, f"found {_found(value)}; {' or '.join(wanted)} was due")
    _check(value, matching[0], path)


def _check_struct(
    value: Mapping[str, Any], struct: form.StructType | form.DataclassType, path: Path
) -> None:
    fields = {f.encode_name: f for f in struct.fields}
    known = list(fields)
    if isinstance(struct, form.StructType) and struct.tag_field is not None:
        known.append(struct.tag_field)
    for key in value:
        if key not in known:
            message = f"unknown key {quote(str(key))}"
            raise Fault((*path, str(key)), message + meant(str(key), known), at_key=True)
    for name, item in fields.items():
        if name in value:
            _check(value[name], item.type, (*path, name))
        elif item.required:
            raise Fault(path, f"the key {quote(name)} is missing")


def _check_integer(value: int, due: form.IntType, path: Path) -> None:
    if due.ge is not None and value < due.ge:
        if due.ge in (0, 1):
            raise Fault(path, f"found {_number(value)}; {due.ge} or more was due")
        raise Fault(path, f"found {_number(value)}; the number is too small")
    if due.le is not None and value > due.le:
        shown = "63 bits" if due.le == 2**63 - 1 else str(due.le)
        raise Fault(path, f"found {_number(value)}; at most {shown} was due")


def _check_length(value: Any, least: int | None, most: int | None, path: Path, what: str) -> None:
    count = len(value)
    if (least is None or count >= least) and (most is None or count <= most):
        return
    if least == most or most is None:
        due = f"{least}{' or more' if most is None else ''}"
    else:
        due = f"at most {most}" if least in (None, 0) else f"{least} to {most}"
    raise Fault(path, f"found {count} {what}; {due} was due")


def _bare(due: form.Type) -> form.Type:
    while isinstance(due, form.Metadata):
        due = due.type
    return due


def _same_kind(value: Any, due: form.Type) -> bool:
    """Whether the value is of the JSON kind that the type is written in."""
    if isinstance(due, form.NoneType):
        return value is None
    if isinstance(due, form.BoolType):
        return isinstance(value, bool)
    if isinstance(due, form.IntType):
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(due, form.FloatType):
        return isinstance(value, float | int) and not isinstance(value, bool)
    if isinstance(due, form.StrType | form.LiteralType | form.EnumType):
        return isinstance(value, str)
    if isinstance(due, form.ListType | form.TupleType | form.VarTupleType):
        return isinstance(value, list | tuple)
    if isinstance(due, form.DictType | form.StructType | form.DataclassType):
        return isinstance(value, Mapping)
    return True


def _values(due: form.LiteralType | form.EnumType) -> list[str]:
    if isinstance(due, form.EnumType):
        return [str(member.value) for member in due.cls]
    return [str(value) for value in due.values]


def _due(due: form.Type) -> str:
    if isinstance(due, form.LiteralType | form.EnumType):
        values = [quote(value) for value in _values(due)]
        return values[0] if len(values) == 1 else "one of " + ", ".join(values)
    if isinstance(due, form.IntType) and due.ge in (0, 1):
        return f"an integer of {due.ge} or more"
    names: list[tuple[type | tuple[type, ...], str]] = [
        (form.BoolType, "true or false"),
        (form.IntType, "an integer"),
        (form.FloatType, "a number"),
        (form.StrType, "a string"),
        (form.NoneType, "null"),
        ((form.ListType, form.TupleType, form.VarTupleType), "an array"),
    ]
    return next((text for kind, text in names if isinstance(due, kind)), "an object")


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _number(value) if abs(value) >= 10**20 else f"the integer {value}"
    if isinstance(value, float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    return "an object" if isinstance(value, Mapping) else f"a Python {type(value).__name__}"


def _number(value: int) -> str:
    return str(value) if abs(value) < 10**20 else f"a number of {value.bit_length()} bits"
