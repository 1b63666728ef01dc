from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from splitproof.exec.quant import from_array, to_array
from splitproof.model.tensor import dtype


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "bf16", "q5_1", "q4_K", "q6_K", "mxfp4"])
def test_bytes_mean_what_the_gguf_package_says(name: str) -> None:
    kind = dtype(name)
    raw = np.random.default_rng(1).integers(0, 60, kind.block_bytes * 12, dtype=np.uint8)
    code = next(c for c in GGMLQuantizationType if c.name.lower() == kind.name)
    due = quants.dequantize(raw.reshape(-1, kind.block_bytes), code).reshape(-1)
    got = to_array(kind, raw, (kind.block * 4, 3, 1, 1))
    assert got.shape == (kind.block * 4, 3, 1, 1)
    np.testing.assert_array_equal(got.reshape(-1, order="F"), due)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_numbers_become_the_bytes_of_the_gguf_package(name: str) -> None:
    kind = dtype(name)
    values = np.random.default_rng(2).standard_normal((3, 64)).astype(np.float32)
    code = GGMLQuantizationType[name.upper()]
    due = quants.quantize(values, code).reshape(-1).view(np.uint8)
    np.testing.assert_array_equal(from_array(kind, values.reshape(1, 1, 3, 64).T), due)


def test_bf16_keeps_nan_and_infinity() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 3.4e38], np.float32).reshape(1, 1, 1, 4).T
    back = to_array(dtype("bf16"), from_array(dtype("bf16"), special), (4, 1, 1, 1)).reshape(-1)
    assert np.isnan(back[0]) and back[1] == np.inf and back[2] == -np.inf and back[3] == np.inf


def test_the_innermost_dimension_comes_first() -> None:
    raw = np.arange(6, dtype=np.int32).view(np.uint8)
    array = to_array(dtype("i32"), raw, (3, 2, 1, 1))
    assert array[1, 0, 0, 0] == 1 and array[0, 1, 0, 0] == 3
    np.testing.assert_array_equal(from_array(dtype("i32"), array), raw)
