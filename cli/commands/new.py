"""``splitproof new``."""

from __future__ import annotations

import click

from ..model.document import example
from ..output import write_file


@click.command("new")
@click.option("-o", "--output", default="-", metavar="OUT", help="A file; - is standard output.")
def command(output: str) -> None:
    """Print an example document to start from.  It is right: check proves it."""
    write_file(output, example())
