"""What only a GPU can show: ``NUMBA_ENABLE_CUDASIM=0 python -m pytest tests/gpu/test_gpu.py``.

``tests/gpu/run.py`` does the same in one go, with the rows of speed and the tests of the kernels,
and writes a file.
"""

from __future__ import annotations

from dataclasses import asdict

import pytest
from recorded_models import FEW, SHARED, command, made_here, recorded
from splitproof.exec.cuda import driver
from splitproof.model.device import Contract
from stream_incidents import run_document, stream_documents
from streams import Streams

if driver.simulated():
    pytest.skip(
        "needs a GPU: kernels run in Numba's simulator here (NUMBA_ENABLE_CUDASIM=0 ends that)",
        allow_module_level=True,
    )
if (reason := driver.why_not()) is not None:
    pytest.skip(reason, allow_module_level=True)

DOCUMENTS = dict(stream_documents())


def test_copies_go_as_the_runtime_takes_them_to_go() -> None:
    found = driver.measure()
    assert found.contract("upload") == found.contract("download") == Contract.STREAM
    print(asdict(found))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_stream_incidents(name: str) -> None:
    row = run_document(name, Streams, violated=10, repaired=1000)
    assert row.due, row


@pytest.mark.parametrize("name", ["made here", *FEW])
def test_models(name: str) -> None:
    ask = command(simulated=False, limit=120)
    model = made_here(ask) if name == "made here" else recorded(ask, name, SHARED)
    if model.status == "not available":
        pytest.skip(f"{name}: {model.why}")
    assert model.status == "right", model
