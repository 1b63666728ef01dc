"""What the driver says when something is missing, too hard or too large; and its options."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
from splitproof.model.document import digest, from_dict
from splitproof.model.report import Kind, Verdict
from splitproof.verify.check import NotAProgram, Options, check
from splitproof.verify.obligation import Judge

Document = dict[str, Any]


def document() -> Document:
    """``y = custom(copy of x)`` on an asynchronous device; right as it stands."""
    return {
        "format": "splitproof/1",
        "symbols": {"n": [1, 8]},
        "memories": {"host": {"host": True}, "v": {}},
        "devices": [
            {
                "name": "gpu",
                "memory": "v",
                "reads": ["v"],
                "async": True,
                "copy": "stream",
                "queues": ["compute", "copy"],
            },
            {"name": "cpu", "memory": "host", "reads": ["host"]},
        ],
        "buffers": {},
        "tensors": {
            "x": {"dtype": "f32", "shape": [4, "n"], "input": True},
            "y": {"dtype": "f32", "shape": [4, "n"], "output": True},
        },
        "nodes": [{"op": "custom", "dst": "y", "src": ["x"]}],
        "assignment": {"y": "gpu"},
        "splits": [{"device": "gpu", "nodes": [0, 1], "inputs": ["x"]}],
        "program": [
            {"do": "set_input", "tensor": "x"},
            {"do": "copy", "src": "x", "dst": "gpu#x", "queue": "gpu.compute", "split": 0},
            {"do": "compute", "node": "y", "split": 0},
            {"do": "sync_queue", "queue": "gpu.compute"},
            {"do": "get_output", "tensor": "y"},
        ],
        "repeat": 2,
    }


def changed(**parts: Any) -> Document:
    result = copy.deepcopy(document())
    result.update(parts)
    return result


def without(*indexes: int) -> Document:
    result = document()
    result["program"] = [c for i, c in enumerate(result["program"]) if i not in indexes]
    return result


def test_proved_says_what_it_covers() -> None:
    report = check(from_dict(document()))
    assert report.verdict is Verdict.PROVED
    assert (report.passes, report.regimes, report.commands) == (2, 1, 10)
    assert report.obligations > 10
    assert report.digest == digest(from_dict(document()))
    assert "the sizes of the symbols are the same in all passes" in report.assumptions
    assert report.crossing == ((0, "host", "v", 4 * 4 * 8),)


def test_no_wait_before_the_output_is_a_race() -> None:
    report = check(from_dict(without(3)))
    assert report.verdict is Verdict.VIOLATED
    assert {f.rule for f in report.findings} == {"OR001", "PP002"}


def test_a_program_that_does_nothing_is_not_proved() -> None:
    empty = without(1, 2, 3)
    assert {f.rule for f in check(from_dict(empty)).findings} == {"PL007", "OR003"}
    assert check(from_dict(without(0, 1, 2, 3, 4))).verdict is Verdict.VIOLATED


def test_a_schedule_that_owes_nobody_anything_says_so() -> None:
    silent = without(1, 2, 3, 4)
    del silent["tensors"]["y"]["output"]
    report = check(from_dict(silent))
    assert report.verdict is Verdict.PROVED
    assert "nothing is an output: no node has to be computed" in report.assumptions
    assert not any("no node" in line for line in check(from_dict(document())).assumptions)


def test_a_split_level_schedule_is_refused() -> None:
    split = document()
    del split["program"]
    with pytest.raises(NotAProgram, match="lower"):
        check(from_dict(split))


def test_what_another_kernel_reads_past_its_source_is_not_called_proved() -> None:
    wide = document()
    wide["devices"][0]["over_read"] = {"custom": {"f32": 512}}
    report = check(from_dict(wide))
    assert report.verdict is Verdict.UNSUPPORTED
    assert report.gaps[0].place == "$.devices[0].over_read.custom"


def test_a_time_limit_gives_unknown() -> None:
    report = check(from_dict(document()), Options(seconds=0.0))
    assert report.verdict is Verdict.UNKNOWN
    assert "time limit" in report.gaps[0].reason


def halves(symbolic: bool) -> Document:
    """Two writers of one base; the second rewrites rows of ``n`` elements at a stride of 8."""
    size: Any = "n" if symbolic else 4
    doc = changed(
        tensors={
            "x": {"dtype": "f32", "shape": [8, 4], "input": True},
            "rows": {
                "dtype": "f32",
                "shape": [size, 4],
                "strides": [4, 32],
                "view_of": "x",
                "offset": 0,
            },
            "y": {"dtype": "f32", "shape": [size, 4], "output": True},
        },
        nodes=[
            {"op": "view", "dst": "rows", "src": ["x"]},
            {"op": "custom", "dst": "y", "src": ["rows"]},
        ],
        splits=[{"device": "gpu", "nodes": [0, 2], "inputs": ["rows"]}],
        assignment={"y": "gpu", "rows": "cpu"},
    )
    doc["program"][1].update(src="rows", dst="gpu#rows")
    return doc


def test_strided_rows_are_copied_byte_for_byte() -> None:
    fixed = halves(symbolic=False)
    fixed["assignment"] = {"y": "gpu", "rows": "gpu"}
    assert check(from_dict(fixed)).verdict is Verdict.PROVED


def test_where_a_stride_hangs_on_a_symbol_each_value_is_tried() -> None:
    doc = halves(symbolic=True)
    doc["assignment"] = {"y": "gpu", "rows": "gpu"}
    report = check(from_dict(doc))
    assert report.verdict is Verdict.PROVED
    assert report.regimes > 8  # the symbolic try, then n = 1 … 8


def test_too_many_values_are_unknown_not_proved() -> None:
    doc = halves(symbolic=True)
    doc["assignment"] = {"y": "gpu", "rows": "gpu"}
    doc["symbols"] = {"n": [1, 8], "m": [1, 1000]}
    report = check(from_dict(doc))
    assert report.verdict is Verdict.UNKNOWN
    assert "8000 values" in report.gaps[0].reason


def test_a_view_at_an_unknown_place_of_a_written_base_is_judged_by_order() -> None:
    doc = document()
    doc["tensors"]["part"] = {"dtype": "f32", "shape": [2], "view_of": "x", "about": True}
    doc["nodes"][0]["src"] = ["x", "part"]
    doc["splits"][0]["inputs"] = ["x", "part"]
    doc["program"].insert(
        2, {"do": "copy", "src": "part", "dst": "gpu#part", "queue": "gpu.compute", "split": 0}
    )
    assert check(from_dict(doc)).verdict is Verdict.PROVED
    late = copy.deepcopy(doc)
    late["program"].insert(0, late["program"].pop(2))  # the part is copied before it is set
    assert check(from_dict(late)).verdict is Verdict.UNKNOWN


def test_a_view_at_an_unknown_place_of_a_base_that_nobody_writes_is_not_proved() -> None:
    doc = document()
    doc["tensors"]["spare"] = {"dtype": "f32", "shape": [4]}
    doc["tensors"]["part"] = {"dtype": "f32", "shape": [2], "view_of": "spare", "about": True}
    doc["nodes"][0]["src"] = ["x", "part"]
    doc["splits"][0]["inputs"] = ["x", "part"]
    doc["program"].insert(
        2, {"do": "copy", "src": "part", "dst": "gpu#part", "queue": "gpu.compute", "split": 0}
    )
    assert check(from_dict(doc)).verdict is Verdict.UNKNOWN


def test_ignored_and_selected_rules() -> None:
    broken = from_dict(without(3))
    ignored = check(broken, Options(ignore={"OR001": "known", "PP002": "known"}))
    assert ignored.verdict is Verdict.VIOLATED  # ignored is not proved
    assert not ignored.failures
    assert {f.suppressed for f in ignored.findings} == {"known"}
    one = check(broken, Options(only=["PL001"]))
    assert one.verdict is Verdict.PROVED
    assert "only the rules PL001" in one.assumptions[-1]
    assert not one.digest  # so that nobody can certify the whole by it
    with pytest.raises(ValueError, match="XX999"):
        check(broken, Options(only=["XX999"]))


def test_narrower_symbols() -> None:
    schedule = from_dict(document())
    narrow = check(schedule, Options(symbols={"n": (2, 3)}))
    assert narrow.crossing[0][3] == 4 * 4 * 3
    assert not narrow.digest
    with pytest.raises(ValueError, match=r"within the declared 1\.\.8"):
        check(schedule, Options(symbols={"n": (0, 3)}))
    with pytest.raises(ValueError, match="no symbol 'k'"):
        check(schedule, Options(symbols={"k": (0, 3)}))


def test_guards_make_regimes() -> None:
    doc = document()
    doc["program"][3]["when"] = "n <= 3"
    report = check(from_dict(doc))
    assert report.regimes == 2
    assert report.verdict is Verdict.VIOLATED
    shown = report.findings[0].counterexample
    assert shown is not None
    assert dict(shown.symbols)["n"] == 4  # the smallest without the wait


def test_a_cost_is_no_failure() -> None:
    doc = document()
    doc["tensors"] |= {
        "w": {"dtype": "f32", "shape": [4, 4, 2], "buffer": "weights", "offset": 0},
        "x": {"dtype": "f32", "shape": [4, 1, "n"], "input": True},
        "ids": {"dtype": "i32", "shape": [1, "n"], "input": True, "values": [0, 2]},
        "y": {"dtype": "f32", "shape": [4, 1, "n"], "output": True},
    }
    doc["buffers"] = {"weights": {"memory": "host", "usage": "weights", "bytes": 128}}
    doc["nodes"] = [{"op": "mul_mat_id", "dst": "y", "src": ["w", "x", "ids"]}]
    doc["splits"][0]["inputs"] = ["x", "ids", "w"]
    doc["program"][0:1] = [{"do": "set_input", "tensor": name} for name in ("x", "ids")]
    doc["program"][3:3] = [
        {"do": "copy", "src": name, "dst": f"gpu#{name}", "queue": "gpu.compute", "split": 0}
        for name in ("ids", "w")
    ]
    report = check(from_dict(doc))
    assert [(f.rule, f.kind) for f in report.findings] == [("CO001", Kind.COST)]
    assert report.verdict is Verdict.PROVED
    assert not report.failures


def test_what_a_check_made_is_gone_without_the_cycle_collector() -> None:
    schedule = from_dict(document())
    gc.collect()
    gc.disable()
    try:
        assert check(schedule).verdict is Verdict.PROVED
        assert not any(isinstance(found, Judge) for found in gc.get_objects())
    finally:
        gc.enable()


def test_progress_begins_with_the_footprints() -> None:
    told: list[tuple[int, int]] = []
    check(from_dict(document()), Options(progress=lambda done, total: told.append((done, total))))
    commands = 5 * 2
    assert told[:commands] == [(done, commands) for done in range(commands)]
    assert told[commands][0] == 0  # of the reads
