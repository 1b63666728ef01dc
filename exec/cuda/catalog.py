"""Every CUDA kernel with what its launch promises, for the offline compiler and the proof."""

from __future__ import annotations

from ...model.kernel import (
    Data,
    Flag,
    Kernel,
    Parameter,
    Scratch,
    Shape,
    Size,
    Step,
    Steps,
    Value,
)
from ...model.tensor import dtype
from . import group, moves, pointwise, products, quantise, rotate, rows, tiles
from .dequantise import KINDS
from .packing import PACKINGS, Packing
from .target import THREADS, WARPS

_ALL = range(4)


def _rows_of(tensor: str) -> tuple[str, ...]:
    """A block per row of a tensor."""
    return (f"{tensor}.1*{tensor}.2*{tensor}.3",)


def _alike(
    a: str, b: str, dimensions: range | tuple[int, ...] = _ALL
) -> tuple[tuple[str, str], ...]:
    return tuple((f"{a}.{n}", f"{b}.{n}") for n in dimensions)


def _strided(tensor: str, kind: str = "f32") -> tuple[Parameter, ...]:
    return Data(tensor, kind), Steps(tensor)


def _shaped(tensor: str, kind: str = "f32") -> tuple[Parameter, ...]:
    return Data(tensor, kind), Steps(tensor), Shape(tensor)


def _choice(count: int) -> Value:
    return Value("i64", tuple(range(count)))


def _pointwise() -> dict[str, Kernel]:
    y = (*_strided("y"), Shape("y"))
    return {
        "binary": Kernel(
            pointwise._binary, (_choice(4), *_strided("a"), *_shaped("b"), *y), _rows_of("y"),
            THREADS, _alike("a", "y"), _alike("b", "y"),
        ),
        "unary": Kernel(
            pointwise._unary, (_choice(6), *_strided("x"), *y, Value(), Value()), _rows_of("y"),
            THREADS, _alike("x", "y"),
        ),
        "gate": Kernel(
            pointwise._gate, (_choice(3), *_strided("a"), *_strided("b"), *y, Value(), Value()),
            _rows_of("y"), THREADS, _alike("a", "y") + _alike("b", "y"),
        ),
    }  # fmt: skip


def _by_rows() -> dict[str, Kernel]:
    x, y = _shaped("x"), _strided("y")
    same = _alike("x", "y")
    found = {
        "rms_norm": Kernel(rows._rms_norm, (*x, Value("f64"), *y), _rows_of("x"), THREADS, same),
        "sum_rows": Kernel(
            rows._sum_rows, (*x, *y), _rows_of("x"), THREADS, _alike("x", "y", (1, 2, 3))
        ),
        "argsort": Kernel(
            rows._argsort, (*x, Value(), Size("y.0"), *_strided("y", "i32")), _rows_of("x"),
            THREADS, _alike("x", "y", (1, 2, 3)),
        ),
    }  # fmt: skip
    for name, kind, number in (("f32", "f32", rows.FLOAT), ("f16", "u16", rows.HALF)):
        mask = (Data("mask", kind), Steps("mask"), Shape("mask"), Value("i64", (number,)))
        found[f"soft_max {name}"] = Kernel(
            rows._soft_max,
            (*x, Value("f64"), *mask, Data("sinks"), Step("sinks"), *y),
            _rows_of("x"), THREADS, (*same, ("mask.1", "x.1"), ("sinks.0", "x.2")),
            _alike("mask", "x", (0, 2, 3)),
        )  # fmt: skip
        found[f"set_rows {name}"] = Kernel(
            rows._set_rows,
            (*x, *_shaped("ids", "i64"), *_strided("y", kind), Size("y.1"),
             Value("i64", (number,)), Flag()),
            ("x.2*x.3",), THREADS, (*_alike("x", "y", (0, 2, 3)), ("ids.0", "x.1")),
            (("ids.1", "x.2"), ("ids.2", "x.3")),
        )  # fmt: skip
    return found


def _rope() -> dict[str, Kernel]:
    """``normal``: pairs of neighbours; ``neox``: half of the rotated numbers apart."""
    found = {}
    for mode, step, apart in (("normal", "2", "1"), ("neox", "1", "pairs.0")):
        found[f"rope {mode}"] = Kernel(
            rotate._rope,
            (*_shaped("x"), Data("p", "i32"), Step("p"), Data("angles"), Step("angles"),
             Scratch("f32", ("pairs.0",)), Value(), Value(), Value(), Size(step), Size(apart),
             *_strided("y")),
            _rows_of("x"), THREADS, (*_alike("x", "y"), ("p.0", "x.2"), ("angles.0", "pairs.0")),
            (("pairs.0*2", "x.0"),),
        )  # fmt: skip
    return found


def _get_rows() -> dict[str, Kernel]:
    """The table as bytes, half-words and words; a kind reads one or two of them."""
    found = {}
    for kind, number in KINDS.items():
        weights = dtype(kind).block
        block = dtype(kind).block_bytes if weights > 1 else 0
        views = (
            Data("t", "u8", block, weights), Data("t", "u16", block // 2, weights), Data("t", "f32")
        )  # fmt: skip
        found[f"get_rows {kind}"] = Kernel(
            rows._get_rows,
            (*views, Steps("t"), Shape("t"), Value("i64", (number,)), *_strided("ids", "i32"),
             *_strided("y"), Shape("y"), Flag()),
            _rows_of("y"), THREADS,
            (("t.0", "y.0"), ("ids.0", "y.1"), ("ids.1", "y.2"), ("ids.2", "y.3"),
             *((("t.0", f"t.0/{weights}*{weights}"),) if block else ())),
        )  # fmt: skip
    return found


def _moves() -> dict[str, Kernel]:
    x, y = _shaped("x", "u32"), (*_strided("y", "u32"), Shape("y"))
    return {
        "reshape": Kernel(
            moves._reshape, (*x, *y), _rows_of("y"), THREADS,
            (("x.0*x.1*x.2*x.3", "y.0*y.1*y.2*y.3"),),
        ),
        "repeat": Kernel(moves._repeat, (*x, *y), _rows_of("y"), THREADS, (), _alike("x", "y")),
        "fill": Kernel(moves._fill, (Value(), *_strided("y"), Shape("y")), _rows_of("y"), THREADS),
        "add_id": Kernel(
            moves._add_id,
            (*_strided("x"), *_strided("bias"), Size("bias.1"), *_strided("ids", "i32"),
             *_strided("y"), Shape("y"), Flag()),
            _rows_of("y"), THREADS,
            (*_alike("x", "y"), ("bias.0", "y.0"), ("ids.0", "y.1"), ("ids.1", "y.2"),
             ("y.3", "1")),
        ),
    }  # fmt: skip


def _whole(weights: int) -> tuple[str, str]:
    """Rows of activations are whole blocks."""
    return "x.0", f"x.0/{weights}*{weights}"


def _activations(packing: Packing) -> tuple[Scratch, Scratch, Scratch]:
    """Words, scales and sums, as ``quantise.prepared`` writes them."""
    blocks = ("x.3", "x.2", "x.1", f"x.0/{packing.weights}")
    if packing.halves:
        return Scratch("u32", (*blocks, str(packing.words))), Scratch("f32"), Scratch("i32")
    return (
        Scratch("u32", (*blocks, str(packing.words))), Scratch("f32", blocks),
        Scratch("i32", (*blocks, str(packing.sums))),
    )  # fmt: skip


def _quantised() -> dict[str, Kernel]:
    small, large, half = PACKINGS["q8_0"], PACKINGS["q4_k"], PACKINGS["f16"]
    rows_ = _rows_of("x")
    return {
        "quantise q8_0": Kernel(
            quantise._quantise, (*_shaped("x"), Size("x.0/32"), *_activations(small)), rows_,
            THREADS, (_whole(32),),
        ),
        "quantise q8_k": Kernel(
            quantise._quantise_super, (*_shaped("x"), Size("x.0/256"), *_activations(large)),
            (*rows_, f"x.0/256/{WARPS}"), THREADS, (_whole(256),),
        ),
        "halve": Kernel(
            quantise._halve,
            (*_shaped("x"), Size("x.0/16*8"), _choice(2), _activations(half)[0]),
            rows_, THREADS, (_whole(16),),
        ),
    }  # fmt: skip


def _grouped() -> dict[str, Kernel]:
    """The order of pairs: ``groups.0`` experts and one more, ``tiles.0`` tiles of columns."""
    ids, groups = _shaped("ids", "i32"), Size("groups.0")
    size, flat = ("tiles.0", str(tiles.COLUMNS)), (("ids.2", "1"), ("ids.3", "1"))
    counts, order = Scratch("i32", ("groups.0",)), Scratch("i32", (*size, "2"))
    return {
        "clear": Kernel(group._clear, (order,), ("tiles.0",), THREADS),
        "count": Kernel(group._count, (*ids, groups, counts), ("groups.0",), THREADS, flat),
        "order": Kernel(
            group._order, (*ids, groups, counts, order, Size("*".join(size))), ("groups.0",),
            THREADS, flat,
        ),
    }  # fmt: skip


SAME = (("w.0", "x.0"), ("w.1", "y.0"), *_alike("x", "y", (1, 2, 3)))
SAME_ID = (
    ("w.0", "x.0"), ("w.1", "y.0"), ("ids.0", "y.1"), ("ids.1", "y.2"), ("x.2", "y.2"),
    ("w.3", "1"), ("x.3", "1"), ("y.3", "1"), ("ids.2", "1"), ("ids.3", "1"),
)  # fmt: skip
GROUPED = (("w.2", "x.2"), ("w.3", "x.3"))


def _products() -> dict[str, Kernel]:
    shape, y, chosen = (Steps("w"), Shape("w")), _strided("y"), _shaped("ids", "i32")
    grid = (f"w.1/{WARPS}", f"x.1/{products.TILE}", "x.2*x.3")
    id_grid = (f"w.1/{WARPS}", "ids.0*ids.1")
    tiled = (f"w.1/{tiles.ROWS}", f"x.1/{tiles.COLUMNS}", "x.2*x.3")
    order = Scratch("i32", ("tiles.0", str(tiles.COLUMNS), "2"))
    found = {}
    for name, packing in PACKINGS.items():
        data = Data("w", f"u{packing.unit * 8}", packing.size, packing.weights)
        given = (data, *shape, *_activations(packing), Shape("x"))
        whole = _whole(packing.weights)
        found[f"mul_mat {name}"] = Kernel(
            products.block_product(name), (*given, *y), grid, THREADS, (*SAME, whole), GROUPED
        )
        found[f"mul_mat_id {name}"] = Kernel(
            products.block_product_id(name), (*given, *chosen, *y, Flag()), id_grid, THREADS,
            (*SAME_ID, whole),
        )  # fmt: skip
        found[f"mul_mat {name} in tiles"] = Kernel(
            tiles.tiled_product(name), (*given, *y), tiled, tiles.TILE_THREADS, (*SAME, whole),
            GROUPED,
        )  # fmt: skip
        found[f"mul_mat_id {name} in tiles"] = Kernel(
            tiles.tiled_product_id(name), (*given, *chosen, order, *y, Flag()),
            (tiled[0], "tiles.0"), tiles.TILE_THREADS, (*SAME_ID, whole),
        )  # fmt: skip
    for name in ("f32", "f16", "bf16"):
        data, number = Data("w", "f32" if name == "f32" else "u16"), KINDS[name]
        plain = (data, *shape, *_shaped("x"))
        found[f"mul_mat {name} by elements"] = Kernel(
            products.plain_product(number), (*plain, *y), grid, THREADS, SAME, GROUPED
        )
        found[f"mul_mat_id {name} by elements"] = Kernel(
            products.plain_product_id(number), (*plain, *chosen, *y, Flag()), id_grid, THREADS,
            SAME_ID,
        )  # fmt: skip
    return found


def kernels() -> dict[str, Kernel]:
    """All of them, by name."""
    return {
        **_pointwise(),
        **_by_rows(),
        **_rope(),
        **_get_rows(),
        **_moves(),
        **_quantised(),
        **_grouped(),
        **_products(),
    }
