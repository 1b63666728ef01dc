"""The wheel: built, installed into a fresh environment, imported and used outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cli", "model", "verify", "exec")

IMPORT_ALL = """
import importlib, pkgutil, splitproof
names = [m.name for m in pkgutil.walk_packages(splitproof.__path__, "splitproof.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(splitproof.__file__)
print(*sorted(names))
"""


def execute(command: list[str], cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env=environment | more, timeout=300
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    shutil.copytree(ROOT / "docs" / "rules", source / "docs" / "rules", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    done = execute([*pip, "--wheel-dir", str(folder), str(source)], folder)
    if done.returncode:
        # Without a network there is no setuptools to fetch; the one that is installed may do.
        done = execute([*pip, "--no-build-isolation", "-w", str(folder), str(source)], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that has the wheel.

    Its dependencies are those of the environment that runs the tests, by a .pth file that comes
    after the wheel; the hooks of an editable install are not taken over, since a .pth file in a
    folder that is added by a .pth file is not read.
    """
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    made = execute([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    assert made.returncode == 0, made.stderr
    interpreter = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    found = execute(
        [str(interpreter), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder
    )
    site = Path(found.stdout.strip())
    installed = execute(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(interpreter),
         "install", "--no-deps", "--no-index", str(wheel)],
        folder,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stdout + installed.stderr
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "outer.pth").write_text("\n".join(sorted(paths)) + "\n")
    return interpreter


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in FOLDERS:
        prefix = "splitproof" if folder == "cli" else f"splitproof/{folder}"
        for path in (ROOT / folder).rglob("*.py"):
            assert f"{prefix}/{path.relative_to(ROOT / folder).as_posix()}" in inside
    assert "splitproof/py.typed" in inside
    assert "splitproof/pages/PF001.md" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def test_every_module_imports(python: Path, tmp_path: Path) -> None:
    done = execute([str(python), "-c", IMPORT_ALL], tmp_path)
    assert done.returncode == 0, done.stderr
    home, names = done.stdout.splitlines()
    assert Path(home).is_relative_to(python.parent.parent), "imported from the checkout"
    assert "splitproof.commands.check" in names.split()


def test_check_outside_the_checkout(python: Path, tmp_path: Path) -> None:
    for name in ("pf001.json", "pf001-repaired.json"):
        shutil.copy(ROOT / "docs" / "examples" / name, tmp_path / name)
    command = str(python.with_name("splitproof"))
    assert execute([command, "check", "pf001-repaired.json"], tmp_path).returncode == 0
    done = execute([command, "check", "pf001.json"], tmp_path)
    assert done.returncode == 1, done.stderr
    assert "PF001 prefetch-source-not-compute" in done.stdout
    done = execute([command, "check", "--format", "sarif", "pf001.json"], tmp_path)
    assert done.returncode == 1 and "## What must hold" in done.stdout, done.stderr
