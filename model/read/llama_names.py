"""Tensors of a graph by what a debug log shows of them: cut names, rounded sizes, devices.

ggml's names are not unique, views have no line of their own, and only the lists of inputs show
names whole.  A source is taken for the latest result that looks like it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .llama_rows import DEVICE_WIDTH, GraphRows, NodeRow, Operand, Size, Told

#: The device that ggml's scheduler always has, as the last one; its memory is the host's.
CPU = "CPU"
#: Devices that compute in the host's memory, on the thread that asks for it.
ON_HOST = (CPU, "BLAS")
#: What ggml adds to the name of a view, also where it is cut off.
_VIEW_SUFFIX = re.compile(r"^(.*\S) \((?:view|reshaped|permuted|transposed)\)$")
_CUT_SUFFIX = re.compile(r"^(.*\S) (?:\(([a-z]*))?$")
_VIEW_WORDS = ("view", "reshaped", "permuted", "transposed")
#: The ops whose result is a view of that source.
_TARGETS = {"set_rows": 2, "cpy": 1}


@dataclass(slots=True)
class Known:
    """A tensor of the schedule.  ``node``: the number of the node that computes it.

    ``device``: full name, ``None`` if the log does not tell; ``base``: what it is a view of;
    ``bytes``: the exact size, if it is told.
    """

    name: str
    title: str
    size: Size
    device: str | None
    node: int | None = None
    base: str | None = None
    input: bool = False
    bytes: int | None = None


class Names:
    """The tensors of one graph; they are made when they are first seen."""

    def __init__(self, graph: GraphRows, told: Told, devices: Iterable[str]) -> None:
        self.told = told
        self.devices = tuple(devices)
        self.tensors: dict[str, Known] = {}
        self.assumed: set[tuple[int, str]] = set()
        self.placed: set[str] = set()
        #: names that turned out to be longer, after nodes had been given them
        self.renamed: dict[str, str] = {}
        self._results: dict[str, list[Known]] = {}
        self._others: dict[tuple[str, Size, str | None], list[Known]] = {}
        self._full: dict[str, list[str]] = {}
        for name in sorted(told.names):
            self._full.setdefault(name[: told.width], []).append(name)
        #: direct sources by the whole name, as far as it is known: leaves among them
        self._mentions: dict[str, Operand] = {}
        for node in graph.nodes:
            for source in node.sources:
                if not source.copy:
                    self._mentions.setdefault(self.title(source), source)
        self._inputs = told.inputs | {t.tensor for t in graph.traces if t.kind == "INPUT"}

    # -- names and devices ----------------------------------------------------------------------

    def title(self, shown: Operand) -> str:
        """The whole name, if only one that is known begins as the one shown.

        Not if the number of a layer was cut off, or a mark of a view: names that differ there
        may never be shown whole.
        """
        known = self._full.get(shown.name, []) if shown.cut else []
        if len(known) != 1 or re.search(r"\d| \(", known[0][len(shown.name) :]):
            return shown.name
        return known[0]

    def device(self, shown: str, here: str) -> str | None:
        """The device of which five characters are shown, to a node on device ``here``.

        Where two begin alike it is ``here``: what lies elsewhere would be shown as a copy.
        """
        found = [d for d in self.devices if d[:DEVICE_WIDTH].strip() == shown]
        if len(found) > 1:
            return here if here in found else None
        return found[0] if found else None

    def _unique(self, title: str, number: int | None) -> str:
        taken = {*self.renamed.values()}
        name = title
        if name in self.tensors or name in taken:
            name = f"{title}@{number}"
        while name in self.tensors or name in taken:
            name = f"{name}@{len(self.tensors)}"
        return name

    # -- results --------------------------------------------------------------------------------

    def result(self, node: NodeRow, device: str, sources: list[str]) -> Known:
        """The tensor that a node computes; in place, it is a view."""
        title, base = self.title(node.result), None
        target = _TARGETS.get(node.op.lower())
        if target is not None and target < len(sources):
            base = sources[target]
        else:
            base = self._base(title, device, device)
        known = Known(
            self._unique(title, node.number), title, node.result.size, device, node.number, base
        )
        self.tensors[known.name] = known
        self._results.setdefault(title, []).append(known)
        if title != node.result.name:
            self._results.setdefault(node.result.name, []).append(known)
        return known

    # -- sources and inputs ---------------------------------------------------------------------

    def source(self, shown: Operand, node: int, here: str) -> str:
        """The tensor that a node reads where it lies."""
        title, device = self.title(shown), self.device(shown.device, here)
        found = [k for k in self._results.get(title, ()) if k.size == shown.size]
        found = [k for k in found if device in (None, k.device)]
        if found:
            if len(found) > 1:
                self.assumed.add((node, shown.name))
            return found[-1].name
        known = self._other(title, shown.size, device, here)
        known.input = known.input or shown.cause == "1.inp"
        return known.name

    def listed(
        self,
        shown: Operand,
        device: str,
        copied: set[str],
        origin: str | None,
        before: str | None,
    ) -> Known:
        """The tensor that a split of ``device`` lists as an input, with its whole name.

        A tensor is copied to a device once: one in ``copied`` is another with that name.
        ``origin``: the device that it comes from, if that is told; ``before``: the device other
        than the host that ran last.
        """
        cut = shown.name[: self.told.width]
        results = self._results.get(shown.name) or self._results.get(cut) or []
        found = [
            k
            for k in results
            if k.size == shown.size and k.device != device and k.name not in copied
            if k.title in (shown.name, cut)
            if origin in (None, k.device)
        ]
        if found:
            if len(found) > 1:
                self.assumed.add((found[-1].node or 0, shown.name))
            self._name_whole(found[-1], shown.name)
            return found[-1]
        mention = self._mentions.get(shown.name)
        if origin is None and mention is not None:
            origin = self.device(mention.device, "")
            origin = None if origin == device else origin
        known = self._other(shown.name, shown.size, origin, device, copied)
        if known.device is None:
            known.device = self._elsewhere(known.name, device, before)
        return known

    def _name_whole(self, known: Known, title: str) -> None:
        """A list of inputs shows the whole name of a result that was cut on its own line."""
        if known.title != title:
            self.renamed[known.name] = self._unique(title, known.node)
            self._results.setdefault(title, []).append(known)
            known.title = title

    def _elsewhere(self, name: str, device: str, before: str | None) -> str:
        """Where an input of a split of ``device`` lies: not there, or it would be no input.

        With three devices and more that is not certain.  A device's inputs come from the host
        then, and the host's from the last device that was at work.
        """
        others = [d for d in self.devices if memory_of(d) != memory_of(device)]
        if len({memory_of(d) for d in others}) > 1:
            self.placed.add(name)
        if memory_of(device) != CPU or not others:
            return CPU
        return before if before in others else others[0]

    def lost(self, shown: Operand, device: str) -> str:
        """A copy of which the log does not tell the original."""
        known = Known(self._unique(f"copy of unread: {shown.name}", None), "", shown.size, device)
        self.tensors[known.name] = known
        return known.name

    def _other(
        self,
        title: str,
        size: Size,
        device: str | None,
        here: str,
        copied: Iterable[str] = (),
    ) -> Known:
        """A tensor without a node of its own: a view, a weight, a user's input, a cache."""
        base = self._base(title, device, here)
        same = self._others.setdefault((title, size, base), [])
        for known in same:
            if known.name not in copied and (device is None or known.device in (None, device)):
                known.device = known.device or device
                return known
        if base is not None and device is None:
            device = self.tensors[base].device
        known = Known(
            self._unique(title, len(self.tensors)), title, size, device, None, base,
            base is None and title in self._inputs,
        )  # fmt: skip
        self.tensors[known.name] = known
        same.append(known)
        return known

    def _base(self, title: str, device: str | None, here: str) -> str | None:
        """What a tensor is a view of, as far as its name says it."""
        inner = _without_view(title, self.told.width)
        if inner is None:
            return None
        results = [k for k in self._results.get(inner, ()) if device in (None, k.device)]
        if results:
            return results[-1].name
        if (deeper := self._base(inner, device, here)) is not None:
            return deeper
        mention = self._mentions.get(inner)
        if mention is None:
            return None
        lies = self.device(mention.device, here)
        if device is not None and lies not in (None, device):
            return None
        return self._other(inner, mention.size, lies or device, here).name


def memory_of(device: str) -> str:
    """The memory of a device; each has one of its own, but for those that share the host's."""
    return CPU if device in ON_HOST else device


def _without_view(title: str, width: int) -> str | None:
    """The name without the last mark of a view; ``None`` if it has none."""
    if (found := _VIEW_SUFFIX.match(title)) is not None:
        return found[1]
    if len(title) != width or (found := _CUT_SUFFIX.match(title)) is None:
        return None
    return found[1] if any(word.startswith(found[2] or "") for word in _VIEW_WORDS) else None
