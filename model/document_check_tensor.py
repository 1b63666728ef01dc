"""Tensors, views and placements: sizes that exist, views inside their base."""

from __future__ import annotations

from .document_scope import MOST_BYTES, Scope
from .fault import Fault, Path, quote
from .symbol import Expr
from .tensor import Tensor

_Layout = tuple[str, tuple[Expr, ...], tuple[Expr, ...] | None, int | None]


def check_tensors(scope: Scope) -> None:
    """Each tensor alone, then each view against its base."""
    sizes: set[_Layout] = set()
    for tensor in scope.graph.tensors:
        path: Path = ("tensors", tensor.name)
        _check_keys(scope, tensor, path)
        layout = tensor.dtype, tensor.shape, tensor.strides, tensor.bytes
        if layout not in sizes:
            _check_layout(scope, tensor, path)
            sizes.add(layout)
        if tensor.offset is not None and tensor.offset.constant is None:
            scope.size(tensor.offset, (*path, "offset"))
    _check_view_cycles(scope)
    fits: set[tuple[_Layout, _Layout, Expr]] = set()
    for tensor in scope.graph.tensors:
        if tensor.view_of is not None and not tensor.about:
            _check_view(scope, tensor, fits)


def _check_keys(scope: Scope, tensor: Tensor, path: Path) -> None:
    """Keys that need each other, or exclude each other."""
    if not tensor.shape:
        if not tensor.about:
            raise Fault(path, 'the key "shape" is missing')
        if tensor.bytes is None:
            raise Fault(path, 'nothing says its size: "bytes" or "shape" was due')
        if tensor.strides is not None:
            raise Fault((*path, "strides"), "strides without a shape")
    if tensor.bytes is not None and not tensor.about:
        raise Fault((*path, "bytes"), 'the shape says the size; "bytes" goes with "about": true')
    if tensor.view_of is not None:
        scope.declared(tensor.view_of, (*path, "view_of"))
        if tensor.buffer is not None:
            raise Fault((*path, "buffer"), "a view lies where its base lies; it has no buffer")
    elif tensor.buffer is not None:
        scope.buffer(tensor.buffer, (*path, "buffer"))
        if tensor.offset is None:
            raise Fault(path, f'the key "offset" (into {quote(tensor.buffer)}) is missing')
    elif tensor.offset is not None:
        raise Fault((*path, "offset"), 'an offset into nothing: "buffer" or "view_of" was due')
    if tensor.pin is not None:
        scope.device(tensor.pin, (*path, "pin"))
    if tensor.values is not None:
        scope.integers(tensor, (*path, "values"), "elements with a range of values")
        low, high = tensor.values
        if low >= high:
            raise Fault((*path, "values"), f"[{low}, {high}) holds no value")


def _check_layout(scope: Scope, tensor: Tensor, path: Path) -> None:
    """Sizes and strides that exist at all values of the symbols."""
    for i, size in enumerate(tensor.shape):
        scope.never_negative(size, (*path, "shape", i), f"the size {size}")
    block = tensor.type.block
    if tensor.shape and block > 1:
        inner = scope.size(tensor.shape[0], path).constant
        if inner is None or inner % block:
            at = (*path, "shape", 0)
            due = f"a multiple of {block} was due (a block of {tensor.dtype})"
            raise Fault(at, f'a row of "{tensor.shape[0]}" elements; {due}')
        if tensor.shape[0].constant is None:
            raise Fault((*path, "shape", 0), f"a row of {tensor.dtype} is given by a number")
    if tensor.strides is not None:
        if len(tensor.strides) != len(tensor.shape):
            found = f"{len(tensor.strides)} stride(s) for {len(tensor.shape)} dimension(s)"
            raise Fault((*path, "strides"), found)
        for i, stride in enumerate(tensor.strides):
            scope.never_negative(stride, (*path, "strides", i), f"the stride {stride}")
    if tensor.shape:
        _, high = tensor.extent.bounds(scope.ranges)
        if high > MOST_BYTES:
            raise Fault((*path, "shape"), f"it can take {high} bytes, which no machine holds")


def _check_view_cycles(scope: Scope) -> None:
    done: set[str] = set()
    for tensor in scope.graph.tensors:
        chain: list[str] = []
        step: Tensor | None = tensor
        while step is not None and step.view_of is not None and step.name not in done:
            if step.name in chain:
                names = " → ".join([*chain[chain.index(step.name) :], step.name])
                raise Fault(("tensors", tensor.name, "view_of"), f"a view of itself: {names}")
            chain.append(step.name)
            step = scope.graph.find_tensor(step.view_of)
        done.update(chain)


def _check_view(scope: Scope, view: Tensor, fits: set[tuple[_Layout, _Layout, Expr]]) -> None:
    """A view's bytes lie inside its base, at all values of the symbols."""
    assert view.view_of is not None
    base = scope.graph.tensor(view.view_of)
    offset = view.offset if view.offset is not None else Expr()
    key = (
        (view.dtype, view.shape, view.strides, view.bytes),
        (base.dtype, base.shape, base.strides, base.bytes),
        offset,
    )
    if key in fits:
        return
    path: Path = ("tensors", view.name)
    at = (*path, "offset") if offset.terms else path
    before = scope.size(offset, at).bounds(scope.ranges)[0]
    if before < 0:
        raise Fault(at, f"the view starts {-before} byte(s) before {quote(base.name)}")
    if not _empty(scope, view):
        room = scope.size(base.extent - view.extent - offset, path).bounds(scope.ranges)[0]
        if room < 0:
            message = f"the view ends {-room} byte(s) after the end of {quote(base.name)}"
            raise Fault(at, f"{message}, which has {base.extent} byte(s)")
    fits.add(key)


def _empty(scope: Scope, tensor: Tensor) -> bool:
    return any(size.bounds(scope.ranges)[1] == 0 for size in tensor.shape)


def check_placements(scope: Scope) -> None:
    """Each placement places a tensor that owns its bytes and that nothing else places."""
    for name, buffer, offset in scope.schedule.placements:
        path: Path = ("placements", name)
        tensor = scope.tensor(name, path)
        scope.buffer(buffer, (*path, 0))
        scope.size(offset, (*path, 1))
        if tensor.view_of is not None:
            raise Fault(path, "a view lies where its base lies; place the base")
        if tensor.buffer is not None:
            raise Fault(path, f'it is placed twice: "tensors" puts it in {quote(tensor.buffer)}')
