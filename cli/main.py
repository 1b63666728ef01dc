"""The command ``splitproof``.  Commands are imported when they are called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from . import __version__
from .output import CliError, error_line
from .settings import settings

#: Name → module under ``commands`` and the line that the overview shows.
COMMANDS = {
    "check": ("check", "Prove schedules right, or show how they go wrong."),
    "plan": ("plan", "Decide devices and splits as ggml does, and say why."),
    "run": ("run", "Execute a proved schedule and compare it with the reference."),
    "prove": ("prove", "Prove the theorems behind the rules, for every schedule."),
    "replay": ("replay", "Execute the counterexamples of a JSON report."),
    "explain": ("explain", "Say what a rule is about."),
    "audit": ("audit", "Say what a verdict rests on, and where it can be wrong."),
    "import": ("import_dump", "Turn a llama.cpp debug log or a recorded ggml dump into documents."),
    "devices": ("devices", "Show the devices of this machine, and how they are described."),
    "schema": ("schema", "Print the JSON Schema of a document."),
    "new": ("new", "Print an example document to start from."),
}

EXIT_CODES = """\b
Exit codes, the same everywhere:
  0    all proved
  1    a violation, a difference, or a refuted theorem
  2    a mistake in usage, configuration or input
  3    undecided or unsupported, and nothing violated
  4    the checker contradicts itself, or broke
  130  interrupted
Of several files, the first that occurs of 4, 2, 1, 3, 0."""


class Interrupted(Exception):
    """Ctrl-C.  Click would print an empty line for it first."""


class Commands(click.Group):
    """A group whose overview needs none of its commands."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"splitproof.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(
    cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "-V", "--version", prog_name="splitproof")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Say whether a schedule of a mixture-of-experts model over several devices is right, for
    every interleaving, batch size and router outcome; and run what was proved."""
    ctx.default_map = settings(ctx.invoked_subcommand)


def invoke(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code.  Errors are one line on standard error."""
    try:
        code = cli.main(list(arguments), prog_name="splitproof", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "splitproof"
        error_line(f"{error.format_message()} (see {path} --help)")
        return CliError.exit_code
    except click.ClickException as error:
        error_line(error.format_message())
        return error.exit_code
    except (Interrupted, click.Abort, KeyboardInterrupt):
        error_line("interrupted")
        return 130
    except Exception as error:
        import traceback

        traceback.print_exc()
        error_line(f"this is a fault of splitproof, not of the input: {type(error).__name__}")
        return 4
    return code if isinstance(code, int) else 0


def main() -> None:
    """Entry point of the console script."""
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    sys.exit(invoke(sys.argv[1:]))
