"""Devices for a model: the blocks of a document that describe them, and where weights lie."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .exec.cuda.table import TABLE
from .model.decoder.site import Setting
from .model.device import OpPattern
from .model.document import read_value
from .model.document_form import FORMAT, DeviceForm, Form, MemoryForm, Name
from .model.fault import DocumentError, Fault
from .model.form_fault import find_fault
from .model.json_place import parse, placed, read_text
from .model.ops import OPS
from .output import CliError

#: One asynchronous device with a queue for copies, and the CPU.  Everything lies in the device's
#: memory except the experts, which stay where the file is mapped.
DEFAULT = """\
{
  "memories": {"host": {"host": true}, "vram0": {}},
  "devices": [
    {"name": "gpu0", "memory": "vram0", "reads": ["vram0"], "async": true,
     "queues": ["compute", "copy"], "copy": "stream", "offload_min_tokens": 1},
    {"name": "cpu", "memory": "host", "reads": ["host"], "events": false}
  ],
  "weights": [["^(?!.*_exps\\\\.)", "vram0"]],
  "cache": [["", "vram0"]]
}
"""

Places = Annotated[
    list[tuple[str, Name]],
    Meta(description="Regular expression and memory; the first that is found in a name counts"),
]


class DevicesForm(Form, frozen=True, kw_only=True):
    """What ``run --devices`` reads.  A device called ``cuda0`` is that GPU; if it has no ``ops``,
    they are those that there are kernels for.  What no pattern of ``weights`` matches stays in the
    file, in host memory, and what none of ``cache`` matches lies there too."""

    memories: dict[Name, MemoryForm]
    devices: Annotated[list[DeviceForm], Meta(min_length=1)]
    weights: Places = msgspec.field(default_factory=list)
    cache: Places = msgspec.field(default_factory=list)


#: The name of a device that is a GPU, with its number.
_CUDA = re.compile(r"cuda(\d+)")


def read_devices(text: str | None) -> Setting:
    """The setting of a file, or of names: ``cuda0,cpu``; of :data:`DEFAULT` for ``None``.

    ``CliError`` with its place.
    """
    try:
        if text is None:
            return _setting(DEFAULT, "the default devices")
        names = text.split(",")
        if all(_CUDA.fullmatch(name) or name == "cpu" for name in names):
            return _named(text, names)
        return _setting(read_text(text), text)
    except DocumentError as error:
        raise CliError(str(error)) from None


def _named(text: str, names: list[str]) -> Setting:
    """One GPU, with everything but the experts in its memory, and the CPU; or the CPU alone."""
    gpus = [name for name in names if name != "cpu"]
    if names != [*gpus, "cpu"] or len(gpus) > 1:
        raise CliError(
            f"--devices {text}: one GPU and the CPU were due, as cuda0,cpu; for more a file says "
            "what lies where"
        )
    if not gpus:
        return Setting()
    return _setting(DEFAULT.replace("gpu0", gpus[0]), text)


def cuda_ops() -> tuple[OpPattern, ...]:
    """What CUDA kernels compute, as a device declares it: by the op and the types of as many
    sources as it always has."""
    found = []
    for row in TABLE:
        most = 1 + OPS[row.op].sources[0]
        types = (row.types + row.types[-1:] * most)[:most]
        operands = ["dst", *(f"src{number}" for number in range(most - 1))]
        for chosen in product(*(pattern.split("|") for pattern in types)):
            named = zip(operands, chosen, strict=True)
            found.append(OpPattern(row.op, tuple((o, kind) for o, kind in named if kind != "*")))
    return tuple(found)


def gpu_numbers(setting: Setting) -> dict[str, int]:
    """Of the devices that are GPUs by their name, ``cudaN``: N."""
    found = {device.name: _CUDA.fullmatch(device.name) for device in setting.devices}
    return {name: int(match[1]) for name, match in found.items() if match is not None}


def _setting(text: str, source: str) -> Setting:
    with placed(text, source):
        value = parse(text, source)
        try:
            form = msgspec.convert(value, DevicesForm)
        except msgspec.ValidationError as error:
            find_fault(value, DevicesForm)
            raise Fault((), str(error)) from None
        # The rules for memories and devices are those of a document.
        blocks: dict[str, Any] = {name: value[name] for name in ("memories", "devices")}
        graph = read_value({"format": FORMAT, "tensors": {}, "nodes": [], **blocks}).graph
        if graph.devices[-1].asynchronous or not graph.memory(graph.devices[-1].memory).host:
            place = ("devices", len(graph.devices) - 1)
            raise Fault(place, "the last device is the CPU: synchronous, in host memory")
        for key, places in (("weights", form.weights), ("cache", form.cache)):
            for number, (pattern, memory) in enumerate(places):
                _hold(pattern, memory, (key, number), form)
    devices = tuple(
        replace(device, ops=cuda_ops())
        if _CUDA.fullmatch(device.name) and device.ops is None
        else device
        for device in graph.devices
    )
    return Setting(
        graph.memories, devices, tuple(form.weights), devices[-1].memory, tuple(form.cache)
    )


def _hold(pattern: str, memory: str, path: tuple[str, int], form: DevicesForm) -> None:
    if memory not in form.memories:
        known = ", ".join(form.memories)
        raise Fault((*path, 1), f"there is no memory {memory!r}; known: {known}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise Fault((*path, 0), f"{pattern!r} is no regular expression: {error}") from None
