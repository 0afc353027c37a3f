"""agl cancel as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, RunDir, StoreUrl

cancelling = typer.Typer()


@cancelling.command("cancel", rich_help_panel="Act on records")
def cancel(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ROLLOUT", help="Ids of rollouts.", show_default=False)
    ] = None,
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="All open rollouts of the run of this id.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a whole run's are cancelled.")
    ] = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Cancel rollouts that wait or run; those that have ended stay as they ended.

    \b
    For example:
      agl cancel ro-4f1d7a90c2b35e68
      agl cancel ro-4f1d7a90c2b35e68 --store-url http://127.0.0.1:4747
      agl cancel --run 2026-01-31-ppo --yes --store-url http://127.0.0.1:4747
    """
    from agl.cli import cancel as command

    command.main(ids or [], run=run, yes=yes, store_url=store_url, run_dir=run_dir, as_json=as_json)
