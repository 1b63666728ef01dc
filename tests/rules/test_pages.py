"""Rule table, pages and cases belong together; twins are one change apart."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rule_cases import (
    EXPECT,
    EXTRA,
    HERE,
    PAGES,
    all_cases,
    changes,
    document,
    page_diff,
    program_lines,
    twins,
)
from splitproof.model.report import Kind
from splitproof.verify.rules.table import RULES


def test_each_rule_has_cases_and_a_page() -> None:
    assert set(EXPECT) == set(RULES)
    assert {path.stem for path in PAGES.glob("[A-Z][A-Z][0-9]*.md")} == set(RULES)
    assert {path.name for path in HERE.iterdir() if re.fullmatch(r"[A-Z]{2}\d{3}", path.name)} == (
        set(RULES)
    )


def test_each_case_is_expected_and_each_expectation_has_a_case() -> None:
    files = {str(path.relative_to(HERE).with_suffix("")) for path in HERE.glob("*/*.json")}
    assert files - {"extra/expect"} == set(all_cases())
    assert all(due["twin"] in EXTRA for due in EXTRA.values() if "twin" in due)


@pytest.mark.parametrize("code", RULES)
def test_row(code: str) -> None:
    rule = RULES[code]
    assert rule.code == code
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.slug)
    assert rule.kind == EXPECT[code]["kind"]
    assert EXPECT[code]["verdict"] == ("proved" if rule.kind is Kind.COST else "violated")
    assert rule.summary and rule.hint and rule.hint != rule.summary
    assert set(EXPECT[code]["also"]) <= set(RULES) - {code}


def test_slugs_differ() -> None:
    assert len({rule.slug for rule in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("code", RULES)
def test_page(code: str) -> None:
    rule = RULES[code]
    page = (PAGES / f"{code}.md").read_text()
    assert page.startswith(f"# {code} {rule.slug}\n\nKind: {rule.kind.value}. {rule.summary}.\n")
    assert f"## What to change\n\n{rule.hint}.\n" in page
    assert "```diff\n" + "\n".join(page_diff(code)) + "\n```\n" in page
    if "program" in document(f"{code}/violating"):
        assert "```json\n" + "\n".join(program_lines(code)) + "\n```\n" in page
    for kind in ("violating", "repaired"):
        assert f"../../tests/rules/{code}/{kind}.json" in page


def test_table_of_pages() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| ([\w-]+) \| (\w+) \| (.+) \|$",
                      (PAGES / "README.md").read_text(), re.MULTILINE)  # fmt: skip
    assert rows == [(c, c, r.slug, r.kind.value, r.summary) for c, r in RULES.items()]


@pytest.mark.parametrize(("left", "right", "count"), twins())
def test_twins_are_so_many_changes_apart(left: str, right: str, count: int) -> None:
    one, other = document(left), document(right)
    assert one.pop("name") != other.pop("name")
    assert changes(one, other) == count


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [
        ({"a": 1}, {"a": 1}, 0),
        ({"a": 1, "b": {"c": [1, 2]}}, {"a": 2, "b": {"c": [2, 1]}}, 2),
        ({"a": 1}, {"b": 1}, 2),
        ([{"n": 1}, {"n": 2}, {"n": 3}], [{"n": 2}, {"n": 3}, {"n": 1}], 1),
        ([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 4}, {"n": 2}], 1),
        ([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 3}], 1),
        ([{"n": 1}, {"n": 2}, {"n": 3}], [{"n": 3}, {"n": 2}, {"n": 1}], 2),
    ],
)
def test_changes_are_counted(left: Any, right: Any, count: int) -> None:
    assert changes(left, right) == count
