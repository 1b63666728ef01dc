"""``splitproof audit``."""

from __future__ import annotations

import platform
from dataclasses import asdict

import click

from ..model.version import VERSION
from ..options import format_option
from ..output import emit, emit_json
from ..verify.trust import AXIOMS, TRUSTED, UNSOUND, Entry

#: Sections in the order of the report: title, key in JSON, entries.
SECTIONS: tuple[tuple[str, str, tuple[Entry, ...]], ...] = (
    ("Trusted", "trusted", TRUSTED),
    ("Assumed", "axioms", AXIOMS),
    ("Known sources of wrong or missing verdicts", "unsound", UNSOUND),
)


@click.command("audit")
@format_option
def command(form: str) -> None:
    """Say what a verdict rests on: trusted parts, assumptions, known sources of unsoundness.

    docs/soundness.md explains each, with schedules that show it.
    """
    versions = _versions()
    if form == "json":
        value = {key: [asdict(entry) for entry in entries] for _, key, entries in SECTIONS}
        emit_json({"format": "splitproof-audit/1", "versions": versions, **value})
        return
    lines = []
    for title, _, entries in SECTIONS:
        lines.append(title)
        for entry in entries:
            effect = f" [{entry.effect}]" if entry.effect else ""
            lines.append(f"  {entry.name}{effect}: {entry.text}")
        lines.append("")
    lines.append("Versions")
    lines += [f"  {name} {version}" for name, version in versions.items()]
    emit("\n".join(lines))


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"splitproof": VERSION, "python": platform.python_version()}
    for name in ("z3-solver", "cvc5", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
