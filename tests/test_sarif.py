"""``check --format sarif`` and ``--format github``, as a code host reads them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_case import BAD, GOOD, STATIC, Run, run
from sarif_form import LOG
from splitproof import sarif
from splitproof.github import command
from splitproof.model.counterexample import Counterexample, Party, Step
from splitproof.model.fault import parse_path, show_path
from splitproof.model.report import Finding, Kind
from splitproof.sarif import uri
from splitproof.verify.rules.table import RULES

__all__ = ["run"]  # a fixture

CASES = Path(__file__).parent / "rules"


def log(run: Run, *arguments: str) -> dict[str, Any]:
    _, out, _ = run("check", "--format", "sarif", *arguments)
    value = json.loads(out)
    jsonschema.Draft202012Validator(LOG).validate(value)
    (only,) = value["runs"]
    return only  # type: ignore[no-any-return]


def test_the_form_sees_a_wrong_log() -> None:
    validator = jsonschema.Draft202012Validator(LOG)
    assert not validator.is_valid({"$schema": "x", "version": "2.0.0", "runs": []})
    assert not validator.is_valid({"$schema": "x", "version": "2.1.0", "runs": [{"tool": {}}]})


def test_every_rule_case_is_a_valid_log(run: Run) -> None:
    files = [str(CASES / code / "violating.json") for code in RULES]
    only = log(run, *files)
    assert {result["ruleId"] for result in only["results"]} == set(RULES) - {
        "CO002"
    }  # CO002 takes --syncs
    rules = only["tool"]["driver"]["rules"]
    for result in only["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for rule in rules:
        assert rule["help"]["markdown"].startswith(f"# {rule['id']} ")
        assert "](../" not in rule["help"]["markdown"]


def test_places_are_those_of_the_json_paths(run: Run) -> None:
    """The text at a command's place is that command."""
    lines = Path(BAD).read_text(encoding="utf-8").splitlines()
    program = json.loads(Path(BAD).read_text(encoding="utf-8"))["program"]
    (result,) = log(run, BAD)["results"]
    places = [result["locations"][0], *result["relatedLocations"]]
    places += [m["location"] for f in result["codeFlows"][0]["threadFlows"] for m in f["locations"]]
    assert len(places) > 20
    for place in places:
        index = int(re.findall(r"\d+", place["logicalLocations"][0]["fullyQualifiedName"])[0])
        region = place["physicalLocation"]["region"]
        text = lines[region["startLine"] - 1][region["startColumn"] - 1 :]
        assert json.loads(text.rstrip(",")) == program[index]


def test_thread_flows_put_together_are_the_interleaving(run: Run) -> None:
    _, out, _ = run("check", "--format", "json", BAD)
    order = json.loads(out)["findings"][0]["counterexample"]["order"]
    (result,) = log(run, BAD)["results"]
    (flow,) = result["codeFlows"]
    assert [f["id"] for f in flow["threadFlows"]][:2] == ["host", "gpu0.copy"]
    moments = sorted(
        (moment["executionOrder"], moment["location"]["logicalLocations"][0]["fullyQualifiedName"])
        for thread in flow["threadFlows"]
        for moment in thread["locations"]
    )
    assert moments == [(n, f"$.program[{s['command']}]") for n, s in enumerate(order, 1)]
    for thread in flow["threadFlows"]:
        numbers = [moment["executionOrder"] for moment in thread["locations"]]
        assert numbers == sorted(numbers)


def test_split_level_findings_are_at_their_split(run: Run, tmp_path: Path) -> None:
    document = json.loads(Path(STATIC).read_text(encoding="utf-8"))
    document.pop("program", None)
    (tmp_path / "split.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    lines = (tmp_path / "split.json").read_text(encoding="utf-8").splitlines()
    results = log(run, "split.json")["results"]
    assert {"BK001", "CO001"} <= {result["ruleId"] for result in results}
    for result in results:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert lines[region["startLine"] - 1].strip().startswith("{")
        assert region["startLine"] > 1


def test_ignored_findings_are_suppressed(run: Run) -> None:
    (result,) = log(run, "--ignore", "PF001=it is idle", BAD)["results"]
    assert result["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "it is idle"}
    ]
    assert "suppressions" not in log(run, BAD)["results"][0]


def test_costs_are_notes_unless_they_fail(run: Run) -> None:
    levels = {r["ruleId"]: r["level"] for r in log(run, STATIC)["results"]}
    assert (levels["BK001"], levels["CO001"]) == ("error", "note")
    levels = {r["ruleId"]: r["level"] for r in log(run, "--strict-cost", STATIC)["results"]}
    assert levels["CO001"] == "warning"


def test_gaps_and_unreadable_files_are_notifications(run: Run) -> None:
    only = log(run, "--time-limit", "1e-9", GOOD, "absent.json")
    (invocation,) = only["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    (gap,) = invocation["toolExecutionNotifications"]
    (absent,) = invocation["toolConfigurationNotifications"]
    described = only["tool"]["driver"]["notifications"]
    assert described[gap["descriptor"]["index"]]["id"] == "unknown"
    assert described[absent["descriptor"]["index"]]["id"] == "not-checked"
    assert "absent.json" in absent["message"]["text"]


def test_fingerprints_outlive_an_edit_elsewhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "moved.json").write_text("\n\n" + Path(BAD).read_text(encoding="utf-8"))
    (one,), (other,) = (log(run, path)["results"] for path in (BAD, "moved.json"))
    assert one["partialFingerprints"] == other["partialFingerprints"]
    first, second = (
        r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in (one, other)
    )
    assert second == first + 2


def test_fingerprints_outlive_commands_before(run: Run, tmp_path: Path) -> None:
    document = json.loads(Path(BAD).read_text(encoding="utf-8"))
    document["program"].insert(0, {"do": "sync_queue", "queue": "gpu0.compute"})
    (tmp_path / "longer.json").write_text(json.dumps(document), encoding="utf-8")
    (one,), (other,) = (log(run, path)["results"] for path in (BAD, "longer.json"))
    assert one["partialFingerprints"] == other["partialFingerprints"]
    names = [r["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] for r in (one, other)]
    assert names == ["$.program[1]", "$.program[2]"]


def test_findings_of_one_rule_have_fingerprints_of_their_own() -> None:
    one = Finding("OR001", Kind.VALUE, "a race of w", "$.program[1]")
    assert sarif._fingerprint(one) != sarif._fingerprint(replace(one, message="a race of x"))
    assert sarif._fingerprint(one) != sarif._fingerprint(replace(one, rule="OR002"))


def test_a_violation_is_a_check_that_went_well(run: Run) -> None:
    """``executionSuccessful`` is about the tool, not about what it found."""
    for path, code in ((BAD, 1), (GOOD, 0)):
        (invocation,) = log(run, path)["invocations"]
        assert (invocation["executionSuccessful"], invocation["exitCode"]) == (True, code)


def test_the_parties_are_essential(run: Run) -> None:
    (result,) = log(run, BAD)["results"]
    moments = [m for f in result["codeFlows"][0]["threadFlows"] for m in f["locations"]]
    essential = [
        m["location"]["message"]["text"] for m in moments if m["importance"] == "essential"
    ]
    assert len(essential) < len(moments)
    assert {text.split(" (")[-1] for text in essential} == {"reads)", "writes)"}


def test_of_a_long_counterexample_the_part_around_the_parties_is_written() -> None:
    order = tuple(Step(n, 0, "main", phase) for n in range(1500) for phase in ("start", "end"))
    for reading, due in ((1, (0, 1000)), (700, (501, 1501)), (1499, (2000, 3000))):
        reader, writer = Party(reading, 0, "main", "reads"), Party(0, 0, "main", "writes")
        example = Counterexample((), reader, writer, "", "", order)
        assert sarif._window(example) == due
    assert sarif._window(replace(example, order=order[:1000])) == (0, 1000)


@pytest.mark.parametrize(
    ("source", "due"),
    [("a b.json", "a%20b.json"), ("-", "stdin"), ("d/e#1.json", "d/e%231.json")],
)
def test_uris(source: str, due: str) -> None:
    assert uri(source) == due


def test_paths_are_read_back() -> None:
    for path in [(), ("program", 3), ("tensors", "gpu0#w", "shape", 1), ("banks", 'a."b\\]ü')]:
        assert parse_path(show_path(path)) == path
    with pytest.raises(ValueError, match="no path"):
        parse_path("$.program[x]")


# -- annotations --------------------------------------------------------------------------------


def test_annotations(run: Run) -> None:
    code, out, err = run("check", "--format", "github", BAD, "absent.json", STATIC)
    lines = [line for line in out.splitlines() if line.startswith("::")]
    assert code == 2 and err.count("\n") == 1
    names = [re.match(r"::(\w+) file=([^,]+)", line) for line in lines]
    assert [m[1] for m in names if m] == ["error", "error", "error", "notice"]
    match = re.match(r"::error file=.*,line=(\d+),col=(\d+),title=PF001 [\w-]+::prefetch", lines[0])
    assert match is not None
    text = Path(BAD).read_text(encoding="utf-8").splitlines()[int(match[1]) - 1]
    assert json.loads(text[int(match[2]) - 1 :].rstrip(","))["do"] == "prefetch"
    assert "%0Amissing: " in lines[0]


def test_annotations_of_what_is_ignored_undecided_or_costly(run: Run) -> None:
    _, out, _ = run("check", "--format", "github", "--ignore", "PF001=idle", BAD)
    assert out.startswith("::notice") and "suppressed: idle" in out
    _, out, _ = run("check", "--format", "github", "--time-limit", "1e-9", GOOD)
    assert out.startswith("::warning") and "UNKNOWN" in out
    _, out, _ = run("check", "--format", "github", "--strict-cost", STATIC)
    assert "\n::warning file=" in out
    assert run("check", "--format", "github", GOOD)[1] == f"PROVED  {GOOD}\n"


def test_escapes_of_workflow_commands() -> None:
    """As ``escapeData`` and ``escapeProperty`` of GitHub's toolkit have them."""
    assert command("error", "a%b\r\nc:d,e", title="x%y:z,\nw", line=3) == (
        "::error title=x%25y%3Az%2C%0Aw,line=3::a%25b%0D%0Ac:d,e"
    )
