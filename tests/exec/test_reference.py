from __future__ import annotations

import numpy as np
import pytest
from exec_documents import bank, on_cpu, prefetch_under_callback, tensor
from splitproof.exec.data import input_bytes
from splitproof.exec.layout import Layouts
from splitproof.exec.quant import to_array
from splitproof.exec.reference import UnsupportedOp, run_reference
from splitproof.model import document


def test_a_callback_writes_before_the_first_node_of_its_split() -> None:
    schedule = document.from_dict(prefetch_under_callback(repaired=False))
    written = np.random.default_rng(0).standard_normal((64, 32, 1, 1)).astype(np.float32)
    run = run_reference(
        schedule, {"n_tokens": 3}, callbacks={"moe_cache": lambda pass_, reads: {"w": written}}
    )
    x = to_array(
        schedule.tensor("x").type,
        input_bytes(0, Layouts(schedule, {"n_tokens": 3}).placed("x"), 1),
        (64, 3, 1, 1),
    )[:, :, 0, 0].astype(float)
    h = x / np.sqrt((x**2).mean(axis=0) + 1e-6)
    due = written[:, :, 0, 0].T.astype(float) @ h
    # q8_0 rounds each weight to 1/127 of the largest of its block
    np.testing.assert_allclose(run.value("y", 1)[:, :, 0, 0], due, atol=0.5)
    np.testing.assert_array_equal(run.value("y", 1), run.output("y", 1))
    assert not np.array_equal(run.value("y", 0), run.value("y", 1))


def test_a_value_is_the_same_at_every_run_and_follows_the_seed() -> None:
    schedule = document.from_dict(prefetch_under_callback(repaired=True))
    first, again, other = (
        run_reference(schedule, {"n_tokens": 2}, seed=seed).value("y", 0) for seed in (0, 0, 1)
    )
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_a_symbol_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"no value for the symbol\(s\) n_tokens"):
        run_reference(document.from_dict(bank(True)), {})


@pytest.mark.parametrize("uses_map", [False, True])
def test_a_node_that_reads_a_bank_means_the_cached_tensor_and_the_ids(uses_map: bool) -> None:
    schedule = document.from_dict(bank(True, uses_map=uses_map))
    integers = [("ids", 0, (5, 1, 7, 5)), ("ids", 1, (0, 2, 4, 6))]
    run = run_reference(schedule, {"n_tokens": 2}, integers=integers)
    reads = run.reads["y", 0]
    experts = to_array(schedule.tensor("up_exps").type, reads[0].raw, (64, 32, 8, 1))
    x = to_array(schedule.tensor("x").type, reads[1].raw, (64, 1, 2, 1))
    for j, t, expert in ((0, 0, 5), (1, 0, 1), (0, 1, 7), (1, 1, 5)):
        due = experts[:, :, expert, 0].T.astype(float) @ x[:, 0, t, 0]
        np.testing.assert_allclose(run.value("y", 0)[:, j, t, 0], due, rtol=1e-4, atol=1e-4)
    if uses_map:
        assert ("found", 0) not in run.results


def test_bytes_of_an_any_buffer_last_and_compute_bytes_are_apart() -> None:
    """A cache that grows by a row in each pass; two results share bytes but not meaning."""
    schedule = document.from_dict(
        on_cpu(
            [
                {"op": "rms_norm", "dst": "a", "src": ["x"], "params": {"eps": 1e-6}},
                {"op": "silu", "dst": "b", "src": ["x"]},
                {"op": "set_rows", "dst": "kept", "src": ["b", "row"]},
                {"op": "add", "dst": "y", "src": ["a", "a"]},
                {"op": "sum_rows", "dst": "total", "src": ["cache"]},
            ],
            {
                "x": tensor([32, 1], "c_host", 0, input=True),
                "row": tensor([1], "c_host", 256, dtype="i64", input=True, values=[0, 4]),
                "a": tensor([32, 1], "c_host", 512),
                "b": tensor([32, 1], "c_host", 512),
                "cache": tensor([32, 4], "any_host", 0),
                "kept": tensor([32, 4], view_of="cache", offset=0),
                "y": tensor([32, 1], "c_host", 1024, output=True),
                "total": tensor([1, 4], "c_host", 2048, output=True),
            },
        )
    )
    run = run_reference(schedule, {}, integers=[("row", 0, (2,)), ("row", 1, (0,))])
    np.testing.assert_array_equal(run.value("y", 0), 2 * run.value("a", 0))
    totals = [run.output("total", p).reshape(-1) for p in (0, 1)]
    assert totals[0][2] == pytest.approx(run.value("b", 0).sum(), rel=1e-5)
    assert totals[1][2] == totals[0][2]
    assert totals[1][0] == pytest.approx(run.value("b", 1).sum(), rel=1e-5)
    assert totals[1][0] != totals[0][0]
    assert totals[1][1] == totals[0][1]


def test_guards_choose_between_alternatives_pass_by_pass() -> None:
    schedule = document.from_dict(
        on_cpu(
            [
                {"op": "silu", "dst": "even", "src": ["x"], "when": "pass % 2 == 0"},
                {"op": "relu", "dst": "odd", "src": ["x"], "when": "pass % 2 == 1"},
                {"op": "scale", "dst": "y", "src": ["either"], "params": {"scale": 2.0}},
            ],
            {
                "x": tensor([8], "c_host", 0, input=True),
                "either": tensor([8], "c_host", 64),
                "even": tensor([8], view_of="either", offset=0),
                "odd": tensor([8], view_of="either", offset=0),
                "y": tensor([8], "c_host", 128, output=True),
            },
            repeat=3,
        )
    )
    run = run_reference(schedule, {})
    assert set(run.results) == {
        ("even", 0), ("y", 0), ("odd", 1), ("y", 1), ("even", 2), ("y", 2)
    }  # fmt: skip
    np.testing.assert_array_equal(run.value("y", 1), 2 * run.value("odd", 1))


def test_of_two_settings_of_one_input_the_last_counts() -> None:
    parts = on_cpu(
        [{"op": "scale", "dst": "y", "src": ["x"], "params": {"scale": 1.0}}],
        {
            "x": tensor([8], "c_host", 0, input=True),
            "y": tensor([8], "c_host", 128, output=True),
        },
    )
    once = run_reference(document.from_dict(parts), {}).value("y", 0)
    parts["program"].insert(0, {"do": "set_input", "tensor": "x"})
    assert run_reference(document.from_dict(parts), {}).value("y", 0).tobytes() == once.tobytes()


def test_fixed_integers_replace_computed_ids_too() -> None:
    schedule = document.from_dict(
        on_cpu(
            [
                {"op": "argsort", "dst": "order", "src": ["x"], "params": {"order": "desc"}},
                {"op": "get_rows", "dst": "y", "src": ["table", "top"]},
            ],
            {
                "x": tensor([8], "c_host", 0, input=True),
                "order": tensor([8], "c_host", 64, dtype="i32"),
                "top": tensor([2], view_of="order", offset=0, dtype="i32"),
                "table": tensor([4, 8], "w_host", 0),
                "y": tensor([4, 2], "c_host", 128, output=True),
            },
        )
    )
    run = run_reference(schedule, {}, integers=[("top", 1, (6, 6))])
    rows = run.value("y", 1)
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
    free = run.value("y", 0)
    assert not np.array_equal(free[:, 0], free[:, 1])


def test_an_op_without_a_reference_is_named() -> None:
    nodes = [{"op": "flash_attn_ext", "dst": "y", "src": ["x", "x", "x"]}]
    tensors = {
        "x": tensor([8, 1, 2], "c_host", 0, input=True),
        "y": tensor([8, 1, 2], "c_host", 128, output=True),
    }
    with pytest.raises(UnsupportedOp, match=r"flash_attn_ext \(y\)"):
        run_reference(document.from_dict(on_cpu(nodes, tensors)), {})
