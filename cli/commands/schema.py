"""``splitproof schema``."""

from __future__ import annotations

import click

from ..model.document import schema
from ..output import emit_json


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of a schedule document."""
    emit_json(schema())
