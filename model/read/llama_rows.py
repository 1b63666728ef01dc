"""What a debug log says, line by line: splits, nodes, operands, copies that were made.

ggml prints a node as ``node #  7 (MUL_MAT): NAME ( 64K) [  CPU 1.wgt0] use=1,c=1:`` and then its
sources in the same form; names are cut to 20 characters and devices to five, sizes are rounded
down to KiB or MiB.  The cause and the use count are absent in some builds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..device import HOST

#: Characters that ggml prints of the name of a node or source (some builds: more), and of a
#: device there.
NAME_WIDTH, DEVICE_WIDTH = 20, 5
#: What a tensor is called of whose name nothing is left.
UNNAMED = "unnamed"
#: What stands for the device of a copy: the scheduler has not assigned it.
NO_DEVICE = "NULL"

_SIZE = r"\(\s*(\d{1,5}[KM]?)\)"
_PLACE = r"\[([^\]\n]{0,40})\]"
HEADER = re.compile(r"## SPLIT #(\d{1,9}): (\S.{0,79}?) # (\d{1,9}) inputs")
HEAD = re.compile(
    rf"node #\s*(\d{{1,9}}) \(\s*(\S[^)]{{0,9}})\):(.{{1,40}}?) {_SIZE} {_PLACE}"
    r"(?: use=-?\d+,c=\d+)?:"
)
SOURCE = re.compile(rf"(.*?) {_SIZE} {_PLACE}")
INPUT = re.compile(rf"\[(.*?) {_SIZE}\]")
TRACE = re.compile(
    r"TRACE split (\d{1,9}) input (\d{1,9}): (?:"
    r"(COPY|INPUT) (.+) \((.+?) -> (.+?)\) (\d{1,18}) bytes"
    r"|(EXPERTS) copy of (.+) \((.+?) -> (.+?)\): used .*\bfull (\d{1,18}))"
)
PHASE = re.compile(r"### PHASE (\w+)(?:.*?\bn_tokens=(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Size:
    """A size as printed: at least ``bytes``, and less than ``step`` bytes more."""

    bytes: int
    step: int

    @staticmethod
    def of(text: str) -> Size:
        """From ``64K``, ``16M``; five digits have lost their unit, which can only be M."""
        step = 1024 if text.endswith("K") else 1024 * 1024
        return Size(int(text.rstrip("KM")) * step, step)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as a line shows it: ``name`` and ``device`` as printed, perhaps cut.

    ``cause``: the tag after the device that some builds print (``1.inp``, ``4.cpy``, …).
    ``cut``: there may be more of the name than is shown.
    """

    name: str
    size: Size
    device: str = ""
    cause: str = ""
    cut: bool = False

    @property
    def copy(self) -> bool:
        """Whether it is the copy of a split's input."""
        return self.device == NO_DEVICE or self.cause == "4.cpy"


def is_device(name: str) -> bool:
    """Whether a device can have that name in a schedule; what is damaged has others."""
    return bool(name) and "#" not in name and name not in (HOST, NO_DEVICE)


def operand(name: str, size: str, place: str, width: int) -> Operand:
    """From the three fields; the name is padded on its left and cut on its right."""
    fixed = len(place) > DEVICE_WIDTH and place[DEVICE_WIDTH] == " "
    device = place[:DEVICE_WIDTH].strip() if fixed else place.strip().partition(" ")[0]
    cause = place[DEVICE_WIDTH:].strip() if fixed else place.strip().partition(" ")[2].strip()
    name = name[-width:].lstrip()
    cut = len(name) >= width
    return Operand(name or UNNAMED, Size.of(size), device[:DEVICE_WIDTH], cause, cut)


@dataclass(slots=True)
class NodeRow:
    """A node with the sources that were read."""

    number: int
    op: str
    result: Operand
    line: int
    sources: list[Operand] = field(default_factory=list)


@dataclass(slots=True)
class SplitRow:
    """A split.  ``number`` and ``due`` (inputs) are ``None`` if its header was not read."""

    number: int | None
    device: str
    due: int | None
    line: int
    inputs: list[Operand] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    unread: bool = False


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A copy that was made; ``kind``: COPY, INPUT or EXPERTS; ``bytes``: of the whole tensor."""

    split: int
    input: int
    kind: str
    tensor: str
    source: str
    target: str
    bytes: int


@dataclass(slots=True)
class GraphRows:
    """One graph.  ``reserved``: built to measure memory, not executed.

    ``phase``: ``init``, ``prompt`` or ``decode`` where a marker says so.  ``unread``: lines of
    it that could not be read.
    """

    line: int
    reserved: bool = False
    phase: str = ""
    tokens: int | None = None
    splits: list[SplitRow] = field(default_factory=list)
    traces: list[TraceRow] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    cut_off: bool = False

    @property
    def nodes(self) -> list[NodeRow]:
        return [node for split in self.splits for node in split.nodes]

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing: splits from 0 on, and each input listed."""
        numbers = [split.number for split in self.splits]
        return (
            bool(self.nodes)
            and not self.unread
            and not self.cut_off
            and numbers == list(range(len(numbers)))
            and all(split.due == len(split.inputs) for split in self.splits)
        )


@dataclass(slots=True)
class Told:
    """What messages all over the file say, outside of the graphs.

    ``names``: full names; ``weights``: tensors of the model; ``inputs``: set by the user;
    ``devices``: full names in order of appearance; ``copies``: the scheduler's ``n_copies``;
    ``width``: characters that are shown of a name.
    """

    names: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    devices: dict[str, None] = field(default_factory=dict)
    copies: int = 1
    width: int = NAME_WIDTH
