"""agl regrade as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, RunDir, StoreUrl

regrading = typer.Typer()


@regrading.command("regrade", rich_help_panel="Act on records")
def regrade(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|ROLLOUT", help="What is graded. Default: all rollouts of the store but replays."
        ),
    ] = None,
    *,
    grader: Annotated[
        str,
        typer.Option("--grader", metavar="TARGET", help="A function: package.module:name or FILE.py:name."),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A further parameter of it, as JSON or text; repeatable."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Keep the new rewards in the store, beside the old ones.")
    ] = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Grade recorded rollouts anew, without running an agent or asking a model; compare old and new rewards.

    \b
    For example:
      agl regrade --grader my_grader.py:strict
      agl regrade --grader my_grader.py:strict --set threshold=0.8 runs/2026-01-31-ppo
      agl regrade --grader my_grader.py:strict --write ro-4f1d7a90c2b35e68
    """
    from agl.cli import regrade as command

    command.main(
        ids or [],
        grader=grader,
        settings=setting or [],
        write=write,
        store_url=store_url,
        run_dir=run_dir,
        as_json=as_json,
    )
