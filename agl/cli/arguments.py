"""Arguments and options that several commands take."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agl.cli.completion import complete_overrides, complete_runs
from agl.cli.run_folder import NEWEST
from agl.errors import ConfigError

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OVERRIDES",
        help="+recipe=NAME, GROUP=CHOICE, KEY=VALUE; --cfg shows the keys.",
        autocompletion=complete_overrides,
    ),
]
ConfigDir = Annotated[Path | None, typer.Option(help="A further folder of config groups and recipes.")]
Cfg = Annotated[bool, typer.Option("--cfg", help="Print the composed settings and exit.")]

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store-url",
        metavar="URL",
        help="The records are in the store that `agl store` serves there; its token is AGL_STORE_TOKEN.",
    ),
]
RunDir = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="RUN",
        help="A run: its folder, or its name under runs/. Default: the newest.",
        autocompletion=complete_runs,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def refuse_both(*, cfg: bool, as_json: bool) -> None:
    """Refuse ``--cfg`` with ``--json``.

    Raises:
        ConfigError: both are given.
    """
    if cfg and as_json:
        raise ConfigError("--cfg prints settings as YAML, and --json is for results: leave one out")


class OptionalResume(TyperCommand):
    """A command whose ``--resume`` may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a ``--resume`` that an option, an override or nothing follows the value ``newest``."""
        return super().parse_args(ctx, with_resume_value(args))


def with_resume_value(args: list[str]) -> list[str]:
    """Return the arguments with ``--resume`` completed to ``--resume newest`` where no run follows it."""
    completed: list[str] = []
    for argument, following in pairwise([*args, "--"]):
        completed.append(argument)
        if argument == "--resume" and (following.startswith(("-", "+", "~")) or "=" in following):
            completed.append(NEWEST)
    return completed
