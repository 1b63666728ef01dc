"""What a debug log shows to be costly or wrong: the small log with a few lines changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from splitproof.api import check
from splitproof.model.read.llama_log import read_log
from splitproof.model.report import Report

TEXT = (Path(__file__).parents[2] / "docs" / "examples" / "small.log").read_text()
ROUTER = "node #  4 (   ARGSORT):    ffn_moe_argsort-0 (   2K) [ GPU0         ]"

#: The prompt's splits behind it.
LATER = ((2, "GPU0 # 1 inputs: [blk"), (3, "CPU # 1 inputs: [ffn_moe_gate-0 ( 512K)"))


def prompt_and_decode(*changes: tuple[str, str]) -> tuple[Report, Report]:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    prompt, decode = (check(schedule) for schedule in read_log(text.splitlines()).schedules)
    return prompt, decode


def through_the_cpu(op: str) -> tuple[tuple[str, str], ...]:
    """A node on the CPU between two of the prompt's splits on the device, and later numbers."""
    line = next(line for line in TEXT.splitlines() if line.startswith(ROUTER))
    later = [(f"#{n}: {rest}", f"#{n + 2}: {rest}") for n, rest in LATER]
    return *later, (line, "\n".join([
        "",
        "## SPLIT #2: CPU # 1 inputs: [ffn_norm-0 ( 256K)] ",
        f"node #  4 ({op:>10}):               norm-1 ( 256K) [  CPU         ] use=1,c=1:"
        "     CPU#ffn_norm-0#0 ( 256K) [ NULL         ]",
        "",
        "## SPLIT #3: GPU0 # 1 inputs: [norm-1 ( 256K)] ",
        f"{ROUTER.replace('#  4', '#  5')} use=1,c=1:     GPU0#norm-1#0 ( 256K) [ NULL         ]",
    ]))  # fmt: skip


def test_the_small_log_costs_its_experts_and_nothing_else() -> None:
    prompt, decode = prompt_and_decode()
    assert [f.rule for f in prompt.findings] == ["CO001"]
    assert decode.findings == ()


def test_an_op_that_the_device_runs_elsewhere_need_not_leave_it() -> None:
    prompt, _ = prompt_and_decode(*through_the_cpu("RMS_NORM"))
    (found,) = (f for f in prompt.findings if f.rule == "CO003")
    assert found.place == "$.splits[2]"
    assert dict(found.evidence)["bytes that cross for them in each pass"] == 2 * 256 * 1024
    assert prompt.verdict == "unknown"


@pytest.mark.parametrize("op", ["SOFT_MAX", "GET_ROWS"])
def test_of_an_op_that_the_device_runs_nowhere_nothing_is_said(op: str) -> None:
    prompt, _ = prompt_and_decode(*through_the_cpu(op))
    assert {f.rule for f in prompt.findings} == {"CO001"}


#: The decode's CPU split reads a result of the device without a copy, and copies another.
MISSING = (
    (" [ffn_moe_topk-0 (   0K)] ", " "),
    ("## SPLIT #2: CPU # 2 inputs", "## SPLIT #2: CPU # 1 inputs"),
    (
        "CPU#ffn_moe_topk-0#0 (   0K) [ NULL         ]",
        "    ffn_moe_logits-0 (   0K) [ GPU0         ]",
    ),
)


def test_a_result_that_is_read_in_place_where_others_are_copied_is_a_missing_input() -> None:
    prompt, decode = prompt_and_decode(*MISSING)
    assert prompt.verdict == "unknown"
    assert decode.verdict == "violated"
    assert [f.rule for f in decode.findings] == ["PL002", "PL004"]
    assert "ffn_moe_logits-0" in decode.findings[1].message
    assert decode.findings[1].place == "$.splits[2].inputs"


def test_a_device_that_copies_nothing_from_another_reads_there() -> None:
    """The same line, where the split copies no result of the device at all."""
    alone = (
        "## SPLIT #2: CPU # 1 inputs: [ffn_norm-0 (reshaped) (   4K)] ",
        "## SPLIT #2: CPU # 0 inputs",
    )
    direct = (
        "CPU#ffn_norm-0 (resh (   4K) [ NULL         ]",
        "          ffn_norm-0 (   4K) [ GPU0         ]",
    )
    _, decode = prompt_and_decode(*MISSING, alone, direct)
    assert decode.verdict == "unknown" and decode.findings == ()
