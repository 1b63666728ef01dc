"""A GGUF file as a plain description of a model: its keys, and where its tensors lie.

Only the header is read; the weights stay in the file, which whoever runs the model maps.  The
numbers of the format (types, block sizes) are those of the ``gguf`` package.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..tensor import DType, dtypes, gguf_constants

Value = bool | int | float | str | list[Any]

#: Arrays with more elements (a vocabulary) are skipped: no graph hangs on them.
_LONGEST_ARRAY = 4096
#: Tensors start at multiples of it if ``general.alignment`` does not say otherwise.
_ALIGNMENT = 32
_MOST_DIMS = 4
_VERSIONS = (2, 3)
#: Kinds of values by their number, as ``struct`` reads them; 8 is a string, 9 an array.
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
    10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


class ModelError(ValueError):
    """A model that cannot be read or built; the message names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor: ``shape`` innermost first, ``offset`` and ``nbytes`` in bytes of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class ModelFile:
    """``keys``: the metadata, long arrays left out.  ``tensors``: by name, in file order."""

    path: str
    keys: Mapping[str, Value]
    tensors: Mapping[str, FileTensor]
    size: int

    @cached_property
    def architecture(self) -> str:
        """``general.architecture``; ``ModelError`` if the file does not tell."""
        value = self.keys.get("general.architecture")
        if not isinstance(value, str):
            raise ModelError(f"{self.path}: the key general.architecture is missing")
        return value


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a GGUF does; ``False`` too if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def read_gguf(path: str | os.PathLike[str]) -> ModelFile:
    """Read the header of a little-endian GGUF, version 2 or 3.

    ``ModelError``: not a GGUF, cut off, damaged, or a tensor of a type that ggml has not.
    ``OSError`` if the file cannot be opened.
    """
    name = os.fspath(path)
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise ModelError(f"{name}: not a GGUF file: it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = _Header(name, data)
            keys, tensors = header.read()
    return ModelFile(name, keys, tensors, size)


class _Header:
    """A place in the header, and what is read there."""

    def __init__(self, path: str, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 0
        self.what = "the header"

    def error(self, message: str) -> ModelError:
        return ModelError(f"{self.path}: {message}")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise self.error(
                f"cut off: {self.what} needs bytes up to {end}, the file has {len(self.data)}"
            )
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        raw = self.take(self.number("<Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{self.what} is no UTF-8 text (at byte {self.at})") from None

    def read(self) -> tuple[dict[str, Value], dict[str, FileTensor]]:
        if self.data[:4] != b"GGUF":
            raise self.error(f"not a GGUF file: it begins with {self.data[:4]!r}, not b'GGUF'")
        self.at = 4
        version = self.number("<I")
        if version not in _VERSIONS:
            swapped = " (it may be big-endian)" if not version & 0xFFFF else ""
            raise self.error(f"GGUF version {version}{swapped}; 2 or 3, little-endian, was due")
        n_tensors, n_keys = self.number("<Q"), self.number("<Q")
        keys: dict[str, Value] = {}
        for index in range(n_keys):
            self.what = f"key {index} of {n_keys}"
            key = self.string()
            self.what = f"the value of {key}"
            value = self.value(self.number("<I"))
            if value is not None:
                keys[key] = value
        infos = [self.tensor_info(index, n_tensors) for index in range(n_tensors)]
        alignment = keys.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self.error(f"general.alignment is {alignment}; a power of two was due")
        start = -(-self.at // alignment) * alignment
        return keys, self.placed(infos, start)

    def value(self, kind: int) -> Value | None:
        """A value; ``None`` for an array that was skipped."""
        if kind in _SCALARS:
            scalar: Value = self.number(_SCALARS[kind])
            return scalar
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise self.error(f"{self.what} has the unknown kind {kind}")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _SCALARS:
            width = struct.calcsize(_SCALARS[inner])
            raw = self.take(count * width)
            if count > _LONGEST_ARRAY:
                return None
            return [piece[0] for piece in struct.iter_unpack(_SCALARS[inner], raw)]
        if inner != _STRING:
            raise self.error(f"{self.what} is an array of the unknown kind {inner}")
        if count <= _LONGEST_ARRAY:
            return [self.string() for _ in range(count)]
        for _ in range(count):
            self.take(self.number("<Q"))
        return None

    def tensor_info(self, index: int, count: int) -> tuple[str, DType, tuple[int, ...], int]:
        self.what = f"the description of tensor {index} of {count}"
        name = self.string()
        self.what = f"the description of tensor {name}"
        rank = self.number("<I")
        if not 1 <= rank <= _MOST_DIMS:
            raise self.error(f"tensor {name} has {rank} dimensions; 1 to {_MOST_DIMS} was due")
        shape = tuple(self.number("<Q") for _ in range(rank))
        kind, offset = self.number("<I"), self.number("<Q")
        return name, self.dtype(name, kind), shape, offset

    def dtype(self, name: str, number: int) -> DType:
        try:
            found: str = gguf_constants().GGMLQuantizationType(number).name.lower()
        except ValueError:
            raise self.error(f"tensor {name} has the unknown type number {number}") from None
        return dtypes()[found]

    def placed(
        self, infos: list[tuple[str, DType, tuple[int, ...], int]], start: int
    ) -> dict[str, FileTensor]:
        tensors: dict[str, FileTensor] = {}
        for name, kind, shape, offset in infos:
            if name in tensors:
                raise self.error(f"tensor {name} is described twice")
            if shape[0] % kind.block:
                raise self.error(
                    f"tensor {name}: rows of {shape[0]} elements; {kind.name} needs a multiple "
                    f"of {kind.block}"
                )
            nbytes = shape[0] // kind.block * kind.block_bytes
            for size in shape[1:]:
                nbytes *= size
            if start + offset + nbytes > len(self.data):
                raise self.error(
                    f"cut off: tensor {name} ends at byte {start + offset + nbytes}, "
                    f"the file has {len(self.data)}"
                )
            tensors[name] = FileTensor(name, kind.name, shape, start + offset, nbytes)
        return tensors
