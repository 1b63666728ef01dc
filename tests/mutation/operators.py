"""Small changes to a program-level document, one at a time, by kind.

Each operator is a function from a document to ``(what was changed, changed document)``.  Nothing
here looks at verdicts: an operator makes every change of its kind, harmless ones too.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from splitproof.model.device import Usage
from splitproof.model.document import from_dict
from splitproof.model.schedule import Schedule

Document = dict[str, Any]
Change = tuple[str, Document]
#: Tensors of a document up to which each pair of them is aliased.
MOST_PAIRED = 16


@dataclass(frozen=True, slots=True)
class Mutant:
    """``change``: in words.  ``document`` may be one that the reader refuses."""

    operator: str
    change: str
    document: Document


def mutants(document: Document, only: tuple[str, ...] = ()) -> Iterator[Mutant]:
    """Every mutant of a document, operator after operator."""
    for name, operator in OPERATORS.items():
        if not only or name in only:
            for change, mutated in operator(document):
                yield Mutant(name, change, mutated)


# -- commands ---------------------------------------------------------------------------------


def _drop(kinds: tuple[str, ...]) -> Callable[[Document], Iterator[Change]]:
    def operator(document: Document) -> Iterator[Change]:
        for index, command in enumerate(document["program"]):
            if command["do"] in kinds:
                yield f"{index}: {text(command)}", _without(document, {index})

    return operator


def drop_event(document: Document) -> Iterator[Change]:
    """All records and waits of an event."""
    program = document["program"]
    for event in dict.fromkeys(c["event"] for c in program if "event" in c):
        places = {i for i, c in enumerate(program) if c.get("event") == event}
        yield event, _without(document, places)


def swap_neighbours(document: Document) -> Iterator[Change]:
    for index in range(len(document["program"]) - 1):
        changed = copy.deepcopy(document)
        program = changed["program"]
        program[index : index + 2] = reversed(program[index : index + 2])
        yield f"{index}: {text(program[index + 1])} ↔ {text(program[index])}", changed


def drop_guard(document: Document) -> Iterator[Change]:
    for index, command in enumerate(document["program"]):
        if "when" in command:
            changed = copy.deepcopy(document)
            del changed["program"][index]["when"]
            yield f"{index}: {text(command)}", changed


def other_queue(document: Document) -> Iterator[Change]:
    """A copy, fill or compute on another queue of its device."""
    queues = {d["name"]: d.get("queues", ["compute"]) for d in document["devices"]}
    for index, command in enumerate(document["program"]):
        device, _, name = command.get("queue", "").rpartition(".")
        if command["do"] in ("sync_queue", "wait", "record") or device not in queues:
            continue
        for other in queues[device]:
            if other != name:
                changed = copy.deepcopy(document)
                changed["program"][index]["queue"] = f"{device}.{other}"
                yield f"{index}: {text(command)} on {other}", changed


# -- prefetches and copies ----------------------------------------------------------------------


def prefetch_earlier(document: Document) -> Iterator[Change]:
    """A transfer is issued at the start of the split before, with its record."""
    program = document["program"]
    for index, command in enumerate(program):
        split = command.get("split", 0)
        if command["do"] not in ("prefetch", "copy") or not split:
            continue
        start = next((i for i, c in enumerate(program) if c.get("split") == split - 1), None)
        if start is None or start >= index:
            continue
        changed = copy.deepcopy(document)
        moved = changed["program"].pop(index)
        moved |= {"do": "prefetch", "split": split - 1, "for_split": moved.get("for_split", split)}
        block = [moved]
        following = changed["program"][index] if index < len(changed["program"]) else {}
        if following.get("do") == "record" and following.get("queue") == moved["queue"]:
            block.append(changed["program"].pop(index))
        changed["program"][start:start] = block
        yield f"{index}: {text(command)} in split {split - 1}", changed


def mix_copy_index(document: Document) -> Iterator[Change]:
    """One command uses another copy of its input."""
    count = document.get("n_copies", 1)
    for index, command in enumerate(document["program"]):
        for key in ("copy", "src", "dst"):
            if key not in command or count < 2:
                continue
            changed = copy.deepcopy(document)
            if key == "copy":
                changed["program"][index][key] = (command[key] + 1) % count
            else:
                match = re.fullmatch(r"(.*#)(\d+)", command[key])
                if match is None:
                    continue
                other = (int(match[2]) + 1) % count
                changed["program"][index][key] = f"{match[1]}{other}"
            yield f"{index}: {text(command)}, {key}", changed


def shrink_ring(document: Document) -> Iterator[Change]:
    """The last of several rotating copies becomes the one before it."""
    last = document.get("n_copies", 1) - 1
    if last < 1:
        return
    changed = copy.deepcopy(document)
    changed["program"] = [_renumbered(command, last) for command in changed["program"]]
    yield f"{last + 1} → {last} copies", changed


def _renumbered(command: Document, last: int) -> Document:
    result = {
        key: re.sub(rf"#{last}$", f"#{last - 1}", value) if isinstance(value, str) else value
        for key, value in command.items()
    }
    if result.get("copy") == last:
        result["copy"] = last - 1
    return result


def shrink_bank(document: Document) -> Iterator[Change]:
    """One slot less in each bank of a group, and in the range of its slot ids."""
    banks = document.get("banks", {})
    for group in dict.fromkeys(bank["group"] for bank in banks.values()):
        changed = copy.deepcopy(document)
        for bank in changed["banks"].values():
            if bank["group"] != group or bank["slots"] < 2:
                continue
            entry = changed["tensors"].get(bank.get("slot_ids"), {})
            if entry.get("values") == [0, bank["slots"]]:
                entry["values"] = [0, bank["slots"] - 1]
            bank["slots"] -= 1
        if changed["banks"] != banks:
            yield group, changed


def weaken_contract(document: Document) -> Iterator[Change]:
    for index, device in enumerate(document["devices"]):
        for contract in ("sync", "staged", "unordered", "stream"):
            if device.get("copy", contract) != contract:
                changed = copy.deepcopy(document)
                changed["devices"][index]["copy"] = contract
                yield f"{device['name']}: {contract}", changed


# -- placement ----------------------------------------------------------------------------------


def change_device(document: Document) -> Iterator[Change]:
    for name, device in document.get("assignment", {}).items():
        for other in document["devices"]:
            if other["name"] != device:
                changed = copy.deepcopy(document)
                changed["assignment"][name] = other["name"]
                yield f"{name} on {other['name']}", changed


def change_split(document: Document) -> Iterator[Change]:
    """A whole split goes to another device, its nodes with it; its copies stay where they were."""
    for index, split in enumerate(document.get("splits", [])):
        for other in document["devices"]:
            if other["name"] == split["device"]:
                continue
            changed = copy.deepcopy(document)
            changed["splits"][index]["device"] = other["name"]
            for node in document["nodes"][slice(*split["nodes"])]:
                changed["assignment"][node["dst"]] = other["name"]
            yield f"{index} on {other['name']}", changed


def deny_op(document: Document) -> Iterator[Change]:
    """A device cannot run an op that it is given."""
    used = {
        (device, node["op"]): None
        for node in document["nodes"]
        if (device := document.get("assignment", {}).get(node["dst"])) is not None
    }
    for name, op in used:
        changed = copy.deepcopy(document)
        for device in changed["devices"]:
            if device["name"] == name:
                device["deny"] = [*device.get("deny", []), {"op": op}]
        yield f"{op} on {name}", changed


def forget_waits_for(document: Document) -> Iterator[Change]:
    """A device can wait for its own events only."""
    for index, device in enumerate(document["devices"]):
        if device.get("waits_for"):
            changed = copy.deepcopy(document)
            changed["devices"][index]["waits_for"] = []
            yield device["name"], changed


def shrink_buffer(document: Document) -> Iterator[Change]:
    """A buffer ends where its last tensor does, less one byte."""
    schedule = from_dict(document)
    ranges = schedule.graph.ranges
    for name in document.get("buffers", {}):
        ends = [
            (place.offset + schedule.tensor(tensor).data_bytes).bounds(ranges)[1]
            for tensor in _owners(schedule)
            if (place := schedule.location(tensor)).space == name
        ]
        if ends and max(ends) > 1:
            changed = copy.deepcopy(document)
            changed["buffers"][name]["bytes"] = max(ends) - 1
            yield name, changed


def widen_ids(document: Document) -> Iterator[Change]:
    """An integer tensor may hold one value more."""
    for name, entry in document["tensors"].items():
        if "values" in entry:
            changed = copy.deepcopy(document)
            changed["tensors"][name]["values"][1] += 1
            yield name, changed


def swap_ids(document: Document) -> Iterator[Change]:
    """A node reads the experts' own ids in the place of slot ids, or the other way round."""
    pairs = {b["slot_ids"]: b["ids"] for b in document.get("banks", {}).values() if "slot_ids" in b}
    pairs |= {ids: slots for slots, ids in pairs.items()}
    for index, node in enumerate(document["nodes"]):
        for place, source in enumerate(node.get("src", [])):
            if source in pairs:
                changed = copy.deepcopy(document)
                changed["nodes"][index]["src"][place] = pairs[source]
                yield f"{node['dst']}: {pairs[source]}", changed


def alias(document: Document) -> Iterator[Change]:
    """Two tensors of one memory begin at the same byte.  Two weights are left alone: bytes that
    weights share are shared in the sequential run too.  Of more than ``MOST_PAIRED`` tensors only
    those are paired that are declared next to each other."""
    schedule = from_dict(document)
    owners = _owners(schedule)
    pairs = combinations(owners, 2) if len(owners) <= MOST_PAIRED else pairwise(owners)
    for first, second in pairs:
        here, there = schedule.location(first), schedule.location(second)
        lasting = {Usage.WEIGHTS, Usage.ANY}
        if here.memory != there.memory or {here.usage, there.usage} <= lasting:
            continue
        if here.space == there.space and here.offset == there.offset:
            continue
        yield f"{first}, {second}", _aliased(document, schedule, first, second)


def _owners(schedule: Schedule) -> list[str]:
    """Tensors with bytes of known size, the copies that the program names included."""
    names = dict.fromkeys(t.name for t in schedule.graph.tensors if t.view_of is None)
    for command in schedule.program or ():
        for key in ("src", "dst"):
            name = getattr(command, key, None)
            if name is not None and schedule.tensor(name).view_of is None:
                names[name] = None
    mentioned = {t for n in schedule.graph.nodes for t in (n.dst, *n.src)} | set(names)
    return [n for n in names if n in mentioned and not schedule.tensor(n).about]


def _aliased(document: Document, schedule: Schedule, first: str, second: str) -> Document:
    changed = copy.deepcopy(document)
    here = schedule.location(first)
    ranges = schedule.graph.ranges
    sizes = [schedule.tensor(name).data_bytes.bounds(ranges)[1] for name in (first, second)]
    if here.usage is None:
        buffer = {"memory": here.memory, "usage": "compute", "bytes": max(sizes)}
        changed.setdefault("buffers", {})["aliased"] = buffer
        _place(changed, first, "aliased", 0)
        _place(changed, second, "aliased", 0)
        return changed
    offset: Any = here.offset.value({name: low for name, (low, _) in ranges.items()})
    changed["buffers"][here.space]["bytes"] += max(sizes)  # a fault of order, not of bounds
    _place(changed, second, here.space, offset)
    return changed


def _place(document: Document, name: str, buffer: str, offset: int) -> None:
    entry = document["tensors"].get(name)
    if entry is not None and "buffer" in entry:
        entry |= {"buffer": buffer, "offset": offset}
    else:
        document.setdefault("placements", {})[name] = [buffer, offset]


# -- callbacks and outputs ----------------------------------------------------------------------


def move_callback(document: Document) -> Iterator[Change]:
    """User code runs first, or last, in its pass."""
    for index, command in enumerate(document["program"]):
        if command["do"] == "callback":
            for place, word in ((0, "first"), (len(document["program"]) - 1, "last")):
                if place != index:
                    changed = copy.deepcopy(document)
                    changed["program"].insert(place, changed["program"].pop(index))
                    yield f"{index}: {text(command)} {word}", changed


def undeclared_callback(document: Document) -> Iterator[Change]:
    for index, command in enumerate(document["program"]):
        if command["do"] == "callback" and {"reads", "writes"} & set(command):
            changed = copy.deepcopy(document)
            for key in ("reads", "writes"):
                changed["program"][index].pop(key, None)
            yield f"{index}: {text(command)}", changed


def output_earlier(document: Document) -> Iterator[Change]:
    """An output is read before the wait, the compute, … that stands before it."""
    program = document["program"]
    for index, command in enumerate(program):
        if command["do"] != "get_output":
            continue
        places = [i for i in range(index) if program[i]["do"] != "get_output"]
        for place in places[-3:]:
            changed = copy.deepcopy(document)
            changed["program"].insert(place, changed["program"].pop(index))
            yield f"{index}: {text(command)} before {text(program[place])}", changed


# -- words --------------------------------------------------------------------------------------


def text(command: Document) -> str:
    """A command of a document in a few words."""
    names = [
        str(command[key])
        for key in ("node", "src", "dst", "tensor", "event", "name", "banks", "queue")
        if key in command
    ]
    return " ".join([command["do"], *names])


def _without(document: Document, places: set[int]) -> Document:
    changed = copy.deepcopy(document)
    changed["program"] = [c for i, c in enumerate(changed["program"]) if i not in places]
    return changed


OPERATORS: dict[str, Callable[[Document], Iterator[Change]]] = {
    "drop-event": drop_event,
    "drop-record": _drop(("record",)),
    "drop-wait": _drop(("wait",)),
    "drop-sync": _drop(("sync_event", "sync_queue")),
    "swap-neighbours": swap_neighbours,
    "other-queue": other_queue,
    "drop-guard": drop_guard,
    "shrink-ring": shrink_ring,
    "mix-copy-index": mix_copy_index,
    "shrink-bank": shrink_bank,
    "alias": alias,
    "prefetch-earlier": prefetch_earlier,
    "change-device": change_device,
    "change-split": change_split,
    "deny-op": deny_op,
    "forget-waits-for": forget_waits_for,
    "shrink-buffer": shrink_buffer,
    "widen-ids": widen_ids,
    "swap-ids": swap_ids,
    "other-contract": weaken_contract,
    "drop-input": _drop(("set_input",)),
    "drop-copy": _drop(("copy", "prefetch", "copy_experts", "fill_bank")),
    "drop-compute": _drop(("compute",)),
    "move-callback": move_callback,
    "undeclared-callback": undeclared_callback,
    "output-earlier": output_earlier,
}
