"""Devices for a model: the blocks of a document that describe them, and where weights lie."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .model.decoder.site import Setting
from .model.document import read_value
from .model.document_form import FORMAT, DeviceForm, Form, MemoryForm, Name
from .model.fault import DocumentError, Fault
from .model.form_fault import find_fault
from .model.json_place import parse, placed, read_text
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
    """What ``run --devices`` reads.  What no pattern of ``weights`` matches stays in the file, in
    host memory, and what none of ``cache`` matches lies there too."""

    memories: dict[Name, MemoryForm]
    devices: Annotated[list[DeviceForm], Meta(min_length=1)]
    weights: Places = msgspec.field(default_factory=list)
    cache: Places = msgspec.field(default_factory=list)


def read_devices(path: str | None) -> Setting:
    """The setting of a file; of :data:`DEFAULT` for ``None``.  ``CliError`` with its place."""
    try:
        if path is None:
            return _setting(DEFAULT, "the default devices")
        return _setting(read_text(path), path)
    except DocumentError as error:
        raise CliError(str(error)) from None


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
    return Setting(
        graph.memories, graph.devices, tuple(form.weights), graph.devices[-1].memory,
        tuple(form.cache),
    )  # fmt: skip


def _hold(pattern: str, memory: str, path: tuple[str, int], form: DevicesForm) -> None:
    if memory not in form.memories:
        known = ", ".join(form.memories)
        raise Fault((*path, 1), f"there is no memory {memory!r}; known: {known}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise Fault((*path, 0), f"{pattern!r} is no regular expression: {error}") from None
