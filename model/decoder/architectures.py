"""The architectures that are known, and the graph of a model of one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from ..graph import Graph
from ..read.gguf import ModelError, ModelFile
from ..schedule import Schedule
from ..tensor import Tensor
from . import deepseek2, gpt_oss, llama, olmoe, qwen3moe
from .builder import Builder
from .keys import Keys
from .net import Batch, Net
from .site import Setting, Site

#: ``general.architecture`` → what builds its graph and returns the logits.
ARCHITECTURES: dict[str, Callable[[Net], Tensor]] = {
    "qwen3moe": qwen3moe.decoder,
    "olmoe": olmoe.decoder,
    "llama": llama.decoder,
    "deepseek2": deepseek2.decoder,
    "gpt-oss": gpt_oss.decoder,
}
#: Prefixes of tensors that may be in a file and that no graph of a decoder reads.
_UNREAD = ("rope_factors_", "rope_freqs.")

_HERE = Setting()


@dataclass(frozen=True, slots=True)
class Built:
    """``schedule``: at the graph level; its output is ``result_output``, ``[vocabulary,
    outputs]``.  ``loaded``: weights that are not read where the file is mapped, as ``(buffer,
    offset)``.  ``window``: width of the sliding window, 0 if there is none."""

    schedule: Schedule
    batch: Batch
    loaded: dict[str, tuple[str, int]]
    window: int


def build(
    model: ModelFile, batch: Batch, setting: Setting = _HERE, watch: Collection[str] = ()
) -> Built:
    """The graph of one pass over ``batch.tokens`` tokens.

    ``watch``: beginnings of the names of further tensors that are to be outputs.  ``ModelError``
    for an architecture, a key, a shape or a type that does not fit, and for a tensor that the
    architecture has no use for: its model would not be the one that the file holds.
    """
    if model.architecture not in ARCHITECTURES:
        raise ModelError(
            f"{model.path}: architecture {model.architecture} is not supported; known: "
            f"{', '.join(ARCHITECTURES)}"
        )
    site = Site(setting, model.size)
    builder = Builder(model, site)
    keys = Keys(model)
    ARCHITECTURES[model.architecture](Net(builder, keys, batch))
    _all_used(model, builder)
    tensors = tuple(
        replace(t, output=True) if t.name.startswith(tuple(watch)) and watch else t
        for t in builder.tensors.values()
    )
    graph = Graph(
        memories=setting.memories, devices=setting.devices, buffers=site.buffers(),
        tensors=tensors, nodes=tuple(builder.nodes),
    )  # fmt: skip
    name = f"{model.architecture}, {batch.tokens} tokens over {batch.cells} cells"
    window = keys.size("attention.sliding_window", 0, least=0)
    return Built(Schedule(graph, name), batch, site.loaded, window)


def _all_used(model: ModelFile, builder: Builder) -> None:
    for name in model.tensors:
        if name not in builder.used and not name.startswith(_UNREAD):
            raise ModelError(
                f"{model.path}: tensor {name} has no place in a {model.architecture} model as it "
                "is known here; its logits would be wrong"
            )
