"""Which input of a split a source stands for that the log shows as a copy.

The name of a copy is ``DEVICE#TENSOR#c``, cut to 20 characters: for a device with a long name
nothing is left of the tensor's.  But ggml lists the inputs of a split in the order in which its
nodes first read them, so that the lists explain each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .llama_rows import Operand


@dataclass(frozen=True, slots=True)
class Copied:
    """A tensor that has a copy on a device: its name in the schedule, and as listed."""

    tensor: str
    listed: Operand


@dataclass(frozen=True, slots=True)
class Choice:
    """What a copy stands for; ``certain``: the log admits nothing else.  ``None``: nothing."""

    tensor: str | None
    certain: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A source that is shown as a copy: of a node with that op, in that slot."""

    operand: Operand
    op: str
    slot: int


#: What llama.cpp calls tensors of one purpose, and the operands that have this purpose.
_PURPOSES = {
    "inp_pos": (("rope", 1),),
    "_idxs": (("set_rows", 1),),
    "_mask": (("flash_attn", 3), ("soft_max", 1)),
    "out_ids": (("get_rows", 1),),
    "cache_": (("flash_attn", 1), ("flash_attn", 2), ("mul_mat", 0), ("mul_mat", 1), ("cont", 0)),
}


def matches(shown: Operand, device: str, copied: Copied) -> bool:
    """Whether a source that is shown can be the device's copy of that tensor."""
    name = f"{device}#{copied.listed.name}#"
    if copied.listed.size != shown.size:
        return False
    if shown.cut and len(name) >= len(shown.name):
        return name.startswith(shown.name)
    return shown.name.startswith(name) and shown.name[len(name) :].isdigit()


def explain(
    shown: Sequence[Shown], device: str, earlier: Sequence[Copied], inputs: Sequence[Copied]
) -> list[Choice]:
    """For each copy that a split's nodes read, in order, what it is a copy of.

    ``earlier``: copied by earlier splits of the device; ``inputs``: listed by this one.  Of
    several readings of the list that introduce every input in its turn, one is taken in which
    the fewest operands have a name of another purpose.  If there is none (lines are missing),
    each copy is taken by its name alone.
    """
    rest = _completions(shown, device, earlier, inputs)
    if 0 not in rest[0]:
        return [_alone(s, device, [*inputs, *reversed(earlier)]) for s in shown]
    reached, chosen, result = {0}, 0, []
    for i, source in enumerate(shown):
        after = rest[i + 1]
        possible = [
            step
            for count in reached
            for step in _steps(source, count, device, earlier, inputs)
            if step.then in after
        ]
        steps = [
            step for step in _steps(source, chosen, device, earlier, inputs) if step.then in after
        ]
        best = min(steps, key=lambda step: step.cost + after[step.then])
        result.append(Choice(best.tensor, len({step.tensor for step in possible}) == 1))
        reached, chosen = {step.then for step in possible}, best.then
    return result


@dataclass(frozen=True, slots=True)
class _Step:
    """One reading of a source; ``then``: the number of inputs that have been read after it."""

    tensor: str
    then: int
    cost: int


def _completions(
    shown: Sequence[Shown], device: str, earlier: Sequence[Copied], inputs: Sequence[Copied]
) -> list[dict[int, int]]:
    """Before each source: from which numbers of inputs the rest can be read, and the cost."""
    rest = [{len(inputs): 0}]
    for source in reversed(shown):
        before: dict[int, int] = {}
        for count in range(len(inputs) + 1):
            steps = _steps(source, count, device, earlier, inputs)
            costs = [s.cost + rest[-1][s.then] for s in steps if s.then in rest[-1]]
            if costs:
                before[count] = min(costs)
        rest.append(before)
    return rest[::-1]


def _steps(
    source: Shown, count: int, device: str, earlier: Sequence[Copied], inputs: Sequence[Copied]
) -> list[_Step]:
    """What the source may be after ``count`` inputs: the next one, or one that is copied."""
    known = [(c, count) for c in [*reversed(inputs[:count]), *reversed(earlier)]]
    if count < len(inputs):
        known.insert(0, (inputs[count], count + 1))
    return [
        _Step(c.tensor, then, _cost(source, c.listed.name))
        for c, then in known
        if matches(source.operand, device, c)
    ]


def _cost(source: Shown, name: str) -> int:
    """1 if the name is that of a tensor for other operands than this one."""
    for word, operands in _PURPOSES.items():
        if word in name:
            return int((source.op.lower(), source.slot) not in operands)
    return 0


def _alone(source: Shown, device: str, known: Sequence[Copied]) -> Choice:
    found = [c for c in known if matches(source.operand, device, c)]
    found.sort(key=lambda c: _cost(source, c.listed.name))
    tensors = list(dict.fromkeys(c.tensor for c in found))
    return Choice(tensors[0] if tensors else None, len(tensors) == 1)
