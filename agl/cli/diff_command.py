"""agl diff as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, ConfigDir, RunDir, StoreUrl

comparing = typer.Typer()

_SIDE = "A run (folder or name), the id of resources or of a run, or a prompt's file."


@comparing.command("diff", rich_help_panel="Look at records")
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    second: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="OVERRIDES", help="For --evaluate: those of agl eval.")
    ] = None,
    *,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 where prompts, settings or resources differ.")
    ] = False,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Measure A against B now, as agl eval --against does.")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option("--repeats", "-k", help="With --evaluate: rollouts of each task.")
    ] = None,
    mode: Annotated[str | None, typer.Option(help="With --evaluate: test, val or train tasks.")] = None,
    limit: Annotated[int | None, typer.Option(help="With --evaluate: the first so many tasks.")] = None,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    config_dir: ConfigDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two runs, two versions of resources or two prompts.

    \b
    For example:
      agl diff runs/2026-01-31-apo runs/2026-02-01-apo
      agl diff prompts/first.txt runs/2026-01-31-apo/prompts/best/prompt.txt
      agl diff runs/2026-01-31-ppo runs/2026-02-01-ppo --evaluate --limit 50
    """
    from agl.cli import diff as command

    options = command.Options(
        first=first,
        second=second,
        overrides=overrides or [],
        exit_code=exit_code,
        evaluate=evaluate,
        repeats=repeats,
        mode=mode,
        limit=limit,
        store_url=store_url,
        run_dir=run_dir,
        config_dir=config_dir,
        as_json=as_json,
    )
    command.main(options)
