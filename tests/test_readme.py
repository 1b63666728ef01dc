"""The pages: every console block is run and its output compared, every Python block is run.

In a ``console`` block, lines that begin with ``$ `` are commands and the others what they print
(both streams); ``…`` stands for any text.  A ``json NAME`` block is written to that file first.
The blocks of a page share a folder, in which ``docs/examples`` lies as in the checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
MARK = "\x1e"


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, m.start()) + 1, m[1], m[2].strip(), m[3])
        for m in FENCE.finditer(text)
    ]


def session(block: Block) -> list[tuple[str, str]]:
    """``(command, due output)`` of a console block."""
    pairs: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        else:
            assert pairs, f"{block.page.name}:{block.line}: output before the first command"
            pairs[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in pairs]


def matches(due: str, got: str) -> bool:
    """Whether the output is what the page shows; ``…`` is any text, blanks at ends are none."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    pattern = ".*?".join(re.escape(part) for part in tidy(due).split("…"))
    return re.fullmatch(pattern, tidy(got), re.DOTALL) is not None


def run_console(block: Block, folder: Path) -> None:
    pairs = session(block)
    # The status is handed on, so that "echo $?" sees that of the command before.
    script = "".join(
        f"{command}\n__status=$?; printf '{MARK}'; (exit $__status)\n" for command, _ in pairs
    )
    scripts = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}", "COLUMNS": "100",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, text=True, timeout=180,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    )  # fmt: skip
    outputs = done.stdout.split(MARK)[: len(pairs)]
    for (command, due), got in zip(pairs, outputs, strict=True):
        assert matches(due, got), (
            f"{block.page.name}:{block.line}: $ {command}\n--- shown\n{due}\n--- printed\n{got}"
        )


def run_python(block: Block, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=folder, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, f"{block.page.name}:{block.line}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks(page: Path, tmp_path: Path) -> None:
    for name in ("examples", "soundness"):
        shutil.copytree(ROOT / "docs" / name, tmp_path / "docs" / name)
    for block in blocks(page):
        if block.language == "json" and block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            run_console(block, tmp_path)
        elif block.language == "python":
            run_python(block, tmp_path)


def test_the_readme_has_what_it_promises() -> None:
    languages = [block.language for block in blocks(ROOT / "README.md")]
    assert languages.count("console") >= 2
    (python,) = [b for b in blocks(ROOT / "README.md") if b.language == "python"]
    assert len([line for line in python.text.splitlines() if line.strip()]) <= 12


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo right\nright\n$ false\n$ echo $?\n1\n```\n")
    (block,) = blocks(page)
    run_console(block, tmp_path)
    page.write_text("```console\n$ echo right\nwrong\n```\n")
    with pytest.raises(AssertionError, match="wrong"):
        run_console(blocks(page)[0], tmp_path)


@pytest.mark.parametrize(
    ("due", "got", "fits"),
    [("a … c", "a b\nb c", True), ("a…", "b", False), ("a", "a\n", True), ("a", "ab", False)],
)
def test_wildcards(due: str, got: str, fits: bool) -> None:
    assert matches(due, got) is fits


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: no {target}"


def anchors(page: Path) -> set[str]:
    """What a code host makes of the headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_to_headings_lead_to_one() -> None:
    seen = 0
    for page in PAGES:
        for target, anchor in re.findall(
            r"\]\(([^)#\s]*)#([^)]*)\)", page.read_text(encoding="utf-8")
        ):
            if "://" not in target:
                seen += 1
                assert anchor in anchors(page.parent / target if target else page), anchor
    assert seen
