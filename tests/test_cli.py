"""The command line as a person meets it: exit codes, streams, formats, settings, bad input."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import splitproof
from cli_case import (
    BAD,
    DUMP,
    EXAMPLES,
    GOOD,
    LOG,
    STATIC,
    Run,
    heed_sigint,
    one_line,
    process,
    run,
)  # fmt: skip
from splitproof.api import Shown
from splitproof.commands import replay as replay_command
from splitproof.main import COMMANDS
from splitproof.verify.rules.table import RULES

__all__ = ["run"]  # a fixture


# -- exit codes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "code"),
    [([GOOD], 0), ([BAD], 1), ([STATIC], 1), ([GOOD, BAD], 1), ([BAD, "absent.json"], 2)],
)
def test_exit_codes_of_check(run: Run, files: list[str], code: int) -> None:
    assert run("check", "-q", *files)[0] == code


def test_undecided_is_3(run: Run) -> None:
    code, out, _ = run("check", "--time-limit", "1e-9", GOOD)
    assert code == 3
    assert out.startswith("UNKNOWN")


def test_the_first_rule_of_pf001(run: Run) -> None:
    _, out, err = run("check", BAD)
    assert "1. PF001 prefetch-source-not-compute" in out
    assert "missing" in out and "gpu0.copy" in out
    assert err == ""


def test_bk001_names_the_cost(run: Run) -> None:
    _, out, _ = run("check", STATIC)
    assert "BK001 cached-matmul-off-bank-device [static]" in out
    assert "CO001" in out and "10,880" in out


def test_cost_fails_only_when_asked(run: Run) -> None:
    ignore = ("check", "-q", "--ignore", "BK001=known", STATIC)
    assert run(*ignore)[0] == 0
    assert run(*ignore, "--strict-cost")[0] == 1


def test_an_ignored_violation_is_told_and_not_proved(run: Run) -> None:
    code, out, _ = run("check", "--ignore", 'PF001="the callback is idle"', BAD)
    assert code == 0
    assert out.startswith("VIOLATED")
    assert "(suppressed: the callback is idle)" in " ".join(out.split())


def test_a_baseline_lets_known_findings_pass(run: Run, tmp_path: Path) -> None:
    _, out, _ = run("check", "--format", "json", BAD)
    (tmp_path / "known.json").write_text(out, encoding="utf-8")
    assert run("check", "--baseline", "known.json", BAD)[0] == 0
    assert run("check", "--baseline", "known.json", STATIC)[0] == 1


def test_a_second_solver(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cvc5", reason="the extra 'recheck' is not installed")
    from splitproof.model.report import Ruling
    from splitproof.verify.recheck import Second

    code, out, _ = run("check", "--recheck", GOOD)
    assert code == 0 and " agree" in out and "cvc5" in out and "unfolded" in out
    monkeypatch.setattr(Second, "decide", lambda self, text: Ruling("cvc5", "0", "sat", 0.0))
    code, out, _ = run("check", "--recheck", "--format", "json", GOOD)
    report = json.loads(out)
    assert code == 4 and report["verdict"] == "unknown" and report["contradicted"]
    assert {entry["outcome"] for entry in report["ledger"]} >= {"disagrees"}


def test_without_the_second_solver(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvc5", None)
    code, out, err = run("check", "--recheck", GOOD)
    assert (code, out) == (2, "") and "splitproof[recheck]" in one_line(err)


def test_questions_are_written(run: Run, tmp_path: Path) -> None:
    assert run("check", "-q", "--smt2", "questions", GOOD)[0] == 0
    texts = [path.read_text() for path in sorted((tmp_path / "questions").glob("*.smt2"))]
    assert len(texts) > 5 and all(text.endswith("(check-sat)\n") for text in texts)
    assert run("check", "--smt2", "questions", GOOD, BAD)[0] == 2
    (tmp_path / "file").write_text("")
    code, _, err = run("check", "--smt2", "file", GOOD)
    assert code == 2 and "file" in one_line(err)


def test_a_part_of_the_range(run: Run) -> None:
    assert run("check", "--symbol", "n_tokens=1..4", GOOD)[0] == 0
    _, _, err = run("check", "--symbol", "n_tokens=1..64", GOOD)
    assert "outside of 1..32" in one_line(err)
    _, _, err = run("check", "--symbol", "tokens=1", GOOD)
    assert "there are: n_tokens" in one_line(err)


# -- streams and formats ------------------------------------------------------------------------


def test_one_file_is_one_json_report_several_are_a_list(run: Run) -> None:
    code, out, err = run("check", "--format", "json", GOOD)
    assert (code, err, json.loads(out)["verdict"]) == (0, "", "proved")
    code, out, err = run("check", "--format", "json", GOOD, "absent.json", BAD)
    first, failed, last = json.loads(out)
    assert code == 2
    assert (first["verdict"], last["verdict"]) == ("proved", "violated")
    assert failed["source"] == "absent.json" and "absent.json" in failed["error"]
    one_line(err)


def test_standard_input(tmp_path: Path) -> None:
    done = process("check", "-q", "-", input=Path(BAD).read_text(encoding="utf-8"))
    assert done.returncode == 1 and "PF001" in done.stdout
    done = process("check", "-", input="{")
    assert done.returncode == 2 and done.stdout == ""
    assert "<stdin>:1:" in one_line(done.stderr)


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "splitproof", "schema"],
            stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2
    assert "broken pipe" in one_line(done.stderr)


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C while it waits for standard input."""
    code = (
        "import sys, splitproof.files as files\n"
        "read = files.read_input\n"
        "def told(path):\n"
        "    print('waiting', flush=True)\n"
        "    return read(path)\n"
        "files.read_input = told\n"
        "from splitproof.main import invoke\n"
        "sys.exit(invoke(['check', '-']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_sigint,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "waiting\n"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert out == "" and one_line(err) == "splitproof: interrupted\n"


def test_a_narrow_encoding_does_not_break_a_report() -> None:
    done = process("check", BAD, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1 and "PF001" in done.stdout


# -- the other commands -------------------------------------------------------------------------


def test_a_setting_counts(run: Run, tmp_path: Path) -> None:
    text = """[tool.splitproof]
        format = "json"
        rule = ["BK001"]
        symbol = { n_tokens = "1..2" }
        """
    (tmp_path / "pyproject.toml").write_text(text)
    _, out, _ = run("check", STATIC)
    assert [finding["rule"] for finding in json.loads(out)["findings"]] == ["BK001"]
    assert run("check", "--symbol", "n_tokens=3", STATIC)[0] == 2


def test_a_format_of_findings_is_no_other_commands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.splitproof]\nformat = "sarif"\n')
    assert json.loads(run("check", STATIC)[1])["version"] == "2.1.0"
    code, out, _ = run("explain", "BK001")
    assert code == 0 and out.startswith("BK001")


def test_replay_confirms_and_shows_numbers(run: Run, tmp_path: Path) -> None:
    _, out, _ = run("check", "--format", "json", BAD, STATIC)
    (tmp_path / "report.json").write_text(out, encoding="utf-8")
    code, out, _ = run("replay", "report.json")
    assert code == 1
    assert "CONFIRMED  PF001" in out and "CONFIRMED  BK001" in out
    assert "expected" in out and "compute y" in out
    code, out, _ = run("replay", "--format", "json", "--rule", "PF001", "report.json")
    first, second = json.loads(out)
    assert first["findings"][0]["confirmed"] and first["findings"][0]["values"]
    assert second["findings"] == []


def test_what_cannot_be_executed_is_3(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two findings one has no execution; one that fails comes before it."""
    _, out, _ = run("check", "--format", "json", BAD)
    Path("report.json").write_text(out, encoding="utf-8")
    for holds, code in (((True, None), 3), ((True,), 1), ((False, None), 4)):
        monkeypatch.setattr(
            replay_command,
            "replay",
            lambda known, *_, held=holds, **__: [Shown(known.findings[0], h) for h in held],
        )
        assert run("replay", "-q", "report.json")[0] == code


def test_replay_of_a_proof_has_nothing_to_do(run: Run, tmp_path: Path) -> None:
    _, out, _ = run("check", "--format", "json", GOOD)
    (tmp_path / "report.json").write_text(out, encoding="utf-8")
    assert run("replay", "report.json")[0] == 0


def test_a_counterexample_that_does_not_reproduce_is_4(run: Run, tmp_path: Path) -> None:
    """In the report's order the callback is moved before the prefetch, where it does no harm."""
    _, out, _ = run("check", "--format", "json", BAD)
    report = json.loads(out)
    example = report["findings"][0]["counterexample"]
    order = example["order"]
    for iteration in (0, 1):
        early = [s for s in order if (s["command"], s["iteration"]) == (3, iteration)]
        order = [step for step in order if step not in early]
        prefetch = next(
            i for i, s in enumerate(order) if (s["command"], s["iteration"]) == (1, iteration)
        )
        order[prefetch:prefetch] = early
    example["order"] = order
    (tmp_path / "report.json").write_text(json.dumps(report), encoding="utf-8")
    code, out, _ = run("replay", "report.json")
    assert code == 4
    assert "NOT REPRODUCED" in out


def test_run_with_and_without_a_certificate(run: Run, tmp_path: Path) -> None:
    code, out, err = run("run", GOOD)
    assert (code, err) == (0, "") and out.startswith("AGREES  2 outputs")
    assert run("check", "-q", "--certificate", "c.json", GOOD)[0] == 0
    code, out, _ = run(
        "run", "--certificate", "c.json", "--symbol", "n_tokens=3", "--format", "json", GOOD
    )
    result = json.loads(out)
    assert code == 0 and result["symbols"] == {"n_tokens": 3} and result["agrees"]
    code, _, err = run("run", "--certificate", "c.json", BAD)
    assert code == 2 and "the certificate is for document" in one_line(err)


def test_one_changed_byte_voids_a_certificate(run: Run, tmp_path: Path) -> None:
    run("check", "-q", "--certificate", "c.json", GOOD)
    document = json.loads(Path(GOOD).read_text(encoding="utf-8"))
    document["tensors"]["h"]["offset"] += 1024
    (tmp_path / "changed.json").write_text(json.dumps(document), encoding="utf-8")
    assert run("run", "--certificate", "c.json", "changed.json")[0] == 2


def test_an_op_without_a_kernel_is_unsupported(run: Run) -> None:
    run("import", DUMP, "--graph", "1", "-o", "graph.json")
    code, out, err = run("run", "-q", "graph.json")
    assert (code, out) == (3, "") and "graph.json: command" in one_line(err)


def test_what_is_not_proved_is_not_run(run: Run) -> None:
    code, out, _ = run("run", BAD)
    assert code == 1
    assert "PF001" in out and "Not proved, so not run." in out


def test_a_certificate_of_a_violated_schedule_does_not_run_it(run: Run) -> None:
    assert run("check", "-q", "--certificate", "c.json", BAD)[0] == 1
    code, _, err = run("run", "--certificate", "c.json", BAD)
    assert code == 2 and "violated, not proved" in one_line(err)


def test_a_certificate_is_for_a_whole_document(run: Run) -> None:
    code, _, err = run("check", "--certificate", "c.json", "--symbol", "n_tokens=1", GOOD)
    assert code == 2 and "one whole document" in one_line(err)
    report = splitproof.check(GOOD, symbols={"n_tokens": (1, 2)})
    assert report.verdict == "proved" and report.digest == ""


def test_import_writes_a_document_per_graph(run: Run, tmp_path: Path) -> None:
    assert run("import", DUMP, "-o", "graph.json")[0] == 0
    names = sorted(path.name for path in tmp_path.glob("graph*.json"))
    assert names == ["graph.0.json", "graph.1.json", "graph.2.json"]
    assert run("import", DUMP, "--graph", "1", "-o", "one.json")[0] == 0
    assert (tmp_path / "one.json").read_text() == (tmp_path / "graph.1.json").read_text()
    assert run("check", "-q", "one.json")[0] == 0
    code, out, _ = run("import", DUMP, "--graph", "1", "-o", "-")
    assert code == 0 and json.loads(out)["format"] == "splitproof/1"


def test_schema_fits_the_examples(run: Run) -> None:
    code, out, _ = run("schema")
    validator = jsonschema.validators.validator_for(json.loads(out))(json.loads(out))
    assert code == 0
    for path in sorted(EXAMPLES.glob("*.json")):
        validator.validate(json.loads(path.read_text(encoding="utf-8")))
    broken = json.loads(Path(GOOD).read_text(encoding="utf-8")) | {"splitz": []}
    assert not validator.is_valid(broken)


def test_new_is_proved(run: Run) -> None:
    assert run("new", "-o", "mine.json")[0] == 0
    assert run("check", "-q", "mine.json")[0] == 0


@pytest.mark.parametrize("word", ["PF001", "pf001", "prefetch-source-not-compute"])
def test_explain(run: Run, word: str) -> None:
    code, out, _ = run("explain", word)
    assert code == 0 and out.startswith("PF001 prefetch-source-not-compute")
    rule = RULES["PF001"]
    words = " ".join(out.split())
    assert rule.summary in words and rule.hint in words and rule.kind.value in words
    code, out, _ = run("explain", "--format", "json", word)
    assert code == 0 and json.loads(out) == {
        "code": "PF001", "slug": rule.slug, "kind": "value", "summary": rule.summary,
        "hint": rule.hint,
    }  # fmt: skip


def test_explain_knows_what_was_meant(run: Run) -> None:
    code, _, err = run("explain", "PF01")
    assert code == 2 and "PF001" in one_line(err)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0 and out.startswith(f"Usage: splitproof {name}")


def test_the_overview_has_the_exit_codes(run: Run) -> None:
    _, out, _ = run("--help")
    assert "130  interrupted" in out and "check" in out


# -- settings -----------------------------------------------------------------------------------


def test_command_line_before_environment_before_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.splitproof]\nignore = { PF001 = "from the file" }\n')
    assert "from the file" in run("check", BAD)[1]
    monkeypatch.setenv("SPLITPROOF_IGNORE", "PF001=from the environment;BK001=too")
    assert "from the environment" in run("check", BAD)[1]
    assert "from here" in run("check", "--ignore", "PF001=from here", BAD)[1]


def test_several_rules_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITPROOF_RULE", "BK001,PF001")
    _, out, _ = run("check", "--format", "json", BAD, STATIC)
    assert [[f["rule"] for f in report["findings"]] for report in json.loads(out)] == (
        [["PF001"], ["BK001"]]
    )


def test_a_baseline_lies_beside_the_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("known.json").write_text(run("check", "--format", "json", BAD)[1], encoding="utf-8")
    Path("pyproject.toml").write_text('[tool.splitproof]\nbaseline = "known.json"\n')
    Path("below").mkdir()
    monkeypatch.chdir("below")
    assert run("check", BAD)[0] == 0


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("[tool.splitproof]\ntime-limits = 1", "no key 'time-limits'"),
        ("[tool.splitproof]\ntime-limit = true", "a number was due"),
        ("[tool.splitproof]\nformat = 'yaml'", "'yaml' is not one of"),
        ("[tool.splitproof", "not TOML"),
        ("tool.splitproof = 1", "not a table"),
        ("tool = 1  # not a table of splitproof", "not a table"),
    ],
)
def test_a_wrong_setting_is_one_line(run: Run, tmp_path: Path, text: str, due: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    code, _, err = run("check", GOOD)
    assert code == 2 and due in one_line(err)


def test_import_of_a_log(run: Run) -> None:
    code, out, err = run("import", LOG, "-o", "graph.json")
    assert (code, out) == (0, "")
    assert "43 lines: 25 of graphs, 18 of other messages, 0 unreadable" in err
    assert "graph 1 (prompt): 4 split(s), 7 nodes" in err
    code, out, _ = run("check", "-q", "graph.0.json", "graph.1.json")
    assert code == 3
    assert "CO001" in out
    assert run("import", LOG, "--graph", "0", "-o", "one.json")[0] == 0
    assert run("import", LOG, "--graph", "3", "-o", "one.json")[0] == 2


def test_import_lists_unreadable_lines(run: Run) -> None:
    lines = Path(LOG).read_text(encoding="utf-8").splitlines()
    Path("cut.log").write_text("\n".join([*lines[:17], lines[17][:40], *lines[18:]]))
    _, _, err = run("import", "cut.log", "-o", "graph.json")
    assert "cut.log:18: unreadable: " in err


@pytest.mark.parametrize("source", [LOG, DUMP])
@pytest.mark.parametrize("packed", [False, True])
def test_import_from_standard_input(
    source: str, packed: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(source).read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    data = gzip.compress(data) if packed else data
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    code, out, _ = run("import", "-", "--graph", "1", "-o", "-")
    assert code == 0
    assert json.loads(out)["format"] == "splitproof/1"


def test_a_log_without_a_graph_is_an_error(run: Run) -> None:
    Path("empty.log").write_text("llama_context: n_ctx = 256\n")
    code, out, err = run("import", "empty.log", "-o", "graph.json")
    assert (code, out) == (2, "")
    assert "no graph in 1 line(s)" in one_line(err)
