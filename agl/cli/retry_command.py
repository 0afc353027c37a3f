"""agl retry as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, ConfigDir, RunDir, StoreUrl

retrying = typer.Typer()


@retrying.command("retry", rich_help_panel="Act on records")
def retry(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ROLLOUT",
            help="Ids of rollouts; with --here, overrides of the run's settings may follow.",
        ),
    ],
    *,
    here: Annotated[
        bool,
        typer.Option("--here", help="Execute them now, in this process, with the settings of their run."),
    ] = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    config_dir: ConfigDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask again for rollouts that failed or were cancelled; asked twice, they are enqueued once.

    \b
    For example:
      agl retry ro-4f1d7a90c2b35e68 --here
      agl retry ro-4f1d7a90c2b35e68 --here inference.timeout_seconds=120
      agl retry ro-4f1d7a90c2b35e68 --store-url http://127.0.0.1:4747
    """
    from agl.cli import retry as command

    command.main(ids, here=here, store_url=store_url, run_dir=run_dir, config_dir=config_dir, as_json=as_json)
