"""The CUDA kernels' bounds are proved for all sizes, and planted faults in them are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from splitproof.exec.cuda.catalog import kernels
from splitproof.model.kernel import Kernel
from splitproof.verify.kernel import check_bounds

KERNELS = kernels()
#: one of each form of index arithmetic; the rest takes minutes
QUICK = (
    "binary", "unary", "gate", "rms_norm", "sum_rows", "argsort", "set_rows f16", "get_rows q8_0",
    "repeat", "fill", "add_id", "mul_mat f16", "mul_mat_id f32",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_kernel_keeps_its_bounds(name: str) -> None:
    found = check_bounds(name, KERNELS[name])
    assert found.faults == () and found.accesses and found.questions


def without(kernel: Kernel, a: str, b: str) -> Kernel:
    kept = tuple(pair for pair in kernel.same if pair != (a, b))
    assert len(kept) < len(kernel.same)
    return replace(kernel, same=kept)


WRONG = {
    "one block too many": (replace(KERNELS["fill"], grid=("y.1*y.2*y.3*2",)), "outside dimension"),
    "a source that is smaller": (without(KERNELS["unary"], "x.0", "y.0"), "read of x"),
    "a mask of other rows": (without(KERNELS["set_rows f16"], "ids.0", "x.1"), "read of ids"),
    "a repeat that does not fit": (replace(KERNELS["gate"], same=()), "outside dimension"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_promise_is_found(name: str) -> None:
    kernel, fault = WRONG[name]
    found = check_bounds(name, kernel)
    assert any(fault in told for told in found.faults), found.faults
