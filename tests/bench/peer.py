"""ggml's own kernels on the CPU, from the shared libraries of the package ``llama-cpp-python``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType

#: What weights may lie in: as the file has them, and as ggml rearranges them for its own kernels.
PLAIN, REPACKED = "CPU", "CPU_REPACK"


class _Memory(ctypes.Structure):
    """``ggml_init_params``."""

    _fields_ = [("size", c_size_t), ("buffer", c_void_p), ("no_alloc", c_bool)]


_P, _L = c_void_p, c_int64
#: Functions that are called: their result, then their arguments.
_BASE: dict[str, tuple[Any, ...]] = {
    "ggml_init": (_P, _Memory),
    "ggml_new_tensor": (_P, _P, c_int, c_int, ctypes.POINTER(_L)),
    "ggml_mul_mat": (_P, _P, _P, _P),
    "ggml_mul_mat_id": (_P, _P, _P, _P, _P),
    "ggml_new_graph": (_P, _P),
    "ggml_build_forward_expand": (None, _P, _P),
    "ggml_nbytes": (c_size_t, _P),
    "ggml_get_data": (_P, _P),
    "ggml_free": (None, _P),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_P, _P, _P),
    "ggml_backend_buffer_free": (None, _P),
    "ggml_backend_tensor_set": (None, _P, _P, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, _P, _P),
    "ggml_backend_free": (None, _P),
    "ggml_backend_reg_dev_get": (_P, _P, c_size_t),
    "ggml_backend_reg_get_proc_address": (_P, _P, c_char_p),
    "ggml_backend_buft_name": (c_char_p, _P),
    "ggml_backend_dev_supports_op": (c_bool, _P, _P),
    "ggml_backend_dev_buffer_type": (_P, _P),
}
_CPU: dict[str, tuple[Any, ...]] = {
    "ggml_backend_cpu_init": (_P,),
    "ggml_backend_cpu_reg": (_P,),
    "ggml_backend_cpu_set_n_threads": (None, _P, c_int),
}


class Library:
    """The functions by name; ``buffers``: types of buffers for weights, by their name."""

    def __init__(self, folder: Path) -> None:
        base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"), mode=ctypes.RTLD_GLOBAL)
        self._known: dict[str, Callable[..., Any]] = {}
        for library, functions in ((base, _BASE), (cpu, _CPU)):
            for name, (result, *arguments) in functions.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
                self._known[name] = function
        registry = self("cpu_reg")
        self.device = self("reg_dev_get", registry, 0)
        self.buffers = {PLAIN: self("dev_buffer_type", self.device)}
        found = self("reg_get_proc_address", registry, b"ggml_backend_dev_get_extra_bufts")
        if found:
            extra = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)(found)(self.device)
            index = 0
            while extra and extra[index]:
                name = self("buft_name", extra[index]).decode()
                self.buffers[name] = extra[index]
                index += 1

    def __call__(self, name: str, *arguments: Any) -> Any:
        full = "ggml_" + name
        return self._known[full if full in self._known else "ggml_backend_" + name](*arguments)


def library() -> Library | None:
    """``None`` where the package is not installed, or has other libraries than are known."""
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    try:
        return Library(Path(spec.origin).parent / "lib")
    except (OSError, AttributeError):
        return None


@dataclass
class Product:
    """``pieces``: calls that each compute one op; ``result``: where the last one's begins;
    ``close`` when they are not needed."""

    pieces: Sequence[Callable[[], None]]
    result: int
    close: Callable[[], None]

    def last_result(self, count: int) -> np.ndarray:
        """A copy of its first float32."""
        return np.ctypeslib.as_array((ctypes.c_float * count).from_address(self.result)).copy()


def product(
    ggml: Library, place: str, kind: str, raw: np.ndarray, ne: Sequence[int], x: np.ndarray,
    chosen: np.ndarray | None, threads: int,
) -> Product | None:  # fmt: skip
    """``mul_mat_id`` for each matrix of ``chosen`` (``[ops, tokens, used]``), or ``mul_mat``.

    ``raw``: bytes of weights ``ne`` as a file has them; ``x``: ``[tokens, k]``.  ``None`` if ggml
    has no such kernel for weights that lie so.
    """
    if place not in ggml.buffers:
        return None
    memory = _Memory(1 << 24, None, True)
    held, context = ggml("init", memory), ggml("init", memory)

    def tensor(owner: int, code: int, *shape: int) -> int:
        return int(ggml("new_tensor", owner, code, len(shape), (_L * len(shape))(*shape)))

    w = tensor(held, GGMLQuantizationType[kind.upper()].value, *ne)
    buffers = [ggml("alloc_ctx_tensors_from_buft", held, ggml.buffers[place])]
    tokens, width = x.shape
    shape = (width, tokens) if chosen is None else (width, 1, tokens)
    right = tensor(context, GGMLQuantizationType.F32.value, *shape)
    inputs, ops = [], []
    if chosen is None:
        ops.append(ggml("mul_mat", context, w, right))
    else:
        for few in chosen:
            ids = tensor(context, GGMLQuantizationType.I32.value, few.shape[1], tokens)
            inputs.append((ids, np.ascontiguousarray(few, np.int32)))
            ops.append(ggml("mul_mat_id", context, w, right, ids))
    backend = ggml("cpu_init")
    ggml("cpu_set_n_threads", backend, threads)

    def close() -> None:
        for buffer in buffers:
            ggml("buffer_free", buffer)
        for owner in (held, context):
            ggml("free", owner)
        ggml("backend_free", backend)

    if not ggml("dev_supports_op", ggml.device, ops[0]):
        close()
        return None
    buffers.append(ggml("alloc_ctx_tensors_from_buft", context, ggml.buffers[PLAIN]))
    for target, values in [(w, raw), (right, np.ascontiguousarray(x, np.float32)), *inputs]:
        ggml("tensor_set", target, values.ctypes.data, 0, ggml("nbytes", target))
    graphs = []
    for op in ops:
        graphs.append(ggml("new_graph", context))
        ggml("build_forward_expand", graphs[-1], op)

    def piece(graph: int) -> Callable[[], None]:
        def run() -> None:
            if ggml("graph_compute", backend, graph):
                raise RuntimeError("ggml could not compute the graph")

        return run

    return Product([piece(graph) for graph in graphs], ggml("get_data", ops[-1]), close)
