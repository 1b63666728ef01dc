"""Who may import whom, read from the source: the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def module_name(path: Path) -> str:
    """``verify/rules/order.py`` → ``verify.rules.order``; ``cli/text.py`` → ``cli.text``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """What a file imports, anywhere in it: ``model.document``, ``numba``, …"""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (absolute(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                # cli is the root package: "from ..model" in cli/commands is splitproof.model.
                full = ["splitproof", *(package[1:] if package[0] == "cli" else package)]
                base = full[: len(full) - node.level + 1]
                name = ".".join([*base, *([node.module] if node.module else [])])
            else:
                name = node.module or ""
            for alias in node.names:
                yield absolute(f"{name}.{alias.name}")


def absolute(name: str) -> str:
    return name.removeprefix("splitproof.")


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def offenders(folder: str, forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files(folder)
        for name in imported(path)
        if any(name == bad or name.startswith(bad + ".") for bad in forbidden)
    ]


CLI = (
    "api", "brief", "commands", "files", "main", "options", "output", "settings", "text",
    "timeline",
)  # fmt: skip


def test_the_reader_of_imports_sees_relative_ones() -> None:
    names = set(imported(ROOT / "cli" / "api.py"))
    assert "model.document.load" in names
    assert "verify.check.check" in names
    assert "model.symbol.Expr" in set(imported(ROOT / "model" / "schedule.py"))


def test_model_imports_no_one() -> None:
    assert offenders("model", ("verify", "exec", "z3", *CLI)) == []


def test_verify_imports_model_only_and_not_what_it_judges() -> None:
    assert offenders("verify", ("exec", "model.plan", "model.cache", *CLI)) == []


def test_exec_never_sees_the_checker() -> None:
    assert offenders("exec", ("verify", "z3", *CLI)) == []


#: What is imported by large inputs only.
LARGE = ("model/plan/compiled.py", "verify/closure_compiled.py")


@pytest.mark.parametrize("folder", ["model", "verify", "cli"])
def test_numba_only_where_kernels_run(folder: str) -> None:
    found = offenders(folder, ("numba", "llvmlite"))
    assert [line for line in found if not line.startswith(LARGE)] == []


def test_numba_in_exec_stays_in_the_back_ends() -> None:
    found = offenders("exec", ("numba", "llvmlite"))
    assert [line for line in found if not line.startswith(("exec/cpu/", "exec/cuda/"))] == []


@pytest.mark.parametrize("folder", ["model", "exec", "cli"])
def test_z3_only_in_verify(folder: str) -> None:
    assert offenders(folder, ("z3", "cvc5")) == []


HEAVY = "numba", "z3", "numpy", "llvmlite", "cvc5"


def loaded(code: str, heavy: tuple[str, ...] = HEAVY) -> set[str]:
    """The heavy modules that are loaded after ``code`` ran in a fresh interpreter."""
    program = f"{code}\nimport sys; print(*(sys.modules.keys() & {set(heavy)!r}), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_the_probe_sees_a_heavy_import() -> None:
    assert loaded("import numpy") == {"numpy"}


def test_a_small_plan_is_light() -> None:
    code = (
        "import splitproof; from splitproof.model.document import example; "
        "from splitproof.model.plan.planner import plan_regimes, unplanned; "
        "plan_regimes(unplanned(splitproof.loads(example())))"
    )
    assert loaded(code) == set()


def test_import_is_light() -> None:
    assert (
        loaded("import splitproof; splitproof.load; splitproof.schema; splitproof.Report") == set()
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"], ["schema"]])
def test_help_is_light(arguments: list[str]) -> None:
    code = f"from splitproof.main import invoke; assert invoke({arguments!r}) == 0"
    assert loaded(code) == set()


def test_every_public_name_exists() -> None:
    import splitproof

    for name in splitproof.__all__:
        assert getattr(splitproof, name) is not None
    assert set(splitproof.__all__) <= set(dir(splitproof))
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        _ = splitproof.chekc


def test_a_quiet_check_of_a_program_needs_neither_layout_nor_planner() -> None:
    path = str(ROOT / "tests" / "rules" / "PF001" / "repaired.json")
    code = f"from splitproof.main import invoke; assert invoke(['check', '-q', {path!r}]) == 0"
    unused = "rich", "gguf", "_splitproof_gguf_constants", "splitproof.model.plan.planner"
    assert loaded(code, ("z3", *unused)) == {"z3"}
