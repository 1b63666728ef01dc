"""Element types: the few that are written down are those of the gguf package."""

from __future__ import annotations

import pytest
from splitproof.model.tensor import COMMON, dtype, dtypes


@pytest.mark.parametrize("name", sorted(COMMON))
def test_a_common_type_is_as_gguf_says(name: str) -> None:
    assert COMMON[name] == dtypes()[name] == dtype(name)


def test_other_types_come_from_gguf() -> None:
    assert "q5_k" not in COMMON and (dtype("q5_K").block, dtype("q5_K").block_bytes) == (256, 176)
    with pytest.raises(KeyError):
        dtype("q9_9")
