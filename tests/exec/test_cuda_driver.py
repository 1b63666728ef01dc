"""What is said of CUDA devices: in the simulator, without a driver, and of a GPU that is played.

The played GPU holds copies back until its stream is waited for, as a busy stream does: what the
measurement says of a contract is held against what the player was told to do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from splitproof.exec.cuda import driver
from splitproof.model.device import Contract

SMALL = 4096
NO_NVVM = 77


def test_the_simulator_does_everything_at_once() -> None:
    assert driver.simulated() and driver.available() and driver.why_not() is None
    (device,) = driver.devices()
    assert (device.number, device.memory, device.copy_engines) == (0, None, None)
    found = driver.measure(busy=0.01, large=SMALL, small=64)
    assert {call.contract for call in found.calls} == {Contract.SYNC}
    assert {(call.direction, call.host) for call in found.calls} == {
        (direction, host) for direction in ("upload", "download") for host in ("pinned", "pageable")
    }
    assert (found.upload, found.inside) == (None, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("\nCUDA driver library cannot be found.\nIf you are sure\n", "library cannot be found; "),
        ("Call to cuInit results in CUDA_ERROR_NO_DEVICE: \n", "CUDA_ERROR_NO_DEVICE; "),
        (None, "there is a CUDA driver, but no compiler"),
    ],
)
def test_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, error: str | None, said: str) -> None:
    absent = SimpleNamespace(is_available=lambda: False, cuda_error=lambda: error)
    monkeypatch.setattr(driver, "cuda", absent)
    monkeypatch.setattr(driver, "simulated", lambda: False)
    why = driver.why_not()
    assert why is not None and said in why and "\n" not in why
    assert not driver.available() and driver.devices() == ()


# -- a GPU that is played -----------------------------------------------------------------------


class Stream:
    """``synchronize`` does what was put off."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def synchronize(self) -> None:
        while self.later:
            self.later.pop(0)()


class Pinned(np.ndarray):
    """Memory that the player knows again."""


class Played:
    """Device memory; ``contract`` says how copies from and to pageable memory go."""

    def __init__(self, data: np.ndarray, gpu: Gpu) -> None:
        self.data, self.gpu = data, gpu

    def __getitem__(self, where: slice) -> Played:
        return Played(self.data[where], self.gpu)

    def copy_to_device(self, source: Any, stream: Stream | None = None) -> None:
        if stream is None:
            self.data[:] = source
        elif isinstance(source, Played):
            stream.later.append(lambda: np.copyto(self.data, source.data))
        else:
            self._copy(source, self.data, source, stream)

    def copy_to_host(self, target: Any = None, stream: Stream | None = None) -> Any:
        if target is None:
            return self.data.copy()
        assert stream is not None
        self._copy(self.data, target, target, stream)
        return target

    def _copy(self, source: np.ndarray, target: np.ndarray, host: Any, stream: Stream) -> None:
        contract = Contract.STREAM if isinstance(host, Pinned) else self.gpu.contract
        if contract is Contract.SYNC:
            stream.synchronize()
            self.gpu.clock += 1.01 * self.gpu.busy
            self.gpu.busy = 0.0
            target[:] = source
            return
        taken = source.copy() if contract is Contract.STAGED and host is source else source
        stream.later.append(lambda: np.copyto(target, taken))


class Gpu:
    """Plays ``numba.cuda``, its clock and the kernel that keeps a stream busy."""

    SMI = SimpleNamespace(name=b"Played", ASYNC_ENGINE_COUNT=3)

    def __init__(self, contract: Contract) -> None:
        self.contract, self.clock, self.busy = contract, 0.0, 0.0
        self.gpus = [Entry()]

    stream = staticmethod(Stream)
    is_available = staticmethod(lambda: True)

    def device_array(self, size: int, kind: type) -> Played:
        return Played(np.zeros(size, kind), self)

    def pinned_array(self, size: int, kind: type) -> Pinned:
        return np.zeros(size, kind).view(Pinned)

    def current_context(self) -> Any:
        memory = SimpleNamespace(total=2**37, free=2**36)
        return SimpleNamespace(device=self.SMI, get_memory_info=lambda: memory)

    def hold(self, nanoseconds: int) -> None:
        self.busy = nanoseconds / 1e9


class Entry(nullcontext):  # type: ignore[type-arg]
    compute_capability = (9, 0)


class Hold:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def __getitem__(self, where: object) -> Callable[[int], None]:
        return self.gpu.hold


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Gpu:
    gpu = Gpu(request.param)
    monkeypatch.setattr(driver, "cuda", gpu)
    monkeypatch.setattr(driver, "hold_for", Hold(gpu))
    monkeypatch.setattr(driver, "simulated", lambda: False)
    monkeypatch.setattr(driver, "perf_counter", lambda: gpu.clock)
    monkeypatch.setattr(driver, "seconds", lambda work, stream: (work(), 0.5)[1])
    return gpu


@pytest.mark.parametrize(
    "played", [Contract.SYNC, Contract.STAGED, Contract.STREAM], indirect=True, ids=str
)
def test_the_contract_of_a_played_gpu(played: Gpu) -> None:
    found = driver.measure(busy=0.1, large=SMALL, small=64)
    said = {(call.direction, call.host): call.contract for call in found.calls}
    assert found.contract("upload") == found.contract("download") == Contract.STREAM
    assert said["upload", "pageable"] == played.contract
    # A download is done when it comes back, or it is not: nothing is staged.
    sync = played.contract is Contract.SYNC
    assert said["download", "pageable"] == (Contract.SYNC if sync else Contract.STREAM)
    assert (found.upload, found.inside) == (8 * SMALL / 0.5, 2 * 8 * SMALL / 0.5)


@pytest.mark.parametrize("played", [Contract.STREAM], indirect=True)
def test_a_host_that_is_slow_makes_no_copy_a_synchronous_one(
    played: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a stream's order that comes back late is still open when its source changes."""
    times = iter(range(1000))
    monkeypatch.setattr(driver, "perf_counter", lambda: float(next(times)))
    found = driver.measure(busy=0.1, large=SMALL, small=64)
    assert {call.contract for call in found.calls} == {Contract.STREAM}
    assert all(call.returned > call.busy for call in found.calls)


@pytest.mark.parametrize("played", [Contract.SYNC], indirect=True)
def test_the_facts_of_a_played_gpu(played: Gpu) -> None:
    (device,) = driver.devices()
    assert device == driver.CudaDevice(0, "Played", (9, 0), 2**37, 2**36, 3)


# -- the kernels of the clock -------------------------------------------------------------------

OFFLINE = """
import json
from numba import cuda, types
from numba.cuda.cudadrv.error import NvvmSupportError
from numba.cuda.cudadrv.nvvm import NVVM
from splitproof.exec.cuda import clock
try:
    NVVM()
except NvvmSupportError:
    raise SystemExit({no_nvvm})
place, wide = types.Array(types.int64, 1, "C"), types.int64
found = {{}}
for name, signature in (("hold_for", (wide,)), ("hold_until", (place, wide)), ("tell", (place,))):
    found[name], _ = cuda.compile_ptx(getattr(clock, name).py_func, signature, cc=(9, 0))
print(json.dumps(found))
"""


def test_the_clock_compiles_and_is_read_in_the_loop() -> None:
    there = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    command = [sys.executable, "-c", OFFLINE.format(no_nvvm=NO_NVVM)]
    done = subprocess.run(command, env=there, capture_output=True, text=True)
    if done.returncode == NO_NVVM:
        pytest.skip("there is no NVVM here")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    loop = re.compile(r"(\$L\w+):[^:]*%globaltimer[^:]*bra\s+\1;")
    assert {name: bool(loop.search(text)) for name, text in found.items()} == {
        "hold_for": True, "hold_until": True, "tell": False,
    }  # fmt: skip
