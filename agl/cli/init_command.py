"""agl init as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson
from agl.cli.starters import Starter

init = typer.Typer()


@init.command("init", rich_help_panel="Begin")
def begin(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of the recipe and its folder: letters, digits and _.")
    ],
    *,
    agent: Annotated[
        Starter, typer.Option(help="What the agent is written with; command is any program.")
    ] = Starter.OPENAI,
    as_json: AsJson = False,
) -> None:
    """Make a folder with a recipe that trains at once: agent, data, settings, a test and a README.

    \b
    For example:
      agl init tickets
      agl init tickets --agent langgraph
      agl init tickets --agent command
    """
    from agl.cli import init as command

    command.main(name, agent, as_json=as_json)
