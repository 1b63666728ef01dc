"""The repository itself: nothing of one machine in it, files that fit in a head."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "model", "verify", "exec", "tests", "docs")
TEXT = {".py", ".md", ".toml", ".json", ".svg", ".txt", ".yml", ""}
#: Lines of code a file may have; the tables of an op or rule family are the longest there are.
LONGEST = 450


def sources(*folders: str, suffix: str | None = None) -> list[Path]:
    found = [p for folder in folders for p in sorted((ROOT / folder).rglob("*")) if p.is_file()]
    found += [p for p in sorted(ROOT.iterdir()) if p.is_file()] if not suffix else []
    return [
        p for p in found
        if "__pycache__" not in p.parts
        and (p.suffix == suffix if suffix else p.suffix in TEXT and p.name != "coverage")
    ]  # fmt: skip


def test_no_path_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.$}>-])/(?:home|work|root|Users|opt|mnt)/\w+")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in sources(*FOLDERS)
        if path != Path(__file__) and path.name != ".git"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_fit_in_a_head(folder: str) -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources(folder, suffix=".py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert long == {}


def test_no_unfinished_marks() -> None:
    pattern = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources("cli", "model", "verify", "exec", suffix=".py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_every_package_is_listed() -> None:
    """A package that pyproject.toml forgets is missing from the wheel, and only there."""
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    folders = {name: Path(path) for name, path in setup["package-dir"].items()}
    listed = set(setup["packages"])
    there = set()
    for name, folder in folders.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / folder).parts
            there.add(".".join((name, *parts)))
    assert listed == there


def test_the_version_is_said_once() -> None:
    import splitproof

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == splitproof.__version__


def test_every_rule_has_a_page_and_cases() -> None:
    from splitproof.verify.rules.table import RULES

    for code, rule in RULES.items():
        page = ROOT / "docs" / "rules" / f"{code}.md"
        assert page.is_file(), f"{code} has no page under docs/rules"
        text = page.read_text(encoding="utf-8")
        assert rule.slug in text, f"{page.name} does not name {rule.slug}"
        for case in ("violating", "repaired"):
            path = ROOT / "tests" / "rules" / code / f"{case}.json"
            assert path.is_file(), f"{code} has no {case} case: {path.relative_to(ROOT)}"
    pages = {path.stem for path in (ROOT / "docs" / "rules").glob("[A-Z][A-Z][0-9]*.md")}
    assert pages == set(RULES)
