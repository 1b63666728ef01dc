"""``splitproof devices``."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..output import emit, emit_json
from ..words import size_text

if TYPE_CHECKING:
    from ..exec.cuda.driver import Call, Copies, CudaDevice

#: What an asynchronous copy does, by its contract.
_MEANING = {
    "stream": "comes back at once, and is read when the stream comes to it",
    "staged": "comes back at once, with its source already read",
    "sync": "comes back when it is done",
}


@click.command("devices")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def command(form: str) -> None:
    """Show the devices of this machine, and the blocks that describe them in a document.

    How a GPU orders copies is measured: each is issued to a stream that is kept busy, from pinned
    and from pageable memory.
    """
    from ..device_block import block
    from ..exec.cuda import driver

    found = driver.devices()
    measured = {device.number: driver.measure(device.number) for device in found}
    blocks = block(found, measured)
    if form == "json":
        emit_json({
            "format": "splitproof-devices/1",
            "cpu": {"name": _processor(), "cores": os.cpu_count()},
            "cuda": [{**asdict(d), "copies": asdict(measured[d.number])} for d in found],
            "simulated": driver.simulated(),
            "why_not": driver.why_not(),
            **blocks,
        })  # fmt: skip
        return
    lines = list(_lines(found, measured))
    if driver.simulated():
        lines.append("cuda0 is a simulator: it does everything at once, in Python")
    reason = driver.why_not()
    if reason is not None:
        lines.append(f"no GPU: {reason}")
    emit("\n".join([*lines, "", "The blocks of a document:", block_text(blocks)]))


def _lines(found: Sequence[CudaDevice], measured: Mapping[int, Copies]) -> Iterator[str]:
    yield f"cpu      {_processor()}, {os.cpu_count()} cores"
    for device in found:
        parts = [device.name, f"capability {device.capability[0]}.{device.capability[1]}"]
        if device.memory is not None and device.free is not None:
            parts.append(f"{size_text(device.memory)}, {size_text(device.free)} free")
        if device.copy_engines is not None:
            parts.append(f"copy engines: {device.copy_engines}")
        yield f"cuda{device.number}    {', '.join(parts)}"
        copies = measured[device.number]
        yield from (f"         {_call(call)}" for call in copies.calls)
        if copies.upload is not None and copies.inside is not None:
            yield (
                f"         upload from pinned memory {copies.upload / 1e9:.1f} GB/s; copy in its "
                f"own memory {copies.inside / 1e9:,.0f} GB/s, read and written"
            )


def _call(call: Call) -> str:
    way = "from" if call.direction == "upload" else "to"
    return (
        f"{call.direction} of {size_text(call.bytes)} {way} {call.host} memory: {call.contract}: "
        f"{_MEANING[call.contract]} ({call.returned * 1e3:.2f} ms; the stream was busy for "
        f"{call.busy * 1e3:.0f} ms)"
    )


def _processor() -> str:
    return platform.processor() or platform.machine()


def block_text(blocks: Mapping[str, Any]) -> str:
    """The blocks as JSON, a line for each capability pattern."""
    import json

    lines = ["{", f'  "memories": {json.dumps(blocks["memories"])},', '  "devices": [']
    for device in blocks["devices"]:
        rest = {key: value for key, value in device.items() if key != "ops"}
        ops = ",\n".join(f"      {json.dumps(one)}" for one in device["ops"])
        ending = "" if device is blocks["devices"][-1] else ","
        lines.append(f'    {json.dumps(rest)[:-1]}, "ops": [\n{ops}\n    ]}}{ending}')
    return "\n".join([*lines, "  ]", "}"])
