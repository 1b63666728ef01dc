"""Element types and tensors.  Sizes and strides are bytes; shapes are innermost first."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from .symbol import Expr


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: ``block`` elements are stored in ``block_bytes`` bytes."""

    name: str
    block: int
    block_bytes: int

    @property
    def integer(self) -> bool:
        return self.name in ("i8", "i16", "i32", "i64")


@cache
def dtypes() -> dict[str, DType]:
    """All ggml types by lower-case name, from the constants of the ``gguf`` package."""
    constants = gguf_constants()
    sizes = constants.GGML_QUANT_SIZES
    table = {}
    for member, (block, block_bytes) in sizes.items():
        name = member.name.lower()
        # ggml prints the K-quants as q4_K; both spellings are read, the lower case is written.
        table[name] = DType(name, block, block_bytes)
    return table


#: What most documents use, as the gguf package says it: to load that takes as long as to read
#: such a document.
COMMON = {
    one.name: one
    for one in (
        DType("f32", 1, 4), DType("f16", 1, 2), DType("bf16", 1, 2), DType("i32", 1, 4),
        DType("q8_0", 32, 34), DType("q4_0", 32, 18), DType("q4_k", 256, 144),
    )
}  # fmt: skip


def dtype(name: str) -> DType:
    """The type of that name (``"q8_0"``, ``"q4_K"``); ``KeyError`` if ggml has none."""
    lower = name.lower()
    return COMMON[lower] if lower in COMMON else dtypes()[lower]


@cache
def gguf_constants() -> Any:
    """The ``constants`` module of the ``gguf`` package, or the package once it is loaded."""
    # The package's __init__ imports its readers and writers (0.4 s); the constants stand alone.
    if "gguf" in sys.modules:
        return sys.modules["gguf"]
    package = importlib.util.find_spec("gguf")
    assert package is not None and package.submodule_search_locations
    path = f"{package.submodule_search_locations[0]}/constants.py"
    spec = importlib.util.spec_from_file_location("_splitproof_gguf_constants", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array.  A view (``view_of`` set) owns no bytes: its base does.

    ``shape``: 1 to 4 sizes, innermost first.  ``strides``: bytes, one per dimension; ``None``
    means packed.  ``offset``: bytes, into the base for a view, into ``buffer`` otherwise.
    ``values``: each element lies in ``[lo, hi)``.  ``about``: only the size in bytes is known
    (``bytes``; from a debug log), or, for a view, that it lies somewhere in its base.
    """

    name: str
    dtype: str = "f32"
    shape: tuple[Expr, ...] = ()
    strides: tuple[Expr, ...] | None = None
    view_of: str | None = None
    buffer: str | None = None
    offset: Expr | None = None
    input: bool = False
    output: bool = False
    pin: str | None = None
    values: tuple[int, int] | None = None
    about: bool = False
    bytes: int | None = None

    @property
    def type(self) -> DType:
        return dtype(self.dtype)

    @property
    def ne(self) -> tuple[Expr, Expr, Expr, Expr]:
        """The shape, filled up with ones to four dimensions."""
        one = Expr.of(1)
        padded = (*self.shape, one, one, one, one)
        return padded[0], padded[1], padded[2], padded[3]

    @property
    def elements(self) -> Expr:
        total = Expr.of(1)
        for size in self.shape:
            total = total * size
        return total

    @property
    def nb(self) -> tuple[Expr, ...]:
        """Strides in bytes, one per dimension; ``nb[0]`` is the stride of a *block*."""
        return self.strides if self.strides is not None else packed_strides(self.dtype, self.shape)

    @property
    def extent(self) -> Expr:
        """Bytes from the first to one past the last (holes of a strided tensor included)."""
        if self.bytes is not None and not self.shape:
            return Expr.of(self.bytes)
        return _extent(self.dtype, self.shape, self.nb)

    @property
    def packed(self) -> bool:
        """Whether the bytes follow each other without holes in logical order."""
        return self.strides is None or self.strides == packed_strides(self.dtype, self.shape)

    @property
    def data_bytes(self) -> Expr:
        """Bytes of the elements alone, as a packed copy would take."""
        if self.bytes is not None and not self.shape:
            return Expr.of(self.bytes)
        return packed_bytes(self.dtype, self.shape)


# A large graph asks for the same few layouts again and again.
@lru_cache(maxsize=4096)
def _extent(kind: str, shape: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Expr:
    t = dtype(kind)
    inner = shape[0].constant
    blocks = Expr.of(inner // t.block) if inner is not None else shape[0]
    end = Expr.of(t.block_bytes)
    for count, stride in zip((blocks, *shape[1:]), strides, strict=True):
        end = end + (count - 1) * stride
    return end


@lru_cache(maxsize=4096)
def packed_bytes(kind: str, shape: tuple[Expr, ...]) -> Expr:
    """Bytes of a packed tensor.  ``ValueError`` if a quantised row is no whole number of blocks."""
    t = dtype(kind)
    inner = shape[0]
    if t.block > 1:
        if inner.constant is None or inner.constant % t.block:
            raise ValueError(f"a row of {kind} has a multiple of {t.block} elements, not {inner}")
        inner = Expr.of(inner.constant // t.block)
    total = inner * t.block_bytes
    for size in shape[1:]:
        total = total * size
    return total


@lru_cache(maxsize=4096)
def packed_strides(kind: str, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """ggml's ``nb`` of a packed tensor: bytes from one block, row, plane… to the next."""
    t = dtype(kind)
    strides = [Expr.of(t.block_bytes)]
    for i in range(1, len(shape)):
        strides.append(packed_bytes(kind, shape[:i]))
    return tuple(strides)
