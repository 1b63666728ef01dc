"""Ops that a user registers: checked, run, compared, replayed, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import splitproof
from splitproof.exec import functions
from splitproof.exec.compare import compare
from splitproof.exec.quant import Array
from splitproof.exec.reference import run_reference
from splitproof.exec.user_ops import forget_op
from splitproof.model.fault import DocumentError
from splitproof.model.ops import OPS
from splitproof.model.report import Verdict

DOCUMENT: dict[str, Any] = {
    "format": "splitproof/1",
    "symbols": {"n_tokens": [1, 4]},
    "memories": {"host": {"host": True}, "vram0": {}},
    "devices": [
        {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": True, "copy": "stream"},
        {"name": "cpu", "memory": "host", "reads": ["host"]},
    ],
    "buffers": {},
    "tensors": {
        "x": {"dtype": "f32", "shape": [8, "n_tokens"], "input": True},
        "h": {"dtype": "f32", "shape": [8, "n_tokens"], "pin": "cpu"},
        "y": {"dtype": "f32", "shape": [8, "n_tokens"], "pin": "gpu0", "output": True},
    },
    "nodes": [
        {"op": "silu", "dst": "h", "src": ["x"]},
        {"op": "blend", "dst": "y", "src": ["h", "x"], "params": {"share": 0.25}},
    ],
}


def blend(a: Array, b: Array, share: float) -> Array:
    return np.float32(share) * a + np.float32(1 - share) * b


def blend_into(result: Array, a: Array, b: Array, share: float) -> None:
    result[...] = np.float32(share) * a + np.float32(1 - share) * b


@contextmanager
def registered(footprint: Sequence[str] | None = ("whole",), **given: Any) -> Iterator[None]:
    given = {"sources": 2, "reference": blend, "like": 0, **given}
    splitproof.register_op("blend", footprint=footprint, **given)
    try:
        yield
    finally:
        forget_op("blend")


@pytest.mark.parametrize("kernel", [None, blend_into])
def test_it_is_checked_and_runs(kernel: Any) -> None:
    with registered(kernel=kernel):
        report = splitproof.check(DOCUMENT)
        assert report.verdict is Verdict.PROVED
        x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(8, 3)
        result = splitproof.run(DOCUMENT, symbols={"n_tokens": 3}, inputs={("x", 0): x})
        due = blend(x / (1 + np.exp(-x)), x, 0.25)
        np.testing.assert_allclose(result.outputs[0]["y"][:, :, 0, 0], due, rtol=1e-5)
        assert result.fallbacks == (kernel is None)
        program = splitproof.lower(splitproof.plan(splitproof.loads(_json())))
        reference = run_reference(program, result.symbols, inputs={("x", 0): x})
        assert compare(result, reference).agrees


def test_a_wrong_kernel_is_told_from_the_reference() -> None:
    def wrong(result: Array, a: Array, b: Array, share: float) -> None:
        result[...] = a

    with registered(kernel=wrong):
        program = splitproof.lower(splitproof.plan(splitproof.loads(_json())))
        result = splitproof.run(program)
        assert not compare(result, run_reference(program, result.symbols)).agrees


def test_its_footprint_counts() -> None:
    """A copy that is not awaited is a race for a user's op as for any other; it replays."""
    with registered():
        program = splitproof.lower(splitproof.plan(splitproof.loads(_json())))
        lines = [c for c in program.program or () if c.do not in ("sync_queue",)]
        assert len(lines) < len(program.program or ())
        racing = replace(program, program=tuple(lines))
        report = splitproof.check(racing)
        assert report.verdict is Verdict.VIOLATED
        shown = splitproof.replay(report, racing)
        assert shown and all(one.holds for one in shown)


def test_without_a_footprint_nothing_is_proved() -> None:
    with registered(footprint=None):
        report = splitproof.check(DOCUMENT)
    assert report.verdict is Verdict.UNSUPPORTED
    (gap,) = report.gaps
    assert "op blend ('y')" in gap.reason and "footprint" in gap.reason
    with registered(footprint=None), pytest.raises(splitproof.CertificateError):
        splitproof.run(DOCUMENT)


def test_a_name_is_known_only_while_it_is_registered() -> None:
    with registered():
        splitproof.loads(_json())
    with pytest.raises(DocumentError, match='unknown op "blend"'):
        splitproof.loads(_json())


def test_the_shape_is_that_of_the_source_it_is_like() -> None:
    """Source 1 is a column here: only source 0 has the shape of the result."""
    parts = json.loads(_json())
    parts["tensors"]["h"]["shape"] = [8, 1]
    parts["tensors"]["c"] = {"dtype": "f32", "shape": [8, 1], "input": True}
    parts["nodes"][0]["src"] = ["c"]
    with registered(like=1):
        assert splitproof.loads(json.dumps(parts)).graph.nodes[1].dst == "y"
    with registered(), pytest.raises(DocumentError, match="blend gives"):
        splitproof.loads(json.dumps(parts))


def test_nothing_is_left_of_a_forgotten_op() -> None:
    tables = (OPS, functions.FUNCTIONS, functions.ROUNDED_FUNCTIONS)
    before = [set(table) for table in tables]
    with registered(kernel=blend_into):
        assert [set(table) - known for table, known in zip(tables, before, strict=True)] == (
            [{"blend"}] * 3
        )
    assert [set(table) for table in tables] == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "silu"}, "there is an op silu already"),
        ({"footprint": ["whole"] * 3}, "one for each source was due"),
        ({"footprint": ["experts"]}, "source 2 selects them"),
        ({"sources": 3, "footprint": ["whole", "experts"]}, "experts are read from source 0"),
        ({"footprint": ["bits"]}, "bits"),
        ({"like": 2}, "no source 2"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    settings = {"sources": 2, "footprint": ["whole"], "reference": blend, **given}
    with pytest.raises(ValueError, match=message):
        splitproof.register_op(settings.pop("name", "mine"), **settings)
    with pytest.raises(KeyError):
        forget_op("mine")


def _json() -> str:
    return json.dumps(DOCUMENT)
