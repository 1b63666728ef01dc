"""``splitproof explain``."""

from __future__ import annotations

import sys

import click

from ..api import explain
from ..options import format_option
from ..output import emit, emit_json
from ..text import render, rule_items


@click.command("explain")
@click.argument("code")
@format_option
def command(code: str, form: str) -> None:
    """Say what a rule holds, of what kind it is and how a violation is repaired.

    CODE is a rule's code or slug: PF001, data-race.
    """
    try:
        rule = explain(code)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    if form == "json":
        names = ("code", "slug", "kind", "summary", "hint")
        emit_json({name: str(getattr(rule, name)) for name in names})
    else:
        emit(render(list(rule_items(rule)), sys.stdout))
