"""Which input of a split a source stands for that the log shows as a copy.

The name of a copy is ``DEVICE#TENSOR#c``, cut to 20 characters: for a device with a long name
nothing is left of the tensor's.  But ggml lists the inputs of a split in the order in which its
nodes first read them, so that the lists explain each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .llama_rows import NAME_WIDTH, Operand


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


def matches(shown: Operand, device: str, copied: Copied) -> bool:
    """Whether a source that is shown can be the device's copy of that tensor."""
    name = f"{device}#{copied.listed.name}#"
    if copied.listed.size != shown.size:
        return False
    if len(name) >= NAME_WIDTH:
        return shown.name == name[:NAME_WIDTH]
    return shown.name.startswith(name) and shown.name[len(name) :].isdigit()


def explain(
    shown: Sequence[Operand], device: str, earlier: Sequence[Copied], inputs: Sequence[Copied]
) -> list[Choice]:
    """For each copy that a split's nodes read, in order, what it is a copy of.

    ``earlier``: copied by earlier splits of the device; ``inputs``: listed by this one.  If no
    reading of the list introduces every input in its turn (lines are missing), each copy is
    taken by its name alone.
    """
    after = _completions(shown, device, earlier, inputs)
    if 0 not in after[0]:
        return [_alone(s, device, [*inputs, *reversed(earlier)]) for s in shown]
    reached, chosen, result = {0}, 0, []
    for i, source in enumerate(shown):
        options: set[str] = set()
        following: set[int] = set()
        for count in reached:
            for tensor, then in _steps(source, count, device, earlier, inputs):
                if then in after[i + 1]:
                    options.add(tensor)
                    following.add(then)
        # An input that is due comes first: it must be read by somebody.
        steps = _steps(source, chosen, device, earlier, inputs)
        tensor, chosen = next(step for step in steps if step[1] in after[i + 1])
        result.append(Choice(tensor, len(options) == 1))
        reached = following
    return result


def _completions(
    shown: Sequence[Operand], device: str, earlier: Sequence[Copied], inputs: Sequence[Copied]
) -> list[set[int]]:
    """Before each source: numbers of inputs read so far from which all can still be read."""
    after = [{len(inputs)}]
    for source in reversed(shown):
        before = {
            count
            for count in range(len(inputs) + 1)
            for _, then in _steps(source, count, device, earlier, inputs)
            if then in after[-1]
        }
        after.append(before)
    return after[::-1]


def _steps(
    source: Operand, count: int, device: str, earlier: Sequence[Copied], inputs: Sequence[Copied]
) -> list[tuple[str, int]]:
    """``(tensor, inputs read then)`` of what the source may be after ``count`` inputs."""
    steps = []
    if count < len(inputs) and matches(source, device, inputs[count]):
        steps.append((inputs[count].tensor, count + 1))
    known = [*reversed(inputs[:count]), *reversed(earlier)]
    steps += [(c.tensor, count) for c in known if matches(source, device, c)]
    return steps


def _alone(source: Operand, device: str, known: Sequence[Copied]) -> Choice:
    found = list(dict.fromkeys(c.tensor for c in known if matches(source, device, c)))
    return Choice(found[0] if found else None, len(found) == 1)
