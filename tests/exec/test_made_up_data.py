from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from exec_documents import on_cpu, tensor
from splitproof.exec.data import callback_bytes, initial_bytes, input_bytes, integer_bounds
from splitproof.exec.layout import Layout, Layouts
from splitproof.exec.quant import to_array
from splitproof.exec.unsupported import UnsupportedOp
from splitproof.model import document
from splitproof.model.tensor import dtype, dtypes

SCRIPT = """
from splitproof.exec.data import initial_bytes
from splitproof.exec.layout import Layout
from splitproof.model.tensor import dtype
print(initial_bytes(7, Layout("w", dtype("q8_0"), (64, 2, 1, 1), (34, 68, 136, 136), "b", 0)).sum())
"""


def layout(kind: str, ne: tuple[int, int, int, int], values: tuple[int, int] | None) -> Layout:
    t = dtype(kind)
    row = ne[0] // t.block * t.block_bytes
    nb = (t.block_bytes, row, row * ne[1], row * ne[1] * ne[2])
    return Layout("t", t, ne, nb, "b", 0, values)


def test_processes_agree_whatever_their_hash_seed() -> None:
    sums = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={"PYTHONHASHSEED": seed}, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(sums) == 1


def test_seed_name_and_pass_each_matter() -> None:
    plain = layout("f32", (16, 1, 1, 1), None)
    sets = [input_bytes(0, plain, 0), input_bytes(1, plain, 0), input_bytes(0, plain, 1)]
    sets += [initial_bytes(0, plain), callback_bytes(0, "a", plain, 0)]
    sets += [callback_bytes(0, "b", plain, 0), input_bytes(0, plain, 0, earlier=1)]
    assert len({raw.tobytes() for raw in sets}) == len(sets)
    assert input_bytes(0, plain, 0).tobytes() == sets[0].tobytes()


#: types that the package ``gguf`` does not read
UNREAD = {"q1_0", "q8_1", "q8_k"}
FLOATS = {name for name, kind in dtypes().items() if not kind.integer}


@pytest.mark.parametrize("name", sorted(FLOATS - UNREAD))
def test_initial_bytes_are_finite_numbers(name: str) -> None:
    kind = dtype(name)
    plain = layout(name, (kind.block * 4, 2, 1, 1), None)
    raw = initial_bytes(0, plain)
    assert len(raw) == plain.nbytes
    values = to_array(kind, raw, plain.ne)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 2


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_a_type_that_nothing_reads_is_named(name: str) -> None:
    kind = dtype(name)
    plain = layout(name, (kind.block * 4, 2, 1, 1), None)
    with pytest.raises(UnsupportedOp, match=f"type {name}"):
        to_array(kind, initial_bytes(0, plain), plain.ne)


def test_ids_of_a_token_do_not_repeat_while_the_range_allows_it() -> None:
    ids = layout("i32", (4, 50, 1, 1), (3, 8))
    values = to_array(ids.dtype, input_bytes(0, ids, 0), ids.ne)
    assert values.min() == 3 and values.max() == 7
    assert all(len(set(values[:, t, 0, 0])) == 4 for t in range(50))
    crowded = layout("i32", (4, 50, 1, 1), (0, 2))
    values = to_array(ids.dtype, input_bytes(0, crowded, 0), ids.ne)
    assert set(np.unique(values)) == {0, 1}


def test_integers_without_a_range_stay_inside_what_they_index() -> None:
    schedule = document.from_dict(
        on_cpu(
            [{"op": "get_rows", "dst": "y", "src": ["table", "rows"]}],
            {
                "table": tensor([8, 5], "w_host"),
                "rows": tensor([40], "c_host", dtype="i32", input=True),
                "y": tensor([8, 40], "c_host", 4096, output=True),
            },
        )
    )
    assert integer_bounds(Layouts(schedule, {}), "rows") == (0, 5)
