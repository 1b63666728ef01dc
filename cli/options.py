"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("text", "json")
#: What a check can also be written as: for code hosts.
FINDING_FORMATS = ("sarif", "github")
CHECK_FORMATS = (*FORMATS, *FINDING_FORMATS)
#: Z3 resource units per obligation, by name.
EFFORTS = {"small": 400_000, "normal": 4_000_000, "large": 400_000_000}


_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class SymbolRange(click.ParamType):
    """``NAME=LOW..HIGH`` or ``NAME=VALUE`` → ``(name, low, high)``."""

    name = "NAME=LOW..HIGH"
    envvar_list_splitter = ","

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(\d+)(?:\s*\.\.\s*(\d+))?\s*", str(value))
        if match is None:
            self.fail(f"{value!r}: n_tokens=1..8 or n_tokens=4 was due", param, ctx)
        name, low, high = match[1], int(match[2]), int(match[3] or match[2])
        if low > high:
            self.fail(f"{value!r}: the range is empty", param, ctx)
        return name, low, high


class Tokens(click.ParamType):
    """``1,2,3`` → ``(1, 2, 3)``."""

    name = "T1,T2,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", str(value), re.ASCII) is None:
            self.fail(f"{value!r}: numbers of tokens, such as 1,2,3, were due", param, ctx)
        return tuple(int(number) for number in str(value).split(","))


class Ignored(click.ParamType):
    """``CODE`` or ``CODE=WHY`` → ``(code, why)``."""

    name = "CODE[=WHY]"
    envvar_list_splitter = ";"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        code, _, why = str(value).partition("=")
        return code.strip().upper(), why.strip().strip('"') or "ignored on the command line"


class RuleCode(click.ParamType):
    """The code of a rule."""

    name = "CODE"
    envvar_list_splitter = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).strip().upper()


class Size(click.ParamType):
    """Bytes: ``512``, ``64KiB``, ``1.5GiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMG]iB|B)?", str(value).strip())
        size = int(Fraction(match[1]) * _UNITS[match[2] or "B"]) if match is not None else 0
        if size < 1:
            raise click.BadParameter(f"{value!r}: a size such as 512MiB was due", ctx, param)
        return size


class Seconds(click.FloatRange):
    """A number above zero.  (Of ``nan`` no comparison holds, so that a range lets it through.)"""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r}: a number of seconds was due", param, ctx)
        return number


class Prefetching(click.ParamType):
    """A policy, ``NAME`` or ``NAME:NUMBER`` → its name and its number."""

    name = "policy"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        from .model.plan.policy import deciding  # not needed by commands that plan nothing

        name, _, number = str(value).partition(":")
        policies = deciding()
        policy = policies.get(name)
        if policy is not None and not policy.argument and not number:
            return name, 0
        if policy is not None and policy.argument and number.isdecimal() and int(number) > 0:
            return name, int(number)
        known = ", ".join(p.spelled for p in policies.values())
        raise click.BadParameter(f"{value!r}: one of {known} was due", ctx, param)


def on_command_line(ctx: click.Context, *parameters: str) -> list[str]:
    """Those of the parameters that the command line gives, as options: ``--moe-cache``."""
    spelled = {p.name: max(p.opts, key=len) for p in ctx.command.params}
    return [
        spelled[name]
        for name in parameters
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """A click option that the environment can set too: ``--time-limit`` by
    ``SPLITPROOF_TIME_LIMIT``."""
    long = next(name for name in names if name.startswith("--")).split("/")[0]
    variable = "SPLITPROOF_" + long.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, envvar=variable, show_envvar=True, **settings)


def format_option(function: F) -> F:
    return option(
        "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True,
        help="What standard output carries: words, or one JSON document.",
    )(function)  # fmt: skip


def check_format_option(function: F) -> F:
    return option(
        "--format", "form", type=click.Choice(CHECK_FORMATS), default="text", show_default=True,
        help="What standard output carries: words, one JSON document, one SARIF 2.1.0 log, or "
        "annotations (workflow commands).",
    )(function)  # fmt: skip


def effort_option(function: F) -> F:
    return option(
        "--effort", type=click.Choice(list(EFFORTS)), default="normal", show_default=True,
        help="How long the solver tries each obligation; it does not depend on the clock.",
    )(function)  # fmt: skip


def quiet_option(function: F) -> F:
    return option("-q", "--quiet", is_flag=True, help="Only verdicts and findings, no progress.")(
        function
    )


def seed_option(function: F) -> F:
    return option(
        "--seed", type=click.IntRange(0), default=0, show_default=True,
        help="Where weights, inputs and ids come from that nobody gave.",
    )(function)  # fmt: skip


def time_limit_option(function: F) -> F:
    return option(
        "--time-limit", type=Seconds(), metavar="SECONDS",
        help="Stop the check of a file after this; what is open then is unknown (exit 3).",
    )(function)  # fmt: skip
