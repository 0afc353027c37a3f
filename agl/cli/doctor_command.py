"""agl doctor as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, ConfigDir, Overrides

doctor = typer.Typer()


@doctor.command("doctor", rich_help_panel="Begin")
def examine(
    overrides: Overrides = None,
    *,
    store_url: Annotated[
        str | None,
        typer.Option(
            "--store-url",
            metavar="URL",
            help="Look at the store that `agl store` serves there, too; its token is AGL_STORE_TOKEN.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="The longest time of one check, in seconds.")] = 120.0,
    as_json: AsJson = False,
    config_dir: ConfigDir = None,
) -> None:
    """Look whether everything is there: the machine and its packages; with a recipe also its data, agent and model.

    \b
    For example:
      agl doctor
      agl doctor +recipe=ppo_sql
      agl doctor +recipe=ppo_sql policy.path=Qwen/Qwen2.5-0.5B-Instruct
      agl doctor --store-url http://127.0.0.1:4747 --json
    """
    from agl.cli import doctor as command

    command.main(
        overrides or [], store_url=store_url, timeout_seconds=timeout, as_json=as_json, config_dir=config_dir
    )
